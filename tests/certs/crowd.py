"""Replicas that look side by side, freeze in the middle of it, and die.

Invariant: whoever is not busy gets an answer to every call.
"""

import asyncio
from collections.abc import Callable
from random import Random

from tests.certs.memory import Killed
from tests.certs.world import Fleet

FROZEN_AT_MOST_S = 100.0


async def look(fleet: Fleet, name: str) -> bool:
    """One look of that replica; if it dies over it, another one of that name starts: True."""
    try:
        await fleet.keepers[name].look()
    except Killed:
        fleet.kill(name)
        fleet.start(name)
        return True
    return False


class Crowd:
    """Replicas that look side by side; one of them may freeze in the middle, and die later."""

    def __init__(self, fleet: Fleet, random: Random) -> None:
        self._fleet = fleet
        self._random = random
        self._looks: dict[str, asyncio.Task[bool]] = {}
        self._frozen_at: dict[str, float] = {}

    def busy(self, name: str) -> bool:
        """It looks, or is frozen: a look may end before the call at which it was to freeze."""
        return name in self._looks or name in self._frozen_at

    async def look(self) -> None:
        """Some begin to look; their calls are served in any order."""
        api, random = self._fleet.api, self._random
        self._thaw(lambda at: self._now - at > FROZEN_AT_MOST_S or random.random() < 0.3)
        api.hold()
        for name in list(self._fleet.keepers):
            if name not in self._looks and random.random() < 0.7:
                self._looks[name] = asyncio.create_task(look(self._fleet, name))
        if random.random() < 0.3:
            await api.serve(random, calls=random.randrange(1, 12))
            alive = [n for n, task in self._looks.items() if not task.done()]
            for name in alive[:1]:
                if name not in api.frozen:
                    api.freeze(name)
                    self._frozen_at[name] = self._now
        await api.serve(random)
        api.hold(False)
        self._reap()

    async def calm_down(self) -> None:
        """Everybody comes to an end."""
        self._thaw(lambda at: True)
        await self._fleet.api.serve(self._random)
        await asyncio.gather(*self._looks.values())
        self._looks.clear()

    @property
    def _now(self) -> float:
        return self._fleet.clock.monotonic()

    def _thaw(self, due: Callable[[float], bool]) -> None:
        for name, at in list(self._frozen_at.items()):
            if due(at):
                self._fleet.api.thaw(name)
                del self._frozen_at[name]

    def _reap(self) -> None:
        for name, task in list(self._looks.items()):
            if task.done():
                task.result()
                del self._looks[name]
