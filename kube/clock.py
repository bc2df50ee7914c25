"""Time as a parameter: wall time for what people read, monotonic time for every decision.

Invariant: nothing in podstamp waits or reads the time other than through a `Clock`.
"""

import asyncio
import time
from datetime import UTC, datetime
from typing import Protocol


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
