"""HTTP/1.1 of the admission port, on a transport without a network."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.webhook.builders import NOW_NS, encode, pod, review
from webhook.app import JSON, MAX_BODY_BYTES, AdmissionApp, Reply
from webhook.case import Settings
from webhook.judge import Judge
from webhook.metrics import Tally
from webhook.protocol import MAX_HEAD_BYTES, AdmissionProtocol

pytestmark = pytest.mark.anyio

BODY = encode(review("CREATE", pod()))
IDLE_S = 1000.0
HUGE = b"a" * MAX_HEAD_BYTES
HEAD_TOO_LARGE = b"431 Request Header Fields Too Large"
CHUNKED = (
    b"POST /mutate HTTP/1.1\r\nHost: w\r\nContent-Type: application/json\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)


class Wire(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.closed = False
        self.aborted = False
        self.reading = True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.closed
        self.writes.append(bytes(data))

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.aborted = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    @property
    def statuses(self) -> list[bytes]:
        return [write.split(b"\r\n")[0].removeprefix(b"HTTP/1.1 ") for write in self.writes]


class Later(AdmissionApp):
    """Answers /validate when it is told to, as one that has to ask first."""

    def __init__(self) -> None:
        super().__init__(Judge(Settings()), Tally(), now_ns=lambda: NOW_NS)
        self.go = asyncio.Event()
        self.error: Exception | None = None
        self.tally = self._tally

    def review(self, path: bytes, query: bytes, body: bytes) -> Reply | Coroutine[Any, Any, Reply]:
        return self._later() if path == b"/validate" else super().review(path, query, body)

    async def _later(self) -> Reply:
        await self.go.wait()
        if self.error is not None:
            raise self.error
        return Reply(200, JSON, b"later")


class Broken(AdmissionApp):
    def review(self, path: bytes, query: bytes, body: bytes) -> Reply | Coroutine[Any, Any, Reply]:
        raise ZeroDivisionError


class Clockwork:
    """Time that moves when it is told to."""

    def __init__(self) -> None:
        self._now = 0.0
        self._due: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return self._now

    def call_later(self, delay: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        self._due.append((self._now + delay, callback))
        return asyncio.get_running_loop().call_later(3600, lambda: None)

    def advance(self, seconds: float) -> None:
        self._now += seconds
        ripe = [entry for entry in self._due if entry[0] <= self._now]
        self._due = [entry for entry in self._due if entry[0] > self._now]
        for _, callback in ripe:
            callback()


class Connection:
    """A client's end."""

    def __init__(
        self,
        app: AdmissionApp | None = None,
        *,
        timers: Clockwork | None = None,
        limit: int = 10,
        others: set[AdmissionProtocol] | None = None,
    ) -> None:
        self.tally = Tally()
        self.app = app or AdmissionApp(Judge(Settings()), self.tally)
        self.open: set[AdmissionProtocol] = set() if others is None else others
        self.lost = 0
        self.protocol = AdmissionProtocol(
            self.app,
            self.open,
            idle_s=IDLE_S,
            max_connections=limit,
            lost=self._lost,
            timers=timers,
        )
        self.wire = Wire()
        self.protocol.connection_made(self.wire)

    def _lost(self) -> None:
        self.lost += 1

    def send(self, data: bytes) -> list[bytes]:
        self.protocol.data_received(data)
        return self.wire.statuses


def call(
    body: bytes = BODY,
    *,
    method: bytes = b"POST",
    target: bytes = b"/mutate?timeout=5s",
    headers: tuple[bytes, ...] = (),
    content_type: bytes = JSON,
    length: int | None = None,
) -> bytes:
    size = len(body) if length is None else length
    lines = [
        method + b" " + target + b" HTTP/1.1",
        b"Host: webhook",
        b"Content-Type: " + content_type,
        b"Content-Length: %d" % size,
        *headers,
    ]
    return b"\r\n".join([*lines, b"", body])


