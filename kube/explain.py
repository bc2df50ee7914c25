"""Why settings do not fit their struct, in words for the person who wrote them.

Invariant: pure; one line with the place as it was written, the value, and what is allowed there.
"""

import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import inspect

_TEXT = re.compile(r"(?P<what>.*?)(?: - at `(?:key in )?\$(?P<path>.*)`)?", re.DOTALL)
_STEP = re.compile(r"\.(?P<key>[^.\[]+)|\[(?P<index>\d+)\]|\[\.\.\.\]")
_FIELD = re.compile(r"Object (?P<kind>contains unknown|missing required) field `(?P<name>.*)`")


def explain(
    error: msgspec.ValidationError,
    content: Any,
    kind: type[Any],
    where: str,
    places: Mapping[tuple[str, ...], str],
) -> str:
    """`error` of converting `content` to `kind`.

    `where` names the file; `places` maps key paths to the flag or variable that set them.
    """
    match = _TEXT.fullmatch(str(error))
    assert match is not None
    keys: list[str] = []
    shown = ""
    value, here = content, inspect.type_info(kind)
    for step in _STEP.finditer(match["path"] or ""):
        here = _inner(here, value, step)
        if step["index"] is not None:
            value = value[int(step["index"])]
            shown += f"[{step['index']}]"
        elif step["key"] is not None:
            value = value.get(step["key"]) if isinstance(value, dict) else None
            keys.append(step["key"])
            shown += f".{step['key']}"
    place = places.get(tuple(keys))
    start = place if place else f"{where}: {shown.removeprefix('.')}"
    field = _FIELD.fullmatch(match["what"])
    if field is None:
        return f"{start.removesuffix(': ')}: {_show(value)} {_fault(here, value, match['what'])}"
    dot = "." if shown else ""
    if field["kind"] == "missing required":
        return f"{start}{dot}{field['name']}: is missing"
    return f"{start}{dot}{field['name']}: unknown key; known here: {_known(here, value)}"


def _fault(kind: inspect.Type, value: Any, what: str) -> str:
    kinds = [t for t in _alternatives(kind) if not isinstance(t, inspect.NoneType)]
    if len(kinds) != 1:
        return f"is not allowed: {what}"
    only = kinds[0]
    match only:
        case inspect.IntType() | inspect.FloatType():
            limits = _range(only)
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if is_number and limits and "got" not in what and not math.isnan(value):
                return f"is out of range ({limits})"
            noun = "a whole number" if isinstance(only, inspect.IntType) else "a number"
            return f"is not {noun}" + (f" ({limits})" if limits else "")
        case inspect.BoolType():
            return "is neither true nor false"
        case inspect.LiteralType(values):
            return f"is not one of {', '.join(map(str, values))}"
        case inspect.EnumType(cls):
            return f"is not one of {', '.join(str(member.value) for member in cls)}"
        case inspect.StrType() if not isinstance(value, str):
            return "is not text; put it in quotes"
        case inspect.StructType() | inspect.DictType() if not isinstance(value, dict):
            return "is not a mapping of names to values"
        case inspect.ListType() | inspect.VarTupleType() if not isinstance(value, list):
            return "is not a list"
        case _:
            return f"is not allowed: {what}"


def _range(kind: inspect.IntType | inspect.FloatType) -> str:
    low = high = ""
    if kind.ge is not None:
        low = f"{kind.ge:g}"
    elif kind.gt is not None:
        low = f"more than {kind.gt:g}"
    if kind.le is not None:
        high = f"{kind.le:g}"
    elif kind.lt is not None:
        high = f"less than {kind.lt:g}"
    if low and high:
        return f"{low} to {high}"
    if low:
        return f"at least {low}" if kind.ge is not None else low
    return f"at most {high}" if kind.le is not None else high


def _known(kind: inspect.Type, value: Any) -> str:
    struct = _struct(kind, value)
    return ", ".join(field.encode_name for field in struct.fields) if struct else "none"


def _alternatives(kind: inspect.Type) -> Sequence[inspect.Type]:
    if isinstance(kind, inspect.Metadata):
        return _alternatives(kind.type)
    return kind.types if isinstance(kind, inspect.UnionType) else (kind,)


def _struct(kind: inspect.Type, value: Any) -> inspect.StructType | None:
    """The struct that `value` is meant for: of several, the one that its tag names."""
    structs = [t for t in _alternatives(kind) if isinstance(t, inspect.StructType)]
    for struct in structs:
        tag = value.get(struct.tag_field) if isinstance(value, dict) else None
        if struct.tag is not None and tag == struct.tag:
            return struct
    return structs[0] if structs else None


def _tags(kind: inspect.Type, key: str) -> tuple[str | int, ...]:
    """What `key` may say to name one of several structs."""
    structs = [t for t in _alternatives(kind) if isinstance(t, inspect.StructType)]
    return tuple(t.tag for t in structs if t.tag is not None and t.tag_field == key)


def _inner(kind: inspect.Type, value: Any, step: re.Match[str]) -> inspect.Type:
    """The type one step further down."""
    if step["key"] is not None:
        struct = _struct(kind, value)
        for field in struct.fields if struct else ():
            if field.encode_name == step["key"]:
                return field.type
        tags = _tags(kind, step["key"])
        return inspect.LiteralType(tags) if tags else inspect.AnyType()
    for option in _alternatives(kind):
        if isinstance(option, inspect.ListType | inspect.VarTupleType | inspect.SetType):
            return option.item_type
        if isinstance(option, inspect.DictType):
            return option.value_type
    return inspect.AnyType()


def _show(value: Any) -> str:
    text = repr(value)
    # JSON has no word for a float that is no finite number.
    if not isinstance(value, str) and not (isinstance(value, float) and not math.isfinite(value)):
        with suppress(TypeError, RecursionError, ValueError):
            text = msgspec.json.encode(value).decode()
    return text if len(text) <= 60 else text[:57] + "..."
