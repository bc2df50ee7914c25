"""podstamp on a control plane by the local overlay; each process with its own account's token.

The administrator's rights are used to apply manifests alone, so a permission that a role lacks
shows up as a failure of the process that needs it.
"""

import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.controlplane import ControlPlane
from tests.controlplane.processes import free_port
from tests.e2e.waiting import eventually
from tests.kubectl import KUBECTL, Kubectl
from tests.launch import Launched, launch_controller, launch_webhook

MANIFESTS = Path(__file__).parent.parent.parent / "manifests"
SYSTEM = "podstamp-system"
OVERLAY_ADDRESS = "127.0.0.1:9443"
PART = "app.kubernetes.io/part-of=podstamp"
CLUSTER_KINDS = (
    "mutatingwebhookconfigurations,validatingwebhookconfigurations,validatingadmissionpolicies,"
    "validatingadmissionpolicybindings,clusterroles,clusterrolebindings,priorityclasses,namespaces"
)

LIVE = {
    "terminal": {"dryRun": False, "nodeCheckSeconds": 1},
    "retired": {"enabled": True, "dryRun": False, "holdSeconds": 1, "intervalSeconds": 1},
}


def render(folder: Path) -> str:
    """What `kubectl kustomize` makes of a folder of the manifests."""
    done = subprocess.run(
        [KUBECTL, "kustomize", str(folder)], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    return done.stdout


def left(kubectl: Kubectl) -> str:
    """Names of all that podstamp brought and that is still there."""
    return kubectl("get", CLUSTER_KINDS, "-l", PART, "-o", "name") + kubectl(
        "get", "all,configmaps,secrets,roles,rolebindings,leases", "-n", SYSTEM, "-o", "name"
    )


class Installation:
    """Applied at once; `start` brings up the webhook and the controller, `stop` ends both."""

    def __init__(self, plane: ControlPlane, kubectl: Kubectl, folder: Path) -> None:
        self.plane = plane
        self.kubectl = kubectl
        self.folder = folder
        self.port = free_port()
        self.webhook: Launched | None = None
        self.controller: Launched | None = None
        self.apply()

    def apply(self, overlay: str = "local") -> str:
        """Applies an overlay that calls the webhook by URL; returns what kubectl printed."""
        return self.kubectl("apply", "-f", "-", stdin=self.manifests(overlay))

    def manifests(self, overlay: str = "local") -> str:
        text = render(MANIFESTS / "overlays" / overlay)
        return text.replace(OVERLAY_ADDRESS, f"127.0.0.1:{self.port}")

    def start(self) -> None:
        self.start_webhook()
        self.start_controller()

    def stop(self) -> None:
        self.stop_controller()
        self.stop_webhook()

    # -- webhook --------------------------------------------------------------------------

    def start_webhook(self) -> Launched:
        """Returns when pods are stamped."""
        config = self._config("webhook", {"drainSeconds": 0, "certs": {"extraSans": ["127.0.0.1"]}})
        self.webhook = launch_webhook(
            self.plane.kubeconfig_for_service_account(SYSTEM, "podstamp-webhook"),
            self.folder,
            port=self.port,
            config=config,
        )
        eventually(self.bundles_published, "every entry has a caBundle")
        return self.webhook

    def stop_webhook(self) -> None:
        if self.webhook:
            self.webhook.stop()
            self.webhook = None

    def bundles_published(self) -> bool:
        found = self.kubectl.json(
            "get", "mutatingwebhookconfiguration,validatingwebhookconfiguration"
        )
        entries = [
            entry
            for item in found["items"]
            if item["metadata"]["name"] == "podstamp"
            for entry in item["webhooks"]
        ]
        return bool(entries) and all(e["clientConfig"].get("caBundle") for e in entries)

    # -- controller -----------------------------------------------------------------------

    def start_controller(self, config: dict[str, Any] | None = None) -> Launched:
        """With both reapers live and hardly any hold time, unless another one is given."""
        self.controller = launch_controller(
            self.plane.kubeconfig_for_service_account(SYSTEM, "podstamp-controller"),
            self.folder,
            config=self._config("controller", config or LIVE),
        )
        return self.controller

    def write_controller_config(self, config: dict[str, Any]) -> None:
        """A change that the running controller is to see, as through its mounted ConfigMap."""
        self._config("controller", config)

    def stop_controller(self) -> None:
        if self.controller:
            self.controller.stop()
            self.controller = None

    def _config(self, name: str, content: dict[str, Any]) -> Path:
        path = self.folder / f"{name}.yaml"
        unfinished = path.with_suffix(".new")
        unfinished.write_text(yaml.safe_dump(content))
        return unfinished.replace(path)
