"""How long a router takes to follow very many engines after a blind period."""

from __future__ import annotations

import asyncio
import random
import resource
import time
from collections.abc import Iterable
from typing import Any

import httpx
from prometheus_client import CollectorRegistry

from controller.routers.loop import RouterLoop
from controller.routers.metrics import RouterMetrics
from kube.client import ApiClient
from kube.clock import SystemClock
from kube.credentials import load_credentials
from kube.events import EventRecorder
from kube.pod import Pod
from kube.store import Store
from tests.apiserver import EmbeddedCluster
from tests.routers.fleet import pod
from tests.routers.many import Ports, serving
from tests.routers.rig import SYSTEM, config_of


async def measure(
    server: EmbeddedCluster, *, engines: int, dead: int, timeout_s: float, await_dead: bool = True
) -> Any:
    """Seconds until the router lists what it should: after a list that brings all engines at
    once, of which `dead` do not answer, and after one that takes `dead` others away.
    `await_dead`: go on only when the dead have been asked in vain."""
    clock, chance = SystemClock(), random.Random(1)
    pods: Store[Pod] = Store(clock)
    pods.replace(())
    registry = CollectorRegistry()
    metrics = RouterMetrics(registry)
    with serving(engines - dead, dead) as ports:
        config = config_of(
            "workers",
            dialect="vllm",
            replicas={"urls": [f"http://127.0.0.1:{ports.router}"]},
            probe={"timeoutSeconds": timeout_s},
            periodSeconds=300,
        )
        async with ApiClient(load_credentials(server.kubeconfig)) as client:
            await client.create(
                "/api/v1/namespaces",
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}},
            )
            loop = RouterLoop(
                [config],
                client=client,
                pods=pods,
                clock=clock,
                random=chance,
                recorder=EventRecorder(client, instance="bench", clock=clock, random=chance),
                metrics=metrics,
            )
            task = asyncio.create_task(loop.run())
            try:
                return await _phases(loop, pods, ports, registry, timeout_s, await_dead)
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)


async def _phases(
    loop: RouterLoop,
    pods: Store[Pod],
    ports: Ports,
    registry: CollectorRegistry,
    timeout_s: float,
    await_dead: bool,
) -> dict[str, Any]:
    await _until(lambda: bool(loop.status()) and bool(loop.status()[0]["targets"]))
    # The dead come first, so that one who waits in line waits behind them.
    everybody = [*ports.dead, *ports.answering]
    before_s, begun = _cpu_s(), time.monotonic()
    pods.replace(_pods(everybody))
    await _until_listed(ports, ports.answering)
    listed_s = time.monotonic() - begun
    router = loop._routers[0]
    if await_dead:
        await _until(lambda: all(router.prober.asked(e) for e in router.fleet.serving.values()))
    whole_s, cpu_s = time.monotonic() - begun, _cpu_s() - before_s
    asked = _probes(registry)
    begun = time.monotonic()
    gone = len(ports.dead)
    pods.replace(_pods([*ports.answering[gone:], *ports.dead]))
    await _until_listed(ports, ports.answering[gone:])
    removed_s = time.monotonic() - begun
    return {
        "engines": len(everybody),
        "not_answering": len(ports.dead),
        "probe_timeout_s": timeout_s,
        "answering_listed_s": round(listed_s, 3),
        "full_reconcile_s": round(whole_s, 3),
        "limit_s": timeout_s + 2,
        "cpu_s": round(cpu_s, 3),
        "ghosts": gone,
        "ghosts_gone_s": round(removed_s, 3),
        "answers_asked_again": _probes(registry) - asked,
    }


def _pods(ports: Iterable[int]) -> list[Pod]:
    return [pod(f"p{port}", "127.0.0.1", ports=(("http", port),)) for port in ports]


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _probes(registry: CollectorRegistry) -> float:
    labels = {"router": "chat", "outcome": "answered"}
    return registry.get_sample_value("podstamp_router_probes_total", labels) or 0.0


async def _until_listed(ports: Ports, wanted: Iterable[int]) -> None:
    """Asked of the router itself, seldom enough for nobody to feel it."""
    expected = {f"http://127.0.0.1:{port}" for port in wanted}
    async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
        while True:
            answer = await client.get(f"http://127.0.0.1:{ports.router}/workers")
            if {worker["url"] for worker in answer.json()["workers"]} == expected:
                return
            await asyncio.sleep(0.2)


async def _until(holds: Any) -> None:
    while True:
        if holds():
            return
        await asyncio.sleep(0.01)
