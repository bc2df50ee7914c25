"""Patch operations against an RFC 6902 library."""

from __future__ import annotations

from typing import Any

import jsonpatch
import msgspec
import pytest

from webhook.patch import build_operations

CHANGES: dict[str, str | None] = {"a/b": "1", "t~x/y~1": "2", 'q"': "ä", "": "empty"}


def apply(pod: dict[str, Any], labels: Any, annotations: Any) -> dict[str, Any]:
    metadata = pod.get("metadata")
    operations = build_operations(
        labels,
        annotations,
        has_metadata=metadata is not None,
        has_labels=metadata is not None and metadata.get("labels") is not None,
        has_annotations=metadata is not None and metadata.get("annotations") is not None,
    )
    patched: dict[str, Any] = jsonpatch.apply_patch(pod, msgspec.to_builtins(operations))
    return patched


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"labels": None, "annotations": None},
        {"labels": {}, "annotations": {}},
        {"labels": {"k~/": "v"}, "annotations": {"a/b": "old", "~0": "x"}},
    ],
    ids=["absent", "null", "empty", "filled"],
)
def test_keys_are_set_and_all_else_stays(metadata: dict[str, Any]) -> None:
    pod = {"kind": "Pod", "metadata": {"name": "p"} | metadata}
    patched = apply(pod, CHANGES, CHANGES)
    assert patched == {
        "kind": "Pod",
        "metadata": {
            "name": "p",
            "labels": (metadata.get("labels") or {}) | CHANGES,
            "annotations": (metadata.get("annotations") or {}) | CHANGES,
        },
    }


@pytest.mark.parametrize("pod", [{"kind": "Pod"}, {"kind": "Pod", "metadata": None}])
def test_absent_metadata_is_made(pod: dict[str, Any]) -> None:
    assert apply(pod, {"a": "1"}, {}) == {"kind": "Pod", "metadata": {"labels": {"a": "1"}}}


def test_a_key_is_removed() -> None:
    pod = {"metadata": {"labels": {"a/b": "1", "c": "2"}, "annotations": {"~": "x"}}}
    patched = apply(pod, {"a/b": None}, {"~": None, "n": "1"})
    assert patched == {"metadata": {"labels": {"c": "2"}, "annotations": {"n": "1"}}}


def test_a_map_without_changes_is_not_touched() -> None:
    assert build_operations({}, {}, has_labels=False, has_annotations=True) == []
