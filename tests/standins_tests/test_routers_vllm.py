"""The vllm-router stand-in: what it does right, and each of its traps."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from urllib.parse import quote

import httpx
import pytest

from tests.clock import FakeClock
from tests.standins.engine import Engine
from tests.standins.routers.vllm import VllmRouter
from tests.standins_tests.running import running, until

pytestmark = pytest.mark.anyio

NOWHERE = "http://127.0.0.1:9"


@pytest.fixture
async def router(clock: FakeClock) -> AsyncIterator[VllmRouter]:
    async with running(VllmRouter(clock=clock)) as router:
        yield router


def failed(router: VllmRouter, times: int) -> bool:
    return router.workers[-1].failures == times


async def add(client: httpx.AsyncClient, router: VllmRouter, url: str) -> httpx.Response:
    return await client.post(f"{router.url}/workers", json={"url": url})


async def complete(client: httpx.AsyncClient, router: VllmRouter) -> httpx.Response:
    return await client.post(f"{router.url}/v1/completions", json={"model": "base"})


async def test_both_lists_show_what_both_adds_added(
    client: httpx.AsyncClient, router: VllmRouter
) -> None:
    async with running(Engine("a")) as one, running(Engine("b")) as two:
        assert (await add(client, router, one.url)).status_code == 200
        answer = await client.post(f"{router.url}/add_worker", params={"url": two.url})
        assert answer.status_code == 200
        listed = (await client.get(f"{router.url}/workers")).json()["workers"]
        assert [worker["url"] for worker in listed] == [one.url, two.url]
        urls = (await client.get(f"{router.url}/list_workers")).json()["urls"]
        assert urls == [one.url, two.url]
        one_of = await client.get(f"{router.url}/workers/{quote(two.url, safe='')}")
        assert one_of.json()["url"] == two.url


async def test_requests_go_to_the_workers_in_turn(
    client: httpx.AsyncClient, router: VllmRouter
) -> None:
    async with running(Engine("a")) as one, running(Engine("b")) as two:
        for engine in (one, two):
            await add(client, router, engine.url)
        names = [(await complete(client, router)).headers["x-engine"] for _ in range(4)]
    assert sorted(names) == ["a", "a", "b", "b"]
    assert names[0] != names[1]


async def test_without_workers_requests_are_refused(
    client: httpx.AsyncClient, router: VllmRouter
) -> None:
    assert (await complete(client, router)).status_code == 503


async def test_an_add_waits_for_health_and_gives_up_in_the_end(
    client: httpx.AsyncClient, router: VllmRouter, clock: FakeClock
) -> None:
    router.startup_timeout_s = 3
    call = asyncio.ensure_future(add(client, router, NOWHERE))
    for _ in range(3):
        await until(lambda: clock.sleepers == 2)  # the retry, and the health checks
        assert not call.done()
        await clock.advance(1)
    answer = await call
    assert (answer.status_code, answer.json()["code"]) == (400, "ADD_WORKER_FAILED")


async def test_an_add_is_undone_when_the_client_hangs_up(
    client: httpx.AsyncClient, router: VllmRouter, clock: FakeClock
) -> None:
    async with running(Engine("a", clock=clock)) as slow, running(Engine("b")) as quick:
        slow.delay_s = 3
        with pytest.raises(httpx.ReadTimeout):
            await client.post(f"{router.url}/workers", json={"url": slow.url}, timeout=0.05)
        await clock.advance(3)
        await add(client, router, quick.url)
    assert slow.requests == {"/health": 1}
    assert router.urls == [quick.url]


async def test_an_add_of_what_is_there_is_an_error_that_says_so(
    client: httpx.AsyncClient, router: VllmRouter
) -> None:
    async with running(Engine("a")) as engine:
        await add(client, router, engine.url)
        answer = await add(client, router, engine.url)
        assert answer.status_code == 400
        assert "already exists" in answer.json()["error"]
        slash = await add(client, router, f"{engine.url}/")
        assert slash.status_code == 200
        assert router.urls == [engine.url, f"{engine.url}/"]


async def test_a_removal_of_what_is_not_there_succeeds(
    client: httpx.AsyncClient, router: VllmRouter
) -> None:
    path = f"{router.url}/workers/{quote(NOWHERE, safe='')}"
    assert (await client.delete(path)).status_code == 200
    other = await client.post(f"{router.url}/remove_worker", params={"url": NOWHERE})
    assert other.status_code == 200


async def test_a_removal_takes_the_worker_out_at_once(
    client: httpx.AsyncClient, router: VllmRouter
) -> None:
    async with running(Engine("a")) as one, running(Engine("b")) as two:
        for engine in (one, two):
            await add(client, router, engine.url)
        await client.delete(f"{router.url}/workers/{quote(one.url, safe='')}")
        assert router.urls == [two.url]
        await client.post(f"{router.url}/remove_worker", params={"url": two.url})
        assert router.urls == []


async def test_a_removal_takes_every_rank_of_a_url(
    client: httpx.AsyncClient, router: VllmRouter
) -> None:
    router.data_parallel = 2
    async with running(Engine("a")) as engine:
        await add(client, router, engine.url)
        assert router.urls == [f"{engine.url}@0", f"{engine.url}@1"]
        assert (await complete(client, router)).status_code == 200
        await client.delete(f"{router.url}/workers/{quote(engine.url, safe='')}")
    assert router.urls == []


async def test_a_ghost_fails_requests_until_its_probes_have_failed_thrice(
    client: httpx.AsyncClient, router: VllmRouter, clock: FakeClock
) -> None:
    async with running(Engine("a")) as alive:
        async with running(Engine("b")) as ghost:
            for engine in (alive, ghost):
                await add(client, router, engine.url)
        statuses = [(await complete(client, router)).status_code for _ in range(4)]
        assert sorted(statuses) == [200, 200, 502, 502]
        assert (await client.get(f"{router.url}/health")).status_code == 200
        for failures in (1, 2, 3):
            await clock.advance(60)
            await until(partial(failed, router, failures))
        statuses = [(await complete(client, router)).status_code for _ in range(4)]
        assert statuses == [200] * 4
        assert (await client.get(f"{router.url}/health")).status_code == 503
        assert (await client.get(f"{router.url}/liveness")).status_code == 200
        assert (await client.get(f"{router.url}/readiness")).status_code == 200
    assert router.urls == [alive.url, ghost.url]


async def test_a_path_that_it_does_not_know_goes_to_one_worker(
    client: httpx.AsyncClient, router: VllmRouter
) -> None:
    async with running(Engine("a")) as one, running(Engine("b")) as two:
        for engine in (one, two):
            await add(client, router, engine.url)
        load = {"lora_name": "x"}
        answer = await client.post(f"{router.url}/v1/load_lora_adapter", json=load)
        assert answer.status_code == 200
        assert sorted(len(engine.adapters) for engine in (one, two)) == [0, 1]


async def test_a_restart_forgets_all_workers(client: httpx.AsyncClient, router: VllmRouter) -> None:
    async with running(Engine("a")) as engine:
        await add(client, router, engine.url)
    router.restart()
    assert (await client.get(f"{router.url}/list_workers")).json() == {"urls": []}
