"""The two admission endpoints: from the parts of an HTTP call to a reply.

Invariant: one review costs one decode, the rules and one encode; nothing here waits for the
network but the confirming read, and an exception of ours is no verdict: it leaves as it is.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kube.logs import get_logger
from webhook import answer
from webhook.case import EMPTY_VIEW
from webhook.durations import parse_duration
from webhook.judge import with_warning
from webhook.neighbours import unconfirmed_conflict
from webhook.review import Malformed, NotAReview, decode_review

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from webhook.case import StoreView, Suspicion
    from webhook.conflicts import Confirmer
    from webhook.judge import Judge, Verdict
    from webhook.metrics import Tally

log = get_logger(__name__)

MAX_BODY_BYTES: Final = 8 * 1024 * 1024
"""An API server takes objects of up to 3 MiB; the review of an UPDATE carries two of them."""

DEFAULT_DEADLINE_S: Final = 5.0
ANSWER_S: Final = 0.25
"""What stays of the deadline for the answer to travel back."""

MUTATE: Final = b"/mutate"
VALIDATE: Final = b"/validate"
_NAMES: Final = {MUTATE: "mutate", VALIDATE: "validate"}
JSON: Final = b"application/json"
TEXT: Final = b"text/plain; charset=utf-8"


class Reply(NamedTuple):
    """What goes back. `close`: the connection cannot be used again."""

    status: int
    content_type: bytes
    content: bytes
    close: bool = False


class RandomBytes:
    """Random bytes of the system, fetched for some hundred reviews at once."""

    __slots__ = ("_at", "_block")

    def __init__(self) -> None:
        self._block = b""
        self._at = 0

    def take(self, count: int) -> bytes:
        """The next `count` bytes; no byte is given out twice."""
        end = self._at + count
        if end > len(self._block):
            self._block = os.urandom(max(4096, count))
            self._at, end = 0, count
        taken = self._block[self._at : end]
        self._at = end
        return taken


class AdmissionApp:
    """`draining` set to True makes every reply close its connection."""

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
        self._crowded = False
        self._judge = judge
        self._tally = tally
        self._view = view
        self._confirmer = confirmer
        self._now_ns = now_ns
        self._monotonic = monotonic
        self._random_bytes = random_bytes or RandomBytes().take

    def refuse(self, method: bytes, path: bytes, content_type: bytes, length: int) -> Reply | None:
        """What can be refused before the body is there; `length` is 0 while unknown."""
        if path not in _NAMES:
            return self.failure(404, "only /mutate and /validate are served here")
        if method != b"POST":
            return self.failure(405, f"{path.decode()} takes POST")
        if content_type != JSON and content_type.partition(b";")[0].strip().lower() != JSON:
            return self.failure(415, "a review is sent as application/json")
        if length > MAX_BODY_BYTES:
            return self.failure(413, f"a review of more than {MAX_BODY_BYTES} bytes is not taken")
        return None

    def failure(self, status: int, text: str) -> Reply:
        """An HTTP error; the rest of the call may still be under way, so the connection ends."""
        self._tally.failed(status)
        log.warning("not an admission call", status=status, why=text)
        return Reply(status, TEXT, f"{text}\n".encode(errors="replace"), close=True)

    def review(self, path: bytes, query: bytes, body: bytes) -> Reply | Coroutine[Any, Any, Reply]:
        """The reply to a whole call that was not refused; to be awaited if another pod has to be
        looked at first. Any exception is a fault of ours: HTTP 500."""
        endpoint = _NAMES[path]
        started = self._monotonic()
        try:
            request = decode_review(body)
            if path == MUTATE:
                verdict = self._judge.mutate(request, self._now_ns(), self._random_bytes(10))
            else:
                verdict = self._judge.validate(request, self._now_ns(), self._view)
        except Malformed as error:
            self._tally.malformed(endpoint, self._monotonic() - started)
            return Reply(200, JSON, answer.errored(error.uid, str(error)))
        except NotAReview as error:
            return self.failure(400, str(error))
        if verdict.suspicion is not None:
            deadline = started + deadline_s(query) - ANSWER_S
            return self._confirm(endpoint, request.uid, verdict, verdict.suspicion, deadline)
        content = answer.answer(request.uid, verdict)
        self._tally.review(endpoint, request.operation, verdict, self._monotonic() - started)
        return Reply(200, JSON, content)

    async def _confirm(
        self, endpoint: str, uid: str, verdict: Verdict, suspicion: Suspicion, deadline: float
    ) -> Reply:
        started = self._monotonic()
        if self._confirmer is None:
            verdict = with_warning(verdict, unconfirmed_conflict(suspicion))
        else:
            verdict = await self._confirmer.decide(verdict, suspicion, deadline - started)
        self._tally.review(endpoint, "CREATE", verdict, self._monotonic() - started)
        return Reply(200, JSON, answer.answer(uid, verdict))

    def turn_away(self, limit: int) -> None:
        """Count a connection above the `limit`; the first one is logged."""
        self._tally.failed(503)
        if not self._crowded:
            self._crowded = True
            log.warning("too many connections: further ones are closed at once", limit=limit)

    def failed(self) -> None:
        """Count an exception of ours."""
        self._tally.failed(500)


def deadline_s(query: bytes) -> float:
    """How long the API server waits, from its `timeout` query; it sends a Go duration."""
    for pair in query.split(b"&"):
        name, _, value = pair.partition(b"=")
        if name == b"timeout":
            seconds = parse_duration(value.decode("utf-8", "replace"))
            if seconds is not None:
                return seconds
    return DEFAULT_DEADLINE_S
