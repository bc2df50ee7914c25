"""Loops that hang at work are told from loops that wait for work."""

from __future__ import annotations

import asyncio

import pytest

from controller.watchdog import LIMIT_S, LoopHung, Watchdog
from tests.clock import FakeClock

pytestmark = pytest.mark.anyio


def test_a_loop_that_waits_for_work_is_never_overdue(clock: FakeClock) -> None:
    dog = Watchdog(clock.monotonic)
    with dog.working("reaper"):
        pass
    clock.set_forward(10 * LIMIT_S)
    assert dog.overdue() == []


def test_a_loop_that_goes_on_is_not_overdue_and_a_silent_one_is(clock: FakeClock) -> None:
    dog = Watchdog(clock.monotonic)
    dog.beat("steady")
    dog.beat("silent")
    clock.set_forward(LIMIT_S)
    dog.beat("steady")
    clock.set_forward(1)
    assert dog.overdue() == ["silent"]
    dog.end("silent")
    assert dog.overdue() == []


async def test_the_watch_ends_with_the_name_of_the_loop(clock: FakeClock) -> None:
    dog = Watchdog(clock.monotonic)
    watching = asyncio.ensure_future(dog.run(clock))
    with dog.working("retired"):
        await clock.advance(LIMIT_S)
        assert not watching.done()
        await clock.advance(10)
    with pytest.raises(LoopHung, match="retired hung for more than 120 s"):
        await watching


async def test_work_that_raises_is_over(clock: FakeClock) -> None:
    dog = Watchdog(clock.monotonic)
    with pytest.raises(ValueError, match="broken"), dog.working("retired"):
        raise ValueError("broken")
    clock.set_forward(2 * LIMIT_S)
    assert dog.overdue() == []
