"""Webhook replicas are replaced one by one under steady admission, and not one call fails."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from kube import paths
from kube.client import ApiClient
from kube.credentials import load_credentials
from kube.errors import KubeError
from tests.controlplane import ControlPlane
from tests.e2e.balancer import Balancer
from tests.e2e.installation import SYSTEM, Installation
from tests.e2e.pods import pod
from tests.e2e.waiting import eventually
from tests.launch import Launched, launch_webhook

WRITERS = 4


class Traffic:
    """Steady dry-run creates by several writers; `answers` counts, `failures` are what failed."""

    def __init__(self, kubeconfig: Path, namespace: str) -> None:
        self.answers = 0
        self.failures: list[str] = []
        self._kubeconfig = kubeconfig
        self._namespace = namespace
        self._stop = threading.Event()

    @contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join(30)

    def more(self, count: int) -> None:
        """Returns after that many further answers."""
        wanted = self.answers + count
        eventually(lambda: self.answers >= wanted, f"{count} more creates")

    async def _run(self) -> None:
        async with ApiClient(load_credentials(self._kubeconfig)) as client:
            await asyncio.gather(*(self._write(client, number) for number in range(WRITERS)))

    async def _write(self, client: ApiClient, number: int) -> None:
        body = pod(f"engine-{number}", self._namespace)
        while not self._stop.is_set():
            try:
                made = await client.create(
                    paths.pods(self._namespace), body, params={"dryRun": "All"}
                )
            except KubeError as error:
                self.failures.append(str(error))
            else:
                if "podstamp.dev/incarnation" not in made["metadata"].get("annotations", {}):
                    self.failures.append("a pod without stamps")
            self.answers += 1


def follow_readiness(balancer: Balancer, replicas: list[Launched], stop: threading.Event) -> None:
    """What the endpoints controller does: only ready replicas get new connections."""
    while not stop.wait(0.05):
        ready = []
        for replica in list(replicas):
            try:
                answer = httpx.get(f"{replica.health_url}/readyz", trust_env=False)
            except httpx.TransportError:
                continue
            if answer.status_code == 200:
                ready.append(replica.ports.port)
        balancer.backends = tuple(ready)


@pytest.mark.usefixtures("kubectl")
def test_a_rolling_restart_fails_no_create(
    plane: ControlPlane, namespace: str, podstamp: Installation, tmp_path: Path
) -> None:
    config = tmp_path / "webhook.yaml"
    config.write_text("{drainSeconds: 1, certs: {extraSans: [127.0.0.1]}}")
    account = plane.kubeconfig_for_service_account(SYSTEM, "podstamp-webhook")

    def launch(name: str) -> Launched:
        return launch_webhook(account, tmp_path, config=config, name=name, env={"POD_NAME": name})

    podstamp.stop_webhook()
    replicas: list[Launched] = []
    stop = threading.Event()
    traffic = Traffic(plane.kubeconfig, namespace)
    try:
        with Balancer(podstamp.port) as balancer:
            follower = threading.Thread(
                target=follow_readiness, args=(balancer, replicas, stop), daemon=True
            )
            follower.start()
            replicas += [launch("webhook-a"), launch("webhook-b")]
            eventually(lambda: len(balancer.backends) == 2, "both replicas are ready")
            with traffic.running():
                traffic.more(50)
                for name in ("webhook-c", "webhook-d"):
                    replicas.append(launch(name))
                    eventually(
                        lambda: replicas[-1].ports.port in balancer.backends, f"{name} is ready"
                    )
                    traffic.more(20)
                    assert replicas[0].stop(grace_s=20.0) == 0
                    del replicas[0]
                    traffic.more(50)
            stop.set()
            follower.join(5)
    finally:
        stop.set()
        for replica in replicas:
            replica.stop()
        podstamp.start_webhook()
    assert traffic.failures == []
