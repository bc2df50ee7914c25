"""Controllers in this process, against a server that speaks HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import random
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry

from controller.app import Controller
from controller.config import ControllerConfig, check_config
from kube import paths
from kube.client import ApiClient
from kube.clock import Clock, SystemClock
from kube.credentials import load_credentials
from kube.errors import AlreadyExists
from tests.controller.pods import pod
from webhook import stamps

SHORT_LEASE = (
    "leadership: {leaseDurationSeconds: 2, renewDeadlineSeconds: 1.2, retryPeriodSeconds: 0.2}\n"
)
LIVE = "terminal: {dryRun: false}\nhealthPort: 0\n"


class ShiftedClock(SystemClock):
    """The machine's clock; a test moves its wall time or its monotonic time forward."""

    def __init__(self, wall_s: float = 0.0) -> None:
        self.wall_s = wall_s
        self.forward_s = 0.0

    def now(self) -> datetime:
        return super().now() + timedelta(seconds=self.wall_s)

    def monotonic(self) -> float:
        return super().monotonic() + self.forward_s


def config_of(text: str) -> ControllerConfig:
    config = msgspec.yaml.decode(text, type=ControllerConfig)
    check_config(config)
    return config


@asynccontextmanager
async def running(
    kubeconfig: Path,
    text: str = LIVE + SHORT_LEASE,
    *,
    identity: str = "one",
    clock: Clock | None = None,
    load: Callable[[], ControllerConfig] | None = None,
    make_routers: Callable[[ControllerConfig], Any] | None = None,
) -> AsyncIterator[Controller]:
    """A controller at work; an error that ends it is raised when the block ends."""
    clock = clock or SystemClock()
    config = config_of(text)
    async with ApiClient(load_credentials(kubeconfig), clock=clock) as client:
        controller = Controller(
            client,
            config,
            load or (lambda: config),
            identity=identity,
            clock=clock,
            random=random.Random(1),
            registry=CollectorRegistry(),
            make_routers=make_routers,
        )
        stop = asyncio.Event()
        task = asyncio.ensure_future(controller.run(stop))
        try:
            await until(lambda: task.done() or controller.ready_problem() is None)
            yield controller
        finally:
            stop.set()
            await task


async def until(condition: Callable[[], Any], timeout_s: float = 10.0) -> None:
    """Wait in real time until the condition holds."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not in {timeout_s:g} s"
        await asyncio.sleep(0.01)


def outcomes(controller: Controller, outcome: str) -> float:
    """How many pods came to that outcome."""
    return sum(
        sample.value
        for metric in controller.metrics.outcomes.collect()
        for sample in metric.samples
        if sample.name.endswith("_total") and sample.labels["outcome"] == outcome
    )


class Cell:
    """An administrator's hand in one namespace of a cluster."""

    def __init__(self, client: ApiClient, namespace: str) -> None:
        self.client = client
        self.namespace = namespace

    async def create(self, name: str, **parts: Any) -> dict[str, Any]:
        """A stamped pod as the webhook would have left it; its status too, if a phase is given."""
        phase = parts.pop("phase", "")
        status = parts.pop("status", {})
        if "stamp" not in parts:
            parts["stamp"] = fresh_incarnation()
        document = pod(name, namespace=self.namespace, **parts)
        wanted = manifest(document)
        made = await self.client.create(paths.pods(self.namespace), wanted)
        if phase:
            made = await self.write_status(name, {**document["status"], **status, "phase": phase})
        return made

    async def write_status(self, name: str, status: dict[str, Any]) -> dict[str, Any]:
        return await self.client.patch(paths.pod_status(self.namespace, name), {"status": status})

    async def end(self, name: str, phase: str = "Failed") -> None:
        await self.write_status(name, {"phase": phase})

    async def patch(self, name: str, metadata: dict[str, Any]) -> None:
        await self.client.patch(paths.pod(self.namespace, name), {"metadata": metadata})

    async def enable(self, value: str | None = "true") -> None:
        labels = {"metadata": {"labels": {stamps.ENABLED: value}}}
        await self.client.patch(paths.namespace(self.namespace), labels)

    async def names(self) -> set[str]:
        found = await self.client.get(paths.pods(self.namespace))
        return {item["metadata"]["name"] for item in found["items"]}

    async def events(self, reason: str) -> list[dict[str, Any]]:
        found = await self.client.get(paths.events(self.namespace))
        return [item for item in found["items"] if item["reason"] == reason]

    async def gone(self, *names: str, timeout_s: float = 10.0) -> None:
        """Wait until none of these pods is there."""
        deadline = time.monotonic() + timeout_s
        while left := set(names) & await self.names():
            assert time.monotonic() < deadline, f"{left} still there after {timeout_s:g} s"
            await asyncio.sleep(0.02)


@asynccontextmanager
async def cell(kubeconfig: Path, *, enabled: bool = True) -> AsyncIterator[Cell]:
    """A namespace of its own, and podstamp's."""
    name = f"llm-{secrets.token_hex(4)}"
    labels = {stamps.ENABLED: "true"} if enabled else {}
    async with ApiClient(load_credentials(kubeconfig)) as client:
        for each, with_labels in (("podstamp-system", {}), (name, labels)):
            with contextlib.suppress(AlreadyExists):
                await client.create(
                    paths.namespaces(), {"metadata": {"name": each, "labels": with_labels}}
                )
        yield Cell(client, name)


def fresh_incarnation() -> str:
    return stamps.new_incarnation(datetime.now(UTC), secrets.token_bytes(10))


def manifest(document: dict[str, Any]) -> dict[str, Any]:
    """What a client would send to create that pod."""
    meta = document["metadata"]
    keys = ("name", "namespace", "labels", "annotations", "finalizers", "ownerReferences")
    containers = document["spec"]["containers"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {key: meta[key] for key in keys},
        "spec": {"containers": [{**one, "image": "engine"} for one in containers]},
    }
