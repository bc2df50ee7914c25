"""Strategic merge and merge patch, without a server."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apiserver.errors import StatusError
from tests.apiserver.patch import merge_patch, strategic_merge

Json = dict[str, Any]


def _spec(**fields: Any) -> Json:
    return {"spec": fields}


CASES: list[Any] = [
    pytest.param({"a": 1, "b": 2}, {"a": None, "c": 3}, {"b": 2, "c": 3}, id="maps"),
    pytest.param({"a": {"x": 1}}, {"a": {"y": 2}}, {"a": {"x": 1, "y": 2}}, id="maps within"),
    pytest.param({"a": 1}, {"a": {"y": 2}}, {"a": {"y": 2}}, id="a map over a number"),
    pytest.param(
        {"a": {"x": 1}}, {"a": {"$patch": "replace", "y": 2}}, {"a": {"y": 2}}, id="replace a map"
    ),
    pytest.param({"a": {"x": 1}}, {"a": {"$patch": "delete"}}, {"a": {}}, id="delete a map"),
    pytest.param(
        {"a": {"x": 1, "y": 2}},
        {"a": {"$retainKeys": ["y", "z"], "z": 3}},
        {"a": {"y": 2, "z": 3}},
        id="retained keys",
    ),
    pytest.param(
        _spec(containers=[{"name": "a", "image": "1"}, {"name": "b", "image": "1"}]),
        _spec(containers=[{"name": "b", "image": "2"}, {"name": "c", "image": "3"}]),
        _spec(
            containers=[
                {"name": "a", "image": "1"},
                {"name": "b", "image": "2"},
                {"name": "c", "image": "3"},
            ]
        ),
        id="lists by key",
    ),
    pytest.param(
        _spec(containers=[{"name": "a"}, {"name": "b"}]),
        _spec(containers=[{"name": "a", "$patch": "delete"}, {"name": "zz", "$patch": "delete"}]),
        _spec(containers=[{"name": "b"}]),
        id="delete from a list",
    ),
    pytest.param(
        _spec(containers=[{"name": "a"}, {"name": "b"}]),
        _spec(containers=[{"$patch": "replace"}, {"name": "c"}]),
        _spec(containers=[{"name": "c"}]),
        id="replace a list",
    ),
    pytest.param(
        _spec(containers=[{"name": "a"}, {"name": "b"}, {"name": "c"}]),
        {
            "spec": {
                "$setElementOrder/containers": [{"name": "c"}, {"name": "a"}, {"name": "b"}],
                "containers": [{"name": "b", "image": "2"}],
            }
        },
        _spec(containers=[{"name": "c"}, {"name": "a"}, {"name": "b", "image": "2"}]),
        id="order of a list",
    ),
    pytest.param(
        _spec(volumes=[{"name": "a"}, {"name": "b"}]),
        {"spec": {"$setElementOrder/volumes": [{"name": "b"}, {"name": "a"}]}},
        _spec(volumes=[{"name": "b"}, {"name": "a"}]),
        id="order alone",
    ),
    pytest.param(
        _spec(tolerations=[{"key": "a"}]),
        _spec(tolerations=[{"key": "b"}]),
        _spec(tolerations=[{"key": "b"}]),
        id="lists without a key are replaced",
    ),
    pytest.param(
        {"finalizers": ["a", "b"]},
        {"finalizers": ["b", "c"]},
        {"finalizers": ["a", "b", "c"]},
        id="sets are joined",
    ),
    pytest.param(
        {"finalizers": ["a", "b", "c"]},
        {"$deleteFromPrimitiveList/finalizers": ["a", "c"]},
        {"finalizers": ["b"]},
        id="delete from a set",
    ),
    pytest.param(
        {"conditions": [{"type": "Ready", "status": "False"}, {"type": "Other"}]},
        {"conditions": [{"type": "Ready", "status": "True"}]},
        {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Other"}]},
        id="conditions by type",
    ),
    pytest.param(
        _spec(ports=[{"port": 80, "name": "a"}, {"port": 81}]),
        _spec(ports=[{"port": 80, "name": "b"}]),
        _spec(ports=[{"port": 80, "name": "b"}, {"port": 81}]),
        id="ports of a service",
    ),
    pytest.param(
        _spec(containers=[{"name": "a", "ports": [{"containerPort": 1}, {"containerPort": 2}]}]),
        _spec(containers=[{"name": "a", "ports": [{"containerPort": 2, "name": "x"}]}]),
        _spec(
            containers=[
                {"name": "a", "ports": [{"containerPort": 1}, {"containerPort": 2, "name": "x"}]}
            ]
        ),
        id="ports of a container",
    ),
    pytest.param(
        {"ports": [{"port": 80}]},
        {"ports": [{"port": 81}]},
        {"ports": [{"port": 81}]},
        id="ports of an endpoint slice are replaced",
    ),
]


@pytest.mark.parametrize(("target", "patch", "merged"), CASES)
def test_strategic_merge(target: Json, patch: Json, merged: Json) -> None:
    before = repr((target, patch))
    assert strategic_merge(target, patch) == merged
    assert repr((target, patch)) == before


def test_an_item_without_its_key_is_refused() -> None:
    with pytest.raises(StatusError, match="does not contain declared merge key: name"):
        strategic_merge(_spec(containers=[{"name": "a"}]), _spec(containers=[{"image": "x"}]))


@pytest.mark.parametrize(
    ("target", "patch", "merged"),
    [
        pytest.param({"a": "b"}, {"a": "c"}, {"a": "c"}, id="replace"),
        pytest.param({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}, id="nest"),
        pytest.param({"a": [1, 2]}, {"a": [3]}, {"a": [3]}, id="lists are replaced"),
        pytest.param({"a": "b"}, {"a": {"x": None, "y": 1}}, {"a": {"y": 1}}, id="map over text"),
        pytest.param(["a"], {"b": 1}, {"b": 1}, id="map over a list"),
        pytest.param({"a": 1}, ["x"], ["x"], id="list over a map"),
    ],
)
def test_merge_patch(target: Any, patch: Any, merged: Any) -> None:
    before = repr((target, patch))
    assert merge_patch(target, patch) == merged
    assert repr((target, patch)) == before
