"""The one place that deletes: fresh reads, both preconditions, and every answer of the server."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from tests.clock import FakeClock
from tests.controller.fakeapi import pod_path, status
from tests.controller.pods import as_pod, dead, pod
from tests.controller.world import World

pytestmark = pytest.mark.anyio


@pytest.fixture
def world(clock: FakeClock) -> World:
    return World(clock)


def refuse_deletes(world: World, code: int, reason: str) -> None:
    world.api.on_call = lambda verb, path: status(code, reason) if verb == "DELETE" else None


async def test_every_delete_carries_uid_and_resource_version_and_no_grace_period(
    world: World,
) -> None:
    world.add(dead(1, version="77"))
    async with world.running(world.terminal()):
        pass
    [sent] = world.api.deletes
    assert sent["preconditions"] == {"uid": "uid-llm-web-1", "resourceVersion": "77"}
    assert "gracePeriodSeconds" not in sent


async def test_identity_changed_between_sight_and_delete_is_left_alone(world: World) -> None:
    world.add(dead(1))
    world.api.put(pod("web-1", uid="successor", index="1"))
    async with world.running(world.terminal()):
        assert world.api.pod_names() == {"web-1"}
    assert world.api.deletes == []
    assert world.count(outcome="superseded") == 1


async def test_a_successor_that_appears_after_the_fresh_read_is_saved_by_the_uid(
    world: World,
) -> None:
    world.add(dead(1))

    def swap(verb: str, path: str) -> httpx.Response | None:
        if verb == "DELETE":
            world.api.put(pod("web-1", uid="successor", version="99", index="1"))
        return None

    world.api.on_call = swap
    async with world.running(world.terminal()):
        assert world.api.pod_names() == {"web-1"}
    assert len(world.api.deletes) == 1
    assert world.count(outcome="superseded") == 1
    assert world.api.events == []


async def test_a_409_leads_to_another_read_and_the_new_version(world: World) -> None:
    world.add(dead(1, version="10"))

    def bump_once(verb: str, path: str) -> httpx.Response | None:
        if verb == "DELETE" and len(world.api.deletes) == 0:
            world.api.put(dead(1, version="20"))
        return None

    world.api.on_call = bump_once
    async with world.running(world.terminal()):
        assert world.api.pod_names() == set()
    versions = [sent["preconditions"]["resourceVersion"] for sent in world.api.deletes]
    assert versions == ["10", "20"]


async def test_a_pod_whose_version_never_rests_is_tried_a_bounded_number_of_times(
    world: World,
) -> None:
    world.add(dead(1, version="10"))
    versions = iter(range(100, 1000))

    def bump(verb: str, path: str) -> httpx.Response | None:
        if verb == "DELETE":
            world.api.put(dead(1, version=str(next(versions))))
        return None

    world.api.on_call = bump
    async with world.running(world.terminal()):
        assert len(world.api.deletes) == 4
        assert world.count(outcome="conflict") == 1
        world.api.on_call = lambda verb, path: None
        await world.clock.advance(2)
        assert world.api.pod_names() == set()


async def test_a_404_is_done_without_an_event(world: World) -> None:
    world.add(dead(1))
    refuse_deletes(world, 404, "NotFound")
    async with world.running(world.terminal()):
        await world.clock.advance(60)
    assert len(world.api.deletes) == 0
    assert world.count(outcome="gone") == 1
    assert world.api.events == []


async def test_a_failed_delete_writes_no_event_and_is_tried_again(world: World) -> None:
    world.add(dead(1))
    world.api.on_call = lambda verb, path: (
        status(500, "InternalError") if verb == "DELETE" else None
    )
    async with world.running(world.terminal()):
        await world.clock.advance(0.1)
        assert world.count(outcome="failed") == 1
        assert world.api.events == []
        world.api.on_call = lambda verb, path: None
        await world.clock.advance(5)
        assert world.api.pod_names() == set()
        assert "ReapedTerminal" in world.api.reasons()


@pytest.mark.parametrize("left", ["nothing", "a successor", "a pod that is terminating"])
async def test_a_delete_whose_answer_was_lost_is_told_if_it_went_through(
    world: World, left: str
) -> None:
    world.add(dead(1))

    def lose(verb: str, path: str) -> httpx.Response | None:
        if verb != "DELETE":
            return None
        del world.api.objects[path]
        if left == "a successor":
            world.api.put(pod("web-1", uid="successor", index="1"))
        elif left == "a pod that is terminating":
            world.api.put(dead(1, deleted=True, finalizers=("example.com/hold",)))
        raise httpx.ReadError("broken off")

    world.api.on_call = lose
    async with world.running(world.terminal()):
        pass
    assert world.count(outcome="deleted") == 1
    assert len(world.api.events) == 2


async def test_a_delete_that_did_not_arrive_is_not_told(world: World) -> None:
    world.add(dead(1))

    def lose(verb: str, path: str) -> httpx.Response | None:
        if verb == "DELETE":
            raise httpx.ReadError("broken off")
        return None

    world.api.on_call = lose
    async with world.running(world.terminal()):
        pass
    assert (world.count(outcome="deleted"), world.count(outcome="failed")) == (0, 1)
    assert world.api.events == []


async def test_a_loop_that_is_stopped_hears_the_answer_to_what_it_has_sent(world: World) -> None:
    world.add(dead(1))
    world.api.hang = lambda verb, path: verb == "DELETE"
    async with world.running(world.terminal()):
        await world.clock.settle()
        assert world.api.pod_names() == {"web-1"}
        asyncio.get_running_loop().call_later(0.05, world.api.released.set)
    assert world.api.pod_names() == set()
    assert world.count(outcome="deleted") == 1


async def test_failures_are_repeated_less_and_less_often(world: World) -> None:
    world.add(dead(1))
    world.api.on_call = lambda verb, path: (
        status(500, "InternalError") if verb == "DELETE" else None
    )
    async with world.running(world.terminal()):
        await world.clock.advance(600)
    assert 10 < world.count(outcome="failed") < 60


async def test_429_is_answered_by_waiting_as_long_as_it_says(world: World) -> None:
    world.add(dead(1))
    refusal = status(429, "TooManyRequests", retry_after=40, details={"retryAfterSeconds": 40})
    world.api.on_call = lambda verb, path: refusal if verb == "DELETE" else None
    async with world.running(world.terminal()):
        await world.clock.advance(0.1)
        world.api.on_call = lambda verb, path: None
        await world.clock.advance(30)
        assert world.api.pod_names() == {"web-1"}
        await world.clock.advance(15)
        assert world.api.pod_names() == set()


async def test_403_is_asked_again_but_not_at_once(world: World) -> None:
    # An API server that has just started forbids everything until it has read the roles.
    world.add(dead(1))
    refuse_deletes(world, 403, "Forbidden")
    async with world.running(world.terminal()):
        await world.clock.advance(4)
        assert len([call for call in world.api.calls if call[0] == "DELETE"]) == 1
        await world.clock.advance(5)
        assert len([call for call in world.api.calls if call[0] == "DELETE"]) == 2
    assert world.count(outcome="forbidden") == 2


async def test_a_store_that_turns_stale_during_the_read_stops_the_delete(world: World) -> None:
    world.add(dead(1))

    def age(verb: str, path: str) -> httpx.Response | None:
        world.fresh = verb != "GET"
        return None

    world.api.on_call = age
    async with world.running(world.terminal()):
        assert world.api.deletes == []
    assert world.count(outcome="stale-store") == 1


async def test_lost_leadership_stops_the_delete_at_the_last_moment(world: World) -> None:
    world.add(dead(1))

    def lose(verb: str, path: str) -> httpx.Response | None:
        world.leading = verb != "GET"
        return None

    world.api.on_call = lose
    async with world.running(world.terminal()):
        assert world.api.deletes == []
    assert world.count(outcome="not-leader") == 1


async def test_dry_run_verifies_reports_once_and_never_deletes(world: World) -> None:
    world.add(dead(1), dead(2))
    async with world.running(world.terminal(dry_run=True)):
        await world.clock.advance(1)
        world.add(dead(1, version="11"))
        await world.clock.advance(600)
    assert world.api.deletes == []
    assert ("GET", pod_path("llm", "web-1")) in world.api.calls
    assert sorted(world.api.reasons()) == ["WouldReapTerminal"] * 2
    assert world.count(outcome="would-reap", mode="dry-run") == 2
    assert world.count(mode="live") == 0


async def test_dry_run_reports_nothing_that_a_fresh_read_denies(world: World) -> None:
    world.add(dead(1))
    world.api.put(pod("web-1", index="1", version="11"))
    async with world.running(world.terminal(dry_run=True)):
        await world.clock.advance(1)
    assert world.api.events == []


async def test_a_hanging_api_server_delays_one_pod_and_not_the_others(world: World) -> None:
    world.add(dead(1), dead(2))
    world.api.hang = lambda verb, path: path.endswith("/web-1")
    async with world.running(world.terminal()):
        assert world.api.pod_names() == {"web-1"}
        world.api.released.set()
        await world.clock.advance(0)
        assert world.api.pod_names() == set()


async def test_a_pod_is_worked_on_once_at_a_time(world: World) -> None:
    world.add(dead(1))
    world.api.hang = lambda verb, path: verb == "DELETE"
    async with world.running(world.terminal()):
        for version in range(11, 20):
            world.pods.put(as_pod(dead(1, version=str(version))))
            await world.clock.advance(0.1)
        assert [verb for verb, _ in world.api.calls].count("DELETE") == 1
