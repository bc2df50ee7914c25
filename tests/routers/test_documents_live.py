"""Routers that read a file or a key of a ConfigMap."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kube import paths
from tests.apiserver import EmbeddedCluster
from tests.routers.rig import SYSTEM, Rig, config_of, rigged
from tests.standins.engine import Engine
from tests.standins.routers.production_stack import ProductionStackRouter
from tests.standins.routers.smg import SmgRouter
from tests.standins_tests.running import running, until

pytestmark = pytest.mark.anyio

CM = {"namespace": SYSTEM, "name": "gateway", "key": "workers.json"}


@pytest.fixture
async def rig(embedded: EmbeddedCluster) -> AsyncIterator[Rig]:
    async with rigged(embedded) as made:
        yield made


async def two(rig: Rig, **settings: Any) -> tuple[Engine, Engine]:
    """Engines of pods p1 and p2."""
    first, second = await rig.engine("e1", **settings), await rig.engine("e2")
    await rig.start("p1", first)
    await rig.start("p2", second)
    return first, second


def urls(file: Path) -> set[str]:
    if not file.exists():
        return set()
    return {worker["url"] for worker in json.loads(file.read_bytes())["workers"]}


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


async def test_smg_follows_its_file(rig: Rig, tmp_path: Path) -> None:
    first, second = await two(rig, adapters=["a"])
    file = tmp_path / "workers.json"
    async with running(SmgRouter(discovery_file=file)) as router:
        assert router.file is not None
        router.file.poll_s = 0.02
        config = config_of("worker-file", file=str(file), replicas={"urls": [router.url]})
        async with rig.leading(config) as loop:
            await until(lambda: set(router.urls) == {first.url, f"{first.url}/a/..", second.url})
            await until(lambda: all(_settled(loop)))
            await rig.delete("p1")
            await until(lambda: router.urls == [second.url])
            await until(lambda: all(_settled(loop)))
            assert router.file.rejected == 0
            assert names_in(tmp_path) == ["workers.json"]


def _settled(loop: Any) -> list[bool]:
    return [not any(t["difference"].values()) for t in loop.status()[0]["targets"]]


async def test_a_file_that_somebody_changes_is_put_right_and_that_is_told(
    rig: Rig, tmp_path: Path
) -> None:
    first, second = await two(rig)
    file = tmp_path / "workers.json"
    async with rig.leading(config_of("worker-file", file=str(file))):
        await until(lambda: urls(file) == {first.url, second.url})
        right = file.read_bytes()
        for wrong in (b"", b'{"version":1,"workers":[]}', right.replace(b"\n", b"")):
            file.write_bytes(wrong)
            await until(lambda: file.read_bytes() == right)
    reasons = {reason for reason, _, _ in await rig.events()}
    assert reasons == {"RouterDrifted"}


async def test_a_file_whose_pods_died_while_the_controller_was_down_is_put_right(
    rig: Rig, tmp_path: Path
) -> None:
    _, second = await two(rig)
    file = tmp_path / "workers.json"
    config = config_of("worker-file", file=str(file))
    async with rig.leading(config):
        await until(lambda: len(urls(file)) == 2)
    await rig.delete("p1")
    async with rig.leading(config):
        await until(lambda: urls(file) == {second.url})


async def test_a_folder_that_is_not_there_is_said_in_one_line(rig: Rig, tmp_path: Path) -> None:
    await two(rig)
    config = config_of("worker-file", file=str(tmp_path / "absent" / "workers.json"))
    async with rig.leading(config) as loop:
        await until(lambda: bool(loop.status()) and bool(_errors(loop)))
        [error] = _errors(loop)
        assert "cannot be written" in error
        assert "\n" not in error


def _errors(loop: Any) -> list[str]:
    return [t["error"] for t in loop.status()[0]["targets"] if t["error"]]


async def test_a_key_of_a_configmap_is_kept_and_its_siblings_are_left_alone(rig: Rig) -> None:
    first, second = await two(rig)
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "gateway", "namespace": SYSTEM},
        "data": {"other": "stays"},
    }
    await rig.client.create(paths.configmaps(SYSTEM), body)
    async with rig.leading(config_of("worker-file", configMap=CM)) as loop:
        await until(lambda: bool(loop.status()) and _observed(loop) == {first.url, second.url})
        await rig.delete("p2")
        await until(lambda: _observed(loop) == {first.url})
        data = (await rig.client.get(paths.configmap(SYSTEM, "gateway")))["data"]
        assert data["other"] == "stays"
        assert [w["url"] for w in json.loads(data["workers.json"])["workers"]] == [first.url]


def _observed(loop: Any) -> set[str]:
    return {url for t in loop.status()[0]["targets"] for url in t["observed"]}


async def test_a_configmap_that_does_not_exist_is_made(rig: Rig) -> None:
    await two(rig)
    async with rig.leading(config_of("worker-file", configMap=CM)) as loop:
        await until(lambda: bool(loop.status()) and len(_observed(loop)) == 2)
    data = (await rig.client.get(paths.configmap(SYSTEM, "gateway")))["data"]
    assert set(data) == {"workers.json"}


PS_START = {
    "service_discovery": "static",
    "routing_logic": "roundrobin",
    "static_backends": "http://127.0.0.1:9",
    "static_models": "none",
}


async def test_the_production_stack_router_follows_and_is_read_back(
    rig: Rig, tmp_path: Path
) -> None:
    first, second = await two(rig, adapters=["a"])
    file = tmp_path / "dynamic.json"
    file.write_text(json.dumps(PS_START))
    router = ProductionStackRouter(file)
    router.poll_s = 0.05
    async with running(router):
        config = config_of("dynamic-config", file=str(file), replicas={"urls": [router.url]})
        async with rig.leading(config) as loop:
            wanted = [(first.url, "a"), (first.url, "base"), (second.url, "base")]
            await until(lambda: sorted((w.url, w.model) for w in router.workers) == sorted(wanted))
            await until(lambda: all(_settled(loop)))
            await rig.delete("p1")
            await until(lambda: router.urls == [second.url])
            await rig.delete("p2")
            await until(lambda: router.urls == ["http://127.0.0.1:9"])
            await until(lambda: all(_settled(loop)))
            assert router.rejected == []


async def test_a_router_that_does_not_take_its_file_is_told(rig: Rig, tmp_path: Path) -> None:
    await two(rig)
    file, other = tmp_path / "dynamic.json", tmp_path / "other.json"
    other.write_text(json.dumps(PS_START))
    async with running(ProductionStackRouter(other)) as router:
        config = config_of(
            "dynamic-config",
            file=str(file),
            replicas={"urls": [router.url]},
            pickupSeconds=0.2,
        )
        async with rig.leading(config) as loop:
            await until(lambda: bool(loop.status()) and bool(_errors(loop)))
            assert "has not taken the document for 0.2 s" in _errors(loop)[0]
            while not (found := await rig.events()):
                pass
            assert found[0][0] == "RouterUnreachable"


async def test_what_the_router_cannot_express_is_left_out_alone(rig: Rig, tmp_path: Path) -> None:
    odd, good = await rig.engine("e1", model="a,b"), await rig.engine("e2")
    await rig.start("p1", odd)
    await rig.start("p2", good)
    file = tmp_path / "dynamic.json"
    async with rig.leading(config_of("dynamic-config", file=str(file))):
        await until(file.exists)
        await until(lambda: json.loads(file.read_bytes())["static_backends"] == good.url)
