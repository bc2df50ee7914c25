"""Events: one store, two shapes."""

from __future__ import annotations

import pytest

from tests.contract.api import Api, Object, names, ok, refused


@pytest.fixture
def core(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/events"


@pytest.fixture
def new(namespace: str) -> str:
    return f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"


def _event(namespace: str, name: str = "web.1", **more: object) -> Object:
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name},
        "eventTime": "2026-01-02T03:04:05.678901Z",
        "type": "Normal",
        "reason": "ReapedTerminal",
        "action": "Delete",
        "note": "it was over",
        "reportingController": "podstamp.dev/controller",
        "reportingInstance": "controller-0",
        "regarding": {"apiVersion": "v1", "kind": "Pod", "name": "web", "namespace": namespace,
                      "uid": "u-1"},
        **more,
    }  # fmt: skip


def test_an_event_is_read_in_both_shapes(api: Api, namespace: str, core: str, new: str) -> None:
    made = api.create(new, _event(namespace))
    assert made["note"] == "it was over"
    assert made["eventTime"] == "2026-01-02T03:04:05.678901Z"
    old = api.read(f"{core}/web.1")
    assert (old["apiVersion"], old["kind"]) == ("v1", "Event")
    assert old["message"] == "it was over"
    assert old["involvedObject"]["uid"] == "u-1"
    assert old["reportingComponent"] == "podstamp.dev/controller"
    assert "note" not in old
    assert old["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


def test_a_core_event_is_read_in_the_new_shape(
    api: Api, namespace: str, core: str, new: str
) -> None:
    event = {
        "metadata": {"name": "old"},
        "involvedObject": {"kind": "Pod", "name": "web", "namespace": namespace},
        "reason": "Started",
        "message": "hello",
        "type": "Normal",
        "count": 3,
        "source": {"component": "kubelet"},
        "firstTimestamp": "2026-01-02T03:04:05Z",
        "lastTimestamp": "2026-01-02T03:05:05Z",
    }
    api.create(core, event)
    read = api.read(f"{new}/old")
    assert read["note"] == "hello"
    assert read["deprecatedCount"] == 3
    assert read["deprecatedSource"] == {"component": "kubelet"}
    assert read["deprecatedLastTimestamp"] == "2026-01-02T03:05:05Z"
    assert names(api.read(new)) == names(api.read(core)) == ["old"]


def test_fields_select_in_both_shapes(api: Api, namespace: str, core: str, new: str) -> None:
    api.create(new, _event(namespace, "a"))
    other = {"kind": "Pod", "name": "db", "namespace": namespace}
    api.create(new, _event(namespace, "b", regarding=other, reason="Other", type="Warning"))
    assert names(api.read(core, fieldSelector="involvedObject.name=web")) == ["a"]
    assert names(api.read(new, fieldSelector="regarding.name=db")) == ["b"]
    assert names(api.read(core, fieldSelector="reason=Other")) == ["b"]
    assert names(api.read(core, fieldSelector="type!=Warning")) == ["a"]
    assert names(api.read(core, fieldSelector="involvedObject.uid=u-1")) == ["a"]


def test_a_series_is_patched_on(api: Api, namespace: str, core: str, new: str) -> None:
    api.create(new, _event(namespace))
    series = {"count": 2, "lastObservedTime": "2026-01-02T03:06:05.000000Z"}
    assert api.change(f"{new}/web.1", {"series": series})["series"] == series
    assert api.read(f"{core}/web.1")["series"] == series


@pytest.mark.parametrize(
    "field", ["reportingController", "reportingInstance", "action", "reason", "eventTime"]
)
def test_a_new_event_needs_its_fields(api: Api, namespace: str, new: str, field: str) -> None:
    event = {key: value for key, value in _event(namespace).items() if key != field}
    status = refused(api.post(new, event), 422, "Invalid")
    assert field in status["message"]


def test_a_note_is_at_most_1024_long(api: Api, namespace: str, new: str) -> None:
    refused(api.post(new, _event(namespace, note="x" * 1025)), 422, "Invalid")
    api.create(new, _event(namespace, note="x" * 1024))


def test_a_core_event_belongs_to_the_namespace_of_its_object(
    api: Api, namespace: str, core: str
) -> None:
    involved = {"kind": "Pod", "name": "web", "namespace": "elsewhere"}
    event = {"metadata": {"name": "old"}, "involvedObject": involved}
    status = refused(api.post(core, event), 422, "Invalid")
    assert "does not match event.namespace" in status["message"]
    api.create(core, {**event, "involvedObject": {**involved, "namespace": namespace}})


def test_only_the_series_of_a_new_event_changes(api: Api, namespace: str, new: str) -> None:
    api.create(new, _event(namespace))
    refused(api.patch(f"{new}/web.1", {"note": "other"}), 422, "Invalid")
    once = {"count": 1, "lastObservedTime": "2026-01-02T03:06:05.000000Z"}
    refused(api.patch(f"{new}/web.1", {"series": once}), 422, "Invalid")


def test_an_update_creates_an_event(api: Api, namespace: str, new: str) -> None:
    ok(api.put(f"{new}/web.1", _event(namespace)), 201)
    assert names(api.read(new)) == ["web.1"]
