"""How many deletes a loop may send: at most `limit` in any rolling window.

The window rolls: it is not reset at the full minute, so no 60 seconds ever hold more.
"""

from __future__ import annotations

from collections import deque

WINDOW_S = 60.0
MAX_DELETES = 120
"""Deletes of one loop in any rolling minute of a leader's term."""


class DeleteBudget:
    """Counts the deletes of one loop in one leader's term; times are monotonic seconds."""

    __slots__ = ("_limit", "_sent", "_window_s")

    def __init__(self, limit: int = MAX_DELETES, window_s: float = WINDOW_S) -> None:
        self._limit = limit
        self._window_s = window_s
        self._sent: deque[float] = deque()

    def wait_s(self, now: float) -> float:
        """Seconds until a delete may be sent; 0 if now."""
        while self._sent and now - self._sent[0] >= self._window_s:
            self._sent.popleft()
        if len(self._sent) < self._limit:
            return 0.0
        return self._sent[-self._limit] + self._window_s - now

    def take(self, now: float) -> bool:
        """Count one delete, whatever its answer will be; False if none may be sent now."""
        if self.wait_s(now) > 0:
            return False
        self._sent.append(now)
        return True

    def set_limit(self, limit: int) -> None:
        """A changed configuration; what was sent stays counted."""
        self._limit = limit
