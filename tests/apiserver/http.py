"""HTTP for the embedded API server: requests, answers, and the ASGI application around them.

Invariant: a request ends in exactly one answer; a StatusError becomes its Status object, and
anything unforeseen a logged traceback and a 500.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol
from urllib.parse import parse_qsl

import msgspec
import yaml

from tests.apiserver import errors, protobuf
from tests.apiserver.admission.warnings import headers as warning_headers
from tests.apiserver.call import SYSTEM, User
from tests.apiserver.errors import StatusError
from tests.apiserver.faults import Faults, Rule
from tests.apiserver.watch import Watch, error_line

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

REMEMBERED = 100_000
"""How many of the last requests are remembered."""
MAX_BODY_BYTES = 3 * 1024 * 1024
_JSON = (b"content-type", b"application/json")
_encode = msgspec.json.encode
_decode = msgspec.json.Decoder().decode
_log = logging.getLogger(__name__)


class Request:
    """One request; header names are in lower case."""

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.user: User = SYSTEM
        # Of admission; they go with an error as well.
        self.warnings: list[str] = []
        self._scope = scope
        self._receive = receive

    @cached_property
    def header_list(self) -> list[tuple[str, str]]:
        return [
            (k.decode("latin-1").lower(), v.decode("latin-1")) for k, v in self._scope["headers"]
        ]

    @cached_property
    def headers(self) -> dict[str, str]:
        return dict(self.header_list)

    @cached_property
    def query(self) -> dict[str, str]:
        text = self._scope["query_string"].decode("latin-1")
        return dict(reversed(parse_qsl(text, keep_blank_values=True))) if text else {}

    @cached_property
    def query_lists(self) -> list[tuple[str, str]]:
        text = self._scope["query_string"].decode("latin-1")
        return parse_qsl(text, keep_blank_values=True)

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    async def body(self) -> bytes:
        """413 when it is over MAX_BODY_BYTES."""
        chunks: list[bytes] = []
        size = 0
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            chunk = message.get("body", b"")
            size += len(chunk)
            if size > MAX_BODY_BYTES:
                raise errors.too_large(MAX_BODY_BYTES)
            chunks.append(chunk)
            if not message.get("more_body"):
                return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    async def object(self) -> dict[str, Any]:
        """The body as one object of JSON, YAML or protobuf: 400, 413 or 415 otherwise."""
        return parse_object(await self.body(), self.content_type)

    async def gone(self) -> None:
        """Returns when the client has gone away; the body has been read."""
        while (await self._receive())["type"] != "http.disconnect":
            pass


class ClientGone(Exception):
    """The client closed the connection; there is nobody to answer."""


def parse_json(body: bytes) -> Any:
    try:
        return _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise errors.bad_request(f"couldn't get version/kind; json parse error: {error}") from error


def parse_object(body: bytes, content_type: str) -> dict[str, Any]:
    if content_type in ("", "application/json"):
        parsed = parse_json(body)
    elif content_type == "application/yaml":
        try:
            parsed = yaml.safe_load(body)
        except yaml.YAMLError as error:
            raise errors.bad_request(f"couldn't get version/kind; yaml: {error}") from error
    elif content_type == protobuf.CONTENT_TYPE:
        parsed = protobuf.decode(body)
    else:
        raise errors.unsupported_media_type(
            "the body of the request was in an unknown format - accepted media types include: "
            "application/json, application/yaml, application/vnd.kubernetes.protobuf"
        )
    if not isinstance(parsed, dict):
        raise errors.bad_request("couldn't get version/kind; the body is no JSON object")
    return parsed


@dataclass(slots=True)
class Response:
    body: bytes
    status: int = 200
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    content_type: bytes = b"application/json"


@dataclass(slots=True)
class Stream:
    """The answer to a watch; `error` is told at once and ends it."""

    watch: Watch | None
    timeout_s: float
    bookmark_every_s: float | None
    error: dict[str, Any] | None = None
    after_initial: bytes = b""


def json_response(value: Any, status: int = 200) -> Response:
    return Response(_encode(value), status)


class _Cut:
    """Ends one stream from outside, in the middle."""

    def __init__(self, watch: Watch | None) -> None:
        self._watch = watch
        self.done = False

    def now(self) -> None:
        self.done = True
        if self._watch is not None:
            self._watch.subscription.wake.set()


class Handler(Protocol):
    """What the application serves; see routes.py."""

    def verb(self, request: Request) -> str: ...

    def authenticate(self, request: Request) -> User: ...

    async def handle(self, request: Request) -> Response | Stream: ...


class Application:
    """The ASGI application: faults, errors, and writing answers."""

    def __init__(self, handler: Handler, faults: Faults, before_end_s: float) -> None:
        self._handler = handler
        self._faults = faults
        self._before_end_s = before_end_s
        self.open_streams: set[_Cut] = set()
        self.seen: deque[tuple[str, str, str]] = deque(maxlen=REMEMBERED)

    def cut_streams(self) -> None:
        """Break every open watch off."""
        for cut in list(self.open_streams):
            cut.now()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        rule: Rule | None = None
        try:
            try:
                request.user = self._handler.authenticate(request)
                verb = self._handler.verb(request)
                self.seen.append((verb, request.path, request.user.name))
                rule = self._faults.take(verb, request.path, request.user.name)
                if rule is not None:
                    await self._suffer(rule, request)
                answer = await self._handler.handle(request)
            except StatusError as error:
                answer = _error_response(error, rule)
            except (ClientGone, asyncio.CancelledError):
                raise
            except Exception as error:  # noqa: BLE001 - the last line of defence of a server
                _log.exception("%s %s", request.method, request.path)
                answer = _error_response(errors.internal(str(error)), None)
            if isinstance(answer, Stream):
                await self._stream(request, answer, send, rule)
            else:
                await self._answer(answer, send, rule, request.warnings)
        except ClientGone:
            return

    async def _suffer(self, rule: Rule, request: Request) -> None:
        if rule.kind == "status" and rule.error is not None:
            raise rule.error
        if rule.kind == "hang":
            released = asyncio.Event()
            rule.waiting.append(released.set)
            await released.wait()

    async def _answer(
        self, response: Response, send: Send, rule: Rule | None, warnings: list[str]
    ) -> None:
        headers = [
            (b"content-type", response.content_type),
            (b"content-length", str(len(response.body)).encode()),
            (b"cache-control", b"no-cache, private"),
            *response.headers,
        ]
        if warnings:
            headers += [(b"warning", text.encode()) for text in warning_headers(warnings)]
        await send({"type": "http.response.start", "status": response.status, "headers": headers})
        if rule is not None and rule.kind == "truncate":
            kept = response.body[: min(rule.keep_bytes, len(response.body) - 1)]
            await send({"type": "http.response.body", "body": kept, "more_body": True})
            return  # unfinished: the server breaks the connection off
        await send({"type": "http.response.body", "body": response.body})

    async def _stream(
        self, request: Request, stream: Stream, send: Send, rule: Rule | None
    ) -> None:
        """Lines until the timeout, the client's end or a cut; a cut leaves the body unfinished."""
        watch = stream.watch
        cut = _Cut(watch)
        self.open_streams.add(cut)
        try:
            await send(
                {
                    "type": "http.response.start",
                    "status": 200,
                    "headers": [_JSON, (b"cache-control", b"no-cache, private")],
                }
            )
            if rule is not None and rule.kind == "gone-event" and rule.error is not None:
                await _send_last(send, error_line(rule.error.status))
                return
            if watch is None:
                await _send_last(send, error_line(stream.error or {}))
                return
            first = b"".join(watch.first_lines()) + stream.after_initial
            await send({"type": "http.response.body", "body": first, "more_body": True})
            if await self._follow(request, stream, watch, send, cut, rule):
                await _send_last(send, b"")
        finally:
            self.open_streams.discard(cut)
            if watch is not None:
                watch.close()

    async def _follow(
        self,
        request: Request,
        stream: Stream,
        watch: Watch,
        send: Send,
        cut: _Cut,
        rule: Rule | None,
    ) -> bool:
        """Send what comes; True when the stream is to end in good order."""
        loop = asyncio.get_running_loop()
        subscription = watch.subscription
        end = loop.time() + stream.timeout_s
        every = stream.bookmark_every_s
        marks = [] if every is None else [max(end - self._before_end_s, loop.time())]
        next_mark = None if every is None else loop.time() + every
        gone = loop.create_task(request.gone())
        gone.add_done_callback(lambda _: cut.now())
        try:
            while not cut.done:
                body = watch.drain()
                now = loop.time()
                if every is not None and next_mark is not None and now >= next_mark:
                    body += watch.bookmark()
                    next_mark = now + every
                if marks and now >= marks[0]:
                    body += watch.bookmark()
                    marks.clear()
                if body and rule is not None and rule.kind == "truncate":
                    body = body[: rule.keep_bytes]
                    await send({"type": "http.response.body", "body": body, "more_body": True})
                    return False
                if body:
                    await send({"type": "http.response.body", "body": body, "more_body": True})
                    if subscription.pending:
                        continue
                if subscription.closed or now >= end:
                    return True
                subscription.wake.clear()
                wake_at = min([end, *marks, *([next_mark] if next_mark else [])])
                timer = loop.call_at(wake_at, subscription.wake.set)
                await subscription.wake.wait()
                timer.cancel()
            return False
        finally:
            gone.cancel()


async def _send_last(send: Send, body: bytes) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": False})


def _error_response(error: StatusError, rule: Rule | None) -> Response:
    headers: list[tuple[bytes, bytes]] = []
    retry = (error.details or {}).get("retryAfterSeconds")
    if rule is not None and rule.retry_after_s is not None:
        retry = rule.retry_after_s
    if retry is not None:
        headers.append((b"retry-after", str(retry).encode()))
    return Response(_encode(error.status), error.code, headers=headers)
