"""The versioned store, without a server."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.apiserver import storage
from tests.apiserver.storage import Storage, TooOld

pytestmark = pytest.mark.anyio


def _put(store: Storage, name: str, namespace: str = "ns", **more: Any) -> int:
    obj = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **more}}
    return store.put("pods", namespace, name, obj).version


def _pending(subscription: storage.Subscription) -> list[tuple[str, str]]:
    return [(change.type, change.new.name) for change in subscription.pending]


async def test_an_object_given_is_not_changed_and_its_json_is_kept() -> None:
    store = Storage()
    obj = {"metadata": {"name": "a"}}
    record = store.put("pods", "ns", "a", obj)
    assert obj == {"metadata": {"name": "a"}}
    assert msgspec.json.decode(record.raw) == record.object
    assert record.object["metadata"]["resourceVersion"] == str(record.version)


async def test_versions_grow_over_all_resources() -> None:
    store = Storage()
    first = _put(store, "a")
    other = store.put("nodes", "", "n", {"metadata": {"name": "n"}}).version
    second = _put(store, "b")
    gone = store.remove("pods", "ns", "a").version
    assert first < other < second < gone == store.revision
    assert store.resource_revision("nodes") == other
    assert store.resource_revision("pods") == gone
    assert store.resource_revision("secrets") == 0


async def test_a_subscription_tells_what_it_missed_then_what_comes() -> None:
    store = Storage()
    version = _put(store, "a")
    _put(store, "b")
    store.remove("pods", "ns", "a")
    subscription = store.subscribe("pods", "", version)
    assert _pending(subscription) == [("ADDED", "b"), ("DELETED", "a")]
    _put(store, "b")
    assert _pending(subscription)[2:] == [("MODIFIED", "b")]
    store.unsubscribe("pods", subscription)
    _put(store, "c")
    assert len(subscription.pending) == 3


async def test_a_removal_tells_the_last_state_under_its_own_version() -> None:
    store = Storage()
    _put(store, "a", labels={"x": "y"})
    subscription = store.subscribe("pods", "ns", store.revision)
    store.remove("pods", "ns", "a")
    (change,) = subscription.pending
    assert change.new.object["metadata"]["labels"] == {"x": "y"}
    assert change.new.object["metadata"]["resourceVersion"] == str(store.revision)


async def test_history_is_bounded_and_says_what_it_forgot() -> None:
    store = Storage(history=2)
    versions = [_put(store, name) for name in "abcd"]
    with pytest.raises(TooOld, match=str(versions[1])):
        store.subscribe("pods", "", versions[0])
    assert _pending(store.subscribe("pods", "", versions[1])) == [("ADDED", "c"), ("ADDED", "d")]


async def test_the_past_is_undone_change_by_change() -> None:
    store = Storage()
    _put(store, "b")
    version = _put(store, "a", labels={"v": "1"})
    _put(store, "a", labels={"v": "2"})
    store.remove("pods", "ns", "b")
    _put(store, "c", namespace="other")
    past = store.list_at("pods", None, version)
    assert [(r.name, r.object["metadata"].get("labels")) for r in past] == [
        ("a", {"v": "1"}),
        ("b", None),
    ]
    assert [r.name for r in store.list_at("pods", "other", version)] == []
    assert [r.name for r in store.list("pods")] == ["a", "c"]
