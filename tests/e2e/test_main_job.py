"""The main job on the real API server: a set controller and a kubelet at work, nodes drained."""

import signal
from collections.abc import Iterator

import pytest

from tests.controlplane import ControlPlane
from tests.e2e.installation import Installation
from tests.e2e.steps import INCARNATION, new_podset
from tests.e2e.waiting import eventually
from tests.kubectl import Kubectl
from tests.standins.hosting import Hosted
from tests.standins.kubelet import Kubelet
from tests.standins.set_controller import SetController

ALL = {f"llama-{index}" for index in range(4)}


@pytest.fixture
def kubelet(plane: ControlPlane, podstamp: Installation) -> Iterator[Hosted[Kubelet]]:
    with Hosted(lambda: Kubelet(plane.kubeconfig)) as running:
        yield running


@pytest.fixture
def models(kubectl: Kubectl, plane: ControlPlane, kubelet: Hosted[Kubelet]) -> Iterator[str]:
    """An enabled namespace with a PodSet of four that is whole."""
    name = "e2e-main-job"
    kubectl("create", "namespace", name)
    kubectl("label", "namespace", name, "podstamp.dev/enabled=true")
    with Hosted(lambda: SetController(plane.kubeconfig)):
        new_podset(kubectl, name)
        eventually(lambda: whole(kubectl, name), "the set is whole")
        yield name
        kubectl("delete", "podset", "llama", "-n", name, "--cascade=orphan")
    kubectl("delete", "namespace", name)


def incarnations(kubectl: Kubectl, namespace: str) -> dict[str, str]:
    """Of the pods that are Running, by name."""
    return {
        item["metadata"]["name"]: item["metadata"]["annotations"][INCARNATION]
        for item in kubectl.json("get", "pods", "-n", namespace)["items"]
        if item["status"]["phase"] == "Running" and "deletionTimestamp" not in item["metadata"]
    }


def whole(kubectl: Kubectl, namespace: str) -> dict[str, str] | None:
    found = incarnations(kubectl, namespace)
    return found if set(found) == ALL else None


def test_a_set_gets_its_dead_pods_back_through_every_kind_of_end(
    kubectl: Kubectl, models: str, kubelet: Hosted[Kubelet], podstamp: Installation
) -> None:
    before = incarnations(kubectl, models)
    assert len(set(before.values())) == 4

    kubelet.do(lambda node: node.fail(models, "llama-1"))
    kubelet.do(lambda node: node.succeed(models, "llama-2"))
    after = eventually(
        lambda: (
            found
            if (found := whole(kubectl, models))
            and found["llama-2"] != before["llama-2"]
            and found["llama-1"] != before["llama-1"]
            else None
        ),
        "both names are back",
    )
    assert {name for name in ALL if after[name] == before[name]} == {"llama-0", "llama-3"}

    kubelet.do(lambda node: node.evict(models, "llama-0"))
    eventually(
        lambda: (whole(kubectl, models) or {}).get("llama-0") not in (None, before["llama-0"]),
        "the evicted pod's name is back",
    )

    # The controller is blind while a pod ends; afterwards it finds it.
    assert podstamp.controller
    podstamp.controller.signal(signal.SIGSTOP)
    kubelet.do(lambda node: node.fail(models, "llama-3"))
    podstamp.controller.signal(signal.SIGCONT)
    eventually(
        lambda: (whole(kubectl, models) or {}).get("llama-3") not in (None, before["llama-3"]),
        "the pod that ended unseen has its name back",
    )

    drained = kubectl.run("drain", "node-1", "--force", "--ignore-daemonsets", "--timeout=60s")
    assert drained.code == 0, drained.err
    kubectl("uncordon", "node-1")
    last = eventually(lambda: whole(kubectl, models), "the set is whole after the drain")
    assert not set(last.values()) & set(before.values())
