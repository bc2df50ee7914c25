"""The objects of one kind that are known to exist, keyed by UID.

Invariant: at most one object holds a (namespace, name); a UID that lost its name to a successor
never comes back, whatever events still arrive of it. Single-threaded: one asyncio loop.
"""

import asyncio
import math
from collections.abc import Callable, Collection, Hashable, Iterable
from typing import Generic, NamedTuple, TypeVar

from kube.clock import Clock, SystemClock
from kube.meta import KubeObject

T = TypeVar("T", bound=KubeObject)

# Late events of a superseded object arrive within seconds; this many cover any such burst.
_SUPERSEDED_KEPT = 4096


class Change(NamedTuple, Generic[T]):
    """Added: `old` is None. Deleted: `new` is None. A recreated name: deletion, then addition."""

    old: T | None
    new: T | None


class _Index(Generic[T]):
    """Objects by one derived key, each bucket keyed by UID."""

    __slots__ = ("buckets", "key")

    def __init__(self, key: Callable[[T], Hashable | None]) -> None:
        self.key = key
        self.buckets: dict[Hashable, dict[str, T]] = {}

    def add(self, uid: str, item: T) -> None:
        key = self.key(item)
        if key is not None:
            self.buckets.setdefault(key, {})[uid] = item

    def remove(self, uid: str, item: T) -> None:
        key = self.key(item)
        bucket = self.buckets.get(key)
        if bucket is not None:
            bucket.pop(uid, None)
            if not bucket:
                del self.buckets[key]


class Store(Generic[T]):
    """Written by one reflector (`replace`, `put`, `remove`, `touch`), read by everyone."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._objects: dict[str, T] = {}
        self._uids: dict[tuple[str, str], str] = {}
        self._indexes: dict[str, _Index[T]] = {}
        self._subscribers: list[Callable[[Change[T]], None]] = []
        self._superseded: dict[str, None] = {}
        self._synced = asyncio.Event()
        self._current_at = -math.inf

    def get(self, namespace: str, name: str) -> T | None:
        """The object that holds the name now."""
        uid = self._uids.get((namespace, name))
        return None if uid is None else self._objects[uid]

    def by_uid(self, uid: str) -> T | None:
        """The object with that UID."""
        return self._objects.get(uid)

    def values(self) -> Collection[T]:
        """All objects, a live view: copy it before awaiting in a loop over it."""
        return self._objects.values()

    def __len__(self) -> int:
        return len(self._objects)

    def add_index(self, name: str, key: Callable[[T], Hashable | None]) -> None:
        """Index all objects, present and future, by `key`; None leaves an object out."""
        index = _Index(key)
        for uid, item in self._objects.items():
            index.add(uid, item)
        self._indexes[name] = index

    def by_index(self, name: str, key: Hashable) -> Collection[T]:
        """The objects whose key of that index is `key`, a live view. KeyError: no such index."""
        bucket = self._indexes[name].buckets.get(key)
        return () if bucket is None else bucket.values()

    def subscribe(self, callback: Callable[[Change[T]], None]) -> Callable[[], None]:
        """Call `callback` after each change, in order; returns what ends it.

        It must be quick and must not raise: an exception ends the reflector.
        """
        self._subscribers.append(callback)

        def unsubscribe() -> None:
            if callback in self._subscribers:
                self._subscribers.remove(callback)

        return unsubscribe

    @property
    def synced(self) -> bool:
        """Whether a full list has succeeded once."""
        return self._synced.is_set()

    async def wait_synced(self) -> None:
        """Return after the first full list."""
        await self._synced.wait()

    def age_s(self) -> float:
        """Seconds since the store was last known to be current; infinite before the first list."""
        return self._clock.monotonic() - self._current_at

    def touch(self) -> None:
        """The server has just shown that the store is current (list, event or bookmark)."""
        self._current_at = self._clock.monotonic()

    def put(self, item: T) -> None:
        """ADDED or MODIFIED. A known UID and resourceVersion is a replay: nothing changes."""
        meta = item.metadata
        uid = meta.uid
        old = self._objects.get(uid)
        if old is not None:
            if old.metadata.resource_version != meta.resource_version:
                self._set(uid, old, item)
            return
        if uid in self._superseded:
            return
        key = (meta.namespace, meta.name)
        holder = self._uids.get(key)
        if holder is not None:
            # Names are unique on the server, so the holder is gone although its DELETED was lost.
            self._superseded[holder] = None
            if len(self._superseded) > _SUPERSEDED_KEPT:
                del self._superseded[next(iter(self._superseded))]
            self.remove(holder)
        self._uids[key] = uid
        self._set(uid, None, item)

    def remove(self, uid: str) -> None:
        """DELETED. An unknown UID, such as a predecessor's, changes nothing."""
        old = self._objects.pop(uid, None)
        if old is None:
            return
        self._uids.pop((old.metadata.namespace, old.metadata.name), None)
        for index in self._indexes.values():
            index.remove(uid, old)
        self._notify(Change(old, None))

    def replace(self, items: Iterable[T], *, unreadable: Collection[str] = ()) -> None:
        """Become exactly `items`, a full list; each difference is one change, deletions first.

        `unreadable` are UIDs that the list holds but nobody could read: their last version stays.
        """
        fresh = {item.metadata.uid: item for item in items}
        keep = set(unreadable)
        gone = [uid for uid in self._objects if uid not in fresh and uid not in keep]
        for uid in gone:
            self.remove(uid)
        # A list is the truth: what it holds was not superseded.
        self._superseded.clear()
        for item in fresh.values():
            self.put(item)
        self.touch()
        self._synced.set()

    def _set(self, uid: str, old: T | None, new: T) -> None:
        self._objects[uid] = new
        for index in self._indexes.values():
            if old is not None:
                index.remove(uid, old)
            index.add(uid, new)
        self._notify(Change(old, new))

    def _notify(self, change: Change[T]) -> None:
        for callback in tuple(self._subscribers):
            callback(change)
