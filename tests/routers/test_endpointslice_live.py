"""EndpointSlices of a Service without selector, on an API server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kube import paths
from tests.apiserver import EmbeddedCluster
from tests.routers.rig import NAMESPACE, Rig, config_of, rigged
from tests.standins_tests.running import until

pytestmark = pytest.mark.anyio

CONFIG = {"namespace": NAMESPACE, "service": "chat", "portName": "http"}


@pytest.fixture
async def rig(embedded: EmbeddedCluster) -> AsyncIterator[Rig]:
    async with rigged(embedded) as made:
        yield made


async def service(rig: Rig, **spec: Any) -> dict[str, Any]:
    body = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "chat", "namespace": NAMESPACE},
        "spec": {"ports": [{"name": "http", "port": 80}], **spec},
    }
    return await rig.client.create(paths.services(NAMESPACE), body)


async def slices(rig: Rig) -> list[dict[str, Any]]:
    listed = await rig.client.get(paths.endpointslices(NAMESPACE))
    return sorted(listed["items"], key=lambda item: str(item["metadata"]["name"]))


async def until_published(rig: Rig, wanted: dict[str, bool]) -> None:
    """Until exactly these pods are published, each with this readiness."""
    async with asyncio.timeout(10):
        while True:
            found = {
                endpoint["targetRef"]["name"]: endpoint["conditions"]["ready"]
                for item in await slices(rig)
                for endpoint in item.get("endpoints") or []
            }
            if found == wanted:
                return


async def test_slices_follow_the_engines_in_place(rig: Rig) -> None:
    made = await service(rig)
    engine = await rig.engine("e1")
    ports = (("http", engine.port),)
    await rig.start("p1", engine)
    other = await rig.engine("e2", host="127.0.0.2", port=engine.port)
    await rig.start("p2", other)
    async with rig.leading(config_of("endpointslice", **CONFIG)):
        await until_published(rig, {"p1": True, "p2": True})
        [first] = await slices(rig)
        owner = first["metadata"]["ownerReferences"][0]
        assert (owner["kind"], owner["uid"]) == ("Service", made["metadata"]["uid"])
        assert first["ports"] == [{"name": "http", "port": engine.port, "protocol": "TCP"}]
        await rig.set_ready("p2", False)
        await until_published(rig, {"p1": True, "p2": False})
        await rig.delete("p2")
        await until_published(rig, {"p1": True})
        await rig.create("p3", "127.0.0.3", ports=ports, ready=False)
        await until_published(rig, {"p1": True, "p3": False})
        [last] = await slices(rig)
        assert last["metadata"]["uid"] == first["metadata"]["uid"]


async def test_slices_of_others_are_left_alone(rig: Rig) -> None:
    await service(rig)
    await rig.start("p1", await rig.engine("e1"))
    foreign = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": "chat-foreign",
            "namespace": NAMESPACE,
            "labels": {
                "kubernetes.io/service-name": "chat",
                "endpointslice.kubernetes.io/managed-by": "somebody.example",
            },
        },
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.9.9.9"], "targetRef": {"name": "x"}, "conditions": {}}],
        "ports": [{"port": 1}],
    }
    stored = await rig.client.create(paths.endpointslices(NAMESPACE), foreign)
    async with rig.leading(config_of("endpointslice", **CONFIG)) as loop:
        await until(lambda: _settled(loop))
    found = {item["metadata"]["name"]: item for item in await slices(rig)}
    assert len(found) == 2
    assert (
        found["chat-foreign"]["metadata"]["resourceVersion"]
        == (stored["metadata"]["resourceVersion"])
    )


def _settled(loop: Any) -> bool:
    targets = [t for r in loop.status() for t in r["targets"]]
    return any(t["observed"] and not any(t["difference"].values()) for t in targets)


async def test_a_slice_that_somebody_deletes_comes_back(rig: Rig) -> None:
    await service(rig)
    await rig.start("p1", await rig.engine("e1"))
    async with rig.leading(config_of("endpointslice", **CONFIG)):
        await until_published(rig, {"p1": True})
        [first] = await slices(rig)
        await rig.client.delete(paths.endpointslice(NAMESPACE, first["metadata"]["name"]))
        await until_published(rig, {"p1": True})


async def test_a_ghost_whose_pod_died_while_the_controller_was_down_leaves(rig: Rig) -> None:
    await service(rig)
    engine = await rig.engine("e1")
    await rig.start("p1", engine)
    other = await rig.engine("e2", host="127.0.0.2", port=engine.port)
    await rig.start("p2", other)
    config = config_of("endpointslice", **CONFIG)
    async with rig.leading(config):
        await until_published(rig, {"p1": True, "p2": True})
    await rig.delete("p1")
    async with rig.leading(config):
        await until_published(rig, {"p2": True})


@pytest.mark.parametrize(
    ("spec", "words"),
    [(None, "does not exist"), ({"selector": {"app": "vllm"}}, "has a selector")],
    ids=["no Service", "a selector"],
)
async def test_a_service_that_cannot_be_served_is_said_with_what_to_do(
    rig: Rig, spec: dict[str, Any] | None, words: str
) -> None:
    if spec is not None:
        await service(rig, **spec)
    await rig.start("p1", await rig.engine("e1"))
    async with rig.leading(config_of("endpointslice", **CONFIG)) as loop:
        await until(lambda: words in str(loop.status()))
    assert await slices(rig) == []


async def test_zones_are_read_from_nodes_once(rig: Rig) -> None:
    await service(rig)
    body = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "node-1", "labels": {"topology.kubernetes.io/zone": "z1"}},
    }
    await rig.client.create(paths.nodes(), body)
    engine = await rig.engine("e1")
    await rig.start("p1", engine)
    async with rig.leading(config_of("endpointslice", **CONFIG)):
        await until_published(rig, {"p1": True})
        other = await rig.engine("e2", host="127.0.0.2", port=engine.port)
        await rig.start("p2", other)
        await until_published(rig, {"p1": True, "p2": True})
    zones = {e["zone"] for item in await slices(rig) for e in item["endpoints"]}
    assert zones == {"z1"}
    reads = [path for verb, path, _ in rig.server.requests() if path == "/api/v1/nodes/node-1"]
    assert len(reads) == 1


async def test_without_leave_to_read_nodes_zones_are_left_out_until_it_is_given(rig: Rig) -> None:
    await service(rig)
    body = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "node-1", "labels": {"topology.kubernetes.io/zone": "z1"}},
    }
    await rig.client.create(paths.nodes(), body)
    engine = await rig.engine("e1")
    await rig.start("p1", engine)
    fault = rig.server.faults.fail(403, path="/api/v1/nodes", times=None)
    async with rig.leading(config_of("endpointslice", **CONFIG)):
        await until_published(rig, {"p1": True})
        zones = {e.get("zone") for item in await slices(rig) for e in item["endpoints"]}
        assert zones == {None}
        rig.server.faults.remove(fault)
        other = await rig.engine("e2", host="127.0.0.2", port=engine.port)
        await rig.start("p2", other)
        await until_published(rig, {"p1": True, "p2": True})
        zones = {e.get("zone") for item in await slices(rig) for e in item["endpoints"]}
    assert zones == {"z1"}
