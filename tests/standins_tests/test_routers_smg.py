"""The smg stand-in: pending and draining workers, routing by model, and the discovery file."""

from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from tests.clock import FakeClock
from tests.standins.engine import Engine
from tests.standins.routers.base import Worker
from tests.standins.routers.smg import DRAINING, FAILED, PENDING, READY, SmgRouter
from tests.standins_tests.running import running, until

pytestmark = pytest.mark.anyio


@pytest.fixture
async def router(clock: FakeClock) -> AsyncIterator[SmgRouter]:
    async with running(SmgRouter(clock=clock)) as router:
        yield router


def failed(worker: Worker, times: int) -> bool:
    return worker.failures == times


async def add(
    client: httpx.AsyncClient, router: SmgRouter, url: str, model: str = "", **card: Any
) -> httpx.Response:
    spec = {"models": [{"id": model, **card}]} if model else {}
    return await client.post(f"{router.url}/workers", json={"url": url, **spec})


async def added(
    client: httpx.AsyncClient, router: SmgRouter, url: str, model: str = "", **card: Any
) -> str:
    answer = await add(client, router, url, model, **card)
    assert answer.status_code == 202
    await until(lambda: router.status(url) == READY)
    id: str = answer.json()["worker_id"]
    return id


async def complete(client: httpx.AsyncClient, router: SmgRouter, model: str) -> httpx.Response:
    return await client.post(f"{router.url}/v1/completions", json={"model": model})


async def call(
    client: httpx.AsyncClient, router: SmgRouter, method: str, id: str
) -> httpx.Response:
    return await client.request(method, f"{router.url}/workers/{id}")


async def test_an_add_is_pending_until_the_engine_is_well(
    client: httpx.AsyncClient, router: SmgRouter, clock: FakeClock
) -> None:
    async with running(Engine("a")) as engine:
        engine.fail.add("/health")
        assert (await add(client, router, engine.url)).status_code == 202
        await until(lambda: clock.sleepers == 2)
        assert router.status(engine.url) == PENDING
        answer = await add(client, router, engine.url)
        assert (answer.status_code, answer.json()["code"]) == (409, "WORKER_CREATE_IN_PROGRESS")
        engine.fail.clear()
        await clock.advance(30)
        await until(lambda: router.status(engine.url) == READY)
        answer = await add(client, router, engine.url)
        assert (answer.status_code, answer.json()["code"]) == (409, "WORKER_ALREADY_EXISTS")


async def test_the_model_is_the_first_given_or_the_engines_own(
    client: httpx.AsyncClient, router: SmgRouter
) -> None:
    async with running(Engine("a", model="llama", adapters=["x"])) as one:
        async with running(Engine("b", model="other", adapters=["y"])) as two:
            await added(client, router, one.url)
            await added(client, router, two.url, "y")
            listed = (await client.get(f"{router.url}/workers")).json()["workers"]
            assert [worker["model_id"] for worker in listed] == ["llama", "y"]
            models = ("llama", "y", "x", "other")
            codes = [(await complete(client, router, model)).status_code for model in models]
            assert codes == [200, 200, 404, 404]
    answer = await complete(client, router, "x")
    assert answer.json()["code"] == "model_not_found"


async def test_another_spelling_of_a_url_is_another_worker_for_an_adapter(
    client: httpx.AsyncClient, router: SmgRouter
) -> None:
    async with running(Engine("a", model="llama", adapters=["x"])) as engine:
        await added(client, router, engine.url, "llama")
        await added(client, router, f"{engine.url}/x/..", "x")
        assert (await complete(client, router, "x")).status_code == 200
        assert (await complete(client, router, "llama")).status_code == 200
        assert engine.completions == {"x": 1, "llama": 1}


async def test_aliases_rewrite_the_model_and_serve_the_base(
    client: httpx.AsyncClient, router: SmgRouter
) -> None:
    async with running(Engine("a", model="llama", adapters=["x"])) as engine:
        await added(client, router, engine.url, "llama", aliases=["x"])
        assert (await complete(client, router, "x")).status_code == 200
        assert engine.completions == {"llama": 1}


async def test_a_url_needs_a_scheme(client: httpx.AsyncClient, router: SmgRouter) -> None:
    assert (await add(client, router, "127.0.0.1:9")).status_code == 400
    assert router.urls == []


async def test_a_removed_worker_drains_and_gets_no_new_requests(
    client: httpx.AsyncClient, router: SmgRouter, clock: FakeClock
) -> None:
    async with running(Engine("a")) as one, running(Engine("b")) as two:
        id = await added(client, router, one.url)
        await added(client, router, two.url)
        assert (await call(client, router, "DELETE", id)).status_code == 202
        assert router.status(one.url) == DRAINING
        names = {(await complete(client, router, "base")).headers["x-engine"] for _ in range(4)}
        assert names == {"b"}
        assert (await add(client, router, one.url)).status_code == 409
        await clock.advance(4.9)
        assert router.status(one.url) == DRAINING
        await clock.advance(0.1)
        assert router.urls == [two.url]
    assert (await call(client, router, "DELETE", id)).status_code == 404


async def test_a_second_removal_skips_the_drain(
    client: httpx.AsyncClient, router: SmgRouter
) -> None:
    async with running(Engine("a")) as engine:
        id = await added(client, router, engine.url)
    for _ in range(2):
        await call(client, router, "DELETE", id)
    assert router.urls == []


