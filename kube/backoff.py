"""How long to wait before trying again.

Invariant: never zero, so nothing spins; never above the cap; jittered, so that clients spread out.
"""

import random as random_module


class Backoff:
    """Doubles from `base_s` to `cap_s` until `reset`; each wait is drawn from its upper half."""

    __slots__ = ("_base_s", "_cap_s", "_random", "_step_s")

    def __init__(
        self, random: random_module.Random, *, base_s: float = 0.1, cap_s: float = 2.0
    ) -> None:
        self._random = random
        self._base_s = base_s
        self._cap_s = cap_s
        self._step_s = base_s

    def next_s(self) -> float:
        """Seconds to wait now; the next wait will be longer."""
        step_s = self._step_s
        self._step_s = min(self._cap_s, step_s * 2)
        return step_s * self._random.uniform(0.5, 1.0)

    def reset(self) -> None:
        """It went well: begin anew."""
        self._step_s = self._base_s
