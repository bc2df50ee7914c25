"""The versioned store: objects by resource, one growing resourceVersion, and a history to watch.

Invariant: a stored object is never changed in place; every write makes a new Record under the
next version and hands one Change to every subscriber of its resource, in order. All calls come
from the server's loop thread.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

Object = dict[str, Any]
_encode = msgspec.json.Encoder().encode

HISTORY = 20_000
"""Changes kept for each resource; a watch from before them is told 410."""


@dataclass(frozen=True, slots=True)
class Record:
    """One version of one object, with its JSON."""

    namespace: str
    name: str
    object: Object
    raw: bytes
    version: int


@dataclass(frozen=True, slots=True)
class Change:
    """One write: `new` is the state after it, or, for DELETED, the last state."""

    type: Literal["ADDED", "MODIFIED", "DELETED"]
    new: Record
    old: Record | None


Records = list[Record]


class Subscription:
    """Changes of one resource that wait for one watcher."""

    def __init__(self) -> None:
        self.pending: deque[Change] = deque()
        self.wake = asyncio.Event()
        self.closed = False

    def push(self, change: Change) -> None:
        self.pending.append(change)
        self.wake.set()

    def close(self) -> None:
        """The watcher is to end after what is pending."""
        self.closed = True
        self.wake.set()


@dataclass(slots=True)
class _Table:
    namespaces: dict[str, dict[str, Record]] = field(default_factory=dict)
    history: deque[Change] = field(default_factory=deque)
    dropped: int = 0  # version of the newest change that left the history
    revision: int = 0
    subscriptions: dict[Subscription, str] = field(default_factory=dict)


class TooOld(Exception):
    """The version asked for is compacted; str() is the oldest one that could be served."""


class Storage:
    """Tables by storage key, such as `pods` or `deployments.apps`."""

    def __init__(self, history: int = HISTORY) -> None:
        self._kept = history
        self.revision = 1
        self.compacted = 0
        self.listeners: list[Callable[[str, Change], None]] = []
        self.lose: Callable[[str, Change], bool] | None = None  # fault: watchers never hear of it
        self._tables: dict[str, _Table] = {}

    def _table(self, resource: str) -> _Table:
        table = self._tables.get(resource)
        if table is None:
            table = self._tables[resource] = _Table()
        return table

    def resources(self) -> tuple[str, ...]:
        return tuple(self._tables)

    def resource_revision(self, resource: str) -> int:
        """Version of the last write to the resource; 0 when there was none."""
        return self._table(resource).revision

    def get(self, resource: str, namespace: str, name: str) -> Record | None:
        records = self._table(resource).namespaces.get(namespace)
        return None if records is None else records.get(name)

    def list(self, resource: str, namespace: str | None = None) -> Records:
        """In key order, as etcd lists; None is every namespace."""
        namespaces = self._table(resource).namespaces
        if namespace is not None:
            records = namespaces.get(namespace, {})
            return [records[name] for name in sorted(records)]
        return [
            namespaces[space][name]
            for space in sorted(namespaces)
            for name in sorted(namespaces[space])
        ]

    def list_at(self, resource: str, namespace: str | None, version: int) -> Records:
        """The list as it was at `version`, undone from the history (which has to reach back)."""
        state = {(r.namespace, r.name): r for r in self.list(resource, namespace)}
        for change in reversed(self._table(resource).history):
            if change.new.version <= version:
                break
            key = (change.new.namespace, change.new.name)
            if namespace is not None and namespace != key[0]:
                continue
            if change.old is None:
                del state[key]
            else:
                state[key] = change.old
        return [state[key] for key in sorted(state)]

    def each(self, resource: str, namespace: str | None = None) -> Iterator[Record]:
        """Unordered, without a copy: not to be held over a write."""
        namespaces = self._table(resource).namespaces
        if namespace is not None:
            yield from namespaces.get(namespace, {}).values()
        else:
            for records in namespaces.values():
                yield from records.values()

    def put(self, resource: str, namespace: str, name: str, obj: Object) -> Record:
        """Store a new state; the caller has made sure that nothing came between."""
        table = self._table(resource)
        record = self._record(namespace, name, obj)
        records = table.namespaces.setdefault(namespace, {})
        old = records.get(name)
        records[name] = record
        self._publish(resource, table, Change("MODIFIED" if old else "ADDED", record, old))
        return record

    def remove(self, resource: str, namespace: str, name: str) -> Record:
        """Remove; watchers get the last stored state under the version of the removal."""
        table = self._table(resource)
        old = table.namespaces[namespace].pop(name)
        if not table.namespaces[namespace]:
            del table.namespaces[namespace]
        record = self._record(namespace, name, old.object)
        self._publish(resource, table, Change("DELETED", record, old))
        return record

    def preview(self, namespace: str, name: str, obj: Object) -> Record:
        """A Record of a dry run: encoded, but not stored."""
        return Record(namespace, name, obj, _encode(obj), self.revision)

    def _record(self, namespace: str, name: str, obj: Object) -> Record:
        self.revision += 1
        version = self.revision
        stored = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(version)}}
        return Record(namespace, name, stored, _encode(stored), version)

    def _publish(self, resource: str, table: _Table, change: Change) -> None:
        table.revision = change.new.version
        for listener in self.listeners:
            listener(resource, change)
        if self.lose is not None and self.lose(resource, change):
            return
        table.history.append(change)
        if len(table.history) > self._kept:
            table.dropped = table.history.popleft().new.version
        for subscription, namespace in table.subscriptions.items():
            if not namespace or namespace == change.new.namespace:
                subscription.push(change)

    def subscribe(self, resource: str, namespace: str, version: int) -> Subscription:
        """Changes after `version`, then every later one; "" is every namespace.

        Raises TooOld when changes since then are forgotten.
        """
        table = self._table(resource)
        oldest = max(self.compacted, table.dropped)
        if version < oldest:
            raise TooOld(str(oldest))
        subscription = Subscription()
        missed: list[Change] = []
        for change in reversed(table.history):
            if change.new.version <= version:
                break
            if not namespace or namespace == change.new.namespace:
                missed.append(change)
        for change in reversed(missed):
            subscription.push(change)
        table.subscriptions[subscription] = namespace
        return subscription

    def unsubscribe(self, resource: str, subscription: Subscription) -> None:
        self._table(resource).subscriptions.pop(subscription, None)

    def close_subscriptions(self, resource: str | None = None) -> None:
        """End the watches of a resource, or of all."""
        for key, table in self._tables.items():
            if resource is None or key == resource:
                for subscription in list(table.subscriptions):
                    subscription.close()

    def compact(self) -> int:
        """Forget all history, as etcd does: older versions cannot be watched or continued."""
        self.compacted = self.revision
        for table in self._tables.values():
            table.history.clear()
        return self.compacted
