"""The README's commands for a cluster, run as they stand, from installing to removing.

A stand-in kubelet runs the Deployments' pods in name only. The processes that they stand for run
beside the API server, which therefore calls the webhook by URL; the rest is as in a cluster.
"""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import yaml

from tests.controlplane import ControlPlane
from tests.e2e.installation import MANIFESTS, SYSTEM, Installation, left
from tests.e2e.pods import member, podset
from tests.e2e.steps import create, incarnation
from tests.e2e.waiting import eventually
from tests.kubectl import KUBECTL, Kubectl
from tests.standins.hosting import Hosted
from tests.standins.kubelet import Kubelet

ROOT = Path(__file__).parent.parent.parent
CRD = ROOT / "tests" / "standins" / "podset_crd.yaml"
NAMESPACE = "my-models"
LIVE = "sed -i '/terminal:/,/dryRun/ s/dryRun: true/dryRun: false/'"

# They ask the leader's pod through the API server, which connects to no loopback address.
ASK_THE_LEADER = ("kubectl podstamp status", "kubectl podstamp routers")


def commands() -> list[str]:
    """Lines of the fenced blocks that call kubectl or a module of ours, without their comments."""
    blocks = re.findall(r"^```\w*\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)
    lines = [line for block in blocks for line in block.splitlines()]
    called = [line for line in lines if line.startswith(("kubectl ", "python -m "))]
    return [line.split(" # ")[0].strip() for line in called]


class Shell:
    """Runs one command of the README from the root of the repository, as the administrator."""

    def __init__(self, plane: ControlPlane, home: Path) -> None:
        self._env = {
            "KUBECONFIG": str(plane.kubeconfig),
            "HOME": str(home),
            "PATH": os.pathsep.join([str(KUBECTL.parent), os.environ["PATH"]]),
            "KUBE_EDITOR": LIVE,
        }

    def run(self, command: str) -> str:
        words = shlex.split(command)
        if words[0] == "python":
            words[0] = sys.executable
        done = subprocess.run(
            words, capture_output=True, text=True, check=False, cwd=ROOT, env=self._env
        )
        if command.startswith(ASK_THE_LEADER):
            assert "leader does not answer" in done.stderr
        else:
            assert done.returncode == 0, f"{command}: {done.stderr or done.stdout}"
            assert not done.stderr, f"{command}: {done.stderr}"
        return done.stdout


def test_the_commands_of_the_readme_work(tmp_path: Path) -> None:
    manual = commands()
    kept = [line for line in manual if "explain" not in line]
    remove, *remove_overlay = [line for line in kept if line.startswith("kubectl delete ")]
    assert remove == "kubectl delete -f manifests/install.yaml"
    kept = [line for line in kept if line not in (remove, *remove_overlay)]
    with ControlPlane() as plane:
        shell = Shell(plane, tmp_path)
        kubectl = Kubectl(plane.kubeconfig, tmp_path)
        kubectl("apply", "-f", str(CRD))
        kubectl("create", "namespace", NAMESPACE)
        assert kept[0] == "kubectl apply -f manifests/install.yaml"
        shell.run(kept.pop(0))
        with Hosted(lambda: Kubelet(plane.kubeconfig)) as kubelet:
            podstamp = Installation(plane, kubectl, tmp_path)
            try:
                podstamp.start_webhook()
                podstamp.start_controller(shipped(kubectl))
                said = follow(shell, kept, kubectl, kubelet, podstamp)
            finally:
                podstamp.stop()
            assert "WouldReapTerminal" in said["kubectl get events --namespace my-models"]
            assert "chat-0" in said["kubectl podstamp plan --all"]
            shell.run(remove)
            assert left(kubectl) == ""
            kubectl("apply", "-k", str(MANIFESTS / "overlays" / "ha"))
            for line in remove_overlay:
                shell.run(line)
            assert left(kubectl) == ""


def shipped(kubectl: Kubectl) -> dict[str, object]:
    """controller.yaml as the ConfigMap has it, and as the kubelet would mount it."""
    data = kubectl.json("get", "configmap", "podstamp-config", "-n", SYSTEM)["data"]
    settings: dict[str, object] = yaml.safe_load(data["controller.yaml"])
    return settings


def follow(
    shell: Shell,
    manual: list[str],
    kubectl: Kubectl,
    kubelet: Hosted[Kubelet],
    podstamp: Installation,
) -> dict[str, str]:
    """Runs the commands in their order, and in between does what the reader's cluster would do."""
    said = {}
    for line in manual:
        if line.startswith("kubectl podstamp retire"):
            running(kubectl, "chat-0")
        if "if-incarnation" in line:
            current = incarnation(kubectl, NAMESPACE, "chat-3")
            line = re.sub(r"if-incarnation=\S+", f"if-incarnation={current}", line)
            line = line.replace("chat-0", f"chat-3 --namespace {NAMESPACE}")
        said[line] = shell.run(line)
        if line.startswith("kubectl label namespace"):
            a_set_of_which_one_pod_failed(kubectl, kubelet)
        if line.startswith("kubectl edit configmap"):
            assert podstamp.controller
            podstamp.write_controller_config(shipped(kubectl))
            eventually(
                lambda: "chat-1" not in kubectl("get", "pods", "-n", NAMESPACE),
                "without a restart, the failed pod is reaped",
                timeout_s=30.0,
            )
    return said


def a_set_of_which_one_pod_failed(kubectl: Kubectl, kubelet: Hosted[Kubelet]) -> None:
    create(kubectl, podset("chat", NAMESPACE, 4))
    owner = kubectl.json("get", "podset", "chat", "-n", NAMESPACE)
    create(kubectl, *(member(owner, index) for index in range(4)))
    for index in range(4):
        running(kubectl, f"chat-{index}")
    kubelet.do(lambda node: node.fail(NAMESPACE, "chat-1"))
    eventually(
        lambda: "WouldReapTerminal" in kubectl("get", "events", "-n", NAMESPACE), "a dry report"
    )


def running(kubectl: Kubectl, name: str) -> None:
    kubectl(
        *("wait", "pod", name, "-n", NAMESPACE, "--for=jsonpath={.status.phase}=Running"),
        "--timeout=20s",
    )
