"""Backs off where the replacements of one set and index die at once.

Without it a pod that a kubelet refuses would be deleted and made again hundreds of times a minute;
with it the last one is left to be looked at for longer and longer.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

Slot = Hashable
"""What names a slot: namespace, the owner's UID and the index."""


@dataclass(frozen=True, slots=True)
class BackoffPolicy:
    """Seconds. A replacement that is over within `quick_death_s` of the last reap died at once."""

    initial_s: float = 1.0
    max_s: float = 300.0
    quick_death_s: float = 10.0


@dataclass(frozen=True, slots=True)
class _Reaped:
    at: float
    strikes: int


class SlotBackoff:
    """The last reap of each slot; times are monotonic seconds."""

    __slots__ = ("_reaped",)

    def __init__(self) -> None:
        self._reaped: dict[Slot, _Reaped] = {}

    def __len__(self) -> int:
        return len(self._reaped)

    def due(self, slot: Slot, ended: float, policy: BackoffPolicy) -> float:
        """When the pod that was first seen over at `ended` may be reaped."""
        return ended + self._delay_s(slot, ended, policy)

    def reaped(self, slot: Slot, ended: float, now: float, policy: BackoffPolicy) -> None:
        """The pod that was first seen over at `ended` is gone."""
        last = self._reaped.get(slot)
        quick = last is not None and ended - last.at < policy.quick_death_s
        strikes = last.strikes + 1 if last is not None and quick else 0
        self._reaped[slot] = _Reaped(now, strikes)

    def forget(self, now: float, policy: BackoffPolicy) -> None:
        """Drop slots whose next pod lived on; those whose next pod may still wait stay."""
        horizon = now - policy.quick_death_s - 2 * policy.max_s
        for slot in [slot for slot, last in self._reaped.items() if last.at < horizon]:
            del self._reaped[slot]

    def _delay_s(self, slot: Slot, ended: float, policy: BackoffPolicy) -> float:
        last = self._reaped.get(slot)
        if last is None or ended - last.at >= policy.quick_death_s:
            return 0.0
        doublings = min(last.strikes, 30)
        return float(min(policy.initial_s * 2**doublings, policy.max_s))
