"""Records of what was done, as Kubernetes Events (events.k8s.io/v1), for `kubectl get events`.

Invariant: best effort; `record` never blocks and never raises, one worker does all the I/O, and
an event that cannot be written is counted, never in anybody's way.
"""

import asyncio
import contextlib
import random as random_module
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import msgspec

from kube import paths
from kube.backoff import Backoff
from kube.client import ApiClient
from kube.clock import Clock, micro_time, within
from kube.errors import AlreadyExists, ApiError, KubeError, NotFound, ServerError, TooManyRequests
from kube.logs import get_logger

log = get_logger(__name__)

REPORTING_CONTROLLER = "podstamp.dev/controller"

# Limits of the events.k8s.io/v1 API.
MAX_NAME = 253
MAX_NOTE = 1024
MAX_WORD = 128

_ATTEMPTS = 3


class ObjectReference(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What an event is about; `uid` ties it to one incarnation."""

    api_version: str
    kind: str
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""


class _Key(NamedTuple):
    """What makes two records repeats of one."""

    uid: str
    namespace: str
    name: str
    reason: str
    note: str
    type: str


@dataclass(frozen=True, slots=True)
class Record:
    """One event to be written; `count` is how often it was recorded so far."""

    regarding: ObjectReference
    related: ObjectReference | None
    reason: str
    note: str
    type: str
    action: str
    name: str
    first_time: str
    last_time: str
    count: int = 1

    @property
    def namespace(self) -> str:
        """Events live beside their object; those of cluster-scoped objects in `default`."""
        return self.regarding.namespace or "default"


def event_body(record: Record, controller: str, instance: str) -> dict[str, Any]:
    """The Event object of `record`."""
    body: dict[str, Any] = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": record.name, "namespace": record.namespace},
        "eventTime": record.first_time,
        "reportingController": controller,
        "reportingInstance": instance[:MAX_WORD],
        "action": record.action,
        "reason": record.reason,
        "note": record.note,
        "type": record.type,
        "regarding": record.regarding,
    }
    if record.related is not None:
        body["related"] = record.related
    if record.count > 1:
        body |= series_body(record)
    return body


def series_body(record: Record) -> dict[str, Any]:
    """The part that changes when an event repeats."""
    return {"series": {"count": record.count, "lastObservedTime": record.last_time}}


def event_name(regarding_name: str, suffix: str) -> str:
    """A valid name of at most 253 characters that begins with the object's."""
    stem = regarding_name[: MAX_NAME - len(suffix) - 1].rstrip("-.")
    return f"{stem}.{suffix}" if stem else suffix


class TokenBucket:
    """At most `burst` at once and `rate_per_s` in the long run."""

    __slots__ = ("_at_s", "_burst", "_rate_per_s", "_tokens")

    def __init__(self, rate_per_s: float, burst: int, now_s: float) -> None:
        self._rate_per_s = rate_per_s
        self._burst = float(burst)
        self._tokens = float(burst)
        self._at_s = now_s

    def take(self, now_s: float) -> float:
        """Take one token; the seconds to wait before using it."""
        gained = (now_s - self._at_s) * self._rate_per_s
        self._tokens = min(self._burst, self._tokens + gained) - 1
        self._at_s = now_s
        return max(0.0, -self._tokens / self._rate_per_s)


class EventRecorder:
    """Bounded queue and one worker; repeats of one (object, reason, note) become a series."""

    def __init__(
        self,
        client: ApiClient,
        *,
        instance: str,
        clock: Clock,
        random: random_module.Random,
        controller: str = REPORTING_CONTROLLER,
        timeout_s: float = 2.0,
        capacity: int = 2000,
        rate_per_s: float = 20.0,
        burst: int = 200,
        remembered: int = 4096,
    ) -> None:
        """`instance` names this process, as a rule the pod's name.

        A repeat of one of the last `remembered` events continues its series.
        """
        self.dropped = 0
        self._client = client
        self._instance = instance
        self._clock = clock
        self._random = random
        self._controller = controller
        self._timeout_s = timeout_s
        self._capacity = capacity
        self._bucket = TokenBucket(rate_per_s, burst, clock.monotonic())
        self._queue: OrderedDict[_Key, Record] = OrderedDict()
        self._remembered = remembered
        self._sent: OrderedDict[_Key, Record] = OrderedDict()
        self._filled = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._said: set[str] = set()

    def record(
        self,
        regarding: ObjectReference,
        *,
        reason: str,
        note: str,
        type: str = "Normal",
        action: str = "",
        related: ObjectReference | None = None,
    ) -> None:
        """Queue one event; a full queue drops it and counts it in `dropped`."""
        note = note if len(note) <= MAX_NOTE else note[: MAX_NOTE - 1] + "…"
        key = _Key(regarding.uid, regarding.namespace, regarding.name, reason, note, type)
        now = micro_time(self._clock.now())
        waiting = self._queue.get(key)
        if waiting is not None:
            self._queue[key] = replace(waiting, count=waiting.count + 1, last_time=now)
            return
        if len(self._queue) >= self._capacity:
            self._drop("the queue of events is full", regarding)
            return
        sent = self._sent.get(key)
        if sent is not None:
            self._queue[key] = replace(sent, count=sent.count + 1, last_time=now)
        else:
            self._queue[key] = Record(
                regarding=regarding,
                related=related,
                reason=reason[:MAX_WORD],
                note=note,
                type=type,
                action=(action or reason)[:MAX_WORD],
                name=event_name(regarding.name, f"{self._random.getrandbits(64):016x}"),
                first_time=now,
                last_time=now,
            )
        self._idle.clear()
        self._filled.set()

    async def run(self) -> None:
        """Send what is queued, until cancelled."""
        while True:
            await self._filled.wait()
            while self._queue:
                await self._clock.sleep(self._bucket.take(self._clock.monotonic()))
                key, record = self._queue.popitem(last=False)
                await self._send(key, record)
            self._filled.clear()
            self._idle.set()

    async def flush(self, timeout_s: float) -> None:
        """Wait until the queue is empty, at most `timeout_s`; `run` must be running."""
        try:
            await within(self._clock, timeout_s, self._wait_idle())
        except TimeoutError:
            log.warning("events are left unwritten", count=len(self._queue))

    async def _wait_idle(self) -> None:
        await self._idle.wait()

    async def _send(self, key: _Key, record: Record) -> None:
        backoff = Backoff(self._random)
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                await self._write(key, record)
                return
            except KubeError as error:
                lasting = isinstance(error, ApiError) and not isinstance(
                    error, TooManyRequests | ServerError
                )
                if lasting or attempt == _ATTEMPTS:
                    self._drop(str(error), record.regarding)
                    return
            await self._clock.sleep(backoff.next_s())

    async def _write(self, key: _Key, record: Record) -> None:
        collection = paths.events(record.namespace)
        if key in self._sent:
            try:
                await self._client.patch(
                    paths.event(record.namespace, record.name),
                    series_body(record),
                    timeout_s=self._timeout_s,
                )
                self._remember(key, record)
                return
            except NotFound:
                # The first one has expired: begin anew.
                del self._sent[key]
                suffix = f"{self._random.getrandbits(64):016x}"
                record = replace(record, name=event_name(record.regarding.name, suffix))
        body = event_body(record, self._controller, self._instance)
        # The name is random: taken means that an attempt whose answer was lost went through.
        with contextlib.suppress(AlreadyExists):
            await self._client.create(collection, body, timeout_s=self._timeout_s)
        self._remember(key, record)

    def _remember(self, key: _Key, record: Record) -> None:
        self._sent[key] = record
        self._sent.move_to_end(key)
        if len(self._sent) > self._remembered:
            self._sent.popitem(last=False)

    def _drop(self, why: str, regarding: ObjectReference) -> None:
        self.dropped += 1
        if why not in self._said:
            self._said.add(why)
            log.warning(
                "an event is not written; further ones like it are counted only",
                namespace=regarding.namespace,
                name=regarding.name,
                error=why,
            )
