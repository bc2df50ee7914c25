"""sglang-router and smg: adds and removals that are only queued, and routing by model."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from controller.routers.config import RouterConfig
from tests.apiserver import EmbeddedCluster
from tests.routers.rig import PROBE, Rig, config_of, rigged
from tests.standins.routers.base import RouterStandIn
from tests.standins.routers.sglang import SglangRouter
from tests.standins.routers.smg import SmgRouter
from tests.standins_tests.running import running, until

pytestmark = pytest.mark.anyio


@pytest.fixture
async def rig(embedded: EmbeddedCluster) -> AsyncIterator[Rig]:
    async with rigged(embedded) as made:
        yield made


def driven(dialect: str, router: RouterStandIn, **fields: Any) -> RouterConfig:
    return config_of("workers", dialect=dialect, replicas={"urls": [router.url]}, **fields)


def quick(router: Any) -> Any:
    """With waits that suit a test."""
    router.retry_s = 0.05
    if isinstance(router, SmgRouter):
        router.drain_s = 0.2
    return router


MAKERS = pytest.mark.parametrize(
    ("dialect", "make"), [("sglang", SglangRouter), ("smg", SmgRouter)], ids=["sglang", "smg"]
)


@MAKERS
async def test_engines_are_followed(rig: Rig, dialect: str, make: Any) -> None:
    engines = [await rig.engine(f"e{n}") for n in (1, 2, 3)]
    for number, engine in enumerate(engines[:2], 1):
        await rig.start(f"p{number}", engine)
    async with running(quick(make())) as router, rig.leading(driven(dialect, router)):
        await until(lambda: set(router.urls) == {e.url for e in engines[:2]})
        assert {worker.model for worker in router.workers} == {"base"}
        await rig.start("p3", engines[2])
        await until(lambda: len(router.urls) == 3)
        await rig.delete("p1")
        await until(lambda: set(router.urls) == {e.url for e in engines[1:]})


@MAKERS
async def test_an_add_that_is_still_queued_is_not_sent_twice(
    rig: Rig, dialect: str, make: Any
) -> None:
    engine = await rig.engine("e1")
    engine.fail = {"/health"}
    await rig.start("p1", engine)
    config_probe = {**PROBE, "healthPath": ""}
    async with running(quick(make())) as router:
        async with rig.leading(driven(dialect, router, probe=config_probe)):
            await until(lambda: router.requests["GET /workers"] >= 4)
            assert router.requests["POST /workers"] == 1
            engine.fail = set()
            await until(lambda: router.urls == [engine.url])
            assert router.requests["POST /workers"] == 1


@MAKERS
async def test_an_add_that_outlives_its_pod_is_removed_when_it_appears(
    rig: Rig, dialect: str, make: Any
) -> None:
    engine, other = await rig.engine("e1"), await rig.engine("e2")
    engine.fail = {"/health"}
    await rig.start("p1", engine)
    await rig.start("p2", other)
    config_probe = {**PROBE, "healthPath": ""}
    async with running(quick(make())) as router:
        async with rig.leading(driven(dialect, router, probe=config_probe)) as loop:
            await until(lambda: router.requests["POST /workers"] == 2 and other.url in router.urls)
            await rig.delete("p1")
            await until(lambda: loop.status()[0]["desired"] == [other.url])
            looks = router.requests["GET /workers"]
            await until(lambda: router.requests["GET /workers"] > looks + 2)
            engine.fail = set()
            await until(lambda: engine.requests["/health"] > 0 and _gone(router, engine.url))
            assert router.urls == [other.url]


def _gone(router: RouterStandIn, url: str) -> bool:
    """It has appeared and is listed no longer."""
    deletes = sum(n for call, n in router.requests.items() if call.startswith("DELETE "))
    return url not in router.urls and deletes >= 1


@MAKERS
async def test_an_add_that_a_former_controller_left_queued_is_removed_when_it_appears(
    rig: Rig, dialect: str, make: Any
) -> None:
    engine = await rig.engine("e1")
    engine.fail = {"/health"}
    await rig.start("p1", engine)
    config_probe = {**PROBE, "healthPath": ""}
    async with running(quick(make())) as router:
        config = driven(dialect, router, probe=config_probe)
        async with rig.leading(config):
            await until(lambda: router.requests["POST /workers"] == 1)
        await rig.delete("p1")
        router.workers = [w for w in router.workers if w.url != engine.url]
        async with rig.leading(config):
            looks = router.requests["GET /workers"]
            await until(lambda: router.requests["GET /workers"] > looks + 2)
            claims = json.loads((await rig.record())["workers"])
            assert list(claims) == [engine.url]
            engine.fail = set()
            await until(lambda: _gone(router, engine.url))


async def test_a_queued_add_that_fails_is_asked_for_again(rig: Rig) -> None:
    engine = await rig.engine("e1")
    engine.fail = {"/health"}
    await rig.start("p1", engine)
    router = quick(SglangRouter())
    router.startup_timeout_s = 0.1
    config_probe = {**PROBE, "healthPath": ""}
    async with running(router):
        async with rig.leading(driven("sglang", router, probe=config_probe)):
            await until(lambda: router.requests["POST /workers"] >= 2)
            engine.fail = set()
            await until(lambda: router.urls == [engine.url])


async def test_a_worker_that_was_registered_without_its_model_is_made_anew(rig: Rig) -> None:
    engine = await rig.engine("e1", model="llama")
    async with running(quick(SglangRouter())) as router:
        async with httpx.AsyncClient() as client:
            await client.post(f"{router.url}/workers", json={"url": engine.url})
            await until(lambda: [w.model for w in router.workers] == ["unknown"])
        await rig.start("p1", engine)
        async with rig.leading(driven("sglang", router)):
            await until(lambda: [w.model for w in router.workers] == ["llama"])


async def test_each_adapter_is_routed_to_the_engines_that_have_it(rig: Rig) -> None:
    first = await rig.engine("e1", adapters=["lora-a"])
    second = await rig.engine("e2", adapters=["lora-b", "org/c d"])
    await rig.start("p1", first)
    await rig.start("p2", second)
    async with running(quick(SmgRouter())) as router, rig.leading(driven("smg", router)):
        await until(lambda: [router.status(url) for url in router.urls] == ["ready"] * 5)
        async with httpx.AsyncClient() as client:
            for model, engine in (("lora-a", "e1"), ("lora-b", "e2"), ("org/c d", "e2")):
                for _ in range(3):
                    answer = await client.post(
                        f"{router.url}/v1/completions", json={"model": model, "prompt": "x"}
                    )
                    assert answer.json()["model"] == model
                    assert answer.headers["x-engine"] == engine


async def test_a_stamp_makes_adapters_known_and_a_restart_takes_them_away_at_once(
    rig: Rig,
) -> None:
    engine = await rig.engine("e1", adapters=["a", "b"])
    await rig.start("p1", engine)
    async with running(quick(SmgRouter())) as router, rig.leading(driven("smg", router)):
        await until(lambda: {w.model for w in router.workers} == {"base", "a", "b"})
        engine.adapters["c"] = None
        stamp = {"lora-modified": "2026-06-01T12:00:00.000000001Z"}
        await rig.patch("p1", {"metadata": {"annotations": stamp}})
        await until(lambda: {w.model for w in router.workers} == {"base", "a", "b", "c"})
        engine.restart_process()
        # The engine says nothing yet: its adapters go all the same, the engine itself stays.
        engine.fail = {"/health"}
        statuses = [
            {"name": "engine", "restartCount": 1, "containerID": "c://1", "image": "engine"}
        ]
        await rig.patch("p1", {"status": {"containerStatuses": statuses}}, status=True)
        await until(lambda: [w.model for w in router.workers] == ["base"])
        engine.adapters["a"] = None
        engine.fail = set()
        await until(lambda: {w.model for w in router.workers} == {"base", "a"})


async def test_adapters_of_a_dead_engine_go_with_it(rig: Rig) -> None:
    first = await rig.engine("e1", adapters=["a", "b"])
    second = await rig.engine("e2", adapters=["a"])
    await rig.start("p1", first)
    await rig.start("p2", second)
    async with running(quick(SmgRouter())) as router, rig.leading(driven("smg", router)):
        await until(lambda: len(router.urls) == 5)
        await rig.delete("p1")
        await until(lambda: set(router.urls) == {second.url, f"{second.url}/a/.."})


async def test_a_draining_worker_that_is_wanted_again_is_added_once_it_has_left(rig: Rig) -> None:
    engine, other = await rig.engine("e1"), await rig.engine("e2")
    await rig.start("p1", engine)
    await rig.start("p2", other)
    async with running(quick(SmgRouter())) as router, rig.leading(driven("smg", router)):
        await until(lambda: router.status(engine.url) == router.status(other.url) == "ready")
        await rig.set_ready("p1", False)
        await until(lambda: router.status(engine.url) == "draining")
        await rig.set_ready("p1", True)
        await until(lambda: router.status(engine.url) == "ready")
        calls = {call.split()[0] for call in router.requests}
        assert "PUT" not in calls
        deletes = sum(n for call, n in router.requests.items() if call.startswith("DELETE "))
        assert deletes == 1
