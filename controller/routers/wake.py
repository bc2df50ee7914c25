"""Waiting for news or for time to pass, whichever comes first.

Invariant: news that arrives while nobody waits is not lost, and many make one.
"""

from __future__ import annotations

import asyncio
import random as random_module
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

from kube.clock import Clock

Spawn: TypeAlias = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]
"""Starts a task of the group that runs the routers: a fault in it ends that group."""


class Wake:
    """One waiter, any number of callers of `set`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._event = asyncio.Event()

    def set(self) -> None:
        """There is news."""
        self._event.set()

    def clear(self) -> None:
        """What was set so far is being dealt with."""
        self._event.clear()

    async def wait(self, seconds: float) -> bool:
        """True as soon as there is news, False after `seconds` without; does not clear."""
        if self._event.is_set():
            return True
        news = asyncio.ensure_future(self._event.wait())
        timer = asyncio.ensure_future(self._clock.sleep(seconds))
        try:
            await asyncio.wait((news, timer), return_when=asyncio.FIRST_COMPLETED)
        finally:
            news.cancel()
            timer.cancel()
            await asyncio.gather(news, timer, return_exceptions=True)
        return self._event.is_set()


def backoff_s(
    failures: int, *, first_s: float, limit_s: float, random: random_module.Random
) -> float:
    """Delay before the next attempt after `failures` in a row: doubling, half of it at random."""
    whole = min(limit_s, first_s * 2.0 ** min(max(failures - 1, 0), 32))
    return float(whole * (0.5 + 0.5 * random.random()))


def jittered_s(seconds: float, random: random_module.Random) -> float:
    """A period that differs by up to a tenth, so that routers are not asked in step."""
    return float(seconds * (0.9 + 0.2 * random.random()))
