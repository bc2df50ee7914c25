"""A clock that moves only when a test moves it.

Invariant: sleepers wake in the order of their due times, each at exactly its own time, and tasks
get to run between two of them.
"""

import asyncio
import heapq
import itertools
from datetime import UTC, datetime, timedelta

# Rounds of the event loop given to tasks after each step: enough for a chain of awaits through a
# client and an in-process transport.
_SETTLE_ROUNDS = 50


class FakeClock:
    """A `kube.clock.Clock`; wall and monotonic time move together unless `jump` moves the wall."""

    def __init__(self, start: datetime | None = None) -> None:
        self._wall = start or datetime(2026, 1, 1, tzinfo=UTC)
        self._monotonic = 1000.0
        self._order = itertools.count()
        self._heap: list[tuple[float, int, asyncio.Future[None]]] = []

    def now(self) -> datetime:
        return self._wall

    def monotonic(self) -> float:
        return self._monotonic

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._heap, (self._monotonic + seconds, next(self._order), future))
        await future

    @property
    def sleepers(self) -> int:
        """How many tasks wait for time to pass."""
        return sum(not future.done() for _, _, future in self._heap)

    @property
    def next_wake_s(self) -> float | None:
        """Seconds until the first sleeper is due; None if nobody sleeps."""
        self._drop_cancelled()
        return self._heap[0][0] - self._monotonic if self._heap else None

    def jump(self, seconds: float) -> None:
        """Move the wall alone, as an administrator or NTP would."""
        self._wall += timedelta(seconds=seconds)

    def set_forward(self, seconds: float) -> None:
        """Move the time without waking anybody, as a frozen process sees it; sleepers are late."""
        self._monotonic += seconds
        self._wall += timedelta(seconds=seconds)

    async def advance(self, seconds: float) -> None:
        """Let `seconds` pass: wake each sleeper at its time and let tasks run after each."""
        await self.settle()
        target = self._monotonic + seconds
        while True:
            self._drop_cancelled()
            if not self._heap or self._heap[0][0] > target:
                break
            due, _, future = heapq.heappop(self._heap)
            self._move_to(max(due, self._monotonic))
            future.set_result(None)
            await self.settle()
        self._move_to(max(target, self._monotonic))
        await self.settle()

    async def settle(self, rounds: int = _SETTLE_ROUNDS) -> None:
        """Let tasks run until they wait for something."""
        for _ in range(rounds):
            await asyncio.sleep(0)

    def _move_to(self, monotonic: float) -> None:
        self._wall += timedelta(seconds=monotonic - self._monotonic)
        self._monotonic = monotonic

    def _drop_cancelled(self) -> None:
        while self._heap and self._heap[0][2].done():
            heapq.heappop(self._heap)
