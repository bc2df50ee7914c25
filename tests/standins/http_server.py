"""HTTP for stand-ins that must also behave badly, on uvicorn's protocol.

A handler may wait for ever, or answer nothing and cut the connection (None). It is cancelled
when its client goes away, which some routers' behaviour depends on.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote

import msgspec
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

ASGIReceive = Callable[[], Awaitable[Any]]
ASGISend = Callable[[Any], Awaitable[None]]


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

    def encoded(self) -> tuple[list[tuple[bytes, bytes]], bytes]:
        """Headers and body as ASGI sends them."""
        content = self.content
        kind = "text/plain; charset=utf-8"
        if isinstance(content, str):
            content = content.encode()
        elif not isinstance(content, bytes):
            content, kind = msgspec.json.encode(content), "application/json"
        fields = {"content-type": kind, **self.headers, "content-length": str(len(content))}
        return [(name.encode(), value.encode()) for name, value in fields.items()], content


Handler = Callable[[Request], Awaitable[Response | None]]


class HttpServer:
    """Serves `handle` on one address until it is cancelled; `ready` once the port is bound.

    With `tls` it speaks HTTPS. `accepted` counts connections.
    """

    def __init__(
        self,
        handle: Handler,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.ready = asyncio.Event()
        self.host = host
        self.port = port
        self.accepted = 0
        self._handle = handle
        self._tls = tls
        self._state = ServerState()

    @property
    def url(self) -> str:
        """The base URL, without a slash at its end."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self._tls else 'http'}://{host}:{self.port}"

    async def bind(self) -> None:
        """Take the port and begin to serve; OSError if it cannot be had."""
        # The protocol alone: uvicorn's Server would take the process's signals, and sleep to stop.
        config = uvicorn.Config(
            self._serve, log_level="critical", access_log=False, lifespan="off", interface="asgi3"
        )
        config.load()

        def protocol() -> asyncio.Protocol:
            self.accepted += 1
            return HttpToolsProtocol(config=config, server_state=self._state, app_state={})

        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(protocol, self.host, self.port, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        self.ready.set()

    async def run(self) -> None:
        """Until cancelled; connections are cut then, as when a process is killed."""
        if not self.ready.is_set():
            await self.bind()
        try:
            await self._server.serve_forever()
        finally:
            self._server.close()
            for connection in list(self._state.connections):
                _cut(connection)
            tasks = list(self._state.tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, scope: Any, receive: ASGIReceive, send: ASGISend) -> None:
        body = b""
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        response = await self._answer(_request(scope, body), receive)
        if response is None:
            for connection in list(self._state.connections):
                if getattr(connection, "client", None) == scope["client"]:
                    _cut(connection)
            return
        headers, content = response.encoded()
        await send({"type": "http.response.start", "status": response.status, "headers": headers})
        await send({"type": "http.response.body", "body": content})

    async def _answer(self, request: Request, receive: ASGIReceive) -> Response | None:
        """The answer; None, and no more work on it, once the client has gone."""
        work = asyncio.ensure_future(self._handle(request))
        gone = asyncio.ensure_future(receive())
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
            return await work if work.done() else None
        finally:
            work.cancel()
            gone.cancel()


def _request(scope: Any, body: bytes) -> Request:
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    path = scope["raw_path"].partition(b"?")[0].decode("latin-1")
    query = dict(parse_qsl(scope["query_string"].decode("latin-1")))
    return Request(scope["method"], path, query, headers, body)


def _cut(connection: Any) -> None:
    if connection.transport is not None:
        connection.transport.abort()


def segments(path: str) -> list[str]:
    """The path's parts, each decoded on its own, so that an encoded slash stays inside one."""
    return [unquote(part) for part in path.strip("/").split("/")]
