"""What came of a row, and the check against what the row says."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.webhook.builders import Object
from tests.webhook.rows import Matches, Row


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answer to the client and, where it was allowed, the stored pod."""

    code: int
    reason: str = ""
    message: str = ""
    warnings: list[str] = field(default_factory=list)
    stored: Object | None = None
    now_ns: int = 0


def problems(row: Row, outcome: Outcome) -> list[str]:
    """Everything in which `outcome` is not what `row` says."""
    found = []
    if (outcome.code, outcome.reason) != (row.code, row.reason):
        found.append(
            f"answered {outcome.code} {outcome.reason} ({outcome.message}), "
            f"not {row.code} {row.reason}"
        )
    found += [
        f"does not say {text!r}: {outcome.message}"
        for text in row.says
        if text not in outcome.message
    ]
    told = "\n".join(outcome.warnings)
    found += [f"does not warn of {text!r}: {told}" for text in row.warns if text not in told]
    found += [f"a warning is too long: {text}" for text in outcome.warnings if len(text) > 255]
    if not row.warns and outcome.warnings:
        found.append(f"warns for nothing: {told}")
    if outcome.stored is not None:
        found += _stored_problems(row, outcome)
    return found


def _stored_problems(row: Row, outcome: Outcome) -> list[str]:
    metadata = (outcome.stored or {}).get("metadata") or {}
    written = ((row.write or {}).get("metadata")) or {}
    found = []
    for where, expected in (("labels", row.labels), ("annotations", row.annotations)):
        stored = metadata.get(where) or {}
        for key, value in expected.items():
            if not _equal(stored.get(key), value, outcome.now_ns):
                wanted = value.name if isinstance(value, Matches) else repr(value)
                found.append(f"{where}[{key}] is {stored.get(key)!r}, not {wanted}")
        if row.untouched and stored != (written.get(where) or {}):
            found.append(f"{where} are {stored}, not as written")
    return found


def _equal(stored: Any, wanted: Any, now_ns: int) -> bool:
    return wanted.test(stored, now_ns) if isinstance(wanted, Matches) else bool(stored == wanted)
