"""Merge patch and strategic merge (JSON patch: json_patch.py).

Pure: a patch never changes its operands; the result may share parts with them.
List merge keys are those of the built-in types.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.apiserver import errors
from tests.apiserver.schema import copy

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE = "application/strategic-merge-patch+json"

MERGE_KEYS: Mapping[str, str] = {
    "addresses": "type",
    "conditions": "type",
    "containers": "name",
    "env": "name",
    "ephemeralContainers": "name",
    "hostAliases": "ip",
    "hostIPs": "ip",
    "imagePullSecrets": "name",
    "initContainers": "name",
    "matchConditions": "name",
    "ownerReferences": "uid",
    "podIPs": "ip",
    "resourceClaims": "name",
    "schedulingGates": "name",
    "secrets": "name",
    "topologySpreadConstraints": "topologyKey",
    "variables": "name",
    "volumeDevices": "devicePath",
    "volumeMounts": "mountPath",
    "volumes": "name",
    "webhooks": "name",
}
"""Field name to merge key, wherever a field of that name is a list of objects."""

_PORT_KEYS = {
    "containers": "containerPort",
    "initContainers": "containerPort",
    "ephemeralContainers": "containerPort",
    "spec": "port",
}
"""The merge key of `ports` by the field that they are in; elsewhere such a list is atomic."""

RETAINED_KEYS = frozenset({"resourceClaims", "strategy", "volumes"})
"""Fields whose patches name with $retainKeys what is to stay."""

PRIMITIVE_SETS = frozenset({"finalizers"})
_DIRECTIVES = ("$patch", "$retainKeys")


def merge_patch(target: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


def strategic_merge(target: Any, patch: Any) -> Any:
    """Strategic merge of a whole object."""
    if not isinstance(patch, dict):
        raise errors.bad_request("strategic merge patch: the patch is no JSON object")
    return _merge_maps(target if isinstance(target, dict) else {}, patch)


def merge_key(field: str, parent: str) -> str | None:
    """The key by which a list is merged; None when it is replaced as a whole."""
    return _PORT_KEYS.get(parent) if field == "ports" else MERGE_KEYS.get(field)


def _merge_maps(target: dict[str, Any], patch: dict[str, Any], name: str = "") -> dict[str, Any]:
    directive = patch.get("$patch")
    if directive == "replace":
        return {key: copy(value) for key, value in patch.items() if key not in _DIRECTIVES}
    if directive == "delete":
        return {}
    merged = dict(target)
    retained = patch.get("$retainKeys")
    if isinstance(retained, list):
        merged = {key: value for key, value in merged.items() if key in retained}
    for key, value in patch.items():
        if key in _DIRECTIVES or key.startswith("$setElementOrder/"):
            continue
        if key.startswith("$deleteFromPrimitiveList/"):
            field = key.partition("/")[2]
            if field in merged:
                merged[field] = [item for item in merged[field] if item not in value]
        elif value is None:
            merged.pop(key, None)
        elif isinstance(value, dict):
            old = merged.get(key)
            merged[key] = _merge_maps(old if isinstance(old, dict) else {}, value, key)
        elif isinstance(value, list):
            order = patch.get(f"$setElementOrder/{key}")
            merged[key] = _merge_lists(key, name, merged.get(key), value, order)
        else:
            merged[key] = value
    for key, order in patch.items():
        field = key.partition("/")[2]
        if key.startswith("$setElementOrder/") and field not in patch and field in merged:
            old = merged[field]
            merged[field] = _ordered(old, order, old, merge_key(field, name))
    return merged


def _merge_lists(field: str, parent: str, target: Any, patch: list[Any], order: Any) -> list[Any]:
    old: list[Any] = target if isinstance(target, list) else []
    if field in PRIMITIVE_SETS:
        joined = [*old, *(item for item in patch if item not in old)]
        return _ordered(joined, patch if order is None else order, old, None)
    key = merge_key(field, parent)
    if key is None or not all(isinstance(item, dict) for item in [*old, *patch]):
        return patch
    if any(item.get("$patch") == "replace" for item in patch):
        return [item for item in patch if item.get("$patch") != "replace"]
    merged = list(old)
    for item in patch:
        if key not in item:
            raise errors.bad_request(f"map: {item} does not contain declared merge key: {key}")
        place = next((i for i, was in enumerate(merged) if was.get(key) == item[key]), None)
        if item.get("$patch") == "delete":
            if place is not None:
                del merged[place]
        elif place is None:
            merged.append(_merge_maps({}, item, field))
        else:
            merged[place] = _merge_maps(merged[place], item, field)
    return _ordered(merged, patch if order is None else order, old, key)


def _ordered(items: list[Any], order: list[Any], old: list[Any], key: str | None) -> list[Any]:
    """Items that `order` names, in its order, merged with the others, in that of `old`.

    As the real server: of two items that both were there, the one that came first comes first;
    otherwise the named one does.
    """

    def identity(item: Any) -> Any:
        return item.get(key) if key is not None and isinstance(item, dict) else item

    wanted, before = [identity(entry) for entry in order], [identity(entry) for entry in old]
    named = [item for item in items if identity(item) in wanted]
    named.sort(key=lambda item: wanted.index(identity(item)))
    others = [item for item in items if identity(item) not in wanted]
    result: list[Any] = []
    while named and others:
        first, second = identity(others[0]), identity(named[0])
        both = first in before and second in before
        earlier = both and before.index(first) < before.index(second)
        result.append((others if earlier else named).pop(0))
    return result + named + others
