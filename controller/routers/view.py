"""Text of `kubectl podstamp routers`: each router, its engines, and how its targets differ.

Invariant: pure; it prints what the leader reports and adds only ages.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import yaml

_SHOWN = 3


def render(
    routers: Sequence[dict[str, Any]], *, output: str, now: datetime, namespace: str = ""
) -> str:
    """`output` is table, json or yaml; `namespace` limits the engines that are shown."""
    if namespace:
        routers = [
            {**r, "engines": [e for e in r["engines"] if e["namespace"] == namespace]}
            for r in routers
        ]
    if output == "json":
        return json.dumps(list(routers), indent=2, ensure_ascii=False) + "\n"
    if output == "yaml":
        text: str = yaml.safe_dump(list(routers), sort_keys=False, allow_unicode=True)
        return text
    if not routers:
        return "no routers are configured\n"
    return "\n".join(_router(router, now) for router in routers)


def _router(router: dict[str, Any], now: datetime) -> str:
    lines = [f"{router['name']} ({router['kind']}): {len(router['desired'])} desired"]
    if not router["fresh"]:
        lines.append("  the API server is not answering: this is the last known list")
    if router["error"]:
        lines.append(f"  error: {router['error']}")
    if router["unconfirmed"]:
        lines.append(f"  waiting for a second list before removing: {_some(router['unconfirmed'])}")
    targets = [["TARGET", "STATE", "OBSERVED", "MISSING", "TOO MANY", "OUT OF DATE", "PENDING"]]
    targets += [_target(target) for target in router["targets"]]
    lines += _table(targets)
    for target in router["targets"]:
        lines += [f"  {target['target']}: {words}" for words in _differences(target)]
    if router["engines"]:
        engines = [["ENGINE", "STATE", "URL", "INCARNATION", "AGE", "ADAPTERS"]]
        engines += [_engine(engine, now) for engine in router["engines"]]
        lines += _table(engines)
    return "\n".join(lines) + "\n"


def _target(target: dict[str, Any]) -> list[str]:
    difference = target["difference"]
    counts = [len(difference[name]) for name in ("add", "remove", "change", "pending")]
    if not target["reachable"]:
        state = "unreachable"
    else:
        state = "in step" if not any(counts) else "differs"
    return [target["target"], state, str(len(target["observed"])), *map(str, counts)]


def _differences(target: dict[str, Any]) -> Iterable[str]:
    if target["error"]:
        yield target["error"]
    for name, words in (
        ("add", "missing"),
        ("remove", "too many"),
        ("change", "out of date"),
        ("pending", "pending"),
    ):
        if entries := target["difference"][name]:
            yield f"{words}: {_some(entries)}"


def _engine(engine: dict[str, Any], now: datetime) -> list[str]:
    created = engine["created"]
    age = _age((now - datetime.fromisoformat(created)).total_seconds()) if created else "-"
    state = engine["state"] + (f" ({engine['error']})" if engine["error"] else "")
    return [
        f"{engine['namespace']}/{engine['name']}",
        state,
        engine["url"] or "-",
        engine["incarnation"] or "-",
        age,
        ",".join(engine["adapters"]) or "-",
    ]


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  "
        + "   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _some(entries: Sequence[str]) -> str:
    more = len(entries) - _SHOWN
    return ", ".join(entries[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _age(seconds: float) -> str:
    """As kubectl writes it: the two largest units while the first is small."""
    whole = max(0, int(seconds))
    days, hours, minutes = whole // 86400, whole // 3600, whole // 60
    if days >= 2:
        return f"{days}d"
    if hours >= 3:
        return f"{hours}h"
    if minutes >= 10:
        return f"{minutes}m"
    return f"{minutes}m{whole % 60}s" if whole >= 120 else f"{whole}s"
