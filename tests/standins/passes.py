"""A work queue: one pass at a time for each key, repeated with backoff while it fails.

A key that is added during its own pass gets one more pass; a pass that succeeds forgets the
failures before it. Only KubeError is a failure; anything else ends the task group.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from kube.clock import Clock
from kube.errors import KubeError

K = TypeVar("K", bound=Hashable)


class Passes(Generic[K]):
    """`work(key)` returns whether it wants to be asked again, which counts like a failure.

    The waits are `first_s`, doubled each time up to `longest_s`, in seconds.
    """

    def __init__(
        self,
        work: Callable[[K], Awaitable[bool]],
        clock: Clock,
        group: asyncio.TaskGroup,
        first_s: float = 0.005,
        longest_s: float = 1000.0,
    ) -> None:
        self.done = 0
        self.errors: list[KubeError] = []
        self._work = work
        self._clock = clock
        self._group = group
        self._first_s = first_s
        self._longest_s = longest_s
        self._failures: dict[K, int] = {}
        self._again: set[K] = set()
        self._running: set[K] = set()
        self._waiting: dict[K, asyncio.Task[None]] = {}

    def add(self, key: K) -> None:
        """Ask for a pass now, also if one is waiting out a backoff."""
        if key in self._running:
            self._again.add(key)
        else:
            self._running.add(key)
            self._group.create_task(self._passes(key))

    async def _passes(self, key: K) -> None:
        repeat = True
        while repeat:
            self._again.discard(key)
            try:
                retry = await self._work(key)
            except KubeError as error:
                self.errors.append(error)
                retry = True
            self.done += 1
            if retry:
                self._retry_later(key)
            else:
                self._failures.pop(key, None)
            repeat = key in self._again
        self._running.discard(key)

    def _retry_later(self, key: K) -> None:
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        waiting = self._waiting.pop(key, None)
        if waiting is not None:
            waiting.cancel()
        wait_s = min(self._first_s * 2.0**failures, self._longest_s)
        self._waiting[key] = self._group.create_task(self._add_after(key, wait_s))

    async def _add_after(self, key: K, wait_s: float) -> None:
        await self._clock.sleep(wait_s)
        if self._waiting.get(key) is asyncio.current_task():
            del self._waiting[key]
        self.add(key)
