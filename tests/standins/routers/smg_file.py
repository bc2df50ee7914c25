"""smg's discovery file: workers that come and go with a file's content.

A file that is missing, empty, half written or has a field that smg does not know changes
nothing. A new id at a known URL is another worker, which is let in only after a while.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from kube.clock import Clock

Add = Callable[[str, str, str], None]
Drop = Callable[[str], None]
Lists = Callable[[str], bool]


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    id: str
    url: str
    model_id: str = ""
    worker_type: str = ""
    bootstrap_port: int | None = None
    kv_connector: str | None = None
    kv_role: str | None = None
    kv_engine_id: str | None = None


class _File(msgspec.Struct, forbid_unknown_fields=True):
    version: int
    workers: list[_Entry]


class DiscoveryFile:
    """`applied` counts the contents taken over, `rejected` those that were not.

    The file is looked at every `poll_s`; every `resync_s` what the API has removed comes back;
    a URL whose id changed is out for `outage_s`.
    """

    poll_s: float = 0.2
    resync_s: float = 30.0
    outage_s: float = 10.0

    def __init__(self, path: Path, clock: Clock) -> None:
        self.applied = 0
        self.rejected = 0
        self._path = path
        self._clock = clock
        self._seen: bytes | None = None
        self._entries: dict[str, _Entry] = {}
        self._out_until: dict[str, float] = {}  # by URL

    async def follow(self, add: Add, drop: Drop, lists: Lists) -> None:
        """Until cancelled; `add` gets id, URL and model, `drop` and `lists` an id."""
        resync_at = self._clock.monotonic() + self.resync_s
        while True:
            self._read(add, drop)
            self._let_in(add)
            if self._clock.monotonic() >= resync_at:
                resync_at += self.resync_s
                for entry in self._entries.values():
                    if entry.url not in self._out_until and not lists(entry.id):
                        add(entry.id, entry.url, entry.model_id)
            await self._clock.sleep(self.poll_s)

    def _read(self, add: Add, drop: Drop) -> None:
        content = _content(self._path)
        if content == self._seen:
            return
        self._seen = content
        wanted = _parse(content)
        if wanted is None:
            self.rejected += 1
            return
        self.applied += 1
        before, self._entries = self._entries, wanted
        urls = {entry.url for entry in before.values()}
        for id in before:
            if id not in wanted:
                drop(id)
        for id, entry in wanted.items():
            if id in before:
                continue
            if entry.url in urls:
                self._out_until[entry.url] = self._clock.monotonic() + self.outage_s
            else:
                add(id, entry.url, entry.model_id)

    def _let_in(self, add: Add) -> None:
        now = self._clock.monotonic()
        due = {url for url, until in self._out_until.items() if until <= now}
        for entry in self._entries.values():
            if entry.url in due:
                add(entry.id, entry.url, entry.model_id)
        for url in due:
            del self._out_until[url]


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _parse(content: bytes | None) -> dict[str, _Entry] | None:
    """By id; None: smg would keep what it has."""
    if not content:
        return None
    try:
        file: Any = msgspec.json.decode(content, type=_File)
    except msgspec.DecodeError:
        return None
    return {entry.id: entry for entry in file.workers} if file.version == 1 else None
