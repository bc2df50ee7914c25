"""What must outlive the controller about one router: ConfigMap `podstamp-router-<name>`.

Invariant: every write carries the resourceVersion that it was computed from; a conflict is
resolved by computing anew, so two controllers can never overwrite each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import msgspec

from kube import paths
from kube.client import ApiClient
from kube.errors import Conflict, NotFound
from kube.events import ObjectReference

_ATTEMPTS = 5


class _Metadata(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    uid: str = ""


class _ConfigMap(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    data: dict[str, str] | None = None


class Record:
    """The data of one ConfigMap; calls of several lanes are done one after another."""

    def __init__(self, client: ApiClient, namespace: str, router: str) -> None:
        self._client = client
        self._namespace = namespace
        self._name = f"podstamp-router-{router}"
        self._lock = asyncio.Lock()
        self._version = ""
        self._uid = ""
        self._data: dict[str, str] = {}

    @property
    def reference(self) -> ObjectReference:
        """For events about a router that is no object itself."""
        return ObjectReference("v1", "ConfigMap", self._namespace, self._name, self._uid)

    def get(self, key: str) -> str:
        """The value as last read or written; empty if there is none."""
        return self._data.get(key, "")

    async def load(self) -> None:
        """Read it; an absent one is empty. KubeError: it could not be read."""
        async with self._lock:
            await self._read()

    async def update(self, change: Callable[[Mapping[str, str]], dict[str, str]]) -> None:
        """Store `change(data)`; a change that changes nothing costs no call.

        `change` may be called again with newer data. Conflict: it never fitted; KubeError.
        """
        async with self._lock:
            for attempt in range(_ATTEMPTS):
                wanted = change(self._data)
                if wanted == self._data:
                    return
                try:
                    await self._write(wanted)
                except (Conflict, NotFound):
                    if attempt == _ATTEMPTS - 1:
                        raise
                    await self._read()
                else:
                    return

    async def _read(self) -> None:
        try:
            found = await self._client.get(
                paths.configmap(self._namespace, self._name), type=_ConfigMap
            )
        except NotFound:
            found = _ConfigMap()
        self._take(found)

    async def _write(self, data: dict[str, str]) -> None:
        metadata: dict[str, object] = {
            "name": self._name,
            "namespace": self._namespace,
            "labels": {"app.kubernetes.io/part-of": "podstamp"},
        }
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
        if self._version:
            metadata["resourceVersion"] = self._version
            stored = await self._client.replace(
                paths.configmap(self._namespace, self._name), body, type=_ConfigMap
            )
        else:
            stored = await self._client.create(
                paths.configmaps(self._namespace), body, type=_ConfigMap
            )
        self._take(stored)

    def _take(self, found: _ConfigMap) -> None:
        self._version = found.metadata.resource_version
        self._uid = found.metadata.uid
        self._data = found.data or {}
