"""How long a pod has been seen in one shape without a break, on a monotonic clock keyed by UID.

Whatever interrupts the sight (another shape, a scan without the pod, a scan that failed or was cut
off, a cold store) starts the time anew; a restart does so because nothing is stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from controller.verdict import Shape


class ObservationClock:
    """First sights; all times are monotonic seconds."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: dict[str, tuple[Shape, float]] = {}

    def __len__(self) -> int:
        return len(self._seen)

    def observe(self, uid: str, shape: Shape | None, now: float) -> None:
        """One pod was seen in this shape, or in none."""
        if shape is None:
            self._seen.pop(uid, None)
            return
        seen = self._seen.get(uid)
        if seen is None or seen[0] is not shape:
            self._seen[uid] = (shape, now)

    def scan(self, shapes: Mapping[str, Shape], now: float) -> None:
        """A whole pass saw exactly these pods in these shapes."""
        for uid in self._seen.keys() - shapes.keys():
            del self._seen[uid]
        for uid, shape in shapes.items():
            self.observe(uid, shape, now)

    def clear(self) -> None:
        """The sight was broken for all: a cold store, a scan that failed or was cut off."""
        self._seen.clear()

    def since(self, uid: str) -> float | None:
        """When the pod was first seen in its shape; None for one that is not seen."""
        seen = self._seen.get(uid)
        return None if seen is None else seen[1]

    def remaining(self, uid: str, now: float, hold_s: float) -> float | None:
        """Seconds until the hold time is over, 0 if it is; None for a pod that is not seen."""
        seen = self._seen.get(uid)
        return None if seen is None else max(0.0, seen[1] + hold_s - now)
