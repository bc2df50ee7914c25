"""The terminal reaper on a fake clock: what it deletes, what it waits for, what it leaves alone."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from controller.backoff import BackoffPolicy
from controller.verdict import Reap
from kube.pod import Pod
from tests.clock import FakeClock
from tests.controller.fakeapi import status
from tests.controller.pods import (
    BORN,
    JOB,
    RUNNING,
    TERMINATED,
    WAITING,
    dead,
    incarnation,
    namespace,
    owner,
    pod,
)
from tests.controller.world import World

pytestmark = pytest.mark.anyio


@pytest.fixture
def world(clock: FakeClock) -> World:
    return World(clock)


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
async def test_two_pods_that_end_are_deleted_at_once_with_an_event_each(
    world: World, phase: str
) -> None:
    world.add(pod("web-1", index="1"), pod("web-2", index="2"), pod("web-3", index="3"))
    async with world.running(world.terminal()):
        assert world.api.deletes == []
        world.add(dead(1, phase, version="11"), dead(2, phase, version="12"))
        await world.clock.advance(0)
        assert world.api.pod_names() == {"web-3"}
        await world.clock.advance(1)
    assert sorted(world.api.reasons("Pod")) == ["ReapedTerminal"] * 2
    assert sorted(world.api.reasons("PodSet")) == ["ReapedTerminal"] * 2
    named = {event["regarding"]["name"] for event in world.api.events}
    assert named == {"web-1", "web-2", "web"}
    assert world.count(loop="terminal", shape="terminal", outcome="deleted", mode="live") == 2


async def test_pods_that_ended_before_the_term_are_deleted_too(world: World) -> None:
    world.add(dead(1), dead(2, "Succeeded"))
    async with world.running(world.terminal()):
        assert world.api.pod_names() == set()


async def test_the_note_says_incarnation_index_shape_and_why(world: World) -> None:
    world.add(dead(1, status={"reason": "Evicted"}))
    async with world.running(world.terminal()):
        await world.clock.advance(1)
    note = world.api.events[0]["note"]
    for part in (incarnation_of(dead(1)), "index 1 of PodSet web", "shape terminal", "Evicted"):
        assert part in note


def incarnation_of(document: dict[str, Any]) -> str:
    found: str = document["metadata"]["annotations"]["podstamp.dev/incarnation"]
    return found


@pytest.mark.parametrize(
    "document",
    [
        pod(phase="Running"),
        pod(phase="Pending"),
        pod(phase="Unknown"),
        pod(phase="Hibernated"),
        pod(phase="Failed", deleted=True, finalizers=("example.com/hold",)),
        pod(phase="Failed", owners=(owner(JOB),)),
        pod(phase="Failed", owners=()),
        pod(phase="Failed", managed=False),
        pod(phase="Failed", stamp=None),
    ],
    ids=["running", "pending", "unknown", "odd", "terminating", "job", "bare", "unmanaged", "bare"],
)
async def test_what_is_not_over_is_neither_deleted_nor_even_read(
    world: World, document: dict[str, Any]
) -> None:
    world.add(document)
    async with world.running(world.terminal()):
        await world.clock.advance(600)
    assert world.api.deletes == []
    assert world.api.calls == []


async def test_a_pod_held_by_a_finalizer_does_not_keep_the_next_index_waiting(
    world: World,
) -> None:
    world.add(dead(1, deleted=True, finalizers=("example.com/hold",)), dead(2))
    async with world.running(world.terminal()):
        assert world.api.pod_names() == {"web-1"}


async def test_a_hundred_pods_held_by_finalizers_use_no_budget(world: World) -> None:
    held = [dead(i, deleted=True, finalizers=("example.com/hold",)) for i in range(100)]
    world.add(*held, dead(500))
    async with world.running(world.terminal()):
        assert "web-500" not in world.api.pod_names()
    assert len(world.api.deletes) == 1


async def test_a_running_container_waits_until_the_node_is_gone(world: World) -> None:
    world.add(dead(1, containers={"engine": TERMINATED, "sidecar": RUNNING}))
    world.api.add_node("node-1")
    async with world.running(world.terminal(node_check_s=10)):
        await world.clock.advance(25)
        assert world.api.deletes == []
        del world.api.objects["/api/v1/nodes/node-1"]
        await world.clock.advance(10)
        assert world.api.pod_names() == set()


@pytest.mark.parametrize(
    ("taint", "left"),
    [
        ("node.kubernetes.io/out-of-service", set()),
        ("node.kubernetes.io/unreachable", {"web-1"}),
        ("node.kubernetes.io/not-ready", {"web-1"}),
    ],
)
async def test_only_out_of_service_counts_of_a_nodes_taints(
    world: World, taint: str, left: set[str]
) -> None:
    world.add(dead(1, containers={"engine": RUNNING}))
    world.api.add_node("node-1", taints=("example.com/other", taint))
    async with world.running(world.terminal()):
        assert world.api.pod_names() == left


async def test_a_role_that_may_not_read_nodes_proves_nothing_and_is_not_tried_all_the_time(
    world: World,
) -> None:
    world.add(dead(1, containers={"engine": RUNNING}))
    world.api.on_call = lambda verb, path: status(403, "Forbidden") if "/nodes/" in path else None
    async with world.running(world.terminal(node_check_s=1)):
        await world.clock.advance(4)
        assert len([path for _, path in world.api.calls if "/nodes/" in path]) == 1
        world.api.on_call = lambda verb, path: None
        await world.clock.advance(6)
        assert world.api.pod_names() == set()


async def test_a_container_that_stops_ends_the_wait(world: World) -> None:
    world.add(dead(1, containers={"engine": RUNNING}))
    world.api.add_node("node-1")
    async with world.running(world.terminal()):
        assert world.api.pod_names() == {"web-1"}
        world.add(dead(1, version="11", containers={"engine": TERMINATED}))
        await world.clock.advance(0)
        assert world.api.pod_names() == set()


@pytest.mark.parametrize(
    "parts",
    [
        {"containers": {"engine": None}},
        {"containers": {"engine": WAITING}, "init": {"load": TERMINATED}},
        {"containers": {"engine": {}}},
    ],
    ids=["refused-by-the-kubelet", "failed-init", "no-state"],
)
async def test_a_pod_whose_containers_never_started_does_not_wait(
    world: World, parts: dict[str, Any]
) -> None:
    world.add(dead(1, **parts))
    async with world.running(world.terminal()):
        assert world.api.pod_names() == set()
    assert not [path for _, path in world.api.calls if "/nodes/" in path]


async def test_a_hold_time_is_waited_out_and_a_flip_of_phase_does_not_restart_it(
    world: World,
) -> None:
    world.add(dead(1, "Failed"))
    async with world.running(world.terminal(hold_s=60)):
        await world.clock.advance(40)
        world.add(dead(1, "Succeeded", version="11"))
        await world.clock.advance(19)
        assert world.api.deletes == []
        await world.clock.advance(2)
        assert world.api.pod_names() == set()


async def test_a_cold_store_restarts_the_hold_time(world: World) -> None:
    world.add(dead(1))
    reaper = world.terminal(hold_s=60)
    async with world.running(reaper):
        await world.clock.advance(59)
        world.fresh = False
        await world.clock.advance(5)
        world.fresh = True
        await world.clock.advance(30)
        assert world.api.deletes == []
        await world.clock.advance(40)
        assert world.api.pod_names() == set()


async def test_a_stale_store_stops_the_deletes_until_it_is_current_again(world: World) -> None:
    world.fresh = False
    world.add(dead(1))
    async with world.running(world.terminal()):
        await world.clock.advance(600)
        assert world.api.calls == []
        world.fresh = True
        await world.clock.advance(2)
        assert world.api.pod_names() == set()


async def test_the_121st_pod_of_a_minute_waits_and_then_goes(world: World) -> None:
    world.add(*(dead(i) for i in range(121)))
    async with world.running(world.terminal()):
        assert len(world.api.pod_names()) == 1
        await world.clock.advance(58)
        assert len(world.api.pod_names()) == 1
        await world.clock.advance(3)
        assert world.api.pod_names() == set()
    assert len(world.api.deletes) == 121


async def test_a_replacement_that_dies_at_once_backs_off_and_the_neighbour_does_not(
    world: World,
) -> None:
    async with world.running(world.terminal(backoff=BackoffPolicy(1.0, 300.0, 10.0))):
        delays = []
        for life in range(6):
            world.add(dead(1, uid=f"life-{life}", born=BORN + timedelta(minutes=life)))
            began = world.clock.monotonic()
            while "web-1" in world.api.pod_names():
                await world.clock.advance(0.5)
            delays.append(world.clock.monotonic() - began)
            world.sync()
        assert delays == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0]
        told = world.registry.get_sample_value
        assert told("podstamp_sightings_total", {"kind": "backing-off"}) == 5
        world.add(dead(2))
        await world.clock.advance(0)
        assert "web-2" not in world.api.pod_names()


async def test_a_replacement_that_lived_is_deleted_at_once(world: World) -> None:
    async with world.running(world.terminal(backoff=BackoffPolicy(60.0, 300.0, 10.0))):
        world.add(dead(1, uid="first"))
        await world.clock.advance(0)
        world.sync()
        await world.clock.advance(11)
        world.add(dead(1, uid="second"))
        await world.clock.advance(0)
        assert world.api.pod_names() == set()


@pytest.mark.parametrize("how", ["store", "fresh read"])
async def test_a_namespace_that_is_not_enabled_any_more_keeps_its_pods(
    world: World, how: str
) -> None:
    world.add(dead(1))
    world.api.add_namespace("llm", enabled=False)
    if how == "store":
        world.namespaces.replace((namespace(enabled=False),))
    async with world.running(world.terminal()):
        await world.clock.advance(60)
    assert world.api.deletes == []
    assert world.count(outcome="kept-unverified") >= 1


async def test_enabling_the_namespace_sets_its_pods_free(world: World) -> None:
    world.namespaces.replace((namespace(enabled=False),))
    world.add(dead(1))
    async with world.running(world.terminal()):
        assert world.api.pod_names() == {"web-1"}
        world.namespaces.replace((namespace(enabled=True),))
        await world.clock.advance(0)
        assert world.api.pod_names() == set()


async def test_two_pods_of_one_incarnation_are_both_kept(world: World) -> None:
    stamp = incarnation()
    world.add(dead(1, stamp=stamp), dead(2, stamp=stamp))
    async with world.running(world.terminal()):
        await world.clock.advance(60)
        assert world.api.pod_names() == {"web-1", "web-2"}


async def test_an_incarnation_rewritten_after_the_first_sight_keeps_the_pod(world: World) -> None:
    world.add(pod("web-1", index="1", stamp=incarnation(1)))
    async with world.running(world.terminal()):
        world.add(dead(1, stamp=incarnation(2), version="11"))
        await world.clock.advance(60)
    assert world.api.deletes == []


async def test_latency_is_measured_from_the_sight_to_the_removal(world: World) -> None:
    world.add(dead(1))
    async with world.running(world.terminal()):
        await world.clock.advance(3)
        assert latency(world) == (0, 0)
        world.sync()
    assert latency(world) == (1, 3)


def latency(world: World) -> tuple[float, float]:
    value = world.registry.get_sample_value
    labels = {"loop": "terminal"}
    return (
        value("podstamp_reaper_latency_seconds_count", labels) or 0,
        value("podstamp_reaper_latency_seconds_sum", labels) or 0,
    )


async def test_candidates_are_pods_judged_as_over_that_are_still_there(world: World) -> None:
    world.add(dead(1), dead(2), pod("web-3", index="3"))
    reaper = world.terminal(dry_run=True)
    async with world.running(reaper):
        assert reaper.candidates() == 2
        assert isinstance(reaper.verdict(stored(world, "web-1")), Reap)
        assert reaper.remaining_s(stored(world, "web-1")) == 0
        assert reaper.remaining_s(stored(world, "web-3")) is None
        world.api.objects.clear()
        world.sync()
        assert reaper.candidates() == 0


def stored(world: World, name: str) -> Pod:
    found = world.pods.get("llm", name)
    assert found is not None
    return found
