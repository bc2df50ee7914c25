"""The two admission endpoints as a bare ASGI application.

Invariant: one review costs one decode, the rules and one encode; nothing here waits for the
network but the confirming read, and an exception of ours becomes HTTP 500, not a verdict.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, Final

from kube.logs import get_logger
from webhook import answer
from webhook.case import EMPTY_VIEW
from webhook.durations import parse_duration
from webhook.review import Malformed, NotAReview, Request, decode_review

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping

    from webhook.case import StoreView
    from webhook.conflicts import Confirmer
    from webhook.judge import Judge, Verdict
    from webhook.metrics import Tally

    Message = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[Message]]
    Send = Callable[[Message], Awaitable[None]]

log = get_logger(__name__)

MAX_BODY_BYTES: Final = 8 * 1024 * 1024
"""An API server takes objects of up to 3 MiB; an UPDATE review carries two of them."""

DEFAULT_DEADLINE_S: Final = 5.0
_ANSWER_S: Final = 0.25
"""What stays of the deadline for the answer to travel back."""

_MUTATE: Final = "mutate"
_VALIDATE: Final = "validate"
_JSON: Final = (b"content-type", b"application/json")
_TEXT: Final = (b"content-type", b"text/plain; charset=utf-8")
_CLOSE: Final = (b"connection", b"close")


class _Refused(Exception):
    """The call is answered by an HTTP error and a line of text."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class _Gone(Exception):
    """The client left before its body was whole."""


class RandomBytes:
    """Random bytes of the system, fetched for some hundred reviews at once."""

    __slots__ = ("_at", "_block")

    def __init__(self) -> None:
        self._block = b""
        self._at = 0

    def take(self, count: int) -> bytes:
        """The next `count` bytes; no byte is given out twice."""
        if self._at + count > len(self._block):
            self._block = os.urandom(4096)
            self._at = 0
        taken = self._block[self._at : self._at + count]
        self._at += count
        return taken


class AdmissionApp:
    """`draining` set to True makes every answer close its connection."""

    def __init__(
        self,
        judge: Judge,
        tally: Tally,
        *,
        view: StoreView = EMPTY_VIEW,
        confirmer: Confirmer | None = None,
        now_ns: Callable[[], int] = time.time_ns,
        monotonic: Callable[[], float] = time.monotonic,
        random_bytes: Callable[[int], bytes] | None = None,
    ) -> None:
        self.draining = False
        self._judge = judge
        self._tally = tally
        self._view = view
        self._confirmer = confirmer
        self._now_ns = now_ns
        self._monotonic = monotonic
        self._random_bytes = random_bytes or RandomBytes().take

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"admission speaks HTTP, not {scope['type']}")
        started = self._monotonic()
        try:
            endpoint = _check_call(scope)
            body = await _read_body(scope["headers"], receive)
            read = self._monotonic()
            request = decode_review(body)
            verdict = self._judge_request(endpoint, request)
            if verdict.suspicion is not None and self._confirmer is not None:
                budget_s = _deadline_s(scope) - _ANSWER_S - (self._monotonic() - started)
                verdict = await self._confirmer.decide(verdict, verdict.suspicion, budget_s)
            content = answer.answer(request.uid, verdict)
            self._tally.review(endpoint, request.operation, verdict, self._monotonic() - read)
            await self._send(send, 200, _JSON, content)
        except Malformed as error:
            self._tally.malformed(endpoint, self._monotonic() - read)
            await self._send(send, 200, _JSON, answer.errored(error.uid, str(error)))
        except NotAReview as error:
            await self._refuse(send, 400, str(error))
        except _Refused as error:
            await self._refuse(send, error.status, str(error))
        except _Gone:
            return
        except Exception:
            # The server logs the traceback and answers 500; failurePolicy decides from there.
            self._tally.failed(500)
            raise

    def _judge_request(self, endpoint: str, request: Request) -> Verdict:
        if endpoint is _MUTATE:
            return self._judge.mutate(request, self._now_ns(), self._random_bytes(10))
        return self._judge.validate(request, self._now_ns(), self._view)

    async def _refuse(self, send: Send, status: int, text: str) -> None:
        self._tally.failed(status)
        log.warning("not an admission call", status=status, why=text)
        # The rest of the body may still be under way, so the connection cannot be used again.
        await self._send(send, status, _TEXT, text.encode(errors="replace"), close=True)

    async def _send(
        self,
        send: Send,
        status: int,
        content_type: tuple[bytes, bytes],
        content: bytes,
        close: bool = False,
    ) -> None:
        headers = [content_type, (b"content-length", b"%d" % len(content))]
        if close or self.draining:
            headers.append(_CLOSE)
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": content})


def _check_call(scope: Any) -> str:
    path = scope["path"]
    if path == "/mutate":
        endpoint = _MUTATE
    elif path == "/validate":
        endpoint = _VALIDATE
    else:
        raise _Refused(404, "only /mutate and /validate are served here")
    if scope["method"] != "POST":
        raise _Refused(405, f"{path} takes POST")
    return endpoint


async def _read_body(headers: list[tuple[bytes, bytes]], receive: Receive) -> bytes:
    """The body, if it is JSON of a sensible size by its headers and in fact."""
    is_json = False
    for name, value in headers:
        if name == b"content-type":
            is_json = value.partition(b";")[0].strip().lower() == b"application/json"
        elif name == b"content-length" and int(value) > MAX_BODY_BYTES:
            raise _Refused(413, _TOO_LARGE)
    if not is_json:
        raise _Refused(415, "a review is sent as application/json")
    message = await receive()
    if not message.get("more_body"):
        return _chunk(message)
    chunks, size = [], 0
    while True:
        chunk = _chunk(message)
        size += len(chunk)
        if size > MAX_BODY_BYTES:
            raise _Refused(413, _TOO_LARGE)
        chunks.append(chunk)
        if not message.get("more_body"):
            return b"".join(chunks)
        message = await receive()


_TOO_LARGE: Final = f"a review of more than {MAX_BODY_BYTES} bytes is not taken"


def _chunk(message: Message) -> bytes:
    if message["type"] == "http.disconnect":
        raise _Gone
    body: bytes = message.get("body", b"")
    return body


def _deadline_s(scope: Any) -> float:
    """How long the API server waits, from its `timeout` query; it sends a Go duration."""
    for pair in scope["query_string"].split(b"&"):
        name, _, value = pair.partition(b"=")
        if name == b"timeout":
            seconds = parse_duration(value.decode("ascii", "replace"))
            if seconds is not None:
                return seconds
    return DEFAULT_DEADLINE_S
