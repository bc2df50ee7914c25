"""vllm-router, sglang-router and smg, driven through the life of their engines under load.

Retries of the routers are off, so that every request that meets a ghost is seen.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from controller.routers.config import RouterConfig
from tests.apiserver import EmbeddedCluster
from tests.e2e.routers.real import RealRouter, traffic
from tests.routers.rig import Rig, config_of, rigged
from tests.standins.engine import Engine
from tests.standins_tests.running import running

pytestmark = pytest.mark.anyio

Drive = Callable[[RealRouter, Path], RouterConfig]


def by_api(dialect: str) -> Drive:
    def config(router: RealRouter, folder: Path) -> RouterConfig:
        return config_of(
            "workers",
            dialect=dialect,
            replicas={"urls": [router.url]},
            startupTimeoutSeconds=5,
        )

    return config


def by_file(router: RealRouter, folder: Path) -> RouterConfig:
    replicas = {"urls": [router.url]}
    return config_of("worker-file", file=str(folder / "workers.json"), replicas=replicas)


QUICK = ("--worker-startup-check-interval", "1", "--worker-startup-timeout-secs", "5")
WAYS: dict[str, tuple[str, tuple[str, ...], Drive]] = {
    "vllm-router": ("vllm-router", QUICK, by_api("vllm")),
    "sglang-router": ("sglang-router", QUICK, by_api("sglang")),
    "smg by its API": ("smg", QUICK, by_api("smg")),
    "smg by its file": (
        "smg",
        (*QUICK, "--discovery-provider", "file", "--discovery-file", "{folder}/workers.json"),
        by_file,
    ),
}
EACH = pytest.mark.parametrize("way", list(WAYS))


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    with EmbeddedCluster() as server:
        async with rigged(server) as made:
            yield made


@asynccontextmanager
async def driven(way: str, folder: Path) -> AsyncIterator[tuple[RealRouter, RouterConfig]]:
    """A router of this kind, and how podstamp drives it."""
    name, options, drive = WAYS[way]
    router = RealRouter(name, folder, [option.format(folder=folder) for option in options])
    config = drive(router, folder)
    _empty_file(folder)
    try:
        await router.start()
        yield router, config
    finally:
        await router.aclose()


def _empty_file(folder: Path) -> None:
    (folder / "workers.json").write_text('{"version":1,"workers":[]}')


async def engines(rig: Rig, count: int, **settings: Any) -> list[Engine]:
    """Engines of pods p1, p2, …"""
    made = [await rig.engine(f"e{n}", **settings) for n in range(1, count + 1)]
    for number, engine in enumerate(made, 1):
        await rig.start(f"p{number}", engine)
    return made


@EACH
async def test_no_request_is_lost_while_engines_come_and_go(
    rig: Rig, tmp_path: Path, way: str
) -> None:
    first, second = await engines(rig, 2)
    async with driven(way, tmp_path) as (router, config), rig.leading(config):
        await router.until(first.url, second.url)
        async with traffic(router) as told:
            told.phase = "one joins"
            third = await rig.engine("e3")
            await rig.start("p3", third)
            await router.until(first.url, second.url, third.url)
            await _until(lambda: told.engines == {"e1", "e2", "e3"})
            told.phase = "one is no longer ready, then deleted"
            await rig.set_ready("p1", False)
            await router.until(second.url, third.url)
            await rig.delete("p1")
            told.phase = "it comes back as another incarnation"
            await rig.start("p1", first)
            await router.until(first.url, second.url, third.url)
            told.phase = "all but one leave"
            await rig.delete("p2")
            await rig.delete("p3")
            await router.until(first.url)
            told.phase = "one is left"
            before = told.sent
            await _until(lambda: told.sent > before + 50)
        assert told.failures == {}
        assert told.sent > 50


@EACH
async def test_a_ghost_that_arose_while_nobody_looked_leaves(
    rig: Rig, tmp_path: Path, way: str
) -> None:
    doomed = Engine("doomed")
    (live,) = await engines(rig, 1)
    async with driven(way, tmp_path) as (router, config):
        async with running(doomed):
            await rig.start("doomed", doomed)
            async with rig.leading(config):
                await router.until(live.url, doomed.url)
            # The controller is down; the engine dies, and then its pod.
        await rig.delete("doomed")
        assert doomed.url in await router.urls()
        async with traffic(router) as told:
            told.phase = "ghost"
            await _until(lambda: bool(told.failures))
            async with rig.leading(config):
                await router.until(live.url, timeout_s=5.0)
                told.phase = "gone"
                before = told.sent
                await _until(lambda: told.sent > before + 50)
        assert list(told.failures) == ["ghost"]


@EACH
async def test_a_ghost_of_a_blind_period_leaves_once_the_way_opens(
    rig: Rig, tmp_path: Path, way: str
) -> None:
    doomed = Engine("doomed")
    (live,) = await engines(rig, 1)
    async with driven(way, tmp_path) as (router, config), rig.leading(config):
        async with running(doomed):
            await rig.start("doomed", doomed)
            await router.until(live.url, doomed.url)
            blind = rig.blind()
            await rig.delete("doomed")
        async with traffic(router) as told:
            told.phase = "blind"
            await _until(lambda: bool(told.failures))
            assert await router.urls() == sorted([live.url, doomed.url])
            blind.end()
            await router.until(live.url, timeout_s=5.0)
            told.phase = "gone"
            before = told.sent
            await _until(lambda: told.sent > before + 50)
        assert list(told.failures) == ["blind"]


@EACH
async def test_a_router_that_restarts_is_filled_again(rig: Rig, tmp_path: Path, way: str) -> None:
    first, second = await engines(rig, 2)
    async with driven(way, tmp_path) as (router, config), rig.leading(config):
        await router.until(first.url, second.url)
        await router.restart()
        await router.until(first.url, second.url, timeout_s=10.0)
        async with traffic(router) as told:
            told.phase = "filled"
            await _until(lambda: told.sent > 50)
        assert told.failures == {}


@pytest.mark.parametrize("way", ["smg by its API", "smg by its file"])
async def test_an_adapter_is_routed_to_the_engine_that_holds_it(
    rig: Rig, tmp_path: Path, way: str
) -> None:
    first, second = await engines(rig, 2)
    async with driven(way, tmp_path) as (router, config), rig.leading(config):
        await router.until(first.url, second.url)
        async with traffic(router) as base:
            first.adapters["lora-a"] = None
            stamp = {"lora-modified": "2026-06-01T12:00:00Z"}
            await rig.patch("p1", {"metadata": {"annotations": stamp}})
            adapted = f"{first.url}/lora-a/.."
            await router.until(first.url, second.url, adapted)
            async with traffic(router, "lora-a") as told:
                told.phase = "loaded"
                await _until(lambda: told.sent > 50)
                told.phase = "unloading"
                await _until(lambda: not told.open["loaded"])
                first.restart_process()
                restarted = {"name": "engine", "image": "engine", "restartCount": 1}
                status = {"status": {"containerStatuses": [restarted]}}
                await rig.patch("p1", status, status=True)
                await router.until(first.url, second.url)
            assert "loaded" not in told.failures
            assert told.engines == {"e1"}
        assert base.failures == {}
        assert base.engines == {"e1", "e2"}


async def _until(holds: Callable[[], bool], timeout_s: float = 15.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not holds():  # noqa: ASYNC110  # what it waits for is counted in other tasks
            await asyncio.sleep(0.01)
