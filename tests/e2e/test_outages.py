"""The API server goes away, comes back, and has forgotten its history."""

import signal

import httpx

from tests.controlplane import ControlPlane
from tests.e2e.installation import Installation
from tests.e2e.pods import Manifest, member
from tests.e2e.status import fail
from tests.e2e.steps import create, gone, names, new_podset
from tests.e2e.waiting import eventually
from tests.kubectl import Kubectl


def filled_podset(kubectl: Kubectl, namespace: str, size: int) -> Manifest:
    owner = new_podset(kubectl, namespace, size)
    create(kubectl, *(member(owner, index) for index in range(size)))
    return owner


def ready(podstamp: Installation) -> bool:
    assert podstamp.controller
    assert podstamp.webhook
    answers = [
        httpx.get(f"{process.health_url}/readyz", trust_env=False).status_code
        for process in (podstamp.controller, podstamp.webhook)
    ]
    return answers == [200, 200]


def test_both_processes_outlive_a_killed_api_server(
    plane: ControlPlane, kubectl: Kubectl, namespace: str, podstamp: Installation
) -> None:
    owner = filled_podset(kubectl, namespace, 3)
    assert podstamp.controller
    assert podstamp.webhook
    pids = (podstamp.controller.pid, podstamp.webhook.pid)
    plane.kill_apiserver()
    for process in (podstamp.controller, podstamp.webhook):
        answer = httpx.get(f"{process.health_url}/healthz", trust_env=False)
        assert answer.status_code == 200, "liveness depends on the API server"
    plane.start_apiserver()
    fail(kubectl, namespace, "llama-1")
    gone(kubectl, namespace, "llama-1")
    create(kubectl, member(owner, 1))
    eventually(lambda: ready(podstamp), "both are ready again")
    assert (podstamp.controller.pid, podstamp.webhook.pid) == pids
    assert podstamp.controller.exit_code is None
    assert podstamp.webhook.exit_code is None


def test_what_happened_while_blind_is_found_after_a_compaction(
    plane: ControlPlane, kubectl: Kubectl, namespace: str, podstamp: Installation
) -> None:
    owner = filled_podset(kubectl, namespace, 3)
    assert podstamp.controller
    # Frozen, it sees none of this, and afterwards its version is no longer in etcd.
    podstamp.controller.signal(signal.SIGSTOP)
    try:
        kubectl("delete", "pod", "llama-0", "-n", namespace)
        create(kubectl, member(owner, 0))
        fail(kubectl, namespace, "llama-0")
        fail(kubectl, namespace, "llama-2")
        plane.compact_etcd()
        plane.restart_apiserver()
    finally:
        podstamp.controller.signal(signal.SIGCONT)
    gone(kubectl, namespace, "llama-0", "llama-2")
    assert names(kubectl, namespace) == {"llama-1"}
    eventually(lambda: ready(podstamp), "both are ready again")
