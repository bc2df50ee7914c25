"""With the webhook down, only what has to wait waits, and everything else goes through."""

import json
from collections.abc import Iterator

import pytest

from tests.controlplane import ControlPlane
from tests.e2e.installation import MANIFESTS, Installation
from tests.e2e.pods import pod, text
from tests.e2e.status import ENDED
from tests.e2e.steps import create, let_go
from tests.e2e.waiting import eventually
from tests.kubectl import Kubectl

NODE = "e2e-node"
EVICTION = '{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"%s","namespace":"%s"}}'


@pytest.fixture
def managed(kubectl: Kubectl, namespace: str, podstamp: Installation) -> Iterator[str]:
    """An enabled namespace with managed pods from before, and then no webhook."""
    pods = [
        pod("engine", namespace, node=NODE),
        pod("evicted", namespace),
        pod("held", namespace, finalizers=["example.com/hold"]),
        pod("waiting", namespace),
    ]
    create(kubectl, *pods)
    podstamp.stop_webhook()
    yield namespace
    podstamp.start_webhook()


def test_creates_in_enabled_namespaces_wait_and_no_others(kubectl: Kubectl, managed: str) -> None:
    refused = kubectl.run("create", "-f", "-", stdin=text(pod("new", managed)))
    assert refused.code == 1
    assert "create.mutate.podstamp.dev" in refused.err
    for namespace in ("default", "kube-system", "podstamp-system"):
        made = pod("outside", namespace)
        made["spec"] |= {"securityContext": {"runAsNonRoot": True, "runAsUser": 1}}
        made["spec"]["securityContext"]["seccompProfile"] = {"type": "RuntimeDefault"}
        made["spec"]["containers"][0]["securityContext"] = {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        }
        create(kubectl, made)
        kubectl("delete", "pod", "outside", "-n", namespace)


def test_stamps_wait_and_adapters_do_not(kubectl: Kubectl, managed: str) -> None:
    refused = kubectl.run(
        "label", "pod", "waiting", "-n", managed, "--overwrite", "podstamp.dev/podset-index=3"
    )
    assert refused.code == 1
    kubectl("annotate", "pod", "waiting", "-n", managed, "podstamp.dev/adapters=sql")
    kubectl("label", "pod", "waiting", "-n", managed, "team=blue")
    found = kubectl.json("get", "pod", "waiting", "-n", managed)["metadata"]
    assert found["labels"]["team"] == "blue"
    assert found["annotations"]["podstamp.dev/adapters"] == "sql"


def test_a_kubelet_reports_and_finishes_a_pod(
    kubectl: Kubectl, managed: str, plane: ControlPlane
) -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}}
    create(kubectl, node)
    kubelet = Kubectl(plane.kubeconfig_for(f"system:node:{NODE}", ["system:nodes"]), kubectl.home)
    kubectl("delete", "pod", "engine", "-n", managed, "--wait=false")
    reported = kubectl.json("get", "pod", "engine", "-n", managed)
    reported["status"] |= {"phase": "Succeeded", **ENDED}
    path = f"/api/v1/namespaces/{managed}/pods/engine/status"
    kubelet("replace", "--raw", path, "-f", "-", stdin=json.dumps(reported))
    kubelet("delete", "pod", "engine", "-n", managed, "--grace-period=0", "--force")
    assert kubectl.run("get", "pod", "engine", "-n", managed).code == 1
    kubectl("delete", "node", NODE)


def test_evictions_finalizers_and_debugging_go_through(kubectl: Kubectl, managed: str) -> None:
    path = f"/api/v1/namespaces/{managed}/pods/evicted/eviction"
    kubectl("create", "--raw", path, "-f", "-", stdin=EVICTION % ("evicted", managed))
    assert kubectl.run("get", "pod", "evicted", "-n", managed).code == 1
    kubectl("delete", "pod", "held", "-n", managed, "--wait=false")
    let_go(kubectl, managed, "pod", "held")
    assert kubectl.run("get", "pod", "held", "-n", managed).code == 1
    kubectl("debug", "waiting", "-n", managed, "--image=busybox", "--profile=general",
            "--attach=false", "--", "sleep", "1")  # fmt: skip


def test_with_create_on_ignore_pods_are_born_unmanaged(
    kubectl: Kubectl, managed: str, podstamp: Installation
) -> None:
    text_of_switch = (MANIFESTS / "overlays" / "ignore-create" / "webhooks.yaml").read_text()
    for document in text_of_switch.split("---\n"):
        kind = document.split("kind: ")[1].split()[0]
        kubectl("patch", kind, "podstamp", "--type=strategic", "-p", document)
    try:
        eventually(
            lambda: kubectl.run("create", "-f", "-", stdin=text(pod("new", managed))).code == 0,
            "the switch counts",
        )
        assert "annotations" not in kubectl.json("get", "pod", "new", "-n", managed)["metadata"]
    finally:
        podstamp.apply()
    eventually(
        lambda: kubectl.run("create", "-f", "-", stdin=text(pod("newer", managed))).code == 1,
        "CREATE is on Fail again",
    )
