"""What starts the retired reaper's clocks anew, for one pod or for all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import httpx
import pytest

from controller.records import PodKey, Record
from kube.pod import Pod
from tests.clock import FakeClock
from tests.controller.fakeapi import status
from tests.controller.retirement import ListedRecords, passes, record, replaced, retired
from tests.controller.world import World

pytestmark = pytest.mark.anyio


@pytest.fixture
def world(clock: FakeClock) -> World:
    return World(clock)


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


async def test_a_pass_cut_off_in_its_deletes_clears_all_clocks(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controller.deleting.LAST_ANSWER_S", 0.0)
    world.add(retired(1), retired(2))
    reaper = world.retired(hold_s=30, interval_s=15, pass_s=45)
    world.api.hang = lambda verb, path: verb == "DELETE" and path.endswith("/run-1")
    async with world.running(reaper):
        await world.clock.advance(31)
        assert world.api.pod_names() == {"run-1"}
        await world.clock.advance(45)
        assert passes(world, "cut-off") == 1
        assert reaper.candidates() == 0


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
