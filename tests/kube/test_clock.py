import asyncio
from datetime import UTC, datetime, timedelta, timezone

import pytest

from kube.clock import SystemClock, micro_time, within
from tests.clock import FakeClock

pytestmark = pytest.mark.anyio


async def test_the_system_clock_is_aware_and_its_sleep_lets_others_run() -> None:
    clock = SystemClock()
    assert clock.now().tzinfo is UTC
    before = clock.monotonic()
    ran = False

    async def other() -> None:
        nonlocal ran
        ran = True

    task = asyncio.create_task(other())
    await clock.sleep(-1)
    assert ran
    await task
    assert clock.monotonic() >= before


@pytest.mark.parametrize(
    ("instant", "text"),
    [
        (datetime(2026, 1, 2, 3, 4, 5, 60, UTC), "2026-01-02T03:04:05.000060Z"),
        (
            datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone(timedelta(hours=2))),
            "2026-01-02T01:04:05.000000Z",
        ),
    ],
)
async def test_micro_time_is_utc_with_six_digits(instant: datetime, text: str) -> None:
    assert micro_time(instant) == text


async def test_work_that_is_done_in_time_gives_its_result() -> None:
    clock = FakeClock()

    async def work() -> int:
        await clock.sleep(1)
        return 7

    task = asyncio.create_task(within(clock, 2, work()))
    await clock.advance(1)
    assert await task == 7
    assert clock.sleepers == 0


async def test_work_that_takes_too_long_is_cancelled() -> None:
    clock = FakeClock()
    cancelled = False

    async def work() -> None:
        nonlocal cancelled
        try:
            await clock.sleep(60)
        except asyncio.CancelledError:
            cancelled = True
            raise

    task = asyncio.create_task(within(clock, 2, work()))
    await clock.advance(1.9)
    assert not task.done()
    await clock.advance(0.1)
    with pytest.raises(TimeoutError, match="2 s"):
        await task
    assert cancelled
    assert clock.sleepers == 0


async def test_an_error_of_the_work_passes_through() -> None:
    async def work() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        await within(FakeClock(), 2, work())


async def test_who_is_cancelled_cancels_the_work() -> None:
    clock = FakeClock()
    task = asyncio.create_task(within(clock, 2, clock.sleep(60)))
    await clock.settle()
    assert clock.sleepers == 2
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert clock.sleepers == 0


async def test_sleepers_wake_in_order_each_at_its_own_time() -> None:
    clock = FakeClock()
    start = clock.monotonic()
    woken: list[tuple[str, float]] = []

    async def sleeper(name: str, *naps: float) -> None:
        for nap in naps:
            await clock.sleep(nap)
            woken.append((name, clock.monotonic() - start))

    tasks = [asyncio.create_task(sleeper("a", 3, 1)), asyncio.create_task(sleeper("b", 1, 2.5))]
    await clock.advance(3)
    assert woken == [("b", 1), ("a", 3)]
    assert clock.next_wake_s == 0.5
    await clock.advance(2)
    assert woken[2:] == [("b", 3.5), ("a", 4)]
    await asyncio.gather(*tasks)


async def test_wall_and_monotonic_time_move_apart_only_when_told() -> None:
    clock = FakeClock()
    wall, monotonic = clock.now(), clock.monotonic()
    await clock.advance(5)
    assert (clock.now() - wall, clock.monotonic() - monotonic) == (timedelta(seconds=5), 5)
    clock.jump(-3600)
    assert (clock.now() - wall, clock.monotonic() - monotonic) == (timedelta(seconds=-3595), 5)


async def test_a_frozen_process_wakes_late() -> None:
    clock = FakeClock()
    task = asyncio.create_task(clock.sleep(1))
    await clock.settle()
    clock.set_forward(100)
    assert not task.done()
    await clock.advance(0)
    await task
