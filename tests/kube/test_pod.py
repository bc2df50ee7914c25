from typing import Any

import msgspec
import pytest

from kube.decode import decode_object
from kube.errors import Unreadable
from kube.pod import (
    Pod,
    condition,
    controller_of,
    is_live,
    is_ready,
    is_terminal,
    is_terminating,
)


def pod(content: Any) -> Pod:
    return decode_object(msgspec.json.encode(content), Pod)


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"metadata": {}, "spec": {}, "status": {}},
        {"metadata": {"unknown": [1, {"a": None}]}, "extra": 3},
        {"metadata": None, "spec": None, "status": None},
        {"metadata": {"labels": None, "annotations": None, "ownerReferences": None}},
        {"spec": {"containers": None}, "status": {"conditions": None, "podIP": None}},
    ],
    ids=["nothing", "empty", "unknown fields", "nulls", "null maps", "null lists"],
)
def test_what_is_absent_or_null_has_a_safe_default(content: Any) -> None:
    found = pod(content)
    assert found == Pod()
    assert found.key == ("", "")
    assert is_live(found)
    assert not is_ready(found)
    assert controller_of(found) is None


@pytest.mark.parametrize(
    "content",
    [
        {"metadata": {"labels": ["a"]}},
        {"metadata": {"uid": 7}},
        {"metadata": {"deletionTimestamp": "yesterday"}},
        {"status": {"containerStatuses": {"name": "a"}}},
        [],
    ],
    ids=["labels", "uid", "time", "statuses", "list"],
)
def test_a_field_of_another_type_is_an_error(content: Any) -> None:
    with pytest.raises(Unreadable, match="does not fit"):
        pod(content)


def test_the_fields_that_are_read_come_from_their_kubernetes_names() -> None:
    found = pod(
        {
            "metadata": {
                "name": "a",
                "namespace": "ns",
                "uid": "U",
                "resourceVersion": "7",
                "creationTimestamp": "2026-01-02T03:04:05Z",
                "finalizers": ["x/y"],
                "labels": {"podstamp.dev/managed": "true"},
                "annotations": {
                    "podstamp.dev/incarnation": "I",
                    "podstamp.dev/adapters": "",
                    "podstamp.dev/adapters-digest": "d",
                    "podstamp.dev/retired": "replaced",
                    "podstamp.dev/retired-at": "t",
                    "podstamp.dev/restore": "true",
                    "lora-modified": "l",
                    "other": "o",
                },
            },
            "spec": {
                "nodeName": "n",
                "containers": [{"name": "c", "ports": [{"name": "http", "containerPort": 80}]}],
                "readinessGates": [{"conditionType": "g"}],
            },
            "status": {
                "phase": "Running",
                "reason": "r",
                "podIP": "10.0.0.1",
                "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}],
                "conditions": [{"type": "Ready", "status": "True"}],
                "containerStatuses": [
                    {
                        "name": "c",
                        "restartCount": 2,
                        "containerID": "containerd://1",
                        "started": True,
                        "state": {"running": {"startedAt": "2026-01-02T03:04:05Z"}},
                    }
                ],
                "initContainerStatuses": [
                    {"name": "i", "state": {"terminated": {"exitCode": 3, "reason": "Error"}}}
                ],
                "ephemeralContainerStatuses": [
                    {"name": "e", "state": {"waiting": {"reason": "PodInitializing"}}}
                ],
            },
        }
    )
    meta, status = found.metadata, found.status
    assert found.key == ("ns", "a")
    assert (meta.uid, meta.resource_version, meta.finalizers) == ("U", "7", ("x/y",))
    assert meta.creation_timestamp is not None
    assert meta.creation_timestamp.isoformat() == "2026-01-02T03:04:05+00:00"
    assert meta.labels == {"podstamp.dev/managed": "true"}
    stamps = meta.annotations
    assert (stamps.incarnation, stamps.adapters, stamps.adapters_digest) == ("I", "", "d")
    assert (stamps.retired, stamps.retired_at, stamps.restore) == ("replaced", "t", "true")
    assert stamps.lora_modified == "l"
    assert found.spec.node_name == "n"
    assert found.spec.containers[0].ports[0].container_port == 80
    assert found.spec.readiness_gates[0].condition_type == "g"
    assert (status.phase, status.reason, status.pod_ip) == ("Running", "r", "10.0.0.1")
    assert [entry.ip for entry in status.pod_ips] == ["10.0.0.1", "fd00::1"]
    running = status.container_statuses[0]
    assert (running.name, running.restart_count, running.container_id, running.started) == (
        "c",
        2,
        "containerd://1",
        True,
    )
    assert running.state.running is not None
    assert running.state.waiting is None
    ended = status.init_container_statuses[0].state.terminated
    assert ended is not None
    assert (ended.exit_code, ended.reason) == (3, "Error")
    waiting = status.ephemeral_container_statuses[0].state.waiting
    assert waiting is not None
    assert waiting.reason == "PodInitializing"


