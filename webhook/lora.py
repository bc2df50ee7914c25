"""Rules of LoRA adapters: their names, their digest, and when they last changed.

Invariant: `lora-modified`, compared as an instant, never moves back, and no write is refused
for it.
"""

from __future__ import annotations

from typing import NamedTuple

from webhook import stamps
from webhook.case import Case, Denial, Endpoint, Scope, invalid


class Modified(NamedTuple):
    """The value to store, None for none, and what the writer should know."""

    value: str | None
    warning: str | None = None


def next_modified(
    stored: str | None, written: str | None, *, declared_changed: bool, now_ns: int
) -> Modified:
    """Decide from the stored and the written value; `declared_changed` says that the write also
    changes which adapters are declared. A newer value is kept as written, as other operators
    write it too, in other offsets and with fewer digits."""
    if written == stored:
        return Modified(_after(stored, now_ns) if declared_changed else stored)
    if written is None:
        return Modified(_after(stored, now_ns) if declared_changed else stored)
    instant = stamps.parse_instant(written)
    if instant is None:
        text = "lora-modified is no RFC 3339 time; the time of this write was stored instead"
        return Modified(_after(stored, now_ns), text)
    before = None if stored is None else stamps.parse_instant(stored)
    if before is None or instant > before:
        return Modified(written)
    if declared_changed:
        return Modified(_after(stored, now_ns))
    if instant == before:
        return Modified(written)
    return Modified(_after(stored, before))


def _after(stored: str | None, now_ns: int) -> str:
    """Now, or just after the stored instant if that is later; the stored text at time's end."""
    before = None if stored is None else stamps.parse_instant(stored)
    if stored is None or before is None or before < now_ns:
        return stamps.format_instant(now_ns)
    return stored if before >= stamps.LAST_INSTANT_NS else stamps.format_instant(before + 1)


def refuse_adapter_names(case: Case) -> Denial | None:
    """Judged when the annotation is written; one that was there before only warns."""
    text = case.annotations.adapters
    if text is None:
        return None
    problem = case.declared.problem
    if problem is None:
        return None
    if text == case.old_annotations.adapters:
        if case.endpoint is Endpoint.MUTATE:
            case.warn(f"{stamps.ADAPTERS}: {problem}")
        return None
    return invalid(
        f"{case.title}: metadata.annotations[{stamps.ADAPTERS}]: {problem}. Write distinct names, "
        f"separated by commas"
    )


def stamp_adapters_digest(case: Case) -> Denial | None:
    """Derived, so a wrong one is overwritten; a pod without adapters has none."""
    case.annotate(stamps.ADAPTERS_DIGEST, case.annotations.adapters_digest, case.declared.digest)
    return None


def tell_unreadable_adapters(case: Case) -> Denial | None:
    for warning in case.declared.warnings:
        case.warn(warning)
    return None


def stamp_lora_at_birth(case: Case) -> Denial | None:
    now = stamps.format_instant(case.now_ns) if case.declared.names else None
    case.annotate(stamps.LORA_MODIFIED, case.annotations.lora_modified, now)
    return None


def advance_lora_modified(case: Case) -> Denial | None:
    written = case.annotations.lora_modified
    modified = next_modified(
        case.old_annotations.lora_modified,
        written,
        declared_changed=case.adapters_changed,
        now_ns=case.now_ns,
    )
    value = modified.value
    if value is None and case.scope is Scope.ADOPT and case.declared.names:
        value = stamps.format_instant(case.now_ns)
    case.annotate(stamps.LORA_MODIFIED, written, value)
    if modified.warning:
        case.warn(modified.warning)
    return None
