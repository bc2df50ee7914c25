"""Time as a parameter: wall time for what people read, monotonic time for every decision.

Invariant: nothing in podstamp waits or reads the time other than through a `Clock`.
"""

import asyncio
import time
from collections.abc import Coroutine
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Clock(Protocol):
    """What code that depends on time asks for."""

    def now(self) -> datetime:
        """Wall time, aware, in UTC. It may jump: never decide on it alone."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start; never goes back."""

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds`; zero or less lets other tasks run once."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))


async def within(clock: Clock, seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`; TimeoutError, and `work` cancelled, if `clock` says it took longer."""
    task = asyncio.ensure_future(work)
    timer = asyncio.ensure_future(clock.sleep(seconds))
    try:
        await asyncio.wait((task, timer), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise TimeoutError(f"not done within {seconds:g} s")
    finally:
        for unfinished in (task, timer):
            unfinished.cancel()
        await asyncio.wait((task, timer))
        if task.done() and not task.cancelled():
            # Its error, if it had one, is either raised above or too late to matter.
            task.exception()


def micro_time(instant: datetime) -> str:
    """`instant` as meta/v1 MicroTime writes it: RFC 3339 in UTC with six digits."""
    return instant.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
