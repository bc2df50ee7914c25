"""Retired pods and records of them, for the tests of the retired reaper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from controller.records import PodKey, Record, RecordsUnavailable
from kube.pod import Pod
from tests.controller.pods import pod
from tests.controller.world import World
from webhook import stamps

NOT_READY = {"conditions": [{"type": "PodReadyToStartContainers", "status": "False"}]}
RETIRED_AT = "2026-01-01T00:00:00Z"


def retired(index: int = 1, state: str = "suspended", **more: Any) -> dict[str, Any]:
    """A Failed pod whose stamps say that it is retired; its owner is in no list of kinds."""
    annotations = {stamps.RETIRED: state, stamps.RETIRED_AT: RETIRED_AT}
    return pod(
        f"run-{index}",
        phase=more.pop("phase", "Failed"),
        index=None,
        owners=more.pop("owners", ()),
        annotations=annotations | more.pop("annotations", {}),
        **more,
    )


def replaced(index: int = 1, **more: Any) -> dict[str, Any]:
    """A Pending pod that was replaced before it had a sandbox."""
    return retired(
        index, "replaced", phase="Pending", containers={"engine": None}, status=NOT_READY, **more
    )


class ListedRecords:
    """Records in a list that the test changes; fails if `problem` is set."""

    claimed = False

    def __init__(self, *rows: Record) -> None:
        self.rows = list(rows)
        self.problem: str | None = None
        self.asked: list[list[PodKey]] = []

    async def look_up(self, pods: Sequence[Pod]) -> Mapping[PodKey, Sequence[Record]]:
        self.asked.append([pod.key for pod in pods])
        if self.problem:
            raise RecordsUnavailable(self.problem)
        found: dict[PodKey, list[Record]] = {}
        for row in self.rows:
            found.setdefault((row.namespace, row.pod_name), []).append(row)
        return found

    async def aclose(self) -> None:
        pass


def record(document: dict[str, Any], state: str = "suspended", *, active: bool = False) -> Record:
    meta = document["metadata"]
    return Record(
        meta["namespace"],
        meta["name"],
        meta["annotations"][stamps.INCARNATION],
        state,
        active,
    )


def passes(world: World, result: str) -> float:
    labels = {"loop": "retired", "result": result}
    return world.registry.get_sample_value("podstamp_reaper_pass_seconds_count", labels) or 0
