"""Watches: from stored changes to the lines that one client sees.

Invariant: a watch that selects sees an object enter as ADDED and leave as DELETED, however its
labels change; every line is one whole JSON object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from tests.apiserver.selectors import Predicate
from tests.apiserver.storage import Change, Record, Storage, Subscription

_encode = msgspec.json.encode

View = Callable[[Record], bytes]
"""The JSON of a record as this client asked for it (version, Table)."""

BOOKMARK_EVERY_S = 60.0
BOOKMARK_BEFORE_END_S = 2.0


def line(type_: str, obj: bytes) -> bytes:
    return b'{"type":"' + type_.encode() + b'","object":' + obj + b"}\n"


def error_line(status: dict[str, Any]) -> bytes:
    return line("ERROR", _encode(status))


def bookmark_line(
    api_version: str, kind: str, version: int, *, initial_events_end: bool = False
) -> bytes:
    metadata: dict[str, Any] = {"resourceVersion": str(version), "creationTimestamp": None}
    if initial_events_end:
        metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
    return line(
        "BOOKMARK", _encode({"kind": kind, "apiVersion": api_version, "metadata": metadata})
    )


def event_line(change: Change, selects: Predicate | None, view: View) -> bytes | None:
    """The change as this watch tells it, or None if it is no concern of it."""
    if selects is None:
        return line(change.type, view(change.new))
    now = change.type != "DELETED" and selects(change.new.object)
    before = change.old is not None and selects(change.old.object)
    if now:
        return line("MODIFIED" if before else "ADDED", view(change.new))
    if not before:
        return None
    if change.type == "DELETED" or change.old is None:
        return line("DELETED", view(change.new))
    return line("DELETED", view(_left(change.old, change.new)))


def _left(old: Record, new: Record) -> Record:
    """The last state that was selected, under the version in which it stopped to be."""
    metadata = {**old.object["metadata"], "resourceVersion": str(new.version)}
    obj = {**old.object, "metadata": metadata}
    return Record(old.namespace, old.name, obj, _encode(obj), new.version)


@dataclass(frozen=True, slots=True)
class Watch:
    """One client's watch: its subscription and how it reads what comes."""

    storage: Storage
    resource: str
    namespace: str
    subscription: Subscription
    initial: tuple[Record, ...]
    selects: Predicate | None
    view: View
    api_version: str
    kind: str

    def first_lines(self) -> Iterator[bytes]:
        """What is there already, for a watch that was opened without a version."""
        for record in self.initial:
            if self.selects is None or self.selects(record.object):
                yield line("ADDED", self.view(record))

    def drain(self) -> bytes:
        """The lines of all that is pending."""
        pending = self.subscription.pending
        lines = []
        while pending:
            told = event_line(pending.popleft(), self.selects, self.view)
            if told is not None:
                lines.append(told)
        return b"".join(lines)

    def bookmark(self) -> bytes:
        return bookmark_line(self.api_version, self.kind, self.storage.revision)

    def close(self) -> None:
        self.storage.unsubscribe(self.resource, self.subscription)


def open_watch(
    storage: Storage,
    resource: str,
    namespace: str,
    version: str,
    selects: Predicate | None,
    view: View,
    api_version: str,
    kind: str,
) -> Watch:
    """A watch from `version`; "" and "0" begin with all that is there. Raises TooOld."""
    initial: tuple[Record, ...] = ()
    if version in ("", "0"):
        initial = tuple(storage.list(resource, namespace or None))
        start = storage.revision
    else:
        start = int(version)
    subscription = storage.subscribe(resource, namespace, start)
    return Watch(
        storage, resource, namespace, subscription, initial, selects, view, api_version, kind
    )
