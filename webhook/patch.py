"""JSON Patch (RFC 6902) operations for a pod's labels and annotations, built without a diff.

Invariant: applied to the pod that they were built for, the operations change the given keys and
nothing else, whether the maps are there, null or absent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping


class Add(msgspec.Struct, frozen=True, gc=False, tag_field="op", tag="add"):
    """Sets the value at `path`, whether or not there is one."""

    path: str
    value: str | dict[str, str] | dict[str, dict[str, str]]


class Remove(msgspec.Struct, frozen=True, gc=False, tag_field="op", tag="remove"):
    """Removes the value at `path`, which is there."""

    path: str


Operation = Add | Remove
Changes = dict[str, str | None]
"""New values by key; None removes a key that is there."""


class _Pointers(dict[str, str]):
    """JSON pointers (RFC 6901) below one map, made once for each key: `~` and `/` are escaped."""

    def __init__(self, parent: str) -> None:
        super().__init__()
        self.parent = parent

    def __missing__(self, key: str) -> str:
        pointer = f"{self.parent}/{key.replace('~', '~0').replace('/', '~1')}"
        self[key] = pointer
        return pointer


_LABELS = _Pointers("/metadata/labels")
_ANNOTATIONS = _Pointers("/metadata/annotations")


def build_operations(
    labels: Changes,
    annotations: Changes,
    *,
    has_metadata: bool = True,
    has_labels: bool,
    has_annotations: bool,
) -> list[Operation]:
    """The operations that make both changes; `has_…` is False for what is absent or null."""
    if not has_metadata:
        maps = {"labels": _set(labels), "annotations": _set(annotations)}
        return [Add("/metadata", {name: values for name, values in maps.items() if values})]
    operations: list[Operation] = []
    if labels:
        _append(operations, _LABELS, labels, has_labels)
    if annotations:
        _append(operations, _ANNOTATIONS, annotations, has_annotations)
    return operations


def _append(
    operations: list[Operation], pointers: _Pointers, changes: Changes, exists: bool
) -> None:
    if not exists:
        operations.append(Add(pointers.parent, _set(changes)))
        return
    for key, value in changes.items():
        pointer = pointers[key]
        operations.append(Remove(pointer) if value is None else Add(pointer, value))


def _set(changes: Mapping[str, str | None]) -> dict[str, str]:
    return {key: value for key, value in changes.items() if value is not None}
