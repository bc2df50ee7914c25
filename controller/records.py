"""Records of retirement: what says, outside the pod's status, that an execution is over.

A record counts only for the incarnation that it names; `match` picks the one that speaks of a pod,
and says why none does. Sources that fail raise `RecordsUnavailable`, never an empty answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from kube.errors import KubeError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kube.pod import Pod

PodKey = tuple[str, str]
"""Namespace and name."""


@dataclass(frozen=True, slots=True)
class Record:
    """One row: the state word of an execution; `active` means that it is not over."""

    namespace: str
    pod_name: str
    incarnation: str | None
    state: str
    active: bool


class Miss(StrEnum):
    """Why no record speaks of a pod."""

    NONE = "none"
    MISMATCH = "mismatch"
    AMBIGUOUS = "ambiguous"
    UNREADABLE = "unreadable"


class RecordsUnavailable(KubeError):
    """The records could not be read, so nothing is known of any pod."""


class RecordSource(Protocol):
    """Where records come from; `claimed` is true if pods say it of themselves (stamps)."""

    claimed: bool

    async def look_up(self, pods: Sequence[Pod]) -> Mapping[PodKey, Sequence[Record]]:
        """Every record of the pods' names, read now; RecordsUnavailable if any part failed."""

    async def aclose(self) -> None:
        """Close connections; look_up may open them again."""


def match(pod: Pod, rows: Iterable[Record], *, by_name: bool) -> Record | Miss:
    """The record about this incarnation of the pod's name.

    `by_name`: a row without an incarnation is taken for the pod that holds the name now. An active
    row outweighs an inactive one; rows that contradict each other in the state prove nothing.
    """
    own = pod.metadata.annotations.incarnation
    found: set[Record] = set()
    others = False
    for row in rows:
        if row.incarnation == own if row.incarnation else by_name:
            found.add(row)
        else:
            others = True
    if not found:
        return Miss.MISMATCH if others else Miss.NONE
    active = [row for row in found if row.active]
    if active:
        return active[0]
    first, *rest = found
    return first if all(row.state == first.state for row in rest) else Miss.AMBIGUOUS
