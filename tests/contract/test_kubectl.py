"""kubectl, as people use it: few calls, each for something that only kubectl asks of a server."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.contract.api import Api, ok, pod, until
from tests.kubectl import KUBECTL, Kubectl

POD = """
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  containers:
  - {name: server, image: "registry.example/server:1", ports: [{containerPort: 80}]}
"""


@contextmanager
def running(k: Kubectl, *args: str) -> Iterator[subprocess.Popen[bytes]]:
    """A call that goes on beside the test; it is ended with the block."""
    command = [str(KUBECTL), "--kubeconfig", str(k.kubeconfig), *k.global_args, *args]
    home = {"HOME": str(k.home)}
    with subprocess.Popen(command, env=home, stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.terminate()


@pytest.fixture
def k(kubectl: Kubectl, namespace: str) -> Kubectl:
    """kubectl in the test's own namespace."""
    return Kubectl(kubectl.kubeconfig, kubectl.home, global_args=("-n", namespace))


def test_apply_creates_then_changes_then_leaves_alone(k: Kubectl) -> None:
    assert k("apply", "-f", "-", stdin=POD) == "pod/web created\n"
    assert k("apply", "-f", "-", stdin=POD) == "pod/web unchanged\n"
    changed = POD.replace("server:1", "server:2").replace("{app: web}", "{tier: back}")
    assert k("apply", "-f", "-", stdin=changed) == "pod/web configured\n"
    stored = k.json("get", "pod", "web")
    assert stored["metadata"]["labels"] == {"tier": "back"}
    assert stored["spec"]["containers"][0]["image"] == "registry.example/server:2"


def test_a_field_that_is_not_there_is_refused(k: Kubectl) -> None:
    answer = k.run(
        "apply", "-f", "-", stdin=POD.replace("containers:", "restart: x\n  containers:")
    )
    assert answer.code == 1
    assert 'strict decoding error: unknown field "spec.restart"' in answer.err


def test_get_prints_the_servers_columns(k: Kubectl, api: Api, pods: str) -> None:
    api.create(pods, pod("web", node="node-1"))
    running = {
        "phase": "Running",
        "podIP": "10.1.2.3",
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [
            {"name": "server", "ready": True, "restartCount": 2, "image": "i", "imageID": "i",
             "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}
        ],
    }  # fmt: skip
    api.change(f"{pods}/web/status", {"status": running})
    header, row = k("get", "pods", "-o", "wide").splitlines()
    assert header.split()[:7] == ["NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP", "NODE"]
    assert re.match(r"web +1/1 +Running +2 +\d+s +10\.1\.2\.3 +node-1 ", row)
    ok(api.delete(f"{pods}/web"))
    assert "Terminating" in k("get", "pods", "--no-headers")
    ok(api.delete(f"{pods}/web", gracePeriodSeconds=0))


def test_get_events_prints_what_happened(k: Kubectl, api: Api, namespace: str) -> None:
    event = {
        "metadata": {"name": "web.1"},
        "eventTime": "2026-01-02T03:04:05.678901Z",
        "type": "Warning",
        "reason": "ReapedTerminal",
        "action": "Delete",
        "note": "it was over",
        "reportingController": "podstamp.dev/controller",
        "reportingInstance": "controller-0",
        "regarding": {"kind": "Pod", "name": "web", "namespace": namespace},
    }
    api.create(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events", event)
    header, row = k("get", "events").splitlines()
    assert header.split() == ["LAST", "SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]
    assert row.split()[1:] == ["Warning", "ReapedTerminal", "pod/web", "it", "was", "over"]


def test_labels_annotations_and_patches(k: Kubectl, api: Api, pods: str) -> None:
    api.create(pods, pod("web"))
    assert k("label", "pod", "web", "a=b", "c=d") == "pod/web labeled\n"
    assert k("annotate", "pod", "web", "e=f") == "pod/web annotated\n"
    k("label", "pod", "web", "a-")
    image = {"spec": {"containers": [{"name": "server", "image": "server:9"}]}}
    assert k("patch", "pod", "web", "-p", json.dumps(image)) == "pod/web patched\n"
    stored = api.read(f"{pods}/web")
    assert stored["metadata"]["labels"] == {"c": "d"}
    assert stored["metadata"]["annotations"] == {"e": "f"}
    assert stored["spec"]["containers"][0]["image"] == "server:9"


def test_typed_commands_are_read(k: Kubectl, namespace: str) -> None:
    assert k("create", "configmap", "c", "--from-literal=x=y") == "configmap/c created\n"
    assert k("create", "secret", "generic", "s", "--from-literal=p=q") == "secret/s created\n"
    assert k("create", "serviceaccount", "bot") == "serviceaccount/bot created\n"
    assert len(k("create", "token", "bot").strip()) > 30
    assert k.json("get", "secret", "s")["data"] == {"p": "cQ=="}


def test_delete_waits_until_it_is_gone(k: Kubectl, api: Api, pods: str) -> None:
    api.create(pods, pod("web", finalizers=["example.dev/one"]))
    with running(k, "delete", "pod", "web") as process:
        until(lambda: "deletionTimestamp" in api.read(f"{pods}/web")["metadata"])
        assert process.poll() is None
        api.change(f"{pods}/web", {"metadata": {"finalizers": None}})
        out, _ = process.communicate(timeout=20)
    assert process.returncode == 0
    assert b'pod "web" deleted' in out


def test_wait_sees_a_condition(k: Kubectl, api: Api, pods: str) -> None:
    api.create(pods, pod("web"))
    with running(k, "wait", "--for=condition=Ready", "pod/web", "--timeout=20s") as process:
        ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        api.change(f"{pods}/web/status", ready)
        out, _ = process.communicate(timeout=25)
    assert out == b"pod/web condition met\n"


def test_get_watch_prints_changes(k: Kubectl, api: Api, pods: str) -> None:
    api.create(pods, pod("a"))
    columns = "custom-columns=NAME:.metadata.name"
    with running(k, "get", "pods", "-w", "-o", columns) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == [b"NAME\n", b"a\n"]
        api.create(pods, pod("b"))
        assert process.stdout.readline() == b"b\n"


def test_describe_shows_the_pod_and_its_events(k: Kubectl, api: Api, pods: str) -> None:
    made = api.create(pods, pod("web", annotations={"a": "1"}))
    namespace = made["metadata"]["namespace"]
    api.create(
        f"/api/v1/namespaces/{namespace}/events",
        {
            "metadata": {"name": "web.1"},
            "involvedObject": {
                "kind": "Pod",
                "name": "web",
                "namespace": namespace,
                "uid": made["metadata"]["uid"],
            },
            "reason": "Started",
            "message": "hello there",
            "type": "Normal",
        },
    )
    shown = k("describe", "pod", "web")
    assert re.search(r"Name: +web\n", shown)
    assert re.search(r"Annotations: +a: 1\n", shown)
    assert re.search(r"Normal +Started .*hello there", shown)


def test_explain_knows_the_fields(k: Kubectl) -> None:
    shown = k("explain", "pod.spec.containers.ports")
    assert "FIELD: ports <[]ContainerPort>" in shown
    assert re.search(r"containerPort\t<integer> -required-", shown)


def test_a_missing_object_is_told_in_one_line(k: Kubectl) -> None:
    answer = k.run("get", "pod", "nope")
    assert answer.code == 1
    assert answer.err == 'Error from server (NotFound): pods "nope" not found\n'
