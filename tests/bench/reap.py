"""From the moment that a pod has Failed to the moment that its name is free, and CPU at rest.

python -m tests.bench.reap [--json FILE] [--embedded | --kubeconfig F]. Without either it runs on a
real kube-apiserver. The controller is the process that it is in a cluster; what is measured
includes the way of the DELETED event back to the observer. Each round has a controller of its own,
as one leader's term may delete no more than 120 pods a minute.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import secrets
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import yaml

from kube import paths
from kube.client import ApiClient
from kube.credentials import load_credentials
from kube.errors import AlreadyExists
from tests.apiserver import EmbeddedCluster
from tests.controlplane import ControlPlane
from tests.launch import Launched, launch_controller
from webhook import stamps

ROUNDS = 4
PODS = 110
"""In each round; within the budget of a minute."""
REST_PODS = 200
REST_S = 20.0
PAUSE_S = 0.02
"""Between two pods: one at a time, as the goal is worded."""
SETTINGS = "terminal: {dryRun: false}\n"
CRD = Path(__file__).parent.parent / "standins" / "podset_crd.yaml"
GROUP = ("orchestration.aibrix.ai", "v1alpha1", "podsets")


class Bench:
    """One namespace with a set; its pods are stamped as the webhook would have left them."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self._namespace = f"bench-{secrets.token_hex(4)}"
        self._owner: dict[str, Any] = {}

    async def prepare(self) -> None:
        """Namespaces, the definition of a set, and one set."""
        crd = yaml.safe_load(CRD.read_text())
        definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        labels = {stamps.ENABLED: "true"}
        for path, body in (
            (definitions, crd),
            (paths.namespaces(), {"metadata": {"name": "podstamp-system"}}),
            (paths.namespaces(), {"metadata": {"name": self._namespace, "labels": labels}}),
        ):
            with contextlib.suppress(AlreadyExists):
                await self._client.create(path, body)
        await asyncio.sleep(2)  # Until the definition is served and the namespace has its account.
        template = {"spec": {"containers": [{"name": "engine", "image": "engine"}]}}
        body = {
            "apiVersion": f"{GROUP[0]}/{GROUP[1]}",
            "kind": "PodSet",
            "metadata": {"name": "web"},
            "spec": {"podGroupSize": 2, "template": template},
        }
        made = await self._client.create(paths.custom(*GROUP, self._namespace), body)
        self._owner = {
            "apiVersion": body["apiVersion"],
            "kind": "PodSet",
            "name": "web",
            "uid": made["metadata"]["uid"],
            "controller": True,
        }

    async def create(self, name: str, index: int) -> None:
        stamp = stamps.new_incarnation(datetime.now(UTC), secrets.token_bytes(10))
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "labels": {stamps.MANAGED: "true", stamps.PODSET_INDEX: str(index)},
                "annotations": {stamps.INCARNATION: stamp},
                "ownerReferences": [self._owner],
            },
            "spec": {"containers": [{"name": "engine", "image": "engine"}]},
        }
        await self._client.create(paths.pods(self._namespace), body)

    async def round(self, indexes: range) -> list[float]:
        """Milliseconds for each of these pods, one after the other."""
        freed: dict[str, asyncio.Future[float]] = {}
        listed = await self._client.get(paths.pods(self._namespace))
        following = asyncio.ensure_future(
            self._follow(freed, listed["metadata"]["resourceVersion"])
        )
        found = []
        try:
            for index in indexes:
                name = f"web-{index}"
                await self.create(name, index)
                freed[name] = asyncio.get_running_loop().create_future()
                await asyncio.sleep(PAUSE_S)
                failed = {"status": {"phase": "Failed"}}
                await self._client.patch(paths.pod_status(self._namespace, name), failed)
                began = time.monotonic()
                found.append((await asyncio.wait_for(freed[name], 30) - began) * 1000)
        finally:
            following.cancel()
        return found

    async def _follow(self, freed: dict[str, asyncio.Future[float]], version: str) -> None:
        lines = self._client.watch(
            paths.pods(self._namespace),
            resource_version=version,
            timeout_s=600,
            read_timeout_s=600,
        )
        async for line in lines:
            event = msgspec.json.decode(line)
            if event["type"] == "DELETED":
                waiting = freed.get(event["object"]["metadata"]["name"])
                if waiting is not None and not waiting.done():
                    waiting.set_result(time.monotonic())


