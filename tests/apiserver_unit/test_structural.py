"""Structural schemas: what is pruned, defaulted and refused, beyond what the contract asks."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apiserver.structural import pruner, validator

Object = dict[str, Any]

SCHEMA: Object = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "items": {
                    "type": "array",
                    "maxItems": 2,
                    "items": {
                        "type": "object",
                        "properties": {"a": {"type": "integer", "default": 1}},
                    },
                },
                "plain": {"type": "array"},
                "either": {"x-kubernetes-int-or-string": True},
                "maybe": {"type": "string", "nullable": True, "minLength": 2},
                "share": {"type": "number"},
                "flag": {"type": "boolean"},
                "any": {"type": "object", "additionalProperties": True},
                "object": {"type": "object", "x-kubernetes-embedded-resource": True,
                           "x-kubernetes-preserve-unknown-fields": True},
            },
        }
    },
}  # fmt: skip


def _pruned(spec: Object) -> tuple[Object, list[str]]:
    unknown: list[str] = []
    return pruner(SCHEMA)({"spec": spec}, "", unknown)["spec"], unknown


def test_lists_are_pruned_item_by_item() -> None:
    spec, unknown = _pruned({"items": [{"a": 2, "b": 3}, {"c": 4}], "plain": [{"x": 1}]})
    assert spec == {"items": [{"a": 2}, {"a": 1}], "plain": [{"x": 1}]}
    assert unknown == ["spec.items[0].b", "spec.items[1].c"]


def test_free_and_embedded_objects_are_kept_whole() -> None:
    body = {"any": {"x": {"y": 1}}, "object": {"apiVersion": "v1", "kind": "Pod", "z": 1}}
    assert _pruned(body) == (body, [])


def test_the_source_is_not_shared() -> None:
    body = {"any": {"x": {"y": 1}}}
    spec, _ = _pruned(body)
    spec["any"]["x"]["y"] = 2
    assert body == {"any": {"x": {"y": 1}}}


@pytest.mark.parametrize(
    ("spec", "fields"),
    [
        pytest.param({"items": [{"a": 1}, {"a": "x"}]}, ["spec.items[1].a"], id="item"),
        pytest.param({"items": [{}, {}, {}]}, ["spec.items"], id="too many items"),
        pytest.param({"either": 1}, [], id="int or string: int"),
        pytest.param({"either": "1"}, [], id="int or string: string"),
        pytest.param({"either": True}, ["spec.either"], id="int or string: bool"),
        pytest.param({"maybe": None}, [], id="null"),
        pytest.param({"maybe": "x"}, ["spec.maybe"], id="too short"),
        pytest.param({"share": 1}, [], id="whole number"),
        pytest.param({"share": True}, ["spec.share"], id="bool for a number"),
        pytest.param({"flag": True}, [], id="bool"),
        pytest.param({"flag": "true"}, ["spec.flag"], id="text for a bool"),
        pytest.param({"flag": None}, ["spec.flag"], id="null that is not allowed"),
    ],
)
def test_validation(spec: Object, fields: list[str]) -> None:
    assert [cause.field for cause in validator(SCHEMA)({"spec": spec})] == fields
