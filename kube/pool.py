"""An httpx transport over `kube.http1` (which says why): connections kept and used again.

Invariant: errors are those of httpx; a connection serves one request at a time.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from typing import Any

import httpx

from kube.http1 import BrokenAnswer, Connection

# Under the idle timeout of kube-apiserver (90 s), so that a reused connection is as a rule alive.
_IDLE_S = 30.0
_MAX_IDLE = 20
_MAX_OPEN = 100
# A peer that vanished without a word is noticed in half a minute also where nobody sends anything.
_KEEPALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *(
        (socket.IPPROTO_TCP, getattr(socket, name), value)
        for name, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))
        if hasattr(socket, name)
    ),
)


class Pool(httpx.AsyncBaseTransport):
    """For one server."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        self._idle: list[Connection] = []
        self._used: set[Connection] = set()
        self._places = asyncio.Semaphore(_MAX_OPEN)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        timeouts: dict[str, float | None] = request.extensions.get("timeout", {})
        await self._take_place(request, timeouts.get("pool"))
        connection: Connection | None = None
        try:
            text = _text(request, await request.aread())
            while True:
                connection, fresh = await self._connect(request, timeouts.get("connect"))
                try:
                    await _exchange(connection, request, text, timeouts)
                    break
                except httpx.NetworkError:
                    # An idle connection that the server closed as we wrote: a read may go again.
                    if fresh or request.method != "GET" or not connection.was_silent:
                        raise
                    self._used.discard(connection)
                    connection.abort()
        except BaseException:
            self._give_back(connection)
            raise
        return httpx.Response(
            connection.status,
            headers=connection.headers,
            stream=_Body(self, connection, timeouts.get("read"), request),
        )

    async def aclose(self) -> None:
        for connection in (*self._idle, *self._used):
            connection.abort()
        self._idle.clear()

    async def _take_place(self, request: httpx.Request, timeout_s: float | None) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self._places.acquire()
        except TimeoutError as error:
            raise httpx.PoolTimeout("too many calls are open", request=request) from error

    async def _connect(
        self, request: httpx.Request, timeout_s: float | None
    ) -> tuple[Connection, bool]:
        """An idle connection or a new one, and whether it is new."""
        loop = asyncio.get_running_loop()
        while self._idle:
            connection = self._idle.pop()
            if connection.is_reusable and loop.time() - connection.idle_since_s < _IDLE_S:
                self._used.add(connection)
                return connection, False
            connection.abort()
        url = request.url
        tls: dict[str, Any] = {}
        if url.scheme == "https":
            name = request.extensions.get("sni_hostname") or url.host
            tls = {"ssl": self._context, "server_hostname": name}
        port = url.port or (443 if tls else 80)
        try:
            async with asyncio.timeout(timeout_s):
                transport, connection = await loop.create_connection(
                    Connection, url.host, port, **tls
                )
        except TimeoutError as error:
            raise httpx.ConnectTimeout("connecting timed out", request=request) from error
        except OSError as error:
            raise httpx.ConnectError(str(error), request=request) from error
        for option in _KEEPALIVE:
            transport.get_extra_info("socket").setsockopt(*option)
        self._used.add(connection)
        return connection, True

    def _give_back(self, connection: Connection | None) -> None:
        self._places.release()
        if connection is None:
            return
        self._used.discard(connection)
        if connection.is_reusable and len(self._idle) < _MAX_IDLE:
            connection.idle_since_s = asyncio.get_running_loop().time()
            self._idle.append(connection)
        else:
            connection.abort()


class _Body(httpx.AsyncByteStream):
    """The body of one answer; closing it gives the connection back, or up if unread."""

    def __init__(
        self,
        pool: Pool,
        connection: Connection,
        timeout_s: float | None,
        request: httpx.Request,
    ) -> None:
        self._pool = pool
        self._connection: Connection | None = connection
        self._timeout_s = timeout_s
        self._request = request

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._connection is None:
            return
        try:
            async for data in self._connection.body(self._timeout_s):
                yield data
        except TimeoutError as error:
            raise httpx.ReadTimeout("no answer in time", request=self._request) from error
        except BrokenAnswer as error:
            raise httpx.RemoteProtocolError(str(error), request=self._request) from error
        except OSError as error:
            raise httpx.ReadError(str(error), request=self._request) from error

    async def aclose(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._pool._give_back(connection)


async def _exchange(
    connection: Connection,
    request: httpx.Request,
    text: bytes,
    timeouts: dict[str, float | None],
) -> None:
    try:
        await connection.send(text, timeouts.get("write"))
    except TimeoutError as error:
        raise httpx.WriteTimeout("the request could not be sent", request=request) from error
    except (BrokenAnswer, OSError) as error:
        raise httpx.WriteError(str(error), request=request) from error
    try:
        await connection.read_head(timeouts.get("read"))
    except TimeoutError as error:
        raise httpx.ReadTimeout("no answer in time", request=request) from error
    except (BrokenAnswer, OSError) as error:
        raise httpx.ReadError(str(error), request=request) from error


def _text(request: httpx.Request, body: bytes) -> bytes:
    head = [b"%b %b HTTP/1.1" % (request.method.encode("ascii"), request.url.raw_path)]
    head += [b"%b: %b" % header for header in request.headers.raw]
    return b"\r\n".join((*head, b"", body))
