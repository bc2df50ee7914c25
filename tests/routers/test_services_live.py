"""Services as engines of a router, on an API server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from kube import paths
from tests.apiserver import EmbeddedCluster
from tests.routers.rig import NAMESPACE, Rig, config_of, rigged
from tests.standins.engine import Engine
from tests.standins.routers.vllm import VllmRouter
from tests.standins_tests.running import running, until

pytestmark = pytest.mark.anyio

ENGINES = {
    "source": "services",
    "namespace": NAMESPACE,
    "selector": {"role": "engine"},
    "port": "http",
    "serviceAddress": "clusterIP",
}


@pytest.fixture
async def rig(embedded: EmbeddedCluster) -> AsyncIterator[Rig]:
    async with rigged(embedded) as made:
        yield made


async def service(rig: Rig, name: str, engine: Engine, **spec: Any) -> None:
    body = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"role": "engine"}},
        "spec": {
            "clusterIP": engine.host,
            "ports": [{"name": "http", "port": engine.port}],
            **spec,
        },
    }
    await rig.client.create(paths.services(NAMESPACE), body)


def slice_of(name: str, ready: bool) -> dict[str, Any]:
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": f"{name}-1",
            "namespace": NAMESPACE,
            "labels": {"kubernetes.io/service-name": name},
        },
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": ready}}],
        "ports": [{"name": "http", "port": 8000}],
    }


async def endpoints(rig: Rig, name: str, ready: bool = True) -> None:
    await rig.client.create(paths.endpointslices(NAMESPACE), slice_of(name, ready))


async def test_services_are_followed_and_odd_ones_are_isolated(rig: Rig) -> None:
    first, second = (
        await rig.engine("e1", host="127.0.0.2"),
        await rig.engine("e2", host="127.0.0.3"),
    )
    for name, engine in (("s1", first), ("s2", second)):
        await service(rig, name, engine)
        await endpoints(rig, name)
    await service(rig, "headless", first, clusterIP="None")
    await service(rig, "empty", await rig.engine("e3", host="127.0.0.4"))
    async with running(VllmRouter()) as router:
        config = config_of(
            "workers", dialect="vllm", engines=ENGINES, replicas={"urls": [router.url]}
        )
        async with rig.leading(config) as loop:
            await until(lambda: set(router.urls) == {first.url, second.url})
            states = {e["name"]: e["state"] for e in loop.status()[0]["engines"]}
            assert states["headless"] == "headless Service"
            assert states["empty"] == "no ready endpoint"
            asked = dict(second.requests)
            patch = {"endpoints": slice_of("s1", False)["endpoints"]}
            await rig.client.patch(paths.endpointslice(NAMESPACE, "s1-1"), patch)
            await until(lambda: router.urls == [second.url])
            assert dict(second.requests) == {**asked, "/health": second.requests["/health"]}


async def test_a_service_deleted_while_blind_is_found_by_the_list(rig: Rig) -> None:
    first, second = (
        await rig.engine("e1", host="127.0.0.2"),
        await rig.engine("e2", host="127.0.0.3"),
    )
    for name, engine in (("s1", first), ("s2", second)):
        await service(rig, name, engine)
        await endpoints(rig, name)
    async with running(VllmRouter()) as router:
        config = config_of(
            "workers", dialect="vllm", engines=ENGINES, replicas={"urls": [router.url]}
        )
        async with rig.leading(config):
            await until(lambda: len(router.urls) == 2)
            rig.server.faults.swallow_events(1, resource="services")
            await rig.client.delete(paths.service(NAMESPACE, "s1"))
            rig.server.faults.cut_watches()
            await until(lambda: router.urls == [second.url])
