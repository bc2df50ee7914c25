"""The main job, told step by step, on the embedded API server: `make demo`.

Webhook and controller run as the separate processes that they are. Every line that says "ok" was
checked; the first that does not hold ends the demo with exit code 1. No process stays behind.
"""

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from tests.apiserver import EmbeddedCluster
from tests.controlplane.processes import free_port
from tests.kubectl import Kubectl
from tests.launch import ROOT, clean_environment, launch_controller, launch_webhook
from tests.standins.engine import Engine
from tests.standins.hosting import Hosted
from tests.standins.kubelet import Kubelet
from tests.standins.pod_status import Start
from tests.standins.routers.vllm import VllmRouter
from tests.standins.set_controller import SetController

T = TypeVar("T")

INCARNATION = "podstamp.dev/incarnation"
WEBHOOK_USER = "system:serviceaccount:podstamp-system:podstamp-webhook"
CONTROLLER_USER = "system:serviceaccount:podstamp-system:podstamp-controller"
ENGINE_HOSTS = ("127.64.8.10", "127.64.8.11", "127.64.8.12")
POLL_S = 0.02


class DemoError(Exception):
    """A step that did not hold."""


class Story:
    """Prints each step with the seconds since the start, and the table at the end."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._rows: list[tuple[str, float]] = []

    def say(self, text: str) -> None:
        print(f"{time.monotonic() - self._began:6.2f}s  {text}", flush=True)

    def show(self, text: str) -> None:
        """What a person would see on a terminal."""
        for line in text.rstrip().splitlines():
            print(f"          | {line}", flush=True)

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        """One row of the table; its time is what the body took."""
        self.say(title)
        began = time.monotonic()
        yield
        took = time.monotonic() - began
        self._rows.append((title, took))
        self.say(f"ok ({took:.2f} s)")

    def summary(self) -> None:
        width = max(len(title) for title, _ in self._rows)
        print(f"\n{'what was seen':{width}}  {'took':>8}")
        for title, took in self._rows:
            print(f"{title:{width}}  {took:6.2f} s")
        print(f"{'all of it':{width}}  {time.monotonic() - self._began:6.2f} s")


def until(what: str, probe: Callable[[], T | None], timeout_s: float = 20.0) -> T:
    """The first answer that is not None or False; DemoError names what never came."""
    deadline = time.monotonic() + timeout_s
    while True:
        found = probe()
        if found:
            return found
        if time.monotonic() > deadline:
            raise DemoError(f"waited {timeout_s:.0f} s in vain for: {what}")
        time.sleep(POLL_S)


def expect(holds: bool, what: str) -> None:
    if not holds:
        raise DemoError(f"this does not hold: {what}")


class Stage:
    """The embedded API server, the stand-ins around it, and podstamp's two processes."""

    def __init__(self, story: Story, folder: Path, stack: ExitStack) -> None:
        self.story = story
        self.folder = folder
        self.stack = stack
        self.server = stack.enter_context(EmbeddedCluster())
        self.kubectl = Kubectl(self.server.kubeconfig, folder)
        port = free_port()
        self.engines = [
            stack.enter_context(Hosted(partial(Engine, host, host=host, port=port, model="llama")))
            for host in ENGINE_HOSTS
        ]
        self.router = stack.enter_context(Hosted(VllmRouter))
        self.engine_port = port

    def address(self, pod: dict[str, Any]) -> str | None:
        """Index n listens where engine n does; index 3 has an address of its own."""
        index = int(pod["metadata"]["labels"].get("podstamp.dev/podset-index", -1))
        return ENGINE_HOSTS[index] if 0 <= index < len(ENGINE_HOSTS) else None

    def install(self) -> None:
        """The manifests, with the webhook on this machine; then the two processes."""
        port = free_port()
        rendered = self.kubectl("kustomize", str(ROOT / "manifests/overlays/local"))
        self.kubectl(
            "apply", "-f", "-", stdin=rendered.replace("127.0.0.1:9443", f"127.0.0.1:{port}")
        )
        certificates = self.folder / "certificates"
        self.command("certs", "issue", "--cert-dir", str(certificates), "--extra-san", "127.0.0.1")
        env = {"PODSTAMP_DRAIN_SECONDS": "0"}
        webhook = launch_webhook(
            self.server.kubeconfig_for(WEBHOOK_USER),
            self.folder,
            cert_dir=certificates,
            port=port,
            env=env,
        )
        self.stack.callback(webhook.stop)
        config = self.folder / "controller.yaml"
        config.write_text(json.dumps(self.controller_config()))
        controller = launch_controller(
            self.server.kubeconfig_for(CONTROLLER_USER), self.folder, config=config
        )
        self.stack.callback(controller.stop)

    def controller_config(self) -> dict[str, Any]:
        """controller.yaml: the terminal reaper live, one router."""
        engines = {
            "namespace": "demo",
            "selector": {"app": "chat"},
            "port": self.engine_port,
            "indexes": list(range(len(ENGINE_HOSTS))),
        }
        router = {
            "name": "chat",
            "kind": "workers",
            "dialect": "vllm",
            "replicas": {"urls": [self.router.it.url]},
            "engines": engines,
        }
        return {"terminal": {"dryRun": False}, "routers": [router]}

    def command(self, *arguments: str) -> None:
        done = subprocess.run(
            [sys.executable, "-m", *arguments, "--kubeconfig", str(self.server.kubeconfig)],
            cwd=ROOT,
            env=clean_environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        expect(done.returncode == 0, f"python -m {' '.join(arguments)} ({done.stderr.strip()})")

    # what there is now

    def pods(self) -> dict[str, dict[str, Any]]:
        """The pods of the set by name."""
        items = self.kubectl.json("get", "pods", "-n", "demo", "-l", "app=chat")["items"]
        return {pod["metadata"]["name"]: pod for pod in items}

    def incarnations(self) -> dict[str, str]:
        return {name: incarnation(pod) for name, pod in self.pods().items() if is_ready(pod)}

    def whole(self, others_than: dict[str, str]) -> dict[str, str] | None:
        """The incarnations of a set of four ready pods, none of them in `others_than`."""
        now = self.incarnations()
        fresh = not set(others_than.items()) & set(now.items())
        return now if len(now) == 4 and fresh else None

    def workers(self) -> set[str]:
        return set(self.router.it.urls)

    def engine_urls(self, *indexes: int) -> set[str]:
        return {f"http://{ENGINE_HOSTS[i]}:{self.engine_port}" for i in indexes}


def incarnation(pod: dict[str, Any]) -> str:
    return str(pod["metadata"].get("annotations", {}).get(INCARNATION, ""))


def is_ready(pod: dict[str, Any]) -> bool:
    conditions = pod.get("status", {}).get("conditions", ())
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def stamps(stage: Stage) -> None:
    """A set of four is created; each pod bears its stamps."""
    story = stage.story
    with story.step("a PodSet of four is created, and each pod is stamped as it is admitted"):
        stage.kubectl("apply", "-f", str(ROOT / "tests/demo_podset.yaml"))
        whole = until("four ready pods", lambda: stage.whole({}))
        expect(len(set(whole.values())) == 4, "each pod has an incarnation of its own")
        for index, (name, pod) in enumerate(sorted(stage.pods().items())):
            meta = pod["metadata"]
            expect(meta["labels"].get("podstamp.dev/managed") == "true", f"{name} is managed")
            expect(meta["labels"].get("podstamp.dev/podset") == "chat", f"{name} names its set")
            expect(
                meta["labels"].get("podstamp.dev/podset-index") == str(index),
                f"{name} names its index",
            )
            expect("lora-modified" in meta["annotations"], f"{name} says when its adapters changed")
        story.show(
            stage.kubectl(
                "get",
                "pods",
                "--namespace=demo",
                "--output=custom-columns=NAME:.metadata.name,PHASE:.status.phase,"
                r"INDEX:.metadata.labels.podstamp\.dev/podset-index,"
                r"INCARNATION:.metadata.annotations.podstamp\.dev/incarnation",
            )
        )


def copies(stage: Stage) -> None:
    """A manifest copied from the cluster cannot share an incarnation."""
    with stage.story.step("a copied manifest gets another incarnation"):
        copied = stage.kubectl.json("get", "pod", "-n", "demo", "chat-0")
        stored = incarnation(copied)
        meta = copied["metadata"]
        labels = {k: v for k, v in meta["labels"].items() if k.startswith("podstamp.dev/")}
        copied["metadata"] = {
            "name": "copy",
            "namespace": "demo",
            "labels": labels,
            "annotations": meta["annotations"],
        }
        copied["spec"].pop("nodeName")
        copied.pop("status")
        created = stage.kubectl.run("create", "-f", "-", stdin=json.dumps(copied))
        expect(created.code == 0, f"the copy is admitted ({created.err.strip()})")
        stage.story.show("$ kubectl create -f copy.yaml\n" + created.err + created.out)
        fresh = incarnation(stage.kubectl.json("get", "pod", "-n", "demo", "copy"))
        expect(bool(fresh) and fresh != stored, "the copy has an incarnation of its own")
        stage.story.say(f"copied {stored}, stored {fresh}")
        stage.kubectl("delete", "pod", "-n", "demo", "copy")


def refusals(stage: Stage) -> None:
    """A stamp cannot be changed."""
    with stage.story.step("a write that changes a stamp is refused"):
        before = stage.incarnations()["chat-1"]
        refused = stage.kubectl.run(
            "annotate", "pod", "-n", "demo", "chat-1", "--overwrite", f"{INCARNATION}=forged"
        )
        stage.story.show(
            f"$ kubectl annotate pod chat-1 --overwrite {INCARNATION}=forged\n{refused.err}"
        )
        expect(refused.code == 1 and INCARNATION in refused.err, "the message names the stamp")
        expect(stage.incarnations()["chat-1"] == before, "what is stored did not change")


def reaps(stage: Stage, kubelet: Hosted[Kubelet]) -> None:
    """Dead pods are deleted, and the set is whole again."""
    story = stage.story
    with story.step("one pod Failed, one Succeeded: reaped, and the set is whole again"):
        before = stage.incarnations()
        dead = {name: before[name] for name in ("chat-1", "chat-2")}
        kubelet.do(lambda k: k.fail("demo", "chat-1"))
        kubelet.do(lambda k: k.succeed("demo", "chat-2"))
        after = until("the set is whole again", lambda: stage.whole(dead))
        for name in dead:
            story.say(f"{name}: incarnation {before[name]} is over, now {after[name]}")
        expect(
            all(after[name] == before[name] for name in ("chat-0", "chat-3")),
            "the pods that are alive were left alone",
        )
    with story.step("the reaps stand in the events"):

        def reaped() -> str | None:
            table = stage.kubectl("get", "events", "-n", "demo", "--field-selector=type=Normal")
            lines = [line for line in table.splitlines() if "ReapedTerminal" in line]
            told = all(any(f"pod/{name}" in line for line in lines) for name in dead)
            return "\n".join([table.splitlines()[0], *lines]) if told else None

        story.show("$ kubectl get events\n" + until("an event for each reaped pod", reaped))


def routing(stage: Stage, kubelet: Hosted[Kubelet]) -> None:
    """The router knows the live engines, whatever became of the watch."""
    story = stage.story
    with story.step("the router's list is the engines that are alive (index 3 serves no API)"):
        wanted = stage.engine_urls(0, 1, 2)
        until("three workers", lambda: stage.workers() == wanted)
        story.show("\n".join(sorted(stage.workers())))
    with story.step("a watch that is cut while a pod is deleted leaves no ghost"):
        kubelet.it.start = lambda pod: Start.CREATING  # the successor waits for its GPU
        faults = stage.server.faults
        faults.fail(503, user=CONTROLLER_USER, times=None)
        faults.cut_watches()
        before = stage.incarnations()["chat-0"]
        stage.kubectl("delete", "pod", "-n", "demo", "chat-0")
        successor = until("a successor", lambda: incarnation(stage.pods().get("chat-0", EMPTY)))
        expect(successor != before, "chat-0 is another incarnation now")
        expect(stage.workers() == stage.engine_urls(0, 1, 2), "the blind controller kept its list")
        story.say("chat-0 is gone, the controller does not know; now it may reach the server again")
        faults.clear()
        until("the ghost leaves", lambda: stage.workers() == stage.engine_urls(1, 2))
        story.show("\n".join(sorted(stage.workers())))
    with story.step("its successor is registered as soon as it is ready"):
        kubelet.it.start = lambda pod: Start.RUN
        kubelet.do(lambda k: k.start_now("demo", "chat-0"))
        until("three workers", lambda: stage.workers() == stage.engine_urls(0, 1, 2))


EMPTY: dict[str, Any] = {"metadata": {}}


def play(stage: Stage) -> None:
    """The whole story."""
    with stage.story.step("podstamp is installed: manifests, certificates, two processes"):
        crd = ROOT / "tests/standins/podset_crd.yaml"
        stage.kubectl("apply", "-f", str(crd))
        stage.kubectl("wait", "--for=condition=established", "crd/podsets.orchestration.aibrix.ai")
        stage.install()
    kubeconfig = stage.server.kubeconfig
    kubelet = stage.stack.enter_context(Hosted(lambda: Kubelet(kubeconfig, address=stage.address)))
    stage.stack.enter_context(Hosted(lambda: SetController(kubeconfig)))
    stamps(stage)
    copies(stage)
    refusals(stage)
    reaps(stage, kubelet)
    routing(stage, kubelet)


def keep_up(kubeconfig: Path) -> None:
    """Leaves all up until Ctrl-C or SIGTERM."""
    print(f"\nIt stays up until Ctrl-C. In another terminal:\n  export KUBECONFIG={kubeconfig}")
    # kubectl finds its plugin on the PATH alone.
    print(f'  export PATH="{ROOT / ".venv/bin"}:$PATH"')
    print("  kubectl get pods --namespace demo\n  kubectl podstamp plan --all", flush=True)
    signal.sigwait({signal.SIGINT, signal.SIGTERM})
    print("\nstopping; the webhook serves on for some seconds, as in a cluster", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.demo", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave it up and print its KUBECONFIG")
    arguments = parser.parse_args()
    # Before any thread starts, so that all of them leave these two to `keep_up`.
    if arguments.keep:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    story = Story()
    with tempfile.TemporaryDirectory(prefix="podstamp-demo-") as name, ExitStack() as stack:
        stage = Stage(story, Path(name), stack)
        try:
            play(stage)
        except (DemoError, AssertionError) as error:
            print(f"\ndemo: {error}", file=sys.stderr)
            for log in sorted(Path(name).glob("*.log")):
                print(f"\n--- the end of {log.name}", file=sys.stderr)
                print("\n".join(log.read_text().splitlines()[-20:]), file=sys.stderr)
            return 1
        story.summary()
        if arguments.keep:
            keep_up(stage.server.kubeconfig)
    return 0


if __name__ == "__main__":
    sys.exit(main())
