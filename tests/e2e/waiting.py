"""Waiting for what another process does, in real time, with a bound and a reason."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
POLL_S = 0.05


def eventually(probe: Callable[[], T | None], what: str, timeout_s: float = 30.0) -> T:
    """The first true value of `probe()`; AssertionError with `what` and the last value if none."""
    deadline = time.monotonic() + timeout_s
    while True:
        value = probe()
        if value:
            return value
        assert time.monotonic() < deadline, f"not in {timeout_s:g} s: {what}; last: {value!r}"
        time.sleep(POLL_S)
