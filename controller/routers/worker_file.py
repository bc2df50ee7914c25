"""Kind `worker-file`: the discovery file of smg.

Invariant: pure; an entry's id is made from its URL alone, never from a pod: smg takes a new id
at a known URL for another worker, and is without it for more than ten seconds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection

import msgspec

from controller.routers.desired import Desired
from controller.routers.dialects import (
    DIALECTS,
    base_url,
    engine_url,
    entries_of,
    is_adapter_url,
)
from controller.routers.document_kind import Entries, Rendered
from controller.routers.transport import Answer

_SMG = DIALECTS["smg"]
_VERSION = 1


class _Worker(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """A field that smg does not know makes it reject the whole file: these are all we write."""

    id: str
    url: str
    model_id: str = ""


class _File(msgspec.Struct, forbid_unknown_fields=True):
    version: int
    workers: list[_Worker]


class WorkerFile:
    """`adapters`: a worker for each adapter, since smg routes by a worker's only model.

    A worker that has left the file drains for 5 s in smg 1.13.0; one that is back before is not
    registered again until the file changes once more or is read anew, 30 s apart.
    """

    absence_s = 6.0

    def __init__(self, *, adapters: bool) -> None:
        self._adapters = adapters

    def render(self, desired: Desired, present: Entries, absent: Collection[str] = ()) -> Rendered:
        wanted = entries_of(desired, _SMG, self._adapters)
        entries = {url: entry.model for url, entry in wanted.items()}
        for url, (model,) in present.items():
            if engine_url(url) in desired.undecided:
                entries[url] = model
        urls = sorted(entries.keys() - set(absent))
        workers = [_Worker(worker_id(url), url, entries[url]) for url in urls]
        content = msgspec.json.format(msgspec.json.encode(_File(_VERSION, workers)), indent=1)
        return Rendered(content + b"\n", {w.url: (w.model_id,) for w in workers}, {})

    def parse(self, content: bytes) -> Entries | None:
        try:
            file = msgspec.json.decode(content, type=_File)
        except msgspec.DecodeError:
            return None
        return {worker.url: (worker.model_id,) for worker in file.workers}

    def engines(self, entries: Collection[str]) -> list[str]:
        return [url for url in entries if not is_adapter_url(url)]

    def report_path(self) -> str:
        return _SMG.list_request().path

    def parse_report(self, answer: Answer) -> Entries:
        listed = _SMG.parse_list(answer.status, answer.body)
        return {
            base_url(worker.url): (worker.model,)
            for worker in listed
            if not worker.draining and not worker.pending
        }


def worker_id(url: str) -> str:
    """Stable for a URL and different for each: the start of its SHA-256."""
    return hashlib.sha256(url.encode()).hexdigest()[:32]
