"""The health server on a real socket."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import msgspec
import pytest
from prometheus_client import CollectorRegistry, Counter

from kube.errors import ConfigError
from kube.health import HealthServer

pytestmark = pytest.mark.anyio


def yes() -> str | None:
    return None


@asynccontextmanager
async def serving(
    live: Callable[[], str | None] = yes,
    ready: Callable[[], str | None] = yes,
    routes: dict[str, Callable[[], Any]] | None = None,
    registry: CollectorRegistry | None = None,
    notice: Callable[[], str | None] = yes,
) -> AsyncIterator[httpx.AsyncClient]:
    server = HealthServer(
        0,
        live,
        ready,
        routes or {},
        registry or CollectorRegistry(),
        host="127.0.0.1",
        notice=notice,
    )
    await server.start()
    task = asyncio.create_task(server.run())
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}") as client:
            yield client
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_probes_say_ok_or_why_not() -> None:
    problems: dict[str, str | None] = {"live": None, "ready": "the store is 90 s old"}
    async with serving(lambda: problems["live"], lambda: problems["ready"]) as client:
        live, ready = await client.get("/healthz"), await client.get("/readyz")
        assert (live.status_code, live.text) == (200, "ok\n")
        assert (ready.status_code, ready.text) == (503, "the store is 90 s old\n")
        problems.update(live="a loop hangs", ready=None)
        live, ready = await client.get("/healthz"), await client.get("/readyz")
        assert (live.status_code, live.text) == (503, "a loop hangs\n")
        assert (ready.status_code, ready.text) == (200, "ok\n")


async def test_a_notice_is_shown_beside_the_yes_and_changes_no_answer() -> None:
    async with serving(notice=lambda: "the certificate expires in 12 days") as client:
        ready = await client.get("/readyz")
        assert ready.status_code == 200
        assert ready.text == "ok\nwarning: the certificate expires in 12 days\n"
        assert (await client.get("/healthz")).text == "ok\n"
    async with serving(ready=lambda: "no", notice=lambda: "soon") as client:
        assert (await client.get("/readyz")).text == "no\n"


async def test_metrics_are_those_of_the_registry() -> None:
    registry = CollectorRegistry()
    Counter("podstamp_things", "Things.", registry=registry).inc(3)
    async with serving(registry=registry) as client:
        answer = await client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    assert "podstamp_things_total 3.0" in answer.text


async def test_further_routes_answer_json_as_it_is_when_asked() -> None:
    class Entry(msgspec.Struct):
        pod: str

    entries = [Entry("a")]
    async with serving(routes={"/status": lambda: entries, "/more": lambda: {"x": 1}}) as client:
        entries.append(Entry("b"))
        assert (await client.get("/status")).json() == [{"pod": "a"}, {"pod": "b"}]
        assert (await client.get("/more")).json() == {"x": 1}
        assert (await client.get("/nothing")).status_code == 404
        assert (await client.post("/status")).status_code == 405


async def test_a_port_in_use_is_one_line_that_says_what_to_do() -> None:
    first = HealthServer(0, yes, yes, {}, CollectorRegistry(), host="127.0.0.1")
    await first.start()
    task = asyncio.create_task(first.run())
    await asyncio.sleep(0)
    second = HealthServer(first.port, yes, yes, {}, CollectorRegistry(), host="127.0.0.1")
    with pytest.raises(ConfigError, match=f"--health-port {first.port}: .*in use; choose"):
        await second.start()
    task.cancel()
    await asyncio.wait([task])


async def test_a_stopped_server_leaves_its_port() -> None:
    server = HealthServer(0, yes, yes, {}, CollectorRegistry(), host="127.0.0.1")
    await server.start()
    port = server.port
    task = asyncio.create_task(server.run())
    async with httpx.AsyncClient() as client:
        await client.get(f"http://127.0.0.1:{port}/healthz")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(httpx.ConnectError):
            await client.get(f"http://127.0.0.1:{port}/healthz")


async def test_the_port_is_known_only_once_it_is_bound() -> None:
    server = HealthServer(0, yes, yes, {}, CollectorRegistry())
    with pytest.raises(RuntimeError):
        _ = server.port
