"""The worker APIs of vllm-router, sglang-router and smg: requests and answers, nothing else.

Invariant: pure; an answer that a dialect does not know is a refusal, and every success is only
believed once the list shows it. What each router does was seen on vllm-router 0.1.17,
sglang-router 0.3.2 and smg 1.13.0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from controller.routers.desired import Backend, Desired
from controller.routers.transport import RefusedError, short


class Request(NamedTuple):
    """One call of a router's API."""

    method: str
    path: str
    json: Any = None


class Entry(NamedTuple):
    """One worker that a router should list; `model` is empty where the router does not care."""

    url: str
    uid: str
    incarnation: str
    model: str = ""


class Observed(NamedTuple):
    """One worker that a router lists. `draining` is on its way out and takes no new request;
    `pending` was queued and takes none yet."""

    url: str
    id: str = ""
    model: str = ""
    draining: bool = False
    pending: bool = False


class Outcome(Enum):
    """What an answer means."""

    DONE = "done"
    QUEUED = "queued"
    FAILED = "failed"


class Verdict(NamedTuple):
    """An outcome, the id under which a queued add can be followed, and why it failed."""

    outcome: Outcome
    id: str = ""
    reason: str = ""


class _Listed(msgspec.Struct):
    url: str
    id: str = ""
    model_id: str | None = None
    status: str | None = None


class _Workers(msgspec.Struct):
    workers: list[_Listed]


class _Urls(msgspec.Struct):
    urls: list[str]


class _Job(msgspec.Struct):
    status: str = ""
    message: str | None = None


class _Answer(msgspec.Struct):
    worker_id: str = ""
    job_status: _Job | None = None


# vllm-router with data parallelism lists one worker for each rank: http://10.0.0.1:8000@1
_RANK = re.compile(r"@\d+$")


def base_url(url: str) -> str:
    """The URL that was added for this worker: a data-parallel rank belongs to its base."""
    return _RANK.sub("", url)


def adapter_url(url: str, adapter: str) -> str:
    """Another spelling of an engine's URL, one for each adapter.

    smg keeps one worker for each URL as written and routes by its first model alone, so an
    adapter needs a worker of its own. The path cancels itself out once a request's path is
    appended and the dots are resolved (RFC 3986, section 5.2.4).
    """
    return f"{url}/{quote(adapter, safe='')}/.."


_ADAPTER = re.compile(r"/[^/]+/\.\.$")


def engine_url(url: str) -> str:
    """The URL of the engine that an entry leads to, whichever way it is spelled."""
    return _ADAPTER.sub("", url)


def is_adapter_url(url: str) -> bool:
    """Whether `adapter_url` made it."""
    return url != engine_url(url)


@dataclass(frozen=True, slots=True)
class Dialect:
    """`queues`: an add is answered before it is done, and a removal does not cancel it."""

    queues: bool = False

    def entries(self, backend: Backend) -> list[Entry]:
        """The workers that this engine needs."""
        engine = backend.engine
        return [Entry(engine.url, engine.uid, engine.incarnation)]

    def list_request(self) -> Request:
        return Request("GET", "/workers")

    def parse_list(self, status: int, body: bytes) -> list[Observed]:
        """Every worker listed. RefusedError: it is no list."""
        if status != 200:
            raise RefusedError(_refusal(status, body))
        try:
            listed = msgspec.json.decode(body, type=_Workers).workers
        except msgspec.DecodeError as error:
            raise RefusedError(f"list of workers: {error}") from error
        return [
            Observed(w.url, w.id, w.model_id or "", w.status == "draining", w.status == "pending")
            for w in listed
        ]

    def add_request(self, entry: Entry) -> Request:
        return Request("POST", "/workers", {"url": entry.url})

    def judge_add(self, status: int, body: bytes) -> Verdict:
        """`already exists` is success: another add, or a lost answer, came first."""
        if status == 200 or _says(body, "already exists"):
            return Verdict(Outcome.DONE)
        return Verdict(Outcome.FAILED, reason=_refusal(status, body))

    def remove_request(self, observed: Observed) -> Request:
        return Request("DELETE", f"/workers/{quote(base_url(observed.url), safe='')}")

    def judge_remove(self, status: int, body: bytes) -> Verdict:
        """What is not there is removed."""
        if status in (200, 202, 404) or _says(body, "not found"):
            return Verdict(Outcome.DONE)
        return Verdict(Outcome.FAILED, reason=_refusal(status, body))

    def job_request(self, id: str) -> Request:
        """Asks what became of a queued add."""
        return Request("GET", f"/workers/{quote(id, safe='')}")

    def judge_job(self, status: int, body: bytes) -> Verdict:
        """FAILED also when the router no longer knows the id."""
        if status == 404:
            return Verdict(Outcome.FAILED, reason="the router has dropped it")
        job = _answer(body).job_status
        if status == 200 and job is not None and job.status == "failed":
            return Verdict(Outcome.FAILED, reason=job.message or "its job failed")
        return Verdict(Outcome.QUEUED)


