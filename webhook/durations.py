"""Durations as Go programs write them, such as the `timeout` query of an admission call.

Invariant: pure; what is no duration is None.
"""

from __future__ import annotations

import re
from typing import Final

_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_SECONDS: Final = {
    "ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0
}  # fmt: skip


def parse_duration(text: str) -> float | None:
    """Seconds of a duration without sign, such as `5s`, `1m30s` or `250ms`."""
    seconds, at = 0.0, 0
    for part in _PART.finditer(text):
        if part.start() != at:
            return None
        seconds += float(part[1]) * _SECONDS[part[2]]
        at = part.end()
    return seconds if text and at == len(text) else None
