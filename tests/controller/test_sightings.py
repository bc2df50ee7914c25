"""Odd pods are told of once, and never touched."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from controller.sightings import Sightings, live_slot
from tests.clock import FakeClock
from tests.controller.pods import JOB, PODSET, as_pod, owner, pod
from tests.controller.world import World

pytestmark = pytest.mark.anyio


@pytest.fixture
def world(clock: FakeClock) -> World:
    return World(clock)


def twin(name: str, index: str = "1", **more: Any) -> dict[str, Any]:
    return pod(name, index=index, **more)


async def written(world: World) -> list[str]:
    """Names of the pods that have an IndexConflict event, sorted."""
    task = asyncio.ensure_future(world.recorder.run())
    await world.clock.advance(1)
    task.cancel()
    assert {event["type"] for event in world.api.events} <= {"Warning"}
    assert set(world.api.reasons()) <= {"IndexConflict"}
    return sorted(event["regarding"]["name"] for event in world.api.events)


async def test_two_live_pods_of_one_index_get_an_event_each_and_only_one(world: World) -> None:
    sightings = Sightings(world.pods, world.reports, world.metrics)
    sightings.start()
    world.add(twin("web-1", uid="a"), twin("web-one", uid="b"), twin("web-2", index="2"))
    for version in ("11", "12"):
        world.add(
            twin("web-1", uid="a", version=version), twin("web-one", uid="b", version=version)
        )
    assert await written(world) == ["web-1", "web-one"]
    note = world.api.events[0]["note"]
    assert "index 1 of PodSet web" in note
    assert "podstamp deletes neither" in note
    assert sightings_count(world, "index-conflict") == 2
    sightings.stop()


async def test_pods_that_were_there_before_the_term_are_seen_too(world: World) -> None:
    world.add(twin("web-1", uid="a"), twin("web-one", uid="b"))
    Sightings(world.pods, world.reports, world.metrics).start()
    assert await written(world) == ["web-1", "web-one"]


async def test_a_third_one_conflicts_with_both_and_says_which(world: World) -> None:
    Sightings(world.pods, world.reports, world.metrics).start()
    world.add(*(twin(f"web-{name}", uid=name) for name in "abc"))
    assert await written(world) == ["web-a", "web-a", "web-b", "web-b", "web-c", "web-c"]


@pytest.mark.parametrize("end", [{"phase": "Failed"}, {"deleted": True}, None])
async def test_a_successor_in_a_slot_that_was_left_is_no_conflict(
    world: World, end: dict[str, Any] | None
) -> None:
    Sightings(world.pods, world.reports, world.metrics).start()
    world.add(twin("web-1", uid="a"))
    if end is None:
        world.pods.remove("a")
    else:
        world.add(twin("web-1", uid="a", version="11", **end))
    world.add(twin("web-one", uid="b"))
    assert await written(world) == []


@pytest.mark.parametrize(
    "other",
    [
        twin("web-1-old", uid="b", phase="Failed"),
        twin("web-1-old", uid="b", phase="Succeeded"),
        twin("web-1-old", uid="b", deleted=True, finalizers=("example.com/x",)),
        twin("web-1-old", uid="b", owners=(owner(PODSET, "other"),)),
        twin("web-1-old", uid="b", owners=()),
        twin("web-1-old", uid="b", namespace="elsewhere"),
        twin("web-1-old", uid="b", index="2"),
    ],
    ids=["failed", "succeeded", "terminating", "other-owner", "bare", "namespace", "index"],
)
async def test_what_does_not_hold_the_same_slot_is_no_conflict(
    world: World, other: dict[str, Any]
) -> None:
    Sightings(world.pods, world.reports, world.metrics).start()
    world.add(twin("web-1", uid="a"), other)
    assert await written(world) == []


async def test_an_unknown_phase_and_held_pods_are_counted_once_each(world: World) -> None:
    Sightings(world.pods, world.reports, world.metrics).start()
    for version in ("1", "2", "3"):
        world.add(
            pod("odd", phase="Hibernated", version=version, owners=(owner(JOB),)),
            pod("held", phase="Failed", deleted=True, finalizers=("x/y",), version=version),
            pod("fine", version=version),
        )
    assert sightings_count(world, "unknown-phase") == 1
    assert sightings_count(world, "held-by-finalizers") == 1


async def test_after_stop_nothing_is_told(world: World) -> None:
    sightings = Sightings(world.pods, world.reports, world.metrics)
    sightings.start()
    sightings.stop()
    world.add(pod("odd", phase="Hibernated"))
    assert sightings_count(world, "unknown-phase") == 0


def sightings_count(world: World, kind: str) -> float:
    return world.registry.get_sample_value("podstamp_sightings_total", {"kind": kind}) or 0


def test_a_slot_is_namespace_controller_and_index() -> None:
    assert live_slot(as_pod(pod(index="3"))) == ("llm", "PodSet-web", "3")
    assert live_slot(as_pod(pod(index=None))) is None