class _Vllm(Dialect):
    """Adds at once, after a look at `/health`; the client that hangs up cancels the add."""


class _Legacy(Dialect):
    """The older API by URL, of routers that have no `/workers` yet."""

    def list_request(self) -> Request:
        return Request("GET", "/list_workers")

    def parse_list(self, status: int, body: bytes) -> list[Observed]:
        if status != 200:
            raise RefusedError(_refusal(status, body))
        try:
            return [Observed(url) for url in msgspec.json.decode(body, type=_Urls).urls]
        except msgspec.DecodeError as error:
            raise RefusedError(f"list of workers: {error}") from error

    def add_request(self, entry: Entry) -> Request:
        return Request("POST", f"/add_worker?url={quote(entry.url, safe='')}")

    def remove_request(self, observed: Observed) -> Request:
        return Request("POST", f"/remove_worker?url={quote(base_url(observed.url), safe='')}")


class _Sglang(Dialect):
    """Queues adds and removals; knows a worker by an id that changes with every add."""

    def entries(self, backend: Backend) -> list[Entry]:
        engine = backend.engine
        model = backend.models[0] if backend.models else ""
        return [Entry(engine.url, engine.uid, engine.incarnation, model)]

    def add_request(self, entry: Entry) -> Request:
        body = {"url": entry.url}
        if entry.model:
            # Left out, the router lists a vLLM engine under the model "unknown".
            body["model_id"] = entry.model
        return Request("POST", "/workers", body)

    def judge_add(self, status: int, body: bytes) -> Verdict:
        if status in (200, 202):
            return Verdict(Outcome.QUEUED, _answer(body).worker_id)
        return Dialect.judge_add(self, status, body)

    def remove_request(self, observed: Observed) -> Request:
        return Request("DELETE", f"/workers/{quote(observed.id, safe='')}")


class _Smg(_Sglang):
    """As sglang-router, but routes by model: each adapter is a worker of its own.

    Never `aliases`: smg rewrites the model's name with them and serves the base model instead.
    Never PUT: on a draining worker it answers "ready", and then the worker vanishes.
    """

    def entries(self, backend: Backend) -> list[Entry]:
        engine = backend.engine
        adapters = [
            Entry(adapter_url(engine.url, name), engine.uid, engine.incarnation, name)
            for name in backend.adapters
        ]
        return [*_Sglang.entries(self, backend), *adapters]

    def add_request(self, entry: Entry) -> Request:
        body: dict[str, Any] = {"url": entry.url}
        if entry.model:
            body["models"] = [{"id": entry.model}]
        return Request("POST", "/workers", body)

    def judge_add(self, status: int, body: bytes) -> Verdict:
        if status == 409:
            # There, or being made by an earlier add: the list will say which.
            return Verdict(Outcome.QUEUED)
        return _Sglang.judge_add(self, status, body)


DIALECTS: Mapping[str, Dialect] = {
    "vllm": _Vllm(),
    "legacy": _Legacy(),
    "sglang": _Sglang(queues=True),
    "smg": _Smg(queues=True),
}


def entries_of(desired: Desired, dialect: Dialect, adapters: bool) -> dict[str, Entry]:
    """The workers that a router of this dialect should list, by URL."""
    found: dict[str, Entry] = {}
    for backend in desired.backends.values():
        wanted = dialect.entries(backend)
        for entry in wanted if adapters else wanted[:1]:
            found[entry.url] = entry
    return found


def _answer(body: bytes) -> _Answer:
    try:
        return msgspec.json.decode(body, type=_Answer)
    except msgspec.DecodeError:
        return _Answer()


def _says(body: bytes, words: str) -> bool:
    return words.encode() in body[:2000].lower()


def _refusal(status: int, body: bytes) -> str:
    hint = "; check apiKeyFile" if status in (401, 403) else ""
    return f"HTTP {status} {short(body)}".rstrip() + hint
