"""A small HTTP/1.1 server for stand-ins that must also behave badly.

A handler may wait for ever, or answer nothing and cut the connection (None). It is cancelled
when its client goes away, which some routers' behaviour depends on. Bodies have a length.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, unquote

import msgspec

_HEAD_LIMIT = 1 << 16


@dataclass(frozen=True, slots=True)
class Request:
    """`path` is as sent, still percent-encoded; header names are lower case."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        """The decoded body; None if it is no JSON."""
        try:
            return msgspec.json.decode(self.body)
        except msgspec.DecodeError:
            return None


@dataclass(frozen=True, slots=True)
class Response:
    """An answer; `content` is encoded as JSON unless it is bytes or text."""

    status: int = 200
    content: Any = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)

    def encode(self) -> bytes:
        content = self.content
        kind = "text/plain; charset=utf-8"
        if isinstance(content, str):
            content = content.encode()
        elif not isinstance(content, bytes):
            content, kind = msgspec.json.encode(content), "application/json"
        fields = {"content-type": kind, **self.headers, "content-length": str(len(content))}
        phrase = HTTPStatus(self.status).phrase
        lines = [f"HTTP/1.1 {self.status} {phrase}", *(f"{k}: {v}" for k, v in fields.items())]
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + content


Handler = Callable[[Request], Awaitable[Response | None]]


class HttpServer:
    """Serves `handle` on one address until it is cancelled; `ready` once the port is bound.

    `accepted` counts connections.
    """

    def __init__(self, handle: Handler, host: str = "127.0.0.1", port: int = 0) -> None:
        self.ready = asyncio.Event()
        self.host = host
        self.port = port
        self.accepted = 0
        self._handle = handle
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """The base URL, without a slash at its end."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    async def run(self) -> None:
        """Until cancelled; connections are cut then, as when a process is killed."""
        server = await asyncio.start_server(
            self._serve, self.host, self.port, limit=_HEAD_LIMIT, reuse_address=True
        )
        self.port = server.sockets[0].getsockname()[1]
        self.ready.set()
        try:
            await server.serve_forever()
        finally:
            server.close()
            for task in self._connections:
                task.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        self.accepted += 1
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            while True:
                request = await _read(head, reader)
                response, begun = await self._answer(request, reader)
                if response is None:
                    return
                writer.write(response.encode())
                await writer.drain()
                head = begun + await reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            return  # the client is gone, or the server ends: nobody waits for an answer
        finally:
            self._connections.discard(task)
            writer.close()

    async def _answer(
        self, request: Request, reader: asyncio.StreamReader
    ) -> tuple[Response | None, bytes]:
        """The answer, and what came of a next request meanwhile; the client going away cancels."""
        work = asyncio.ensure_future(self._handle(request))
        more = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait({work, more}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done() and not await more:
                return None, b""
            response = await work
            if not more.done():
                more.cancel()
                with suppress(asyncio.CancelledError):
                    await more
            return response, b"" if more.cancelled() else more.result()
        finally:
            work.cancel()
            more.cancel()


async def _read(head: bytes, reader: asyncio.StreamReader) -> Request:
    first, *lines = head.decode("latin-1").rstrip().split("\r\n")
    method, target, _ = first.split(" ", 2)
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    path, _, query = target.partition("?")
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(method, path, dict(parse_qsl(query)), headers, body)


def segments(path: str) -> list[str]:
    """The path's parts, each decoded on its own, so that an encoded slash stays inside one."""
    return [unquote(part) for part in path.strip("/").split("/")]
