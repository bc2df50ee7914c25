"""A scripted HTTP/1.1 server in the test's own loop: each test says what it answers.

Invariant: what it does not say does not happen: no retries, no defaults beyond the status line.
"""

import asyncio
import ssl
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec

from tests.pki import Pair


@dataclass
class Exchange:
    """One request, and the ways to answer it."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    connection: int
    writer: asyncio.StreamWriter = field(repr=False)

    async def answer(
        self, body: Any = b"", status: int = 200, headers: Mapping[str, str] | None = None
    ) -> None:
        """A whole answer; anything but bytes is sent as JSON."""
        data = body if isinstance(body, bytes) else msgspec.json.encode(body)
        lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(data)}"]
        lines += [f"{key}: {value}" for key, value in (headers or {}).items()]
        await self.raw("\r\n".join(lines).encode() + b"\r\n\r\n" + data)

    async def begin(self) -> None:
        """The head of a chunked answer."""
        await self.raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")

    async def chunk(self, data: bytes) -> None:
        await self.raw(b"%x\r\n%b\r\n" % (len(data), data))

    async def end(self) -> None:
        await self.raw(b"0\r\n\r\n")

    async def raw(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    def cut(self) -> None:
        """Close the connection without a word."""
        self.writer.transport.abort()

    def close(self) -> None:
        """Close the connection when what was written is out."""
        self.writer.close()


Handler = Callable[[Exchange], Awaitable[None]]


class ScriptedServer:
    """Where it is, and what it was asked."""

    def __init__(self, handler: Handler, scheme: str) -> None:
        self.handler = handler
        self.scheme = scheme
        self.port = 0
        self.exchanges: list[Exchange] = []
        self.connections = 0
        self.open: set[asyncio.StreamWriter] = set()
        self.tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    @property
    def alive(self) -> int:
        """How many connections are open."""
        return sum(not writer.transport.is_closing() for writer in self.open)

    def cut_all(self) -> None:
        """Close every connection without a word."""
        for writer in self.open:
            writer.transport.abort()

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.tasks.add(asyncio.create_task(self._serve(reader, writer)))

    async def stop(self) -> None:
        """Close every connection and end whatever still answers."""
        self.cut_all()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        number = self.connections
        self.open.add(writer)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                method, target, _ = head[0].split(" ")
                headers = {
                    key.lower(): value.strip()
                    for key, _, value in (line.partition(":") for line in head[1:] if line)
                }
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                split = urlsplit(target)
                query = dict(parse_qsl(split.query, keep_blank_values=True))
                exchange = Exchange(method, split.path, query, headers, body, number, writer)
                self.exchanges.append(exchange)
                await self.handler(exchange)
        except (asyncio.IncompleteReadError, OSError):
            pass  # The client, or the test, has closed the connection.
        finally:
            self.open.discard(writer)
            writer.transport.abort()


async def until(holds: Callable[[], bool]) -> None:
    """Return as soon as `holds`; a failure if it never does."""
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110  (what is waited for is the network)
            await asyncio.sleep(0.002)


@asynccontextmanager
async def scripted(
    handler: Handler, tls: Pair | None = None, *, client_ca: str | None = None
) -> AsyncIterator[ScriptedServer]:
    """A server on a free port of the loopback, with TLS if a pair is given."""
    server = ScriptedServer(handler, "https" if tls else "http")
    context = server_context(tls, client_ca) if tls else None
    listener = await asyncio.start_server(server.accept, "127.0.0.1", 0, ssl=context)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()
        await server.stop()


def server_context(pair: Pair, client_ca: str | None = None) -> ssl.SSLContext:
    """A server's context; with `client_ca`, clients must show a certificate of it."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=client_ca)
    if client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pair.pem"
        path.write_text(pair.cert + pair.key)
        context.load_cert_chain(path)
    return context