async def test_a_review_is_answered_in_one_write() -> None:
    connection = Connection()
    assert connection.send(call()) == [b"200 OK"]
    head, _, body = connection.wire.writes[0].partition(b"\r\n\r\n")
    assert b"content-type: application/json" in head
    assert b"content-length: %d" % len(body) in head
    assert b'"allowed":true' in body
    assert not connection.wire.closed


async def test_one_connection_takes_review_after_review() -> None:
    connection = Connection()
    for count in range(1, 4):
        assert connection.send(call()) == [b"200 OK"] * count


@pytest.mark.parametrize("size", [1, 7, 1000])
async def test_a_review_may_arrive_in_pieces(size: int) -> None:
    connection = Connection()
    data = call()
    for at in range(0, len(data), size):
        assert connection.wire.writes == []
        connection.send(data[at : at + size])
    assert connection.wire.statuses == [b"200 OK"]


async def test_a_chunked_body_is_taken() -> None:
    connection = Connection()
    head = b"POST /mutate HTTP/1.1\r\nHost: w\r\nContent-Type: application/json\r\n"
    chunks = b"%x\r\n%s\r\n%x\r\n%s\r\n0\r\n\r\n" % (10, BODY[:10], len(BODY) - 10, BODY[10:])
    assert connection.send(head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks) == [b"200 OK"]


async def test_calls_that_arrive_together_are_answered_in_order() -> None:
    connection = Connection()
    assert connection.send(call() + call(b"{}") + call()) == [b"200 OK", b"400 Bad Request"]
    assert connection.wire.closed


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (call(target=b"/"), b"404 Not Found"),
        (call(method=b"PUT"), b"405 Method Not Allowed"),
        (call(content_type=b"text/plain"), b"415 Unsupported Media Type"),
        (call(b"", length=MAX_BODY_BYTES + 1), b"413 Request Entity Too Large"),
        (call(b"{}"), b"400 Bad Request"),
        (b"nonsense\r\n\r\n", b"400 Bad Request"),
        (b"\x16\x03\x01\x02\x00", b"400 Bad Request"),
        (call(headers=(b"Connection: upgrade", b"Upgrade: h2c")), b"400 Bad Request"),
        (call(headers=(b"Content-Length: 5",)), b"400 Bad Request"),
        (call(headers=(b"x: " + HUGE,)), HEAD_TOO_LARGE),
        (call(headers=(b"x: " + HUGE[::2], b"y: " + HUGE[::2])), HEAD_TOO_LARGE),
        (call(headers=(HUGE + b": x",)), HEAD_TOO_LARGE),
        (call(target=b"/mutate?" + HUGE), HEAD_TOO_LARGE),
    ],
    ids=[
        "path",
        "method",
        "type",
        "size",
        "review",
        "http",
        "tls",
        "upgrade",
        "two-lengths",
        "header",
        "headers",
        "header-name",
        "url",
    ],
)
async def test_what_cannot_be_a_review_is_refused_once_and_closes(
    data: bytes, status: bytes
) -> None:
    connection = Connection()
    assert connection.send(data) == [status]
    assert b"connection: close" in connection.wire.writes[0]
    assert connection.wire.closed
    assert connection.send(call()) == [status]
    assert sum(connection.tally.failures.values()) == 1


