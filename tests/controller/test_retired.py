"""The retired-pod reaper on a fake clock: threshold, fresh reads, budget, what clears clocks."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from controller.records import Record
from controller.verdict import Keep, Why
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
from tests.controller.retirement import ListedRecords, passes, record, replaced, retired
from tests.controller.world import World
from webhook import stamps

pytestmark = pytest.mark.anyio


@pytest.fixture
def world(clock: FakeClock) -> World:
    return World(clock)


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
    async with world.running(world.retired(source=source, hold_s=0, interval_s=15)):
        assert world.api.pod_names() == {"run-1"}
        await world.clock.advance(100)
    assert world.count(outcome="kept-active") == 1


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


async def test_a_role_that_may_not_list_policies_is_not_tried_all_the_time(world: World) -> None:
    world.add(retired(1))
    world.api.on_call = lambda verb, path: (
        status(403, "Forbidden") if path.endswith("policies") else None
    )
    async with world.running(world.retired(hold_s=0, interval_s=1)):
        await world.clock.advance(4)
        assert passes(world, "failed") == 1
        world.api.on_call = lambda verb, path: None
        await world.clock.advance(2)
        assert world.api.pod_names() == set()