@pytest.mark.parametrize(
    ("phase", "deleted", "terminal", "live"),
    [
        ("Pending", False, False, True),
        ("Running", False, False, True),
        ("Succeeded", False, True, False),
        ("Failed", False, True, False),
        ("Unknown", False, False, True),
        ("Hibernating", False, False, True),
        ("", False, False, True),
        ("Running", True, False, False),
        ("Failed", True, True, False),
    ],
)
def test_live_is_neither_terminal_nor_terminating(
    phase: str, deleted: bool, terminal: bool, live: bool
) -> None:
    meta = {"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleted else {}
    found = pod({"metadata": meta, "status": {"phase": phase}})
    assert is_terminal(found) == terminal
    assert is_terminating(found) == deleted
    assert is_live(found) == live


@pytest.mark.parametrize(
    ("conditions", "ready"),
    [
        ([("Ready", "True")], True),
        ([("Ready", "False")], False),
        ([("Ready", "Unknown")], False),
        ([("ContainersReady", "True")], False),
        ([("ContainersReady", "True"), ("Ready", "True")], True),
        ([], False),
    ],
)
def test_ready_is_the_condition_ready_alone(conditions: list[tuple[str, str]], ready: bool) -> None:
    entries = [{"type": kind, "status": status} for kind, status in conditions]
    assert is_ready(pod({"status": {"conditions": entries}})) == ready


def test_a_condition_is_found_by_its_type() -> None:
    found = pod({"status": {"conditions": [{"type": "A"}, {"type": "B", "status": "False"}]}})
    entry = condition(found, "B")
    assert entry is not None
    assert entry.status == "False"
    assert condition(found, "C") is None


def test_the_controller_is_the_owner_that_says_so() -> None:
    owners = [{"name": "first"}, {"name": "second", "kind": "PodSet", "controller": True}]
    owner = controller_of(pod({"metadata": {"ownerReferences": owners}}))
    assert owner is not None
    assert (owner.name, owner.kind) == ("second", "PodSet")


def test_equal_parts_of_two_pods_are_one_object_in_memory() -> None:
    def member(index: int) -> dict[str, Any]:
        return {
            "metadata": {
                "name": f"set-{index}",
                "labels": {"set": "a long set name"},
                "ownerReferences": [{"kind": "PodSet", "name": "set", "uid": "U"}],
            },
            "spec": {"containers": [{"name": "engine"}]},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        }

    one, two = pod(member(1)), pod(member(2))
    assert one.metadata.owner_references is two.metadata.owner_references
    assert one.spec.containers is two.spec.containers
    assert one.status.conditions is two.status.conditions
    assert one.metadata.labels["set"] is two.metadata.labels["set"]
    assert (one.metadata.name, two.metadata.name) == ("set-1", "set-2")
    assert one.metadata.labels is not two.metadata.labels
