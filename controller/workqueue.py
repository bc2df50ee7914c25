"""A queue of keys that are due now or later; work on one key is never done twice at a time.

A key added while it is worked on is worked on once more afterwards. The earliest due time of a key
wins.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable

    from kube.clock import Clock

K = TypeVar("K", bound="Hashable")


class WorkQueue(Generic[K]):
    """One event loop's queue; `run` must run for keys that are due later."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ready: deque[K] = deque()
        self._queued: set[K] = set()
        self._working: set[K] = set()
        self._again: set[K] = set()
        self._due: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._count = 0
        self._arrived = asyncio.Event()
        self._earlier = asyncio.Event()

    def __len__(self) -> int:
        return len(self._queued) + len(self._working) + len(self._due)

    def add(self, key: K) -> None:
        """The key is due now."""
        self._due.pop(key, None)
        if key in self._working:
            self._again.add(key)
        elif key not in self._queued:
            self._queued.add(key)
            self._ready.append(key)
            self._arrived.set()

    def add_after(self, key: K, delay_s: float) -> None:
        """The key is due in `delay_s` seconds, unless it is due earlier already."""
        if delay_s <= 0:
            self.add(key)
            return
        at = self._clock.monotonic() + delay_s
        if key in self._queued or self._due.get(key, at + 1) <= at:
            return
        self._due[key] = at
        self._count += 1
        heapq.heappush(self._heap, (at, self._count, key))
        if self._heap[0][2] == key:
            self._earlier.set()

    def due_in_s(self, key: K) -> float | None:
        """Seconds until a key that waits is due; None if it does not wait."""
        at = self._due.get(key)
        return None if at is None else max(0.0, at - self._clock.monotonic())

    async def get(self) -> K:
        """The next key that is due; the caller must call done(key) when its work is over."""
        while not self._ready:
            self._arrived.clear()
            await self._arrived.wait()
        key = self._ready.popleft()
        self._queued.discard(key)
        self._working.add(key)
        return key

    def done(self, key: K) -> None:
        self._working.discard(key)
        if key in self._again:
            self._again.discard(key)
            self.add(key)

    async def run(self) -> None:
        """Make keys due when their time comes; until cancelled."""
        while True:
            self._earlier.clear()
            now = self._clock.monotonic()
            while self._heap and self._heap[0][0] <= now:
                at, _, key = heapq.heappop(self._heap)
                if self._due.get(key) == at:
                    self.add(key)
            if not self._heap:
                await self._earlier.wait()
                continue
            await self._sleep_until_earlier(self._heap[0][0] - now)

    async def _sleep_until_earlier(self, seconds: float) -> None:
        sleep = asyncio.ensure_future(self._clock.sleep(seconds))
        earlier = asyncio.ensure_future(self._earlier.wait())
        try:
            await asyncio.wait({sleep, earlier}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sleep, earlier):
                task.cancel()
            await asyncio.gather(sleep, earlier, return_exceptions=True)