async def test_a_chunked_body_that_grows_too_large_is_refused_on_the_way() -> None:
    connection = Connection()
    head = b"POST /mutate HTTP/1.1\r\nHost: w\r\nContent-Type: application/json\r\n"
    connection.send(head + b"Transfer-Encoding: chunked\r\n\r\n")
    chunk = b"%x\r\n%s\r\n" % (2**20, b" " * 2**20)
    for _ in range(MAX_BODY_BYTES // 2**20):
        assert connection.send(chunk) == []
    assert connection.send(chunk) == [b"413 Request Entity Too Large"]
    assert connection.wire.closed


@pytest.mark.parametrize(
    "start",
    [
        b"POST /",
        b"POST /mutate HTTP/1.1\r\nx: ",
        b"POST /mutate HTTP/1.1\r\n",
        CHUNKED + b"0\r\nx: ",
    ],
    ids=["url", "value", "name", "trailer"],
)
async def test_a_head_that_does_not_end_is_refused_on_the_way(start: bytes) -> None:
    connection = Connection()
    connection.send(call())
    connection.send(start)
    pieces = 0
    while connection.wire.statuses == [b"200 OK"]:
        connection.send(b"a" * 1024)
        pieces += 1
        assert pieces <= 64
    assert pieces == 64
    assert connection.wire.statuses == [b"200 OK", HEAD_TOO_LARGE]
    assert connection.wire.closed
    assert connection.tally.failures == {431: 1}


async def test_a_large_head_is_taken_before_each_review() -> None:
    connection = Connection()
    data = call(headers=(b"x: " + HUGE[:-1000],))
    for count in range(1, 4):
        for at in range(0, len(data), 4096):
            connection.send(data[at : at + 4096])
        assert connection.wire.statuses == [b"200 OK"] * count


async def test_a_large_body_is_no_head() -> None:
    connection = Connection()
    data = call(b" " * (4 * MAX_HEAD_BYTES) + BODY)
    for at in range(0, len(data), 4096):
        connection.send(data[at : at + 4096])
    assert connection.wire.statuses == [b"200 OK"]


@pytest.mark.parametrize(
    ("data", "status"),
    [(call(headers=(b"x: " + HUGE,)), HEAD_TOO_LARGE), (b"nonsense\r\n", b"400 Bad Request")],
    ids=["large-head", "http"],
)
async def test_what_is_refused_behind_a_review_that_waits_has_its_turn(
    data: bytes, status: bytes
) -> None:
    app = Later()
    connection = Connection(app)
    connection.send(call(target=b"/validate") + data)
    connection.send(b"nonsense")
    assert connection.wire.writes == []
    app.go.set()
    await _settle()
    assert connection.wire.statuses == [b"200 OK", status]


async def test_connections_above_the_limit_are_closed_at_once_and_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    first = Connection(limit=1)
    for count in (1, 2):
        further = Connection(first.app, limit=1, others=first.open)
        assert further.wire.aborted
        assert further.send(call()) == []
        further.protocol.connection_lost(None)
        assert first.tally.failures == {503: count}
    assert caplog.text.count("too many connections") == 1
    assert first.send(call()) == [b"200 OK"]
    first.protocol.connection_lost(None)
    assert Connection(first.app, limit=1, others=first.open).send(call()) == [b"200 OK"]


async def test_a_client_that_waits_to_be_asked_is_asked() -> None:
    connection = Connection()
    data = call(headers=(b"Expect: 100-continue",))
    head = data[: -len(BODY)]
    assert connection.send(head) == [b"100 Continue"]
    assert connection.send(BODY) == [b"100 Continue", b"200 OK"]


async def test_a_client_that_wants_to_close_is_let_go() -> None:
    connection = Connection()
    connection.send(call(headers=(b"Connection: close",)))
    assert b"connection: close" in connection.wire.writes[0]
    assert connection.wire.closed


async def test_http_1_0_is_answered_and_closed() -> None:
    connection = Connection()
    connection.send(call().replace(b"HTTP/1.1", b"HTTP/1.0"))
    assert connection.wire.statuses == [b"200 OK"]
    assert connection.wire.closed


async def test_a_draining_app_closes_after_the_answer() -> None:
    connection = Connection()
    connection.app.draining = True
    assert connection.send(call()) == [b"200 OK"]
    assert b"connection: close" in connection.wire.writes[0]
    assert connection.wire.closed


async def test_a_fault_of_ours_is_http_500_without_its_text(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tally = Tally()
    connection = Connection(Broken(Judge(Settings()), tally))
    assert connection.send(call()) == [b"500 Internal Server Error"]
    assert b"ZeroDivision" not in connection.wire.writes[0]
    assert connection.wire.closed
    assert tally.failures == {500: 1}
    assert "ZeroDivisionError" in caplog.text


async def test_a_shutdown_ends_an_idle_connection_at_once() -> None:
    connection = Connection()
    connection.send(call())
    connection.protocol.shutdown()
    assert connection.wire.closed


async def test_a_shutdown_lets_a_review_under_way_finish() -> None:
    connection = Connection()
    data = call()
    connection.send(data[:100])
    connection.protocol.shutdown()
    assert not connection.wire.closed
    assert connection.send(data[100:]) == [b"200 OK"]
    assert b"connection: close" in connection.wire.writes[0]
    assert connection.wire.closed


async def test_replies_keep_their_order_while_one_waits() -> None:
    app = Later()
    connection = Connection(app)
    connection.send(call(target=b"/validate") + call() + call(target=b"/"))
    assert connection.wire.writes == []
    assert not connection.wire.reading
    app.go.set()
    await _settle()
    assert connection.wire.statuses == [b"200 OK", b"200 OK", b"404 Not Found"]
    assert connection.wire.writes[0].endswith(b"later")
    assert connection.wire.closed


async def test_reading_goes_on_after_a_reply_that_waited() -> None:
    app = Later()
    app.go.set()
    connection = Connection(app)
    for count in (1, 2):
        connection.send(call(target=b"/validate"))
        await _settle()
        assert connection.wire.statuses == [b"200 OK"] * count
        assert connection.wire.reading


async def test_a_fault_while_waiting_is_http_500() -> None:
    app = Later()
    app.error = ZeroDivisionError()
    app.go.set()
    connection = Connection(app)
    connection.send(call(target=b"/validate"))
    await _settle()
    assert connection.wire.statuses == [b"500 Internal Server Error"]
    assert app.tally.failures == {500: 1}


async def test_a_client_that_leaves_takes_its_waiting_review_along() -> None:
    app = Later()
    connection = Connection(app)
    connection.send(call(target=b"/validate"))
    connection.protocol.connection_lost(None)
    await _settle()
    assert connection.wire.writes == []
    assert (connection.open, connection.lost) == (set(), 1)
    app.go.set()
    await _settle()
    assert connection.wire.writes == []


async def test_open_connections_are_known() -> None:
    first = Connection()
    assert first.open == {first.protocol}
    first.protocol.connection_lost(ConnectionResetError())
    assert (first.open, first.lost) == (set(), 1)


async def test_an_idle_connection_is_closed_and_a_used_one_is_not() -> None:
    clockwork = Clockwork()
    idle, used = Connection(timers=clockwork), Connection(timers=clockwork)
    clockwork.advance(IDLE_S - 1)
    used.send(call())
    assert _closed(idle, used) == (False, False)
    clockwork.advance(1)
    assert _closed(idle, used) == (True, False)
    clockwork.advance(IDLE_S - 2)
    assert _closed(idle, used) == (True, False)
    clockwork.advance(1)
    assert _closed(idle, used) == (True, True)


def _closed(*connections: Connection) -> tuple[bool, ...]:
    return tuple(connection.wire.closed for connection in connections)


async def test_a_review_that_waits_for_another_pod_is_not_idle() -> None:
    clockwork = Clockwork()
    connection = Connection(Later(), timers=clockwork)
    connection.send(call(target=b"/validate"))
    clockwork.advance(2 * IDLE_S)
    assert not connection.wire.closed
    connection.protocol.connection_lost(None)


async def test_a_client_that_does_not_read_is_not_read_from() -> None:
    connection = Connection()
    connection.protocol.pause_writing()
    assert not connection.wire.reading
    connection.protocol.resume_writing()
    assert connection.wire.reading


async def _settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)
