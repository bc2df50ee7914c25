"""The sglang-router stand-in: queued adds and removals, and what goes wrong with them."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from tests.clock import FakeClock
from tests.standins.engine import Engine
from tests.standins.routers.sglang import SglangRouter
from tests.standins_tests.running import running, until

pytestmark = pytest.mark.anyio


class Api:
    """The router's worker API, as a client sees it."""

    def __init__(self, router: SglangRouter, client: httpx.AsyncClient) -> None:
        self.router = router
        self.client = client

    async def add(self, url: str, **spec: Any) -> dict[str, Any]:
        answer = await self.client.post(f"{self.router.url}/workers", json={"url": url, **spec})
        assert answer.status_code == 202
        body: dict[str, Any] = answer.json()
        assert body["location"] == f"/workers/{body['worker_id']}"
        return body

    async def added(self, url: str, **spec: Any) -> str:
        id: str = (await self.add(url, **spec))["worker_id"]
        await until(lambda: url in self.router.urls)
        return id

    async def list(self) -> list[dict[str, Any]]:
        listed: list[dict[str, Any]]
        listed = (await self.client.get(f"{self.router.url}/workers")).json()["workers"]
        return listed

    async def call(self, method: str, id: str) -> httpx.Response:
        return await self.client.request(method, f"{self.router.url}/workers/{id}")


@pytest.fixture
async def api(client: httpx.AsyncClient, clock: FakeClock) -> AsyncIterator[Api]:
    async with running(SglangRouter(clock=clock)) as router:
        yield Api(router, client)


async def test_an_add_is_answered_first_and_done_later(api: Api) -> None:
    async with running(Engine("a")) as engine:
        id = await api.added(engine.url, model_id="llama")
        [listed] = await api.list()
    assert (listed["id"], listed["url"], listed["model_id"]) == (id, engine.url, "llama")


async def test_an_engine_added_without_a_model_is_unknown(api: Api) -> None:
    async with running(Engine("a")) as engine:
        await api.added(engine.url)
    assert [worker["model_id"] for worker in await api.list()] == ["unknown"]
    models = (await api.client.get(f"{api.router.url}/v1/models")).json()["data"]
    assert [card["id"] for card in models] == ["unknown"]


async def test_an_unhealthy_engine_waits_unlisted_until_it_is_well(
    api: Api, clock: FakeClock
) -> None:
    async with running(Engine("a")) as engine:
        engine.fail.add("/health")
        id = (await api.add(engine.url))["worker_id"]
        await until(lambda: clock.sleepers == 2)
        assert await api.list() == []
        shown = (await api.call("GET", id)).json()
        assert shown["job_status"]["status"] == "pending"
        engine.fail.clear()
        await clock.advance(1)
        await until(lambda: api.router.urls == [engine.url])


async def test_an_add_fails_when_its_time_is_over(api: Api, clock: FakeClock) -> None:
    api.router.startup_timeout_s = 1
    id = (await api.add("http://127.0.0.1:9"))["worker_id"]
    await until(lambda: clock.sleepers == 2)
    await clock.advance(1)
    while (await api.call("GET", id)).json()["job_status"]["status"] != "failed":
        pass
    assert await api.list() == []


async def test_a_second_add_is_accepted_then_fails_and_its_spec_is_lost(api: Api) -> None:
    async with running(Engine("a")) as engine:
        id = await api.added(engine.url, model_id="one")
        assert (await api.add(engine.url, model_id="two"))["worker_id"] == id
        while True:
            shown = (await api.call("GET", id)).json()
            if shown["job_status"]["status"] == "failed":
                break
    assert "already exists" in shown["job_status"]["message"]
    assert [worker["model_id"] for worker in await api.list()] == ["one"]


async def test_a_removal_is_done_after_a_while_and_an_unknown_one_is_404(
    api: Api, clock: FakeClock
) -> None:
    async with running(Engine("a")) as one, running(Engine("b")) as two:
        id = await api.added(one.url)
        await api.added(two.url)
    assert (await api.call("DELETE", id)).status_code == 202
    assert api.router.urls == [one.url, two.url]
    await clock.advance(0.1)
    assert api.router.urls == [two.url]
    answer = await api.call("DELETE", id)
    assert (answer.status_code, answer.json()["code"]) == (404, "WORKER_NOT_FOUND")


async def test_each_add_of_a_url_has_another_id(api: Api, clock: FakeClock) -> None:
    async with running(Engine("a")) as engine:
        first = await api.added(engine.url)
        await api.call("DELETE", first)
        await clock.advance(0.1)
        assert await api.added(engine.url) != first


async def test_a_removal_does_not_stop_a_pending_add(api: Api, clock: FakeClock) -> None:
    async with running(Engine("a")) as engine:
        engine.fail.add("/health")
        id = (await api.add(engine.url))["worker_id"]
        await until(lambda: clock.sleepers == 2)
        assert (await api.call("DELETE", id)).status_code == 202
        await clock.advance(0.1)
        assert (await api.call("GET", id)).status_code == 404
        engine.fail.clear()
        await clock.advance(1)
        await until(lambda: api.router.urls == [engine.url])
        assert [worker["id"] for worker in await api.list()] != [id]


async def test_without_a_scheme_the_worker_has_another_id_than_the_answer(api: Api) -> None:
    async with running(Engine("a")) as engine:
        answered = (await api.add(engine.url.removeprefix("http://")))["worker_id"]
        await until(lambda: api.router.urls == [engine.url])
        assert [worker["id"] for worker in await api.list()] != [answered]


async def test_a_trailing_slash_makes_another_worker(api: Api) -> None:
    async with running(Engine("a")) as engine:
        assert await api.added(engine.url) != await api.added(f"{engine.url}/")
    assert len(await api.list()) == 2


async def test_the_key_guards_the_worker_api(api: Api) -> None:
    api.router.api_key = "k"
    assert (await api.client.get(f"{api.router.url}/workers")).status_code == 401
    headers = {"authorization": "Bearer k"}
    answer = await api.client.get(f"{api.router.url}/workers", headers=headers)
    assert answer.status_code == 200


async def test_a_restart_forgets_workers_and_queued_adds(api: Api, clock: FakeClock) -> None:
    async with running(Engine("a")) as one, running(Engine("b")) as two:
        await api.added(one.url)
        two.fail.add("/health")
        await api.add(two.url)
        await until(lambda: clock.sleepers == 2)
        api.router.restart()
        two.fail.clear()
        await clock.advance(5)
        assert await api.list() == []
        assert two.requests["/health"] == 1
