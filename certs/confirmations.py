"""Which replica serves which certificate: a ConfigMap with one key for each live replica.

A replica writes its own key alone, at once when its certificate changes and then as a heartbeat. A
clean stop takes the key away; a key that has not moved for long is taken away by whoever notices,
by his own monotonic clock. Invariant: a replica counts as live for all until its key is gone, so
that no two readers disagree for longer than one write.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from certs.steps import Replica
from kube import paths
from kube.client import ApiClient
from kube.clock import Clock
from kube.errors import AlreadyExists, KubeError, NotFound
from kube.logs import get_logger

log = get_logger(__name__)

_NOT_IN_KEY = re.compile(r"[^-._a-zA-Z0-9]")
_LABELS = {"app.kubernetes.io/name": "podstamp", "app.kubernetes.io/part-of": "podstamp"}


@dataclass(frozen=True, slots=True)
class Served:
    """Fingerprint of a served leaf, of the CA that issued it (empty: unknown), and its end."""

    leaf: str
    ca: str
    not_after: datetime


class _Entry(msgspec.Struct, frozen=True, rename="camel"):
    """What one key holds, as JSON."""

    leaf: str
    not_after: datetime
    seen: datetime
    ca: str = ""


_FOR_EVER = datetime.max.replace(tzinfo=UTC)
_UNREADABLE = _Entry("", _FOR_EVER, datetime.min.replace(tzinfo=UTC))


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""


class _ConfigMap(msgspec.Struct, frozen=True, rename="camel"):
    metadata: _Metadata = _Metadata()
    data: dict[str, str] | None = None


class Records(msgspec.Struct, frozen=True):
    """The ConfigMap at one version."""

    version: str = ""
    texts: dict[str, str] = {}

    @property
    def replicas(self) -> tuple[Replica, ...]:
        """In order of names. One whose key cannot be read serves nobody knows what."""
        return tuple(
            Replica(name, entry.leaf, entry.ca, entry.not_after)
            for name, entry in sorted(self._entries().items())
        )

    @property
    def seen(self) -> dict[str, datetime]:
        """When each replica last wrote, by its own clock."""
        return {name: entry.seen for name, entry in self._entries().items()}

    def _entries(self) -> dict[str, _Entry]:
        return {name: _read_entry(text) for name, text in self.texts.items()}


def replica_key(identity: str) -> str:
    """The key of a replica in the ConfigMap."""
    return _NOT_IN_KEY.sub("-", identity)[:253]


class Confirmations:
    """Reads and writes that ConfigMap."""

    def __init__(self, client: ApiClient, namespace: str, name: str) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name
        self._path = paths.configmap(namespace, name)

    async def read(self) -> Records:
        """All keys; empty if there is no ConfigMap."""
        try:
            return _records(await self._client.get(self._path, type=_ConfigMap))
        except NotFound:
            return Records()

    async def confirm(self, identity: str, served: Served, now: datetime) -> Records:
        """Say that replica `identity` serves that certificate, and return what all say."""
        entry = _Entry(served.leaf, served.not_after, now, served.ca)
        data = {replica_key(identity): msgspec.json.encode(entry).decode()}
        with contextlib.suppress(NotFound):
            return await self._patch({"data": data})
        metadata = {"name": self._name, "namespace": self._namespace, "labels": _LABELS}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
        path = paths.configmaps(self._namespace)
        with contextlib.suppress(AlreadyExists):  # another replica was the first
            return _records(await self._client.create(path, body, type=_ConfigMap))
        return await self._patch({"data": data})

    async def remove(self, names: Iterable[str], version: str | None = None) -> Records:
        """Take keys away. With `version`, only if nobody wrote since (else Conflict)."""
        body: dict[str, Any] = {"data": {replica_key(name): None for name in names}}
        if version is not None:
            body["metadata"] = {"resourceVersion": version}
        return await self._patch(body)

    async def _patch(self, body: dict[str, Any]) -> Records:
        return _records(await self._client.patch(self._path, body, type=_ConfigMap))


class Roll:
    """What is known of the replicas over time, by the local monotonic clock.

    A key that has not moved for `lost_s` seconds is lost. One that is gone still counts for
    `linger_s`: a ConfigMap that somebody wiped is not a fleet that went away.
    """

    def __init__(self, *, lost_s: float, linger_s: float) -> None:
        self._lost_s = lost_s
        self._linger_s = linger_s
        self._moved: dict[str, tuple[str, float]] = {}
        self._present: dict[str, tuple[Replica, float]] = {}

    def observe(self, records: Records, now: float) -> None:
        """Take in `records`, read at `now`."""
        before, self._moved = self._moved, {}
        for name, text in records.texts.items():
            known = before.get(name)
            self._moved[name] = known if known is not None and known[0] == text else (text, now)
        for replica in records.replicas:
            self._present[replica.name] = (replica, now)
        gone = [n for n, (_, at) in self._present.items() if now - at > self._linger_s]
        for name in gone:
            del self._present[name]

    def forget(self, names: Iterable[str]) -> None:
        """These are known to be gone, not just wiped."""
        for name in names:
            self._present.pop(name, None)

    def replicas(self) -> tuple[Replica, ...]:
        """Everyone who may still be serving."""
        return tuple(replica for _, (replica, _) in sorted(self._present.items()))

    def lost(self, now: float) -> list[str]:
        """Those whose keys have not moved for too long."""
        return [name for name, (_, at) in self._moved.items() if now - at >= self._lost_s]


class Confirmer:
    """Confirms what a replica serves whose certificates somebody else keeps (mode `files`)."""

    def __init__(
        self,
        confirmations: Confirmations,
        served: Callable[[], Served | None],
        *,
        identity: str,
        clock: Clock,
        period_s: float = 30.0,
        look_s: float = 1.0,
    ) -> None:
        self._confirmations = confirmations
        self._served = served
        self._identity = identity
        self._clock = clock
        self._period_s = period_s
        self._look_s = look_s

    async def run(self) -> None:
        """Confirm each change within `look_s` and beat every `period_s`, until cancelled.

        Best effort: an error is told once and tried again a period later.
        """
        told: Served | None = None
        error: str | None = None
        due = self._clock.monotonic()
        while True:
            served = self._served()
            if served is not None and (served != told or self._clock.monotonic() >= due):
                told = served
                due = self._clock.monotonic() + self._period_s
                try:
                    await self._confirmations.confirm(self._identity, served, self._clock.now())
                    error = None
                except KubeError as failed:
                    if str(failed) != error:
                        error = str(failed)
                        log.warning("cannot confirm what is served", error=error)
            await self._clock.sleep(self._look_s)

    async def stop(self) -> None:
        """Take this replica's confirmation away, if that is possible now."""
        await take_away(self._confirmations, self._identity)


async def take_away(confirmations: Confirmations, identity: str) -> None:
    """Remove the key of a replica that stops cleanly; if that fails, it is lost after a while."""
    try:
        await confirmations.remove([identity])
    except NotFound:
        return
    except KubeError as error:
        log.warning("cannot take the confirmation away", replica=identity, error=str(error))


def _records(stored: _ConfigMap) -> Records:
    return Records(stored.metadata.resource_version, stored.data or {})


def _read_entry(text: str) -> _Entry:
    try:
        return msgspec.json.decode(text, type=_Entry)
    except msgspec.MsgspecError:
        return _UNREADABLE