async def test_put_on_a_draining_worker_says_ready_and_then_it_vanishes(
    client: httpx.AsyncClient, router: SmgRouter, clock: FakeClock
) -> None:
    async with running(Engine("a")) as engine:
        id = await added(client, router, engine.url)
        await call(client, router, "DELETE", id)
        assert (await call(client, router, "PUT", id)).status_code == 202
        assert router.status(engine.url) == READY
        await clock.advance(5)
        assert router.urls == []


async def test_a_removal_does_not_stop_a_pending_add(
    client: httpx.AsyncClient, router: SmgRouter, clock: FakeClock
) -> None:
    async with running(Engine("a")) as engine:
        engine.fail.add("/health")
        id = (await add(client, router, engine.url)).json()["worker_id"]
        await until(lambda: clock.sleepers == 2)
        assert (await call(client, router, "DELETE", id)).status_code == 202
        assert router.urls == []
        engine.fail.clear()
        await clock.advance(30)
        await until(lambda: router.status(engine.url) == READY)


@pytest.mark.parametrize("removes", [True, False], ids=["removed", "kept"])
async def test_an_engine_that_dies_is_failed_and_removed_only_if_told(
    client: httpx.AsyncClient, router: SmgRouter, clock: FakeClock, removes: bool
) -> None:
    router.remove_unhealthy = removes
    async with running(Engine("a")) as engine:
        await added(client, router, engine.url)
    assert (await complete(client, router, "base")).status_code == 502
    [worker] = router.workers
    for failures in range(3):
        await until(partial(failed, worker, failures))
        await until(lambda: clock.sleepers == 1)
        await clock.advance(60)
    await until(lambda: worker.failures == 3)
    assert router.status(engine.url) == (None if removes else FAILED)


def write(path: Path, *workers: tuple[str, str] | tuple[str, str, str], **fields: Any) -> None:
    keys: Sequence[str] = ("id", "url", "model_id")
    listed = [dict(zip(keys, worker, strict=False)) for worker in workers]
    path.write_bytes(msgspec.json.encode({"version": 1, "workers": listed, **fields}))


@pytest.fixture
async def filed(clock: FakeClock, tmp_path: Path) -> AsyncIterator[SmgRouter]:
    path = tmp_path / "workers.json"
    async with running(SmgRouter(clock=clock, discovery_file=path)) as router:
        yield router


async def test_a_file_adds_and_removes_and_leaves_workers_of_the_api_alone(
    client: httpx.AsyncClient, filed: SmgRouter, clock: FakeClock, tmp_path: Path
) -> None:
    path = tmp_path / "workers.json"
    async with running(Engine("a")) as one, running(Engine("b")) as two, running(Engine("c")) as c:
        await added(client, filed, c.url)
        write(path, ("1", one.url, "m"), ("2", two.url))
        await clock.advance(0.2)
        await until(lambda: filed.status(one.url) == filed.status(two.url) == READY)
        assert [worker.model for worker in filed.workers] == ["base", "m", "base"]
        write(path, ("2", two.url))
        await clock.advance(0.2)
        assert filed.urls == [c.url, two.url]
        write(path)
        await clock.advance(0.2)
        assert filed.urls == [c.url]


BAD: dict[str, bytes | None] = {
    "gone": None,
    "empty": b"",
    "half-written": b'{"version":1,"workers":[{"id"',
    "unknown-field": b'{"version":1,"workers":[{"id":"1","url":"http://a","note":"x"}]}',
    "unknown-top-field": b'{"version":1,"workers":[],"note":"x"}',
    "other-version": b'{"version":2,"workers":[]}',
}


@pytest.mark.parametrize("content", BAD.values(), ids=BAD.keys())
async def test_a_bad_file_changes_nothing(
    filed: SmgRouter, clock: FakeClock, tmp_path: Path, content: bytes | None
) -> None:
    path = tmp_path / "workers.json"
    write(path, ("1", "http://127.0.0.1:9"))
    await clock.advance(0.2)
    assert filed.urls == ["http://127.0.0.1:9"]
    replace(path, content)
    await clock.advance(0.2)
    assert filed.file is not None
    assert (filed.file.applied, filed.file.rejected) == (1, 1)
    assert filed.urls == ["http://127.0.0.1:9"]


def replace(path: Path, content: bytes | None) -> None:
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)


async def test_what_the_api_removed_comes_back_with_the_next_resync(
    client: httpx.AsyncClient, filed: SmgRouter, clock: FakeClock, tmp_path: Path
) -> None:
    async with running(Engine("a")) as engine:
        write(tmp_path / "workers.json", ("1", engine.url))
        await clock.advance(0.2)
        await until(lambda: filed.status(engine.url) == READY)
        await clock.advance(30)
        assert filed.urls == [engine.url]
        for _ in range(2):
            await call(client, filed, "DELETE", "1")
        assert filed.urls == []
        await clock.advance(30)
        await until(lambda: filed.status(engine.url) == READY)


async def test_a_new_id_at_a_known_url_is_an_outage(
    filed: SmgRouter, clock: FakeClock, tmp_path: Path
) -> None:
    async with running(Engine("a")) as engine:
        write(tmp_path / "workers.json", ("1", engine.url))
        await clock.advance(0.2)
        await until(lambda: filed.status(engine.url) == READY)
        write(tmp_path / "workers.json", ("2", engine.url))
        await clock.advance(0.2)
        assert filed.urls == []
        await clock.advance(9.8)
        assert filed.urls == []
        await clock.advance(0.4)
        await until(lambda: filed.status(engine.url) == READY)
