"""Records of retirement from the pods' own stamps: `retired` says that this incarnation is over.

A claim of the pod about itself; `trust` decides whether it is believed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller.records import PodKey, Record

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kube.pod import Pod


class StampRecords:
    """Reads nothing: the pod that is given carries its record."""

    claimed = True

    async def look_up(self, pods: Sequence[Pod]) -> Mapping[PodKey, Sequence[Record]]:
        return {pod.key: (record,) for pod in pods if (record := record_of(pod)) is not None}

    async def aclose(self) -> None:
        """Nothing is open."""


def record_of(pod: Pod) -> Record | None:
    """What the pod's stamps say; None if it is not retired."""
    annotations = pod.metadata.annotations
    if not annotations.retired:
        return None
    return Record(
        namespace=pod.metadata.namespace,
        pod_name=pod.metadata.name,
        incarnation=annotations.incarnation,
        state=annotations.retired,
        active=False,
    )
