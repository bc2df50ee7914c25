"""What the tests do over and over, by kubectl."""

from tests.e2e.pods import Manifest, podset, text
from tests.e2e.waiting import eventually
from tests.kubectl import Kubectl

INCARNATION = "podstamp.dev/incarnation"


def create(kubectl: Kubectl, *manifests: Manifest) -> None:
    kubectl("create", "-f", "-", stdin=text(*manifests))


def new_podset(kubectl: Kubectl, namespace: str, size: int = 4) -> Manifest:
    """A stored PodSet named llama, for `member`; nobody acts on it."""
    create(kubectl, podset("llama", namespace, size))
    found: Manifest = kubectl.json("get", "podset", "llama", "-n", namespace)
    return found


def metadata(kubectl: Kubectl, namespace: str, name: str) -> Manifest:
    found: Manifest = kubectl.json("get", "pod", name, "-n", namespace)["metadata"]
    return found


def incarnation(kubectl: Kubectl, namespace: str, name: str) -> str:
    found: str = metadata(kubectl, namespace, name)["annotations"][INCARNATION]
    return found


def names(kubectl: Kubectl, namespace: str) -> set[str]:
    """Of all pods there."""
    listed = kubectl("get", "pods", "-n", namespace, "-o", "name").split()
    return {line.removeprefix("pod/") for line in listed}


def gone(kubectl: Kubectl, namespace: str, *pods: str, timeout_s: float = 30.0) -> None:
    """Returns when none of these is there; AssertionError after the time."""
    eventually(
        lambda: not set(pods) & names(kubectl, namespace), f"{', '.join(pods)} gone", timeout_s
    )


def let_go(kubectl: Kubectl, namespace: str, kind: str, name: str) -> None:
    """Removes its finalizers."""
    kubectl(
        *("patch", kind, name, "-n", namespace, "--type=merge"),
        *("-p", '{"metadata":{"finalizers":null}}'),
    )
