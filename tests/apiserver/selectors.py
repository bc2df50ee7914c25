"""Label and field selectors as functions of a stored object.

Invariant: a selector that cannot be read is a 400 and never matches everything.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from tests.apiserver import errors

Predicate = Callable[[dict[str, Any]], bool]

_SPLIT = re.compile(r",(?![^()]*\))")
_SET = re.compile(r"^(?P<key>\S+)\s+(?P<op>in|notin)\s*\((?P<values>[^()]*)\)$")
_EQUAL = re.compile(r"^(?P<key>[^\s=!<>]+)\s*(?P<op>==|=|!=)\s*(?P<value>[^\s=!]*)$")
_COMPARE = re.compile(r"^(?P<key>[^\s=!<>]+)\s*(?P<op>[<>])\s*(?P<value>-?\d+)$")
_KEY = re.compile(r"^([A-Za-z0-9.-]+/)?[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?$")
_VALUE = re.compile(r"^([A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?)?$")

_LabelTest = Callable[[Mapping[str, str]], bool]


def _requirement(text: str) -> tuple[str, _LabelTest] | None:
    if match := _SET.match(text):
        key, values = match["key"], frozenset(v.strip() for v in match["values"].split(","))
        if not all(_VALUE.match(value) for value in values):
            return None
        if match["op"] == "in":
            return key, lambda labels: labels.get(key) in values
        return key, lambda labels: labels.get(key) not in values
    if match := _EQUAL.match(text):
        key, value = match["key"], match["value"]
        if not _VALUE.match(value):
            return None
        if match["op"] == "!=":
            return key, lambda labels: labels.get(key) != value
        return key, lambda labels: labels.get(key) == value
    if match := _COMPARE.match(text):
        key, bound, sign = match["key"], int(match["value"]), -1 if match["op"] == "<" else 1

        def compare(labels: Mapping[str, str]) -> bool:
            value = labels.get(key, "")
            return value.lstrip("-").isdigit() and (int(value) - bound) * sign > 0

        return key, compare
    if text.startswith("!"):
        key = text[1:].strip()
        return key, lambda labels: key not in labels
    return text, lambda labels: text in labels


@lru_cache(maxsize=512)
def label_selector(text: str) -> _LabelTest | None:
    """None when there is nothing to select by; 400 when it cannot be read."""
    tests: list[_LabelTest] = []
    for part in _SPLIT.split(text):
        stripped = part.strip()
        if not stripped:
            if text.strip():
                raise errors.bad_request(f"unable to parse requirement: found ',' in {text!r}")
            continue
        parsed = _requirement(stripped)
        if parsed is None or not _KEY.match(parsed[0]):
            raise errors.bad_request(f"unable to parse requirement: {stripped!r}")
        tests.append(parsed[1])
    if not tests:
        return None
    if len(tests) == 1:
        return tests[0]
    return lambda labels: all(test(labels) for test in tests)


def field_value(obj: Mapping[str, Any], path: str) -> str:
    """The value at a dotted path as a field selector sees it; "" when it is absent."""
    value: Any = obj
    for step in path.split("."):
        if not isinstance(value, Mapping):
            return ""
        value = value.get(step)
    if value is None:
        return ""
    if value is True or value is False:
        return str(value).lower()
    return str(value)


@lru_cache(maxsize=512)
def field_requirements(text: str) -> tuple[tuple[str, bool, str], ...]:
    """(path, equal, value) of each term; `\\` escapes `,`, `=` and itself."""
    terms: list[tuple[str, bool, str]] = []
    for term in re.split(r"(?<!\\),", text):
        if not term:
            continue
        match = re.match(r"^(?P<path>[^=!]+)(?P<op>!=|==|=)(?P<value>.*)$", term)
        if match is None:
            raise errors.bad_request(f"invalid selector: '{text}'; can't understand '{term}'")
        terms.append((match["path"], match["op"] != "!=", re.sub(r"\\(.)", r"\1", match["value"])))
    return tuple(terms)


def predicate(labels: str, fields: str, known_fields: Mapping[str, str]) -> Predicate | None:
    """One test of whole objects, or None when both selectors are empty.

    `known_fields` maps the field labels that the kind supports to paths in the stored object;
    any other label is a 400, as on the real server.
    """
    by_label = label_selector(labels)
    terms: list[tuple[str, bool, str]] = []
    for path, equal, value in field_requirements(fields):
        if path not in known_fields:
            raise errors.bad_request(f"field label not supported: {path}")
        terms.append((known_fields[path], equal, value))
    if by_label is None and not terms:
        return None

    def matches(obj: dict[str, Any]) -> bool:
        if by_label is not None and not by_label(obj["metadata"].get("labels") or {}):
            return False
        return all((field_value(obj, path) == value) is equal for path, equal, value in terms)

    return matches
