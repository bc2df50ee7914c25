"""Pod statuses as a kubelet reports them, for tests that need no whole kubelet."""

from typing import Any

import msgspec

from tests.kubectl import Kubectl


def _engine(state: dict[str, Any]) -> dict[str, Any]:
    status = {
        "name": "engine",
        "image": "vllm/vllm-openai",
        "imageID": "",
        "ready": False,
        "restartCount": 0,
        "state": state,
    }
    return {"containerStatuses": [status]}


ENDED = _engine({"terminated": {"exitCode": 1, "reason": "Error"}})
RUNNING = _engine({"running": {"startedAt": "2026-01-01T00:00:00Z"}})


def report(kubectl: Kubectl, namespace: str, name: str, **status: Any) -> None:
    """Merges into the pod's status."""
    body = msgspec.json.encode({"status": status}).decode()
    kubectl(
        *("patch", "pod", name, "-n", namespace),
        *("--subresource=status", "--type=merge", "-p", body),
    )


def fail(kubectl: Kubectl, namespace: str, name: str, phase: str = "Failed") -> None:
    """The pod ends in that phase, its container terminated."""
    report(kubectl, namespace, name, phase=phase, **ENDED)


def never_started(kubectl: Kubectl, namespace: str, name: str) -> None:
    """Pending, and the kubelet says that no sandbox was made."""
    condition = {"type": "PodReadyToStartContainers", "status": "False"}
    report(kubectl, namespace, name, phase="Pending", conditions=[condition])
