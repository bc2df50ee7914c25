"""The HTTP server of the stand-ins: framing, silence, cuts, and clients that go away."""

import asyncio
from collections.abc import Awaitable, Callable

import httpx
import pytest

from tests.standins.http_server import HttpServer, Request, Response, segments
from tests.standins_tests.running import running

pytestmark = pytest.mark.anyio

Answer = Callable[[Request], Response | None]


def answering(answer: Answer) -> Callable[[Request], Awaitable[Response | None]]:
    async def handle(request: Request) -> Response | None:
        return answer(request)

    return handle


def echo(request: Request) -> Response:
    return Response(
        content={
            "method": request.method,
            "path": request.path,
            "query": request.query,
            "body": request.json(),
            "agent": request.headers["user-agent"],
        }
    )


async def test_a_request_arrives_whole_and_its_path_stays_encoded(
    client: httpx.AsyncClient,
) -> None:
    async with running(HttpServer(answering(echo))) as server:
        answer = await client.post(
            f"{server.url}/workers/http%3A%2F%2F10.0.0.1%3A80?a=b%20c",
            json={"n": ["x" * 100_000]},
            headers={"user-agent": "me"},
        )
    assert answer.json() == {
        "method": "POST",
        "path": "/workers/http%3A%2F%2F10.0.0.1%3A80",
        "query": {"a": "b c"},
        "body": {"n": ["x" * 100_000]},
        "agent": "me",
    }


def test_an_encoded_slash_stays_inside_its_segment() -> None:
    assert segments("/workers/http%3A%2F%2Fa%3A1") == ["workers", "http://a:1"]


async def test_a_connection_serves_one_request_after_the_other(client: httpx.AsyncClient) -> None:
    made = Response(201, "made", {"x-n": "1"})
    async with running(HttpServer(answering(lambda _: made))) as server:
        answers = [await client.get(f"{server.url}/{n}") for n in range(3)]
    assert [(a.status_code, a.text, a.headers["x-n"]) for a in answers] == [(201, "made", "1")] * 3
    assert server.accepted == 1


async def test_none_cuts_the_connection_without_an_answer(client: httpx.AsyncClient) -> None:
    async with running(HttpServer(answering(lambda _: None))) as server:
        with pytest.raises(httpx.RemoteProtocolError):
            await client.get(server.url)


async def test_a_client_that_goes_away_cancels_its_request(client: httpx.AsyncClient) -> None:
    begun, cancelled = asyncio.Event(), asyncio.Event()

    async def hang(request: Request) -> Response:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return Response()

    async with running(HttpServer(hang)) as server:
        call = asyncio.ensure_future(client.get(server.url))
        await begun.wait()
        assert not cancelled.is_set()
        call.cancel()
        async with asyncio.timeout(5):
            await cancelled.wait()


async def test_stopping_cuts_what_hangs_and_frees_the_port(client: httpx.AsyncClient) -> None:
    begun = asyncio.Event()

    async def hang(request: Request) -> Response:
        begun.set()
        await asyncio.Event().wait()
        return Response()

    async with running(HttpServer(hang)) as server:
        call = asyncio.ensure_future(client.get(server.url))
        await begun.wait()
    with pytest.raises(httpx.HTTPError):
        await call
    async with running(HttpServer(answering(echo), port=server.port)) as again:
        assert (await client.get(again.url)).status_code == 200
