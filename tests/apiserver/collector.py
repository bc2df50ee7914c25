"""What the controller manager does behind the API: empty namespaces, collect dependents.

Both follow the changes of the store and never poll. Only owners that this server saw go take
their dependents along: an owner that never existed condemns nobody.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from typing import NamedTuple

from tests.apiserver.call import Call, DeleteOptions, Target
from tests.apiserver.deletion import FOREGROUND, ORPHAN, Deletion
from tests.apiserver.errors import StatusError
from tests.apiserver.registry import Registry
from tests.apiserver.storage import Change, Object

_log = logging.getLogger(__name__)


NAMESPACE_GRACE_S = 1.0
"""How long a deleted namespace is left alone, so that `kubectl delete -f` still finds what is in
it. The real controller waits for 5 s."""


class Key(NamedTuple):
    storage: str
    namespace: str
    name: str


class _Emptying(NamedTuple):
    namespace: str


class _Gone(NamedTuple):
    uid: str


class _Settling(NamedTuple):
    key: Key


def _owners(obj: Object) -> set[str]:
    return {owner["uid"] for owner in obj["metadata"].get("ownerReferences") or ()}


class Collector:
    def __init__(self, registry: Registry, deletion: Deletion, namespace_grace_s: float) -> None:
        self._registry = registry
        self._deletion = deletion
        self._namespace_grace_s = namespace_grace_s
        self._dependents: dict[str, set[Key]] = defaultdict(set)
        self._waiting: dict[str, Key] = {}  # uid to an owner that waits for its dependents
        self._terminating: set[str] = set()
        self._emptying: set[str] = set()  # terminating ones whose grace is over
        self._work: asyncio.Queue[_Emptying | _Gone | _Settling] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def follow(self, storage: str, change: Change) -> None:
        """Note a change; the work that follows from it is done later, in order."""
        new, gone = change.new, change.type == "DELETED"
        key = Key(storage, new.namespace, new.name)
        before = set() if change.old is None else _owners(change.old.object)
        after = set() if gone else _owners(new.object)
        for uid in after - before:
            self._dependents[uid].add(key)
        for uid in before - after:
            self._dependents[uid].discard(key)
            if not self._dependents[uid]:
                del self._dependents[uid]
            if uid in self._waiting:
                self._work.put_nowait(_Settling(self._waiting[uid]))
        metadata = new.object["metadata"]
        if gone:
            self._waiting.pop(metadata["uid"], None)
            if metadata["uid"] in self._dependents:
                self._work.put_nowait(_Gone(metadata["uid"]))
        elif "deletionTimestamp" in metadata and {FOREGROUND, ORPHAN} & set(
            metadata.get("finalizers") or ()
        ):
            self._waiting[metadata["uid"]] = key
            self._work.put_nowait(_Settling(key))
        self._follow_namespaces(key, gone, "deletionTimestamp" in metadata)

    def _follow_namespaces(self, key: Key, gone: bool, terminating: bool) -> None:
        if key.storage != "namespaces":
            if gone and key.namespace in self._emptying:
                self._work.put_nowait(_Emptying(key.namespace))
        elif gone:
            self._terminating.discard(key.name)
            self._emptying.discard(key.name)
        elif terminating and key.name not in self._terminating:
            self._terminating.add(key.name)
            asyncio.get_running_loop().call_later(
                self._namespace_grace_s, self._work.put_nowait, _Emptying(key.name)
            )

    async def _run(self) -> None:
        while True:
            match await self._work.get():
                case _Emptying(namespace):
                    await self._empty(namespace)
                case _Gone(uid):
                    await self._collect(uid)
                case _Settling(key):
                    await self._settle(key)

    async def _empty(self, namespace: str) -> None:
        """Delete what is in a terminating namespace; the namespace goes when nothing is left."""
        if namespace not in self._terminating:
            return
        self._emptying.add(namespace)
        storage = self._registry.storage
        left = False
        for table in storage.resources():
            resource = self._registry.kinds.by_storage(table)
            if resource is None or not resource.namespaced:
                continue
            for record in storage.list(table, namespace):
                if "deletionTimestamp" not in record.object["metadata"]:
                    await self._delete(Key(table, namespace, record.name))
                left = left or storage.get(table, namespace, record.name) is not None
        if not left and storage.get("namespaces", "", namespace) is not None:
            storage.remove("namespaces", "", namespace)

    async def _collect(self, uid: str) -> None:
        """Delete the dependents of an owner that is gone, if no other owner of theirs is left."""
        for key in sorted(self._dependents.get(uid, ())):
            record = self._registry.storage.get(*key)
            if record is None or "deletionTimestamp" in record.object["metadata"]:
                continue
            if not self._exists(_owners(record.object) - {uid}):
                await self._delete(key)

    def _exists(self, uids: set[str]) -> bool:
        storage = self._registry.storage
        return bool(uids) and any(
            record.object["metadata"]["uid"] in uids
            for table in storage.resources()
            for record in storage.each(table)
        )

    async def _settle(self, key: Key) -> None:
        """Foreground: dependents first, then the owner. Orphan: dependents forget the owner."""
        storage = self._registry.storage
        record = storage.get(*key)
        if record is None:
            return
        uid = record.object["metadata"]["uid"]
        finalizers: list[str] = record.object["metadata"].get("finalizers") or []
        dependents = sorted(self._dependents.get(uid, ()))
        if FOREGROUND in finalizers:
            for dependent in dependents:
                await self._delete(dependent)
            if self._dependents.get(uid):
                return
        else:
            for dependent in dependents:
                await self._disown(dependent, uid)
        await self._edit(
            key, "finalizers", [f for f in finalizers if f not in (FOREGROUND, ORPHAN)]
        )

    async def _disown(self, key: Key, uid: str) -> None:
        record = self._registry.storage.get(*key)
        if record is not None:
            owners = record.object["metadata"].get("ownerReferences") or []
            kept = [owner for owner in owners if owner["uid"] != uid]
            await self._edit(key, "ownerReferences", kept)

    async def _edit(self, key: Key, field: str, value: list[Object] | list[str]) -> None:
        resource = self._registry.kinds.by_storage(key.storage)
        if resource is None:
            return

        def apply(obj: Object) -> Object:
            return {**obj, "metadata": {**obj["metadata"], field: value}}

        try:
            target = Target(resource, key.namespace, key.name)
            await self._registry.patch(Call(), target, apply)
        except StatusError as error:
            _log.info("%s %s/%s: %s", key.storage, key.namespace, key.name, error)

    async def _delete(self, key: Key) -> None:
        resource = self._registry.kinds.by_storage(key.storage)
        if resource is None:
            return
        try:
            target = Target(resource, key.namespace, key.name)
            await self._deletion.delete(Call(), target, DeleteOptions())
        except StatusError as error:
            if error.code != 404:
                _log.info("%s %s/%s: %s", key.storage, key.namespace, key.name, error)
