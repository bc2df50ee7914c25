"""The queue: when keys are due, in which order, and never twice at a time."""

from __future__ import annotations

import asyncio

import pytest

from controller.workqueue import WorkQueue
from tests.clock import FakeClock

pytestmark = pytest.mark.anyio


async def take(queue: WorkQueue[str]) -> list[str]:
    """All keys that are due now, each done at once."""
    found: list[str] = []
    while True:
        getting = asyncio.ensure_future(queue.get())
        for _ in range(5):
            await asyncio.sleep(0)
        if not getting.done():
            getting.cancel()
            return found
        found.append(getting.result())
        queue.done(found[-1])


async def test_keys_come_in_order_and_a_key_that_waits_comes_once(clock: FakeClock) -> None:
    queue: WorkQueue[str] = WorkQueue(clock)
    for key in ("a", "b", "a"):
        queue.add(key)
    assert await take(queue) == ["a", "b"]
    assert len(queue) == 0


async def test_keys_become_due_at_their_times_the_earliest_counts(clock: FakeClock) -> None:
    queue: WorkQueue[str] = WorkQueue(clock)
    running = asyncio.ensure_future(queue.run())
    queue.add_after("late", 30)
    queue.add_after("early", 10)
    queue.add_after("late", 50)
    await clock.advance(9)
    assert await take(queue) == []
    assert queue.due_in_s("early") == 1
    await clock.advance(1)
    assert await take(queue) == ["early"]
    queue.add_after("late", 5)
    await clock.advance(5)
    assert await take(queue) == ["late"]
    await clock.advance(100)
    assert await take(queue) == []
    running.cancel()


async def test_adding_now_overtakes_a_later_due_time(clock: FakeClock) -> None:
    queue: WorkQueue[str] = WorkQueue(clock)
    running = asyncio.ensure_future(queue.run())
    queue.add_after("a", 30)
    queue.add("a")
    assert await take(queue) == ["a"]
    await clock.advance(60)
    assert await take(queue) == []
    running.cancel()


async def test_a_key_added_while_it_is_worked_on_comes_again_afterwards(clock: FakeClock) -> None:
    queue: WorkQueue[str] = WorkQueue(clock)
    queue.add("a")
    assert await queue.get() == "a"
    queue.add("a")
    assert await take(queue) == []
    queue.done("a")
    assert await take(queue) == ["a"]
    assert await take(queue) == []
