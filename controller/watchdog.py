"""Ends the process if a loop hangs: work that was begun and neither ended nor went on in time.

A loop that waits for work is not at work. Times are monotonic seconds; any thread may ask.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from kube.errors import KubeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kube.clock import Clock

LIMIT_S = 120.0
"""More than any pass or attempt may take with all its timeouts."""


class LoopHung(KubeError):
    """A loop neither went on nor ended."""


class Watchdog:
    """Who is at work, and since when."""

    def __init__(self, monotonic: Callable[[], float], limit_s: float = LIMIT_S) -> None:
        self._monotonic = monotonic
        self._limit_s = limit_s
        self._since: dict[str, float] = {}

    def beat(self, name: str) -> None:
        """The loop is at work and went on; it must beat again, or end, within the limit."""
        self._since[name] = self._monotonic()

    def end(self, name: str) -> None:
        """The loop is not at work any more."""
        self._since.pop(name, None)

    @contextmanager
    def working(self, name: str) -> Iterator[None]:
        """One piece of work."""
        self.beat(name)
        try:
            yield
        finally:
            self.end(name)

    def overdue(self) -> list[str]:
        """Loops that have been silent at work for longer than the limit."""
        now = self._monotonic()
        return [name for name, at in list(self._since.items()) if now - at > self._limit_s]

    async def run(self, clock: Clock, period_s: float = 5.0) -> None:
        """Raise LoopHung as soon as a loop is overdue."""
        while True:
            await clock.sleep(period_s)
            names = self.overdue()
            if names:
                raise LoopHung(
                    f"{', '.join(names)} hung for more than {self._limit_s:.0f} s: ending"
                )
