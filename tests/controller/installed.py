"""podstamp on a cluster that tests share: applied, its webhook running, taken away at the end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.cluster import Cluster
from tests.controlplane.processes import free_port
from tests.e2e.installation import MANIFESTS, OVERLAY_ADDRESS, render
from tests.e2e.waiting import eventually
from tests.kubectl import Kubectl
from tests.launch import launch_webhook

INCARNATION = "podstamp.dev/incarnation"
GATES = (
    "mutatingwebhookconfiguration,validatingwebhookconfiguration,"
    "validatingadmissionpolicy,validatingadmissionpolicybinding"
)
CRD = Path(__file__).parent.parent / "standins" / "podset_crd.yaml"

PODSET = {
    "apiVersion": "orchestration.aibrix.ai/v1alpha1",
    "kind": "PodSet",
    "metadata": {"name": "web"},
    "spec": {
        "podGroupSize": 4,
        "template": {"spec": {"containers": [{"name": "engine", "image": "engine"}]}},
    },
}


@contextmanager
def installed(cluster: Cluster, kubectl: Kubectl, folder: Path) -> Iterator[None]:
    """Pods are stamped, and the policies hold, while the block runs."""
    port = free_port()
    text = render(MANIFESTS / "overlays" / "local").replace(OVERLAY_ADDRESS, f"127.0.0.1:{port}")
    kubectl("apply", "-f", "-", stdin=text)
    kubectl("apply", "-f", str(CRD))
    kubectl("wait", "--for=condition=Established", "-f", str(CRD), "--timeout=20s")
    settings = {"drainSeconds": 0, "stopSeconds": 1, "certs": {"extraSans": ["127.0.0.1"]}}
    config = write_yaml(folder / "webhook.yaml", settings)
    webhook = launch_webhook(cluster.kubeconfig, folder, port=port, config=config)
    try:
        eventually(lambda: _is_published(kubectl), "every entry has a caBundle")
        yield
    finally:
        webhook.stop()
        # Whatever else was applied hinders no other test.
        kubectl("delete", GATES, "--selector", "app.kubernetes.io/part-of=podstamp")


class There:
    """One enabled namespace, by kubectl."""

    def __init__(self, kubectl: Kubectl, name: str) -> None:
        self.name = name
        self._kubectl = kubectl
        self._owner: dict[str, Any] = {}

    def do(self, *args: str, stdin: str | None = None) -> str:
        return self._kubectl(*args, "-n", self.name, stdin=stdin)

    def names(self) -> set[str]:
        return {line.removeprefix("pod/") for line in self.do("get", "pods", "-o", "name").split()}

    def incarnations(self) -> dict[str, str]:
        items = json.loads(self.do("get", "pods", "-o", "json"))["items"]
        return {i["metadata"]["name"]: i["metadata"]["annotations"][INCARNATION] for i in items}

    def end(self, name: str, phase: str, **status: Any) -> None:
        patch = json.dumps({"status": {"phase": phase, **status}})
        self.do("patch", "pod", name, "--subresource=status", "--type=merge", "-p", patch)

    def podset(self) -> dict[str, Any]:
        """The owner reference to a PodSet `web` that exists, as the garbage collector looks."""
        if not self._owner:
            made = json.loads(self.do("create", "-f", "-", "-o", "json", stdin=json.dumps(PODSET)))
            self._owner = {
                **{key: made[key] for key in ("apiVersion", "kind")},
                **{key: made["metadata"][key] for key in ("name", "uid")},
                "controller": True,
            }
        return self._owner

    def terminate(self, name: str, phase: str) -> None:
        """End it with a status for each container that says that it terminated."""
        document = json.loads(self.do("get", "pod", name, "-o", "json"))
        whole = {"image": "x", "imageID": "", "ready": False, "restartCount": 0}
        state = {"terminated": {"exitCode": 0}}
        statuses = [
            {"name": container["name"], "state": state, **whole}
            for container in document["spec"]["containers"]
        ]
        self.end(name, phase, containerStatuses=statuses)

    def about(self, reason: str, kind: str = "Pod") -> set[str]:
        """Names of the objects of that kind that have an event with that reason."""
        items = json.loads(self.do("get", "events", "-o", "json"))["items"]
        return {
            item["involvedObject"]["name"]
            for item in items
            if item["reason"] == reason and item["involvedObject"]["kind"] == kind
        }


def write_yaml(file: Path, content: dict[str, Any]) -> Path:
    """Replaced at once, as a mounted ConfigMap is."""
    draft = file.with_suffix(".new")
    draft.write_text(yaml.safe_dump(content))
    return draft.replace(file)


def _is_published(kubectl: Kubectl) -> bool:
    found = kubectl.json("get", "mutatingwebhookconfiguration,validatingwebhookconfiguration")
    entries = [
        entry
        for item in found["items"]
        if item["metadata"]["name"] == "podstamp"
        for entry in item["webhooks"]
    ]
    return bool(entries) and all(entry["clientConfig"].get("caBundle") for entry in entries)
