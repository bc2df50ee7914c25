"""Every key that podstamp writes or reads on a pod, and the pure functions over their values.

The controller imports this module alone of the webhook, so it imports nothing of ours.
"""

from __future__ import annotations

import re
from calendar import timegm
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

# Labels.
MANAGED: Final = "podstamp.dev/managed"
"""`true` on every pod that podstamp stamps; the controller watches only this selector."""
ENABLED: Final = "podstamp.dev/enabled"
"""`true` on a namespace opts its pods in; `false` on a pod leaves that pod out, `true` takes one
of an AIBrix RoleSet in; held on a pod once it is stamped."""
PODSET: Final = "podstamp.dev/podset"
"""Name of the set that owns the pod."""
PODSET_INDEX: Final = "podstamp.dev/podset-index"
"""Index of the pod in its set, decimal."""
AIBRIX_INDEX: Final = "stormservice.orchestration.aibrix.ai/pod-group-index"
"""AIBrix's own index label; written for its PodSets alone, only where it is absent."""

# Annotations.
INCARNATION: Final = "podstamp.dev/incarnation"
"""UUID version 7 that names one life of the pod's name."""
IF_INCARNATION: Final = "podstamp.dev/if-incarnation"
"""Write fence: the update counts only for the pod of this incarnation; never stored."""
ADAPTERS: Final = "podstamp.dev/adapters"
"""Comma-separated names of the LoRA adapters that the pod serves, declared by its owner."""
ADAPTERS_DIGEST: Final = "podstamp.dev/adapters-digest"
"""First 16 hex digits of SHA-256 over the sorted names of all declared adapters."""
LORA_MODIFIED: Final = "lora-modified"
"""When the adapters last changed, RFC 3339; others write it too; never moves back."""
RETIRED: Final = "podstamp.dev/retired"
"""State word (`suspended`, `replaced`) that says this incarnation's execution is over."""
RETIRED_AT: Final = "podstamp.dev/retired-at"
"""When `retired` was stored, RFC 3339 UTC."""
RESTORE: Final = "podstamp.dev/restore"
"""`true` marks a pod that restores an earlier execution; set at CREATE only."""

ADAPTER_KEYS: Final = (ADAPTERS, ADAPTERS_DIGEST, LORA_MODIFIED)
"""Annotations whose change alone lets the adapters entries of the webhook take the update."""

INCARNATION_SKEW: Final = timedelta(minutes=10)
"""How far an incarnation's time may be from the moment that its pod was created."""

_UUID7 = re.compile(
    r"([0-9a-f]{8})-([0-9a-f]{4})-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", re.ASCII
)
_RFC3339 = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(?:\.(\d+))?(?:([Zz])|([+-])(\d\d):(\d\d))",
    re.ASCII,
)
# A random hex digit to one whose first two bits are 10, as RFC 9562 marks its own UUIDs.
_VARIANTS: Final = {f"{digit:x}": "89ab"[digit % 4] for digit in range(16)}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND_NS = 1_000_000_000
_FIRST_NS = timegm((1, 1, 1, 0, 0, 0)) * _SECOND_NS
LAST_INSTANT_NS: Final = timegm((9999, 12, 31, 23, 59, 59)) * _SECOND_NS + _SECOND_NS - 1


def new_incarnation(now: datetime, random_bytes: bytes) -> str:
    """A UUID version 7 (RFC 9562): `now` (aware) in milliseconds, then ten random bytes."""
    return incarnation_at((now - _EPOCH) // timedelta(milliseconds=1), random_bytes)


def incarnation_at(unix_ms: int, random_bytes: bytes) -> str:
    """`new_incarnation` for a time in milliseconds since 1970; takes the first ten bytes."""
    digits = random_bytes[:10].hex()
    if len(digits) < 20:
        raise ValueError("an incarnation needs ten random bytes")
    time = f"{unix_ms & 0xFFFFFFFFFFFF:012x}"
    variant = _VARIANTS[digits[3]]
    return f"{time[:8]}-{time[8:]}-7{digits[:3]}-{variant}{digits[4:7]}-{digits[7:19]}"


def incarnation_time(text: str) -> datetime | None:
    """When an incarnation was minted (UTC, milliseconds); None if it is no UUID version 7."""
    match = _UUID7.fullmatch(text)
    if match is None:
        return None
    try:
        return _EPOCH + timedelta(milliseconds=int(match[1] + match[2], 16))
    except OverflowError:
        return None


def parse_instant(text: str) -> int | None:
    """Nanoseconds since 1970 of an RFC 3339 time; None if it is none.

    Any offset and any number of fraction digits (those after the ninth are cut off).
    """
    match = _RFC3339.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second, fraction, zulu, sign, offset_h, offset_m = (
        match.groups()
    )
    try:
        moment = datetime(
            int(year), int(month), int(day), int(hour), int(minute), int(second), tzinfo=UTC
        )
    except ValueError:
        return None
    offset_s = 0
    if not zulu:
        if int(offset_h) > 23 or int(offset_m) > 59:
            return None
        offset_s = (int(offset_h) * 3600 + int(offset_m) * 60) * (-1 if sign == "-" else 1)
    ns = int(fraction[:9].ljust(9, "0")) if fraction else 0
    return (timegm(moment.timetuple()) - offset_s) * _SECOND_NS + ns


def format_instant(ns: int) -> str:
    """RFC 3339 in UTC with nanoseconds; held within the years 1 to 9999."""
    seconds, fraction = divmod(min(max(ns, _FIRST_NS), LAST_INSTANT_NS), _SECOND_NS)
    return f"{_format_second(seconds)}.{fraction:09d}Z"


@lru_cache(maxsize=8)
def _format_second(seconds: int) -> str:
    # Cached, as all reviews of one second share it.
    return (_EPOCH + timedelta(seconds=seconds)).replace(tzinfo=None).isoformat()


def adapters_digest(names: Iterable[str]) -> str:
    """Value of `ADAPTERS_DIGEST`: the order of `names` and repeats do not matter."""
    return sha256(",".join(sorted(set(names))).encode()).hexdigest()[:16]
