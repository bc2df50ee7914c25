"""The router loop on an embedded API server, in the test's own event loop.

Pods are written as a kubelet and the webhook would leave them; engines are real HTTP servers.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry

from controller.routers.config import RouterConfig
from controller.routers.loop import RouterLoop
from controller.routers.metrics import RouterMetrics
from kube import paths
from kube.client import ApiClient
from kube.clock import SystemClock
from kube.credentials import load_credentials
from kube.errors import NotFound
from kube.events import EventRecorder
from kube.pod import Pod
from kube.reflector import Reflector
from kube.store import Store
from tests.apiserver import EmbeddedCluster
from tests.routers.fleet import pod_json
from tests.standins.engine import Engine
from tests.standins_tests.running import running, until

NAMESPACE = "models"
SYSTEM = "podstamp-system"
ENGINES: dict[str, Any] = {"namespace": NAMESPACE, "selector": {"app": "vllm"}, "port": "http"}
PROBE: dict[str, Any] = {"timeoutSeconds": 20.0, "retrySeconds": 0.05, "maxRetrySeconds": 0.2}


def config_of(kind: str, **fields: Any) -> RouterConfig:
    """A router as controller.yaml would say it, with times that suit a test."""
    body = {
        "name": "chat",
        "kind": kind,
        "engines": ENGINES,
        "probe": PROBE,
        "periodSeconds": 1.0,
        "guard": {"confirmAfterSeconds": 0.01},
        **fields,
    }
    config: RouterConfig = msgspec.convert(body, RouterConfig)
    return config


class Blind:
    """Watches of pods are cut, and neither they nor lists come through."""

    def __init__(self, server: EmbeddedCluster) -> None:
        self._faults = server.faults
        self._rules = [
            server.faults.fail(503, verb=verb, path=r"/pods$", times=None)
            for verb in ("watch", "list")
        ]
        server.faults.cut_watches()

    @property
    def attempts(self) -> int:
        """How often somebody tried to look."""
        return sum(rule.hits for rule in self._rules)

    def end(self) -> None:
        """The way is open again."""
        for rule in self._rules:
            self._faults.remove(rule)


class Rig:
    """A cluster, the managed pods as a store, and routers while `leading`."""

    def __init__(self, server: EmbeddedCluster) -> None:
        self.server = server
        self.clock = SystemClock()
        self.random = random.Random(1)
        self.client = ApiClient(load_credentials(server.kubeconfig), timeout_s=10.0)
        self.registry = CollectorRegistry()
        self.metrics = RouterMetrics(self.registry)
        self.pods: Store[Pod] = Store(self.clock)
        self.recorder = EventRecorder(
            self.client, instance="test", clock=self.clock, random=self.random
        )
        self.loop: RouterLoop | None = None
        self.stack = AsyncExitStack()

    async def engine(self, name: str, **settings: Any) -> Engine:
        """A serving engine without a pod."""
        return await self.stack.enter_async_context(running(Engine(name, **settings)))

    async def start(self, name: str, engine: Engine, **fields: Any) -> str:
        """A ready pod at the engine's address; its UID."""
        ports = fields.pop("ports", (("http", engine.port),))
        return await self.create(name, engine.host, ports=ports, **fields)

    async def create(self, name: str, ip: str, **fields: Any) -> str:
        """A pod, with its status; its UID."""
        body = pod_json(name, ip, **fields)
        status = body.pop("status")
        for server_made in ("uid", "resourceVersion", "creationTimestamp", "deletionTimestamp"):
            body["metadata"].pop(server_made, None)
        namespace = body["metadata"]["namespace"]
        made = await self.client.create(paths.pods(namespace), body)
        await self.client.patch(paths.pod_status(namespace, name), {"status": status})
        return str(made["metadata"]["uid"])

    async def patch(self, name: str, body: Mapping[str, Any], *, status: bool = False) -> None:
        """Change a pod."""
        path = (paths.pod_status if status else paths.pod)(NAMESPACE, name)
        await self.client.patch(path, body)

    async def set_ready(self, name: str, ready: bool) -> None:
        conditions = [{"type": "Ready", "status": str(ready)}]
        await self.patch(name, {"status": {"conditions": conditions}}, status=True)

    async def delete(self, name: str) -> None:
        """Gone at once, as after the kubelet has confirmed."""
        terminal = {"status": {"phase": "Failed"}}
        await self.patch(name, terminal, status=True)
        await self.client.delete(paths.pod(NAMESPACE, name))

    def blind(self) -> Blind:
        """The store hears nothing of pods from now on, until that ends."""
        return Blind(self.server)

    async def record(self, router: str = "chat") -> dict[str, str]:
        """What is stored about a router."""
        try:
            found = await self.client.get(paths.configmap(SYSTEM, f"podstamp-router-{router}"))
        except NotFound:
            return {}
        return dict(found.get("data") or {})

    async def events(self) -> list[tuple[str, str, str]]:
        """(reason, object, note) of every event so far."""
        await self.recorder.flush(5.0)
        listed = await self.client.get(paths.events())
        return [(e["reason"], e["regarding"]["name"], e["note"]) for e in listed["items"]]

    def count(self, name: str, **labels: str) -> float:
        """The value of one metric; 0 if it was never touched."""
        return self.registry.get_sample_value(f"podstamp_router_{name}", labels) or 0.0

    @asynccontextmanager
    async def leading(self, *configs: RouterConfig) -> AsyncIterator[RouterLoop]:
        """The routers of one term, on the store as it is then; cancelled at the end."""
        loop = RouterLoop(
            configs,
            client=self.client,
            pods=self.pods,
            clock=self.clock,
            random=self.random,
            recorder=self.recorder,
            metrics=self.metrics,
        )
        async with _background(loop.run()):
            yield loop

    @asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """The store follows the server meanwhile."""
        reflector = Reflector(
            self.client,
            paths.pods(),
            Pod,
            self.pods,
            label_selector="podstamp.dev/managed=true",
            clock=self.clock,
            random=self.random,
        )
        async with _background(reflector.run()):
            await self.pods.wait_synced()
            yield


@asynccontextmanager
async def rigged(server: EmbeddedCluster) -> AsyncIterator[Rig]:
    """A rig whose store follows the server."""
    rig = Rig(server)
    async with rig.client, rig.stack:
        for namespace in (NAMESPACE, SYSTEM):
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
            await rig.client.create(paths.namespaces(), body)
        async with _background(rig.recorder.run()), rig.following():
            yield rig


@asynccontextmanager
async def _background(coroutine: Any) -> AsyncIterator[None]:
    """Runs meanwhile; what ends it early is raised at the end."""
    task = asyncio.ensure_future(coroutine)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        if not task.cancelled() and task.exception() is not None:
            raise task.exception() or AssertionError


__all__ = ["NAMESPACE", "Rig", "config_of", "rigged", "until"]
