"""Structural schemas of custom resources: pruning, defaults and validation.

Covers types, required, enum, bounds, lengths, pattern, items, additionalProperties, nullable,
int-or-string, preserve-unknown-fields and embedded resources; not allOf and the like, and not
x-kubernetes-validations.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tests.apiserver.errors import Cause
from tests.apiserver.metadata import required
from tests.apiserver.schema import WrongType, copy, decoder

Object = dict[str, Any]
_ROOT = ("apiVersion", "kind", "metadata")


def pruner(schema: Object) -> Callable[[Any, str, list[str]], Any]:
    """A decoder: an owned copy with defaults, without the fields that the schema does not know."""
    metadata_decoder = decoder("V1ObjectMeta")

    def decode(value: Any, path: str, unknown: list[str]) -> Any:
        pruned = _prune(value, schema, "", unknown, root=True)
        if isinstance(value.get("metadata"), dict):
            pruned["metadata"] = metadata_decoder(value["metadata"], "metadata", unknown)
        elif value.get("metadata") is not None:
            raise WrongType("json: cannot unmarshal metadata into Go value of type ObjectMeta")
        return pruned

    return decode


def _prune(value: Any, schema: Object, path: str, unknown: list[str], *, root: bool = False) -> Any:
    if isinstance(value, list):
        items = schema.get("items")
        if not isinstance(items, dict):
            return copy(value)
        return [_prune(item, items, f"{path}[{i}]", unknown) for i, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    keep = schema.get("x-kubernetes-preserve-unknown-fields", False)
    properties: Object = schema.get("properties") or {}
    others = schema.get("additionalProperties")
    embedded = root or schema.get("x-kubernetes-embedded-resource")
    pruned: Object = {}
    for key, item in value.items():
        here = f"{path}.{key}" if path else key
        if key in properties:
            pruned[key] = _prune(item, properties[key], here, unknown)
        elif embedded and key in _ROOT:
            pruned[key] = copy(item)
        elif isinstance(others, dict):
            pruned[key] = _prune(item, others, here, unknown)
        elif keep or others is True:
            pruned[key] = copy(item)
        else:
            unknown.append(here)
    for key, inner in properties.items():
        missing = key not in pruned or (pruned[key] is None and not inner.get("nullable"))
        if missing and "default" in inner:
            pruned[key] = _prune(inner["default"], inner, key, unknown)
    return pruned


def validator(schema: Object) -> Callable[[Object], list[Cause]]:
    """The causes of a 422, each at its field."""
    return lambda obj: _check(obj, schema, "", root=True)


_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}


def _json_type(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    return next(name for name, types in _TYPES.items() if isinstance(value, types))


def _invalid(path: str, value: Any, why: str) -> Cause:
    shown = f'"{value}"' if isinstance(value, str) else str(value)
    return Cause("FieldValueInvalid", f"Invalid value: {shown}: {path} in body {why}", path)


def _check(value: Any, schema: Object, path: str, *, root: bool = False) -> list[Cause]:
    if value is None and schema.get("nullable"):
        return []
    if schema.get("x-kubernetes-int-or-string"):
        ok = isinstance(value, (int, str)) and not isinstance(value, bool)
        return [] if ok else [_invalid(path, value, "must be of type integer or string")]
    wanted = schema.get("type")
    if wanted and not _is_type(value, wanted):
        found = _json_type(value)
        shown = _invalid(path, found, f'must be of type {wanted}: "{found}"')
        return [shown._replace(reason="FieldValueTypeInvalid")]
    causes = _check_value(value, schema, path)
    if isinstance(value, dict):
        causes += _check_object(value, schema, path, root)
    elif isinstance(value, list):
        items = schema.get("items")
        if isinstance(items, dict):
            for index, item in enumerate(value):
                causes += _check(item, items, f"{path}[{index}]")
    return causes


def _is_type(value: Any, wanted: str) -> bool:
    if isinstance(value, bool):
        return wanted == "boolean"
    if wanted == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES[wanted])


def _check_value(value: Any, schema: Object, path: str) -> list[Cause]:
    causes: list[Cause] = []
    if "enum" in schema and value not in schema["enum"]:
        listed = ", ".join(f'"{item}"' for item in schema["enum"])
        text = f'Unsupported value: "{value}": supported values: {listed}'
        causes.append(Cause("FieldValueNotSupported", text, path))
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if "minimum" in schema and value < schema["minimum"]:
            least = schema["minimum"]
            causes.append(_invalid(path, value, f"should be greater than or equal to {least}"))
        if "maximum" in schema and value > schema["maximum"]:
            most = schema["maximum"]
            causes.append(_invalid(path, value, f"should be less than or equal to {most}"))
    if isinstance(value, str) and re.search(schema.get("pattern", ""), value) is None:
        causes.append(_invalid(path, value, f"should match '{schema['pattern']}'"))
    for kind, low, high in (
        (str, "minLength", "maxLength"),
        (list, "minItems", "maxItems"),
        (dict, "minProperties", "maxProperties"),
    ):
        if isinstance(value, kind):
            if len(value) < schema.get(low, 0):
                causes.append(_invalid(path, value, f"should have at least {schema[low]}"))
            if high in schema and len(value) > schema[high]:
                text = f"Too long: may not be more than {schema[high]}"
                causes.append(Cause("FieldValueTooLong", text, path))
    return causes


def _check_object(value: Object, schema: Object, path: str, root: bool) -> list[Cause]:
    prefix = f"{path}." if path else ""
    causes = [required(prefix + key) for key in schema.get("required", ()) if key not in value]
    properties: Object = schema.get("properties") or {}
    others = schema.get("additionalProperties")
    for key, item in value.items():
        if root and key in _ROOT:
            continue
        inner = properties.get(key, others)
        if isinstance(inner, dict):
            causes += _check(item, inner, prefix + key)
    return causes
