"""Prints rows for people (a table) or for programs (JSON, YAML)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import yaml

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FORMATS = ("table", "json", "yaml")
NONE = "-"


def print_rows(
    rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str], *, output: str, empty: str
) -> None:
    """All keys of `rows` as a list, or the `columns` (title: key) of them as a table.

    `empty` is what a person reads where there are none.
    """
    if output == "json":
        print(msgspec.json.format(msgspec.json.encode(rows), indent=2).decode())
    elif output == "yaml":
        print(yaml.safe_dump([dict(row) for row in rows], sort_keys=False, width=1000), end="")
    elif rows:
        print(table(rows, columns))
    else:
        print(empty)


def table(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str]) -> str:
    """Aligned columns under upper-case titles; the last one is not padded."""
    lines = [list(columns)]
    lines += [[_text(row.get(key)) for key in columns.values()] for row in rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    return "\n".join(
        "   ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def duration(seconds: float | None) -> str:
    """`now`, `45s`, `4m10s`, `2h5m`."""
    if seconds is None:
        return NONE
    whole = int(-(-seconds // 1))
    if whole <= 0:
        return "now"
    if whole < 60:
        return f"{whole}s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes}m{rest}s" if rest else f"{minutes}m"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes}m" if minutes else f"{hours}h"


def _text(value: Any) -> str:
    if value is None or value == "":
        return NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
