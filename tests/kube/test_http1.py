"""The connection and its pool, against a scripted server on a real socket."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
import uvloop

from kube.pool import Pool
from tests.kube.server import Exchange, Handler, ScriptedServer, scripted, until
from tests.pki import TestCa

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def talking(handler: Handler) -> AsyncIterator[tuple[ScriptedServer, httpx.AsyncClient]]:
    async with scripted(handler) as server:
        transport = Pool(ssl.create_default_context())
        async with httpx.AsyncClient(transport=transport, base_url=server.url) as client:
            yield server, client


async def echo(exchange: Exchange) -> None:
    await exchange.answer({"path": exchange.path, "body": exchange.body.decode()})


async def test_calls_one_after_the_other_use_one_connection() -> None:
    async with talking(echo) as (server, client):
        for number in range(3):
            answer = await client.post(f"/{number}", content=b"x" * number)
            assert answer.json() == {"path": f"/{number}", "body": "x" * number}
        assert server.connections == 1


async def test_calls_side_by_side_do_not_share_a_connection() -> None:
    arrived = asyncio.Semaphore(0)
    go = asyncio.Event()

    async def wait(exchange: Exchange) -> None:
        arrived.release()
        await go.wait()
        await echo(exchange)

    async with talking(wait) as (server, client):
        calls = [asyncio.create_task(client.get(f"/{number}")) for number in range(3)]
        for _ in calls:
            await arrived.acquire()
        go.set()
        paths = [(await call).json()["path"] for call in calls]
        assert paths == ["/0", "/1", "/2"]
        assert server.connections == 3
        await client.get("/again")
        assert server.connections == 3


@pytest.mark.parametrize("size", [0, 1, 100, 65536, 300_000, 9_000_000])
@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_of_any_size_arrives_whole(size: int, chunked: bool) -> None:
    body = bytes(range(256)) * (size // 256 + 1)
    body = body[:size]

    async def answer(exchange: Exchange) -> None:
        if not chunked:
            await exchange.answer(body)
            return
        await exchange.begin()
        for start in range(0, size, 70_001):
            await exchange.chunk(body[start : start + 70_001])
        await exchange.end()

    async with talking(answer) as (server, client):
        assert (await client.get("/")).content == body
        assert (await client.get("/")).content == body
        assert server.connections == 1


async def test_a_body_may_last_until_the_connection_closes() -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.raw(b"HTTP/1.1 200 OK\r\n\r\nall of it")
        exchange.close()

    async with talking(answer) as (server, client):
        assert (await client.get("/")).content == b"all of it"
        assert (await client.get("/")).content == b"all of it"
        assert server.connections == 2


async def test_a_server_that_closes_after_its_answer_is_connected_to_again() -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.answer(b"x", headers={"Connection": "close"})
        exchange.close()

    async with talking(answer) as (server, client):
        for _ in range(2):
            assert (await client.get("/")).content == b"x"
        assert server.connections == 2


async def test_a_server_that_says_it_will_close_is_not_asked_again_on_that_connection() -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.answer(b"x", headers={"Connection": "close"})

    async with talking(answer) as (server, client):
        for _ in range(2):
            assert (await client.get("/")).content == b"x"
        assert server.connections == 2


async def test_places_are_given_back_whether_calls_succeed_or_fail() -> None:
    async def answer(exchange: Exchange) -> None:
        if exchange.path == "/bad":
            exchange.cut()
        else:
            await exchange.answer(b"x")

    async with talking(answer) as (_, client):
        for _ in range(60):
            with pytest.raises(httpx.NetworkError):
                await client.post("/bad")
            assert (await client.get("/good")).content == b"x"


async def test_an_interim_answer_is_skipped() -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.raw(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")
        await exchange.answer(b"x")

    async with talking(answer) as (_, client):
        response = await client.get("/")
        assert (response.status_code, response.content) == (200, b"x")
        assert "link" not in response.headers


async def test_an_answer_without_a_body_ends_at_its_head() -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.raw(b"HTTP/1.1 204 No Content\r\n\r\n")

    async with talking(answer) as (server, client):
        for _ in range(2):
            assert (await client.get("/")).status_code == 204
        assert server.connections == 1


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhalf",
        b"HTTP/1.1 200 OK\r\nConte",
        b"",
    ],
    ids=["length", "between chunks", "in a chunk", "in the head", "at once"],
)
@pytest.mark.parametrize("politely", [False, True])
async def test_an_answer_that_breaks_off_is_an_error_and_ends_its_connection(
    answer: bytes, politely: bool
) -> None:
    async def begin(exchange: Exchange) -> None:
        if exchange.path == "/good":
            await exchange.answer(b"good")
            return
        await exchange.raw(answer)
        if politely:
            exchange.close()
        else:
            await asyncio.sleep(0)
            exchange.cut()

    async with talking(begin) as (_, client):
        with pytest.raises((httpx.NetworkError, httpx.RemoteProtocolError)):
            await client.post("/")
        assert (await client.get("/good")).content == b"good"


@pytest.mark.parametrize("answer", [b"220 ready\r\n", b"HTTP/9.9 x\r\n\r\n", b"\x15\x03\x01"])
async def test_a_server_that_speaks_something_else_is_an_error(answer: bytes) -> None:
    async def begin(exchange: Exchange) -> None:
        await exchange.raw(answer)
        exchange.close()

    async with talking(begin) as (_, client):
        with pytest.raises(httpx.NetworkError):
            await client.get("/")


async def test_a_read_is_repeated_if_the_server_has_just_closed_an_idle_connection() -> None:
    async def answer(exchange: Exchange) -> None:
        if exchange.connection == 1 and exchange.path == "/second":
            exchange.cut()
        else:
            await exchange.answer(b"x")

    async with talking(answer) as (server, client):
        await client.get("/first")
        assert (await client.get("/second")).content == b"x"
        assert server.connections == 2


async def test_a_write_is_never_repeated() -> None:
    async def answer(exchange: Exchange) -> None:
        if exchange.method == "POST":
            exchange.cut()
        else:
            await exchange.answer(b"x")

    async with talking(answer) as (server, client):
        await client.get("/first")
        with pytest.raises(httpx.NetworkError):
            await client.post("/second")
        assert [e.method for e in server.exchanges] == ["GET", "POST"]


async def test_a_read_that_fails_on_a_new_connection_is_not_repeated() -> None:
    async def answer(exchange: Exchange) -> None:
        exchange.cut()

    async with talking(answer) as (server, client):
        with pytest.raises(httpx.NetworkError):
            await client.get("/")
        assert len(server.exchanges) == 1


async def test_a_connection_that_the_server_closed_while_idle_is_not_used() -> None:
    async with talking(echo) as (server, client):
        await client.get("/")
        server.cut_all()
        await until(lambda: server.alive == 0)
        await asyncio.sleep(0.02)
        assert (await client.post("/x")).json()["path"] == "/x"
        assert server.connections == 2


async def test_an_answer_that_was_not_read_to_its_end_costs_the_connection() -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.begin()
        await exchange.chunk(b"one")

    async with talking(answer) as (server, client):
        for _ in range(2):
            async with client.stream("GET", "/") as response:
                async for part in response.aiter_raw():
                    assert part == b"one"
                    break
        assert server.connections == 2


async def test_a_call_that_is_cancelled_costs_its_connection_and_no_other() -> None:
    arrived = asyncio.Event()

    async def answer(exchange: Exchange) -> None:
        if exchange.path == "/never":
            arrived.set()
            await asyncio.Event().wait()
        await exchange.answer(b"x")

    async with talking(answer) as (server, client):
        call = asyncio.create_task(client.get("/never"))
        await arrived.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert (await client.get("/")).content == b"x"
        assert server.connections == 2


async def test_silence_is_a_read_timeout_before_and_within_a_body() -> None:
    async def answer(exchange: Exchange) -> None:
        if exchange.path == "/body":
            await exchange.begin()
            await exchange.chunk(b"one")
        await asyncio.Event().wait()

    async with talking(answer) as (_, client):
        for path in ("/head", "/body"):
            with pytest.raises(httpx.ReadTimeout):
                await client.get(path, timeout=0.02)


async def test_a_reader_that_is_slow_makes_the_server_wait() -> None:
    sent = 0
    piece = b"x" * 1_000_000

    async def answer(exchange: Exchange) -> None:
        nonlocal sent
        await exchange.begin()
        for _ in range(64):
            await exchange.chunk(piece)
            sent += 1
        await exchange.end()

    async with talking(answer) as (_, client):
        async with client.stream("GET", "/") as response:
            before = -1
            while before < sent:
                before = sent
                await asyncio.sleep(0.02)
            assert sent < 64, "the server wrote everything although nobody read"
            assert sum([len(part) async for part in response.aiter_raw()]) == 64_000_000


async def test_nobody_listening_is_a_connect_error() -> None:
    async with scripted(echo) as server:
        url = server.url
    async with httpx.AsyncClient(transport=Pool(ssl.create_default_context())) as client:
        with pytest.raises(httpx.ConnectError):
            await client.get(url)


async def test_the_server_name_is_verified() -> None:
    ca = TestCa()
    context = ssl.create_default_context(cadata=ca.cert)
    async with scripted(echo, ca.issue("api.internal")) as server:
        async with httpx.AsyncClient(transport=Pool(context), base_url=server.url) as client:
            with pytest.raises(httpx.ConnectError):
                await client.get("/")
            named = {"sni_hostname": "api.internal"}
            assert (await client.get("/x", extensions=named)).json()["path"] == "/x"


async def test_unasked_bytes_on_an_idle_connection_cost_it() -> None:
    answered = asyncio.Event()

    async def answer(exchange: Exchange) -> None:
        await exchange.answer(b"x")
        if exchange.connection == 1:
            await answered.wait()
            await exchange.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")

    async with talking(answer) as (server, client):
        await client.get("/")
        answered.set()
        await until(lambda: server.alive == 0)
        assert (await client.get("/")).content == b"x"
        assert server.connections == 2


def test_uvloop_carries_the_same_connection() -> None:
    """The serving processes may run on it; its TLS is its own."""
    ca = TestCa()
    body = b"x" * 3_000_000

    async def answer(exchange: Exchange) -> None:
        await exchange.begin()
        for start in range(0, len(body), 10_000):
            await exchange.chunk(body[start : start + 10_000])
        await exchange.end()

    async def talk() -> int:
        context = ssl.create_default_context(cadata=ca.cert)
        async with scripted(answer, ca.issue("127.0.0.1")) as server:
            async with httpx.AsyncClient(transport=Pool(context), base_url=server.url) as client:
                for _ in range(2):
                    assert (await client.post("/", content=body[:500_000])).content == body
            return server.connections

    assert uvloop.run(talk()) == 1
