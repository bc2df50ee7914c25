"""Pods that are over, on a real kube-apiserver: which go, which stay, and what a person sees."""

import re

import pytest

from tests.e2e.installation import Installation
from tests.e2e.pods import member, pod
from tests.e2e.status import RUNNING, fail, never_started, report
from tests.e2e.steps import INCARNATION, create, gone, let_go, names, new_podset
from tests.e2e.waiting import eventually
from tests.kubectl import Kubectl


def event_rows(kubectl: Kubectl, namespace: str, reason: str) -> list[list[str]]:
    """The rows of `kubectl get events` with that reason, cut into their five columns."""
    header, *rows = kubectl("get", "events", "-n", namespace).splitlines() or [""]
    assert not rows or header.split() == ["LAST", "SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]
    cut = [re.split(r"\s{2,}", row, maxsplit=4) for row in rows]
    return [row for row in cut if row[2] == reason]


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_ended_pods_of_a_podset_are_reaped_and_shown_in_events(
    kubectl: Kubectl, namespace: str, phase: str
) -> None:
    owner = new_podset(kubectl, namespace)
    create(kubectl, *(member(owner, index) for index in range(4)))
    incarnations = {
        item["metadata"]["name"]: item["metadata"]["annotations"][INCARNATION]
        for item in kubectl.json("get", "pods", "-n", namespace)["items"]
    }
    fail(kubectl, namespace, "llama-1", phase)
    fail(kubectl, namespace, "llama-2", phase)
    gone(kubectl, namespace, "llama-1", "llama-2")
    assert names(kubectl, namespace) == {"llama-0", "llama-3"}

    rows = eventually(
        lambda: (
            found if len(found := event_rows(kubectl, namespace, "ReapedTerminal")) == 4 else None
        ),
        "a record for each pod, on the pod and on its owner",
    )
    assert sorted(row[3] for row in rows) == [
        "pod/llama-1",
        "pod/llama-2",
        "podset/llama",
        "podset/llama",
    ]
    for name in ("llama-1", "llama-2"):
        [message] = [row[4] for row in rows if row[3] == f"pod/{name}"]
        assert incarnations[name] in message
        assert phase in message

    described = kubectl("describe", "podset", "llama", "-n", namespace)
    assert described.count("ReapedTerminal") == 2
    assert incarnations["llama-1"] in described
    assert incarnations["llama-2"] in described

    create(kubectl, member(owner, 1))
    found = kubectl.json("get", "pod", "llama-1", "-n", namespace)
    assert found["metadata"]["annotations"][INCARNATION] != incarnations["llama-1"]


def test_others_that_ended_are_kept(kubectl: Kubectl, namespace: str) -> None:
    owner = new_podset(kubectl, namespace)
    outside = member(owner, 3, labels={"podstamp.dev/enabled": "false"})
    create(kubectl, member(owner, 0), member(owner, 1), outside, pod("bare", namespace))
    fail(kubectl, namespace, "llama-3")
    fail(kubectl, namespace, "bare")
    fail(kubectl, namespace, "llama-0")
    gone(kubectl, namespace, "llama-0")
    assert names(kubectl, namespace) == {"llama-1", "llama-3", "bare"}


def test_a_pod_that_a_finalizer_holds_does_not_keep_the_next_one(
    kubectl: Kubectl, namespace: str
) -> None:
    owner = new_podset(kubectl, namespace)
    create(kubectl, member(owner, 1, finalizers=["example.com/hold"]), member(owner, 2))
    fail(kubectl, namespace, "llama-1")
    eventually(
        lambda: kubectl.json("get", "pod", "llama-1", "-n", namespace)["metadata"].get(
            "deletionTimestamp"
        ),
        "llama-1 is terminating",
    )
    fail(kubectl, namespace, "llama-2")
    gone(kubectl, namespace, "llama-2")
    assert names(kubectl, namespace) == {"llama-1"}
    let_go(kubectl, namespace, "pod", "llama-1")
    gone(kubectl, namespace, "llama-1")


def test_a_namespace_goes_while_its_pods_are_reaped(kubectl: Kubectl, namespace: str) -> None:
    owner = new_podset(kubectl, namespace, size=6)
    create(
        kubectl,
        *(member(owner, index, finalizers=["example.com/hold"]) for index in range(3)),
        *(member(owner, index) for index in range(3, 6)),
    )
    for index in range(6):
        fail(kubectl, namespace, f"llama-{index}")
        if index == 2:
            kubectl("delete", "namespace", namespace, "--wait=false")
    for index in range(3):
        let_go(kubectl, namespace, "pod", f"llama-{index}")
    kubectl("wait", "--for=delete", f"namespace/{namespace}", "--timeout=30s")


def test_a_pod_retired_by_stamp_is_reaped_only_when_it_is_over(
    kubectl: Kubectl, namespace: str, podstamp: Installation
) -> None:
    create(kubectl, pod("ended", namespace), pod("waiting", namespace), pod("other", namespace))
    never_started(kubectl, namespace, "waiting")
    never_started(kubectl, namespace, "other")
    kubectl("podstamp", "retire", "waiting", "-n", namespace, "--state", "replaced")
    gone(kubectl, namespace, "waiting")
    # Only `replaced` lets a pod that never started go.
    kubectl("podstamp", "retire", "other", "-n", namespace, "--state", "suspended")
    kubectl("podstamp", "retire", "ended", "-n", namespace, "--state", "suspended")
    kubectl("podstamp", "retire", "ended", "-n", namespace, "--state", "replaced")
    stored = kubectl.json("get", "pod", "ended", "-n", namespace)["metadata"]["annotations"]
    assert stored["podstamp.dev/retired"] == "suspended"
    fail(kubectl, namespace, "ended")
    gone(kubectl, namespace, "ended")
    assert names(kubectl, namespace) == {"other"}
    rows = eventually(
        lambda: (
            found if len(found := event_rows(kubectl, namespace, "ReapedRetired")) == 2 else None
        ),
        "a record for each",
    )
    assert {row[3] for row in rows} == {"pod/waiting", "pod/ended"}
    assert any("replaced-never-started" in row[4] for row in rows)
    assert any("terminal-retired" in row[4] for row in rows)


def test_a_container_that_seems_to_run_keeps_its_pod_while_the_node_is_there(
    kubectl: Kubectl, namespace: str
) -> None:
    owner = new_podset(kubectl, namespace)
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"{namespace}-node"}}
    create(
        kubectl,
        node,
        member(owner, 0, node=f"{namespace}-node"),
        member(owner, 1, node=f"{namespace}-gone"),
    )
    for index in range(2):
        report(kubectl, namespace, f"llama-{index}", phase="Failed", **RUNNING)
    gone(kubectl, namespace, "llama-1")
    assert names(kubectl, namespace) == {"llama-0"}
    kubectl("delete", "node", f"{namespace}-node")
    gone(kubectl, namespace, "llama-0")
