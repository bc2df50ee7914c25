"""HTTP/1.1 of the admission port: one connection, parsed by httptools, answered in one write.

Invariant: replies leave in the order of their calls; a connection is closed when it is idle, when
the server drains, and after anything that leaves its stream in doubt.
"""

from __future__ import annotations

import asyncio
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, Protocol

import httptools

from kube.logs import get_logger
from webhook.app import JSON, MAX_BODY_BYTES, TEXT, Reply

if TYPE_CHECKING:
    from collections.abc import Callable

    from webhook.app import AdmissionApp

log = get_logger(__name__)

_JSON_HEAD: Final = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_FAILED: Final = Reply(500, TEXT, b"the webhook failed on this review; see its log\n", close=True)

MAX_HEAD_BYTES: Final = 64 * 1024
"""Of a call's URL and headers, and of all that is not its body; an API server sends some hundred
bytes, a proxy before it some thousand."""

MAX_CONNECTIONS: Final = 1000
"""An API server keeps a few, so this many are somebody's mistake."""


class Timers(Protocol):
    """The part of an event loop that knows the time."""

    def time(self) -> float: ...
    def call_later(self, delay: float, callback: Callable[[], None]) -> asyncio.TimerHandle: ...


class AdmissionProtocol(asyncio.Protocol):
    """One connection to `app`. `connections` holds those that are open; one that says nothing
    for `idle_s` seconds is closed, and one above `max_connections` is at once; `lost` is called
    when one has left."""

    def __init__(
        self,
        app: AdmissionApp,
        connections: set[AdmissionProtocol],
        *,
        idle_s: float,
        max_connections: int = MAX_CONNECTIONS,
        lost: Callable[[], None] = lambda: None,
        timers: Timers | None = None,
    ) -> None:
        self._app = app
        self._idle_s = idle_s
        self._timers = timers or asyncio.get_running_loop()
        self._connections = connections
        self._max_connections = max_connections
        self._lost = lost
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport
        self._timer: asyncio.TimerHandle | None = None
        self._active_at = self._timers.time()
        self._busy = False
        """A call is being read or answered."""
        self._closing = False
        self._waiting: asyncio.Task[Reply] | None = None
        self._queue: list[Callable[[], None]] = []
        """Replies to calls that came while an earlier one waits."""
        self._start_call()

    # Connection.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # TCP and TLS transports are both
        if len(self._connections) >= self._max_connections:
            self._app.turn_away(self._max_connections)
            self._closing = True
            self.abort()
            return
        self._connections.add(self)
        self._timer = self._timers.call_later(self._idle_s, self._check_idle)

    def connection_lost(self, error: Exception | None) -> None:
        self._connections.discard(self)
        self._closing = True
        if self._timer is not None:
            self._timer.cancel()
        if self._waiting is not None:
            self._waiting.cancel()
        self._lost()

    def pause_writing(self) -> None:
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._transport.resume_reading()

    def abort(self) -> None:
        """End now, whatever is under way."""
        self._transport.abort()

    def shutdown(self) -> None:
        """The server stops: end now if idle, or else after the reply under way."""
        self._closing = True
        if not self._busy:
            self._transport.close()

    def _check_idle(self) -> None:
        idle_s = self._timers.time() - self._active_at
        if idle_s >= self._idle_s and self._waiting is None:
            self._transport.close()
        else:
            remaining_s = max(self._idle_s - idle_s, 0.1)
            self._timer = self._timers.call_later(remaining_s, self._check_idle)

    def data_received(self, data: bytes) -> None:
        if self._closing and not self._busy:
            return
        self._active_at = self._timers.time()
        self._fed += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            return
        except httptools.HttpParserError as error:
            if not (self._refused or self._closing):
                self._refuse(self._app.failure(400, f"not HTTP/1.1: {error}"))
            return
        # The parser keeps a header until it is whole, and takes headers after a chunked body too.
        if self._fed - self._size > MAX_HEAD_BYTES and not (self._refused or self._closing):
            self._refuse_head()

    # One call. These run inside the parser, so none may raise.

    def _start_call(self) -> None:
        self._url = b""
        self._head_size = 0
        self._fed = 0
        """Bytes of this call that were given to the parser, but for those of the first read if
        another call ended in it."""
        self._content_type = b""
        self._length = 0
        self._expects = False
        self._size = 0
        self._chunks: list[bytes] = []
        self._refused = False

    def on_message_begin(self) -> None:
        self._busy = True

    def on_url(self, url: bytes) -> None:
        self._url += url
        self._head_size += len(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        # The parser has made sure of a sane Content-Length, and of Connection.
        size = len(name)
        self._head_size += size + len(value)
        if size == 12 and name.lower() == b"content-type":
            self._content_type = value
        elif size == 14 and name.lower() == b"content-length":
            self._length = int(value)
        elif size == 6 and name.lower() == b"expect":
            self._expects = value.lower() == b"100-continue"

    def on_headers_complete(self) -> None:
        if self._head_size > MAX_HEAD_BYTES:
            self._refuse_head()
            return
        path, _, self._query = self._url.partition(b"?")
        self._path = path
        refusal = self._app.refuse(
            self._parser.get_method(), path, self._content_type, self._length
        )
        if refusal is not None:
            self._refuse(refusal)
        elif self._expects:
            self._transport.write(_CONTINUE)

    def on_body(self, body: bytes) -> None:
        if self._refused:
            return
        self._size += len(body)
        if self._size > MAX_BODY_BYTES:
            # Only a chunked body comes this far.
            refusal = self._app.refuse(b"POST", self._path, JSON, self._size)
            assert refusal is not None
            self._refuse(refusal)
            return
        self._chunks.append(body)

    def on_message_complete(self) -> None:
        if self._refused:
            return
        chunks = self._chunks
        body = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        path, query = self._path, self._query
        # After a call that asks for another protocol, what follows cannot be told.
        keep = self._parser.should_keep_alive() and not self._parser.should_upgrade()
        self._start_call()
        if self._waiting is not None:
            self._queue.append(lambda: self._answer(path, query, body, keep))
        else:
            self._answer(path, query, body, keep)

    def _refuse_head(self) -> None:
        text = f"a URL and headers of more than {MAX_HEAD_BYTES} bytes are not taken"
        self._refuse(self._app.failure(431, text))

    def _refuse(self, refusal: Reply) -> None:
        self._refused = True
        if self._waiting is not None:
            self._queue.append(lambda: self._reply(refusal))
        else:
            self._reply(refusal)

    # Its reply.

    def _answer(self, path: bytes, query: bytes, body: bytes, keep: bool) -> None:
        try:
            reply = self._app.review(path, query, body)
        except Exception:  # noqa: BLE001  the last line: it becomes HTTP 500 and a traceback
            self._fail()
            return
        if isinstance(reply, Reply):
            self._reply(reply, keep)
        else:
            self._transport.pause_reading()
            self._waiting = asyncio.get_running_loop().create_task(reply)
            self._waiting.add_done_callback(partial(self._answered, keep))

    def _answered(self, keep: bool, waiting: asyncio.Task[Reply]) -> None:
        if waiting.cancelled():
            return
        self._waiting = None
        try:
            self._reply(waiting.result(), keep)
        except Exception:  # noqa: BLE001  as above
            self._fail()
        while self._queue and self._waiting is None and not self._closing:
            self._queue.pop(0)()
        if self._waiting is None and not self._closing:
            self._transport.resume_reading()

    def _fail(self) -> None:
        self._app.failed()
        log.exception("a review failed")
        self._reply(_FAILED)

    def _reply(self, reply: Reply, keep: bool = True) -> None:
        self._busy = False
        self._active_at = self._timers.time()
        close = reply.close or not keep or self._closing or self._app.draining
        if reply.status == 200:
            head = _JSON_HEAD % len(reply.content)
        else:
            status = HTTPStatus(reply.status)
            head = b"HTTP/1.1 %d %s\r\ncontent-type: %s\r\ncontent-length: %d\r\n" % (
                status,
                status.phrase.encode(),
                reply.content_type,
                len(reply.content),
            )
        end = b"connection: close\r\n\r\n" if close else b"\r\n"
        self._transport.write(b"".join((head, end, reply.content)))
        if close:
            self._closing = True
            self._transport.close()
