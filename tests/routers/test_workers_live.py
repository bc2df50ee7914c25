"""Routers with a worker API, driven over HTTP against stand-ins that have their traps."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from controller.routers.config import RouterConfig
from controller.routers.loop import RouterLoop
from tests.apiserver import EmbeddedCluster
from tests.routers.rig import PROBE, SYSTEM, Rig, config_of, rigged
from tests.standins.engine import ALL, Engine
from tests.standins.routers.base import RouterStandIn
from tests.standins.routers.vllm import VllmRouter
from tests.standins_tests.running import running, until

pytestmark = pytest.mark.anyio


@pytest.fixture
async def rig(embedded: EmbeddedCluster) -> AsyncIterator[Rig]:
    async with rigged(embedded) as made:
        yield made


def vllm(*routers: VllmRouter, **fields: Any) -> RouterConfig:
    replicas = {"urls": [router.url for router in routers], **fields.pop("replicas", {})}
    return config_of("workers", **{"dialect": "vllm", "replicas": replicas, **fields})


def errors(loop: RouterLoop) -> list[str]:
    """What the targets of the only router complain of."""
    return [target["error"] for r in loop.status() for target in r["targets"] if target["error"]]


def in_step(loop: RouterLoop, count: int) -> bool:
    """Whether the only target was seen to hold so many entries, and no other than it should."""
    targets = [target for router in loop.status() for target in router["targets"]]
    return [len(t["observed"]) for t in targets] == [count] and not any(
        any(target["difference"].values()) for target in targets
    )


async def three(rig: Rig) -> list[Engine]:
    """Engines of pods p1, p2, p3."""
    engines = [await rig.engine(f"e{n}") for n in (1, 2, 3)]
    for number, engine in enumerate(engines, 1):
        await rig.start(f"p{number}", engine)
    return engines


def changes(router: RouterStandIn) -> int:
    """How many requests of ours were to change something."""
    return sum(n for call, n in router.requests.items() if not call.startswith("GET "))


async def test_engines_are_found_at_start_and_followed(rig: Rig) -> None:
    first, second, third = [await rig.engine(name) for name in ("e1", "e2", "e3")]
    await rig.start("p1", first)
    await rig.start("p2", second)
    async with running(VllmRouter()) as router, rig.leading(vllm(router)):
        await until(lambda: set(router.urls) == {first.url, second.url})
        await rig.start("p3", third)
        await until(lambda: set(router.urls) == {first.url, second.url, third.url})
        await rig.delete("p1")
        await until(lambda: set(router.urls) == {second.url, third.url})


async def test_unchanged_engines_cost_no_request(rig: Rig) -> None:
    engines = await three(rig)
    async with running(VllmRouter()) as router, rig.leading(vllm(router)) as loop:
        await until(lambda: in_step(loop, 3))
        asked = [dict(engine.requests) for engine in engines]
        changed = changes(router)
        looks = router.requests["GET /workers"]
        await rig.patch("p1", {"metadata": {"labels": {"team": "x"}}})
        rig.server.faults.cut_watches()
        await rig.set_ready("p3", False)
        await until(lambda: len(router.urls) == 2)
        await until(lambda: router.requests["GET /workers"] > looks + 3)
        assert [dict(engine.requests) for engine in engines] == asked
        assert changes(router) == changed + 1


async def test_foreign_workers_are_left_alone(rig: Rig) -> None:
    engine = await rig.engine("e1")
    foreign = await rig.engine("foreign")
    await rig.start("p1", engine)
    async with running(VllmRouter()) as router:
        await router._add(foreign.url)
        async with rig.leading(vllm(router)):
            await until(lambda: set(router.urls) == {engine.url, foreign.url})
            await rig.delete("p1")
            await until(lambda: router.urls == [foreign.url])


@pytest.mark.parametrize("lost", ["deleted", "not ready", "address gone", "asleep", "terminal"])
async def test_what_is_lost_while_blind_leaves_once_the_way_opens(rig: Rig, lost: str) -> None:
    engines = await three(rig)
    live = {engine.url for engine in engines[1:]}
    async with running(VllmRouter()) as router, rig.leading(vllm(router)):
        await until(lambda: len(router.urls) == 3)
        changed = changes(router)
        blind = rig.blind()
        match lost:
            case "deleted":
                await rig.delete("p1")
            case "not ready":
                await rig.set_ready("p1", False)
            case "address gone":
                gone = {"status": {"podIP": None, "podIPs": None}}
                await rig.patch("p1", gone, status=True)
            case "asleep":
                await rig.patch("p1", {"metadata": {"labels": {"sleeping": "true"}}})
            case _:
                await rig.patch("p1", {"status": {"phase": "Succeeded"}}, status=True)
        await until(lambda: blind.attempts >= 2)
        assert len(router.urls) == 3
        blind.end()
        await until(lambda: set(router.urls) == live)
        assert changes(router) == changed + 1


async def test_a_sleeping_label_takes_an_engine_out_and_its_removal_brings_it_back(
    rig: Rig,
) -> None:
    engines = await three(rig)
    async with running(VllmRouter()) as router, rig.leading(vllm(router)):
        await until(lambda: len(router.urls) == 3)
        await rig.patch("p2", {"metadata": {"labels": {"sleeping": "true"}}})
        await until(lambda: engines[1].url not in router.urls)
        await rig.patch("p2", {"metadata": {"labels": {"sleeping": None}}})
        await until(lambda: engines[1].url in router.urls)


async def test_one_broken_object_does_not_hold_up_the_others(rig: Rig) -> None:
    engine = await rig.engine("e1")
    await rig.create("broken", "127.0.0.1", ports=(("grpc", 1),))
    await rig.create("foreign", "127.0.0.1", annotations={"lora-modified": "tomorrow"})
    await rig.start("p1", engine)
    async with running(VllmRouter()) as router, rig.leading(vllm(router)) as loop:
        await until(lambda: router.urls == [engine.url])
        states = {e["name"]: e["state"] for e in loop.status()[0]["engines"]}
        assert states["broken"] == "no such port"
        assert states["p1"] == "serving"


async def test_a_ghost_whose_pod_died_while_the_controller_was_down_leaves(rig: Rig) -> None:
    engines = await three(rig)
    foreign = await rig.engine("foreign")
    async with running(VllmRouter()) as router:
        await router._add(foreign.url)
        async with rig.leading(vllm(router)):
            await until(lambda: len(router.urls) == 4)
        await rig.delete("p1")
        await rig.delete("p2")
        assert len(router.urls) == 4
        changed = changes(router)
        # The engine that lives does not even answer the new leader: it is not touched.
        engines[2].fail = {ALL}
        async with rig.leading(vllm(router)) as loop:
            await until(lambda: set(router.urls) == {foreign.url, engines[2].url})
            await until(lambda: "not answering" in str(loop.status()))
            assert changes(router) == changed + 2
            engines[2].fail = set()
            await until(lambda: loop.status()[0]["desired"] == [engines[2].url])
            assert changes(router) == changed + 2


async def test_an_entry_is_claimed_before_it_is_asked_for(rig: Rig) -> None:
    engine = await rig.engine("e1")
    await rig.start("p1", engine)
    fault = rig.server.faults.fail(500, verb="create", path="configmaps", times=None)
    async with running(VllmRouter()) as router, rig.leading(vllm(router)):
        await until(lambda: fault.hits >= 2)
        assert changes(router) == 0
        rig.server.faults.remove(fault)
        await until(lambda: router.urls == [engine.url])
        claims = json.loads((await rig.record())["workers"])
        assert list(claims) == [engine.url]


async def test_a_claim_is_released_once_its_entry_is_gone(rig: Rig) -> None:
    engine = await rig.engine("e1")
    await rig.start("p1", engine)
    async with running(VllmRouter()) as router, rig.leading(vllm(router)) as loop:
        await until(lambda: in_step(loop, 1))
        await rig.delete("p1")
        await until(lambda: router.urls == [])
        async with timeout():
            while json.loads((await rig.record()).get("workers", "{}")):
                pass


def timeout() -> Any:
    import asyncio

    return asyncio.timeout(10)


async def test_a_router_that_restarts_is_filled_again_and_that_is_told(rig: Rig) -> None:
    engines = await three(rig)
    async with running(VllmRouter()) as router, rig.leading(vllm(router)) as loop:
        await until(lambda: in_step(loop, 3))
        router.restart()
        await until(lambda: set(router.urls) == {engine.url for engine in engines})
        [event] = await rig.events()
        assert event[:2] == ("RouterDrifted", "podstamp-router-chat")
        assert "3 missing" in event[2]


async def test_each_replica_is_driven_by_itself_and_one_that_hangs_delays_no_other(
    rig: Rig,
) -> None:
    engines = await three(rig)
    async with running(VllmRouter()) as one, running(VllmRouter()) as two:
        stuck = await rig.engine("stuck")
        stuck.hang = {ALL}
        urls = [one.url, stuck.url, two.url]
        config = vllm(replicas={"urls": urls, "timeoutSeconds": 60})
        async with rig.leading(config) as loop:
            await until(lambda: len(one.urls) == len(two.urls) == 3)
            await rig.delete("p1")
            live = {engine.url for engine in engines[1:]}
            await until(lambda: set(one.urls) == set(two.urls) == live)
            assert stuck.requests["/workers"] == 1
            assert errors(loop) == []


async def test_a_router_that_cannot_be_reached_is_told_once_and_so_is_its_return(rig: Rig) -> None:
    engine = await rig.engine("e1")
    await rig.start("p1", engine)
    router = VllmRouter()
    async with running(router):
        url = router.url
    async with rig.leading(vllm(replicas={"urls": [url]})) as loop:
        await until(lambda: len(loop.status()) == 1 and bool(loop.status()[0]["targets"]))
        lane = loop._routers[0].lanes[url]
        await until(lambda: lane.failures >= 3)
        async with running(VllmRouter(port=router.port)) as back:
            await until(lambda: back.urls == [engine.url])
            reasons = [reason for reason, _, _ in await rig.events()]
            assert reasons == ["RouterUnreachable", "RouterReachable"]


async def test_an_outage_of_the_api_server_changes_nothing(rig: Rig) -> None:
    engines = await three(rig)
    async with running(VllmRouter()) as router, rig.leading(vllm(router)):
        await until(lambda: len(router.urls) == 3)
        changed = changes(router)
        rig.server.faults.block()
        looks = router.requests["GET /workers"]
        await until(lambda: router.requests["GET /workers"] > looks + 1)
        assert changes(router) == changed
        # What is known is upheld meanwhile: a router that restarts is filled from the last list.
        router.restart()
        await until(lambda: set(router.urls) == {engine.url for engine in engines})
        rig.server.faults.clear()
        await rig.delete("p3")
        await until(lambda: len(router.urls) == 2)


async def test_a_slow_engine_delays_nobody(rig: Rig) -> None:
    slow = await rig.engine("slow")
    slow.hang = {ALL}
    await rig.start("slow", slow)
    engines = await three(rig)
    probe = {**PROBE, "timeoutSeconds": 60}
    async with running(VllmRouter()) as router, rig.leading(vllm(router, probe=probe)) as loop:
        await until(lambda: len(router.urls) == 3)
        await rig.delete("p1")
        await until(lambda: engines[0].url not in router.urls)
        states = {e["name"]: e["state"] for e in loop.status()[0]["engines"]}
        assert states["slow"] == "being asked"


async def test_an_engine_that_fails_at_first_is_added_without_a_new_event(rig: Rig) -> None:
    slow = await rig.engine("slow")
    slow.fail = {ALL}
    await rig.start("slow", slow)
    async with running(VllmRouter()) as router, rig.leading(vllm(router)) as loop:
        await until(lambda: "not answering" in str(loop.status()))
        slow.fail = set()
        await until(lambda: router.urls == [slow.url])


async def test_an_add_that_the_router_holds_up_delays_no_removal_and_ends_with_its_pod(
    rig: Rig,
) -> None:
    engines = await three(rig)
    held = await rig.engine("held")
    held.fail = {"/health"}
    probe = {**PROBE, "healthPath": ""}
    async with running(VllmRouter()) as router, rig.leading(vllm(router, probe=probe)):
        await until(lambda: len(router.urls) == 3)
        await rig.start("held", held)
        await until(lambda: held.requests["/health"] >= 1)
        await rig.delete("p1")
        await until(lambda: engines[0].url not in router.urls)
        await rig.delete("held")
        await until(lambda: rig.count("actions_total", **labels("add", "cancelled")) == 1)
        held.fail = set()
        asked = held.requests["/health"]
        await rig.set_ready("p2", False)
        await until(lambda: engines[1].url not in router.urls)
        assert held.requests["/health"] == asked
        assert held.url not in router.urls


def labels(action: str, outcome: str) -> dict[str, str]:
    return {"router": "chat", "action": action, "outcome": outcome}


async def test_a_successor_at_the_same_address_keeps_the_entry(rig: Rig) -> None:
    engines = await three(rig)
    async with running(VllmRouter()) as router, rig.leading(vllm(router)):
        await until(lambda: len(router.urls) == 3)
        before = json.loads((await rig.record())["workers"])[engines[0].url][0]
        changed = changes(router)
        blind = rig.blind()
        await rig.delete("p1")
        uid = await rig.start("p9", engines[0])
        blind.end()
        async with timeout():
            while json.loads((await rig.record())["workers"])[engines[0].url][0] != uid:
                pass
        assert uid != before
        assert changes(router) == changed
        assert engines[0].url in router.urls


async def test_all_ranks_of_a_data_parallel_engine_leave_with_it(rig: Rig) -> None:
    engines = await three(rig)
    router = VllmRouter()
    router.data_parallel = 2
    async with running(router), rig.leading(vllm(router)):
        await until(lambda: len(router.urls) == 6)
        await rig.delete("p1")
        await until(lambda: len(router.urls) == 4)
        assert not any(url.startswith(f"{engines[0].url}@") for url in router.urls)


async def test_the_older_api_is_spoken_too(rig: Rig) -> None:
    engines = await three(rig)
    async with running(VllmRouter()) as router, rig.leading(vllm(router, dialect="legacy")):
        await until(lambda: len(router.urls) == 3)
        await rig.delete("p1")
        await until(lambda: engines[0].url not in router.urls)
        assert not router.requests["GET /workers"]


async def test_a_key_is_sent_and_read_again_when_its_file_changes(rig: Rig, tmp_path: Path) -> None:
    engine = await rig.engine("e1")
    await rig.start("p1", engine)
    key = tmp_path / "key"
    key.write_text("wrong\n")
    async with running(VllmRouter(api_key="right")) as router:
        config = vllm(router, replicas={"apiKeyFile": str(key)})
        async with rig.leading(config) as loop:
            await until(lambda: bool(errors(loop)))
            [error] = errors(loop)
            assert "401" in error
            assert "wrong" not in error
            key.write_text("right\n")
            await until(lambda: router.urls == [engine.url])


async def test_router_pods_are_found_by_label_and_a_new_one_is_filled(rig: Rig) -> None:
    engine = await rig.engine("e1")
    await rig.start("p1", engine)
    pods = {"namespace": SYSTEM, "selector": {"app": "router"}, "port": "api"}
    config = vllm(replicas={"pods": pods})
    async with running(VllmRouter()) as one, running(VllmRouter()) as two, rig.leading(config):
        for name, router in (("r1", one), ("r2", two)):
            await rig.create(
                name,
                "127.0.0.1",
                namespace=SYSTEM,
                labels={"app": "router"},
                ports=(("api", router.port),),
                ready=False,
            )
            await until(partial(_lists, router, engine.url))


def _lists(router: RouterStandIn, url: str) -> bool:
    return router.urls == [url]


async def test_the_set_is_empty_once_the_last_engine_is_gone(rig: Rig) -> None:
    engine = await rig.engine("e1")
    await rig.start("p1", engine)
    async with running(VllmRouter()) as router, rig.leading(vllm(router)):
        await until(lambda: router.urls == [engine.url])
        await rig.delete("p1")
        await until(lambda: router.urls == [])
        assert rig.count("guarded_total", router="chat", outcome="confirmed") >= 1