@contextlib.contextmanager
def controller(kubeconfig: Path, folder: Path, name: str) -> Iterator[Launched]:
    """A controller that leads: the one before has released its lease."""
    config = folder / "controller.yaml"
    config.write_text(SETTINGS)
    process = launch_controller(kubeconfig, folder, config=config, name=name)
    try:
        yield process
    finally:
        process.stop()


async def latency(kubeconfig: Path, folder: Path, rounds: int, pods: int) -> dict[str, Any]:
    """Percentiles over all rounds, the first pod of each apart: it waits for the leader."""
    found: list[float] = []
    async with ApiClient(load_credentials(kubeconfig)) as client:
        bench = Bench(client)
        await bench.prepare()
        for number in range(rounds):
            with controller(kubeconfig, folder, f"round-{number}"):
                await bench.round(range(1))
                # Other indexes: a replacement that dies at once is held back on purpose.
                found += await bench.round(range(1, pods))
    found.sort()
    return {
        "pods": len(found),
        "p50_ms": round(percentile(found, 0.50), 1),
        "p90_ms": round(percentile(found, 0.90), 1),
        "p99_ms": round(percentile(found, 0.99), 1),
        "max_ms": round(found[-1], 1),
    }


async def rest(kubeconfig: Path, folder: Path, pods: int, seconds: float) -> dict[str, Any]:
    """CPU and memory of a leader while nothing happens to the pods that it holds."""
    async with ApiClient(load_credentials(kubeconfig)) as client:
        bench = Bench(client)
        await bench.prepare()
        for index in range(pods):
            await bench.create(f"rest-{index}", index)
    with controller(kubeconfig, folder, "rest") as process:
        await asyncio.sleep(3)
        before = cpu_s(process.pid)
        await asyncio.sleep(seconds)
        spent = cpu_s(process.pid) - before
        return {
            "pods": pods,
            "window_s": seconds,
            "percent_of_a_core": round(100 * spent / seconds, 2),
            "rss_mb": round(rss_mb(process.pid), 1),
        }


def percentile(ordered: list[float], share: float) -> float:
    """By the nearest rank."""
    return ordered[min(len(ordered) - 1, max(0, round(share * len(ordered)) - 1))]


def cpu_s(pid: int) -> float:
    """User and system seconds of a process (Linux)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.reap", description=__doc__)
    server = parser.add_mutually_exclusive_group()
    server.add_argument("--kubeconfig", type=Path, help="a server that runs already")
    server.add_argument("--embedded", action="store_true", help="the embedded API server")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--pods", type=int, default=PODS, help="in each round, at most 120")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if arguments.kubeconfig:
            kubeconfig, kind = arguments.kubeconfig, "given"
        elif arguments.embedded:
            kubeconfig, kind = stack.enter_context(EmbeddedCluster()).kubeconfig, "embedded"
        else:
            kubeconfig, kind = stack.enter_context(ControlPlane()).kubeconfig, "kube-apiserver"
        figures = {
            "server": kind,
            "failed_to_name_free": asyncio.run(
                latency(kubeconfig, folder, arguments.rounds, arguments.pods)
            ),
            "controller_at_rest": asyncio.run(rest(kubeconfig, folder, REST_PODS, REST_S)),
        }
    text = json.dumps(figures, indent=2)
    print(text)
    if arguments.json:
        arguments.json.write_text(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
