"""The retired-pod reaper on a fake clock: threshold, fresh reads, budget, what clears clocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import httpx
import pytest

from controller.records import PodKey, Record, RecordsUnavailable
from controller.verdict import Keep, Why
from kube.pod import Pod
from tests.clock import FakeClock
from tests.controller.fakeapi import status
from tests.controller.pods import (
    JOB,
    RUNNING,
    TERMINATED,
    as_pod,
    incarnation,
    namespace,
    owner,
    pod,
)
from tests.controller.world import World
from webhook import stamps

pytestmark = pytest.mark.anyio

NOT_READY = {"conditions": [{"type": "PodReadyToStartContainers", "status": "False"}]}
RETIRED_AT = "2026-01-01T00:00:00Z"


@pytest.fixture
def world(clock: FakeClock) -> World:
    return World(clock)


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


@pytest.mark.parametrize("make", [retired, replaced], ids=["terminal-retired", "never-started"])
async def test_it_deletes_after_the_threshold_and_not_before_with_both_preconditions(
    world: World, make: Any
) -> None:
    world.add(make(1, version="41"), make(2, version="42"))
    async with world.running(world.retired(hold_s=300, interval_s=15)):
        await world.clock.advance(299)
        assert world.api.deletes == []
        await world.clock.advance(16)
        assert world.api.pod_names() == set()
        await world.clock.advance(1)
    assert [sent["preconditions"] for sent in world.api.deletes] == [
        {"uid": "uid-llm-run-1", "resourceVersion": "41"},
        {"uid": "uid-llm-run-2", "resourceVersion": "42"},
    ]
    assert world.api.reasons() == ["ReapedRetired", "ReapedRetired"]
    latency = world.registry.get_sample_value
    assert latency("podstamp_reaper_latency_seconds_sum", {"loop": "retired"}) == 600


@pytest.mark.parametrize(
    "document",
    [
        retired(phase="Running"),
        retired(phase="Unknown"),
        retired(phase="Hibernated"),
        retired(deleted=True, finalizers=("example.com/hold",)),
        retired(owners=(owner(JOB),)),
        retired(managed=False),
        retired(containers={"engine": TERMINATED, "sidecar": RUNNING}),
        retired(containers={"engine": TERMINATED}, ephemeral={"debug": RUNNING}),
        replaced(annotations={stamps.RESTORE: "true"}),
        pod("run-1", phase="Failed"),
    ],
    ids=[
        "running",
        "unknown",
        "odd",
        "terminating",
        "job",
        "unmanaged",
        "container-running",
        "ephemeral-running",
        "restore",
        "not-retired",
    ],
)
async def test_what_is_not_over_stays(world: World, document: dict[str, Any]) -> None:
    world.add(document)
    async with world.running(world.retired(hold_s=30)):
        await world.clock.advance(600)
    assert world.api.deletes == []


async def test_a_restore_pod_that_ended_goes_as_well(world: World) -> None:
    world.add(retired(annotations={stamps.RESTORE: "true"}))
    async with world.running(world.retired(hold_s=0)):
        assert world.api.pod_names() == set()


async def test_one_pass_without_the_shape_restarts_that_pods_clock_and_no_other(
    world: World,
) -> None:
    one, two = retired(1), retired(2)
    source = ListedRecords(record(one), record(two))
    world.add(one, two)
    async with world.running(world.retired(source=source, hold_s=300, interval_s=15)):
        await world.clock.advance(200)
        source.rows = [record(one, active=True), record(two)]
        await world.clock.advance(15)
        source.rows = [record(one), record(two)]
        await world.clock.advance(110)
        assert world.api.pod_names() == {"run-1"}
        await world.clock.advance(180)
        assert world.api.pod_names() == {"run-1"}
        await world.clock.advance(30)
        assert world.api.pod_names() == set()


async def test_a_change_of_shape_restarts_the_clock(world: World) -> None:
    world.add(replaced(1))
    async with world.running(world.retired(hold_s=300, interval_s=15)):
        await world.clock.advance(200)
        world.add(retired(1, "replaced", version="11"))
        await world.clock.advance(250)
        assert world.api.deletes == []
        await world.clock.advance(80)
        assert world.api.pod_names() == set()


async def test_a_failed_look_up_clears_all_clocks(world: World) -> None:
    one, two = retired(1), retired(2)
    source = ListedRecords(record(one), record(two))
    world.add(one, two)
    async with world.running(world.retired(source=source, hold_s=300, interval_s=15)):
        await world.clock.advance(200)
        source.problem = "connection refused"
        await world.clock.advance(15)
        source.problem = None
        await world.clock.advance(290)
        assert world.api.deletes == []
        await world.clock.advance(40)
        assert world.api.pod_names() == set()


async def test_policies_that_cannot_be_read_clear_all_clocks(world: World) -> None:
    world.add(retired(1))
    async with world.running(world.retired(hold_s=300, interval_s=15)):
        await world.clock.advance(200)
        world.api.on_call = lambda verb, path: (
            status(500, "InternalError") if "policies" in path else None
        )
        await world.clock.advance(15)
        world.api.on_call = lambda verb, path: None
        await world.clock.advance(290)
        assert world.api.deletes == []


async def test_a_stale_store_clears_all_clocks(world: World) -> None:
    world.add(retired(1))
    async with world.running(world.retired(hold_s=300, interval_s=15)):
        await world.clock.advance(290)
        world.fresh = False
        await world.clock.advance(15)
        world.fresh = True
        await world.clock.advance(290)
        assert world.api.deletes == []
        await world.clock.advance(40)
        assert world.api.pod_names() == set()


async def test_a_new_term_starts_the_clocks_anew(world: World) -> None:
    world.add(retired(1))
    async with world.running(world.retired(hold_s=300)):
        await world.clock.advance(290)
    again = World(world.clock)
    again.add(retired(1))
    async with again.running(again.retired(hold_s=300)):
        await world.clock.advance(290)
        assert again.api.deletes == []


class SlowRecords(ListedRecords):
    """Takes `seconds` of the fake clock for each look-up."""

    def __init__(self, clock: FakeClock, *rows: Record) -> None:
        super().__init__(*rows)
        self.seconds = 0.0
        self._clock = clock

    async def look_up(self, pods: Sequence[Pod]) -> Mapping[PodKey, Sequence[Record]]:
        await self._clock.sleep(self.seconds)
        return await super().look_up(pods)


async def test_a_pass_cut_off_in_its_look_up_clears_all_clocks(world: World) -> None:
    one = retired(1)
    source = SlowRecords(world.clock, record(one))
    world.add(one)
    async with world.running(world.retired(source=source, hold_s=300, interval_s=15, pass_s=45)):
        await world.clock.advance(250)
        source.seconds = 60
        await world.clock.advance(15)
        source.seconds = 0
        await world.clock.advance(45 + 15 + 280)
        assert world.api.deletes == []
        await world.clock.advance(60)
        assert world.api.pod_names() == set()
    assert passes(world, "cut-off") == 1


async def test_a_pass_cut_off_in_its_deletes_clears_all_clocks(world: World) -> None:
    world.add(retired(1), retired(2))
    reaper = world.retired(hold_s=30, interval_s=15, pass_s=45)
    world.api.hang = lambda verb, path: verb == "DELETE" and path.endswith("/run-1")
    async with world.running(reaper):
        await world.clock.advance(31)
        assert world.api.pod_names() == {"run-1"}
        await world.clock.advance(45)
        assert passes(world, "cut-off") == 1
        assert reaper.candidates() == 0


def passes(world: World, result: str) -> float:
    labels = {"loop": "retired", "result": result}
    return world.registry.get_sample_value("podstamp_reaper_pass_seconds_count", labels) or 0


async def test_identity_changed_between_scan_and_delete_is_left_alone(world: World) -> None:
    world.add(retired(1))
    world.api.put(retired(1, uid="successor"))
    async with world.running(world.retired(hold_s=0)):
        await world.clock.advance(1)
    assert world.api.deletes == []
    assert world.count(loop="retired", outcome="superseded") >= 1


async def test_the_record_is_read_again_before_the_delete(world: World) -> None:
    one, two = retired(1), retired(2)
    source = ListedRecords(record(one), record(two))
    world.add(one, two)

    def reactivate(verb: str, path: str) -> httpx.Response | None:
        source.rows = [record(one, active=True), record(two)]
        return None

    world.api.on_call = reactivate
    async with world.running(world.retired(source=source, hold_s=0)):
        assert world.api.pod_names() == {"run-1"}
    assert world.count(outcome="kept-active") == 1


async def test_a_record_that_cannot_be_read_again_stops_the_pass_and_clears_the_clocks(
    world: World,
) -> None:
    one = retired(1)
    source = ListedRecords(record(one))
    world.add(one)

    def fail(verb: str, path: str) -> httpx.Response | None:
        source.problem = "gone away"
        return None

    world.api.on_call = fail
    reaper = world.retired(source=source, hold_s=0, interval_s=15)
    async with world.running(reaper):
        assert world.api.deletes == []
        assert reaper.candidates() == 0
    assert passes(world, "failed") == 1


async def test_a_record_of_another_incarnation_is_a_mismatch_skipped_and_counted(
    world: World,
) -> None:
    one, two = retired(1), retired(2)
    stale = Record("llm", "run-1", incarnation(999), "suspended", False)
    source = ListedRecords(stale, record(two))
    world.add(one, two)
    reaper = world.retired(source=source, hold_s=0, interval_s=15)
    async with world.running(reaper):
        await world.clock.advance(100)
        assert world.api.pod_names() == {"run-1"}
        verdict = reaper.verdict(as_pod(one))
        assert isinstance(verdict, Keep)
        assert verdict.why is Why.MISMATCH
    assert world.count(outcome="kept-mismatch") == 1


@pytest.mark.parametrize(("by_name", "left"), [(False, {"run-1"}), (True, set())])
async def test_a_row_without_incarnation_counts_only_by_the_configured_rule(
    world: World, by_name: bool, left: set[str]
) -> None:
    source = ListedRecords(Record("llm", "run-1", None, "suspended", False))
    world.add(retired(1))
    async with world.running(world.retired(source=source, hold_s=0, by_name=by_name)):
        assert world.api.pod_names() == left


async def test_the_121st_waits_for_the_rolling_minute(world: World) -> None:
    world.add(*(retired(i) for i in range(121)))
    async with world.running(world.retired(hold_s=0, interval_s=15)):
        assert len(world.api.pod_names()) == 1
        await world.clock.advance(58)
        assert len(world.api.pod_names()) == 1
        await world.clock.advance(18)
        assert world.api.pod_names() == set()
    assert passes(world, "cut-off") == 0


async def test_121_retired_pods_do_not_keep_a_terminal_one_waiting(world: World) -> None:
    world.add(*(retired(i) for i in range(121)))
    retired_loop = world.retired(hold_s=0, interval_s=15)
    other = World(world.clock)  # Its own budget: one is made for each loop.
    world.budget = other.budget
    async with world.running(retired_loop, world.terminal()):
        assert len(world.api.pod_names()) == 1
        world.add(pod("web-7", phase="Failed", index="7"))
        await world.clock.advance(0)
        assert len(world.api.pod_names()) == 1
        assert "web-7" not in world.api.pod_names()


async def test_dry_run_verifies_but_never_deletes_and_reports_once(world: World) -> None:
    world.add(retired(1), retired(2))
    world.api.put(retired(2, phase="Running", version="11"))
    async with world.running(world.retired(dry_run=True, hold_s=30, interval_s=15)):
        await world.clock.advance(600)
    assert world.api.deletes == []
    assert world.api.reasons() == ["WouldReapRetired"]
    assert world.api.events[0]["regarding"]["name"] == "run-1"
    assert world.count(outcome="would-reap", mode="dry-run") == 1


async def test_dry_run_reports_a_successor_of_the_same_name_anew(world: World) -> None:
    world.add(retired(1, uid="first"))
    async with world.running(world.retired(dry_run=True, hold_s=0, interval_s=15)):
        await world.clock.advance(1)
        world.add(retired(1, uid="second"))
        await world.clock.advance(16)
    assert world.api.reasons() == ["WouldReapRetired"] * 2


@pytest.mark.parametrize("missing", ["policy", "binding", "deny"])
async def test_a_retirement_by_stamp_needs_the_policies_that_guard_it(
    world: World, missing: str
) -> None:
    world.add(retired(1))
    if missing == "policy":
        world.api.remove_policy("podstamp-status")
    elif missing == "binding":
        bindings = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
        del world.api.objects[f"{bindings}/podstamp-status"]
    else:
        world.api.add_policy("podstamp-status", actions=("Warn", "Audit"))
    reaper = world.retired(hold_s=0, interval_s=15)
    async with world.running(reaper):
        await world.clock.advance(60)
        assert world.api.deletes == []
        verdict = reaper.verdict(as_pod(retired(1)))
        assert isinstance(verdict, Keep)
        assert "podstamp-status" in verdict.reason
        world.api.add_policy("podstamp-status")
        await world.clock.advance(16)
        assert world.api.pod_names() == set()


async def test_a_retirement_by_record_needs_no_policies(world: World) -> None:
    one = retired(1)
    world.add(one)
    world.api.remove_policy("podstamp-status")
    source = ListedRecords(record(one))
    async with world.running(world.retired(source=source, hold_s=0)):
        assert world.api.pod_names() == set()


@pytest.mark.parametrize("value", [None, "yesterday"], ids=["absent", "unreadable"])
async def test_a_retirement_by_stamp_needs_its_time(world: World, value: str | None) -> None:
    document = retired(1)
    annotations = document["metadata"]["annotations"]
    if value is None:
        del annotations[stamps.RETIRED_AT]
    else:
        annotations[stamps.RETIRED_AT] = value
    world.add(document)
    async with world.running(world.retired(hold_s=0)):
        await world.clock.advance(60)
    assert world.api.deletes == []


async def test_a_namespace_not_enabled_keeps_retired_pods(world: World) -> None:
    world.add(retired(1))
    world.namespaces.replace((namespace(enabled=False),))
    async with world.running(world.retired(hold_s=0)):
        await world.clock.advance(60)
    assert world.api.deletes == []


async def test_only_pods_that_could_go_are_looked_up(world: World) -> None:
    world.add(retired(1), retired(2, phase="Running"), retired(3, deleted=True), pod("web-0"))
    source = ListedRecords()
    async with world.running(world.retired(source=source, hold_s=0)):
        assert source.asked == [[("llm", "run-1")]]


async def test_lost_leadership_in_a_pass_deletes_nothing_more(world: World) -> None:
    world.add(*(retired(i) for i in range(20)))

    def lose(verb: str, path: str) -> httpx.Response | None:
        world.leading = world.leading and len(world.api.deletes) < 5
        return None

    world.api.on_call = lose
    async with world.running(world.retired(hold_s=0, interval_s=15)):
        await world.clock.advance(60)
    assert 5 <= len(world.api.deletes) <= 8
