"""A document that a router reads by itself: a file, or one key of a ConfigMap.

Invariant: a reader never sees half of it, and other keys of the ConfigMap are left alone.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from typing import Protocol

import msgspec

from controller.routers.config import ConfigMapKey
from controller.routers.transport import RouterError
from kube import paths
from kube.client import ApiClient
from kube.errors import NotFound
from kube.events import ObjectReference


class Document(Protocol):
    """Read and replaced as a whole."""

    @property
    def label(self) -> str:
        """How status and logs call it."""

    @property
    def regarding(self) -> ObjectReference | None:
        """The object that holds it, if one does."""

    async def read(self) -> bytes | None:
        """Its content; None: it does not exist. KubeError: it cannot be read."""

    async def write(self, content: bytes) -> None:
        """Replace it. KubeError: it could not be, or it changed since it was read."""


class FileDocument:
    """A file, replaced by renaming: the router's reader gets the old one or the new one."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self.label = path
        self.regarding: ObjectReference | None = None

    async def read(self) -> bytes | None:
        try:
            return self._path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise RouterError(f"{self._path}: cannot be read ({error.strerror})") from error

    async def write(self, content: bytes) -> None:
        try:
            _replace(self._path, content)
        except OSError as error:
            raise RouterError(f"{self._path}: cannot be written ({error.strerror})") from error


def _replace(path: Path, content: bytes) -> None:
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    draft = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes it private; the router may run as another user.
        draft.chmod(0o644)
        draft.replace(path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            draft.unlink()
        raise


class _Metadata(msgspec.Struct, rename="camel"):
    uid: str = ""
    resource_version: str = ""


class _ConfigMap(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    data: dict[str, str] | None = None


class ConfigMapDocument:
    """One key of a ConfigMap, written with the resourceVersion under which it was read."""

    def __init__(self, client: ApiClient, key: ConfigMapKey) -> None:
        self._client = client
        self._key = key
        self._path = paths.configmap(key.namespace, key.name)
        self._found: _ConfigMap | None = None
        self.label = f"{key.namespace}/{key.name}:{key.key}"

    @property
    def regarding(self) -> ObjectReference | None:
        uid = self._found.metadata.uid if self._found else ""
        return ObjectReference("v1", "ConfigMap", self._key.namespace, self._key.name, uid)

    async def read(self) -> bytes | None:
        try:
            self._found = await self._client.get(self._path, type=_ConfigMap)
        except NotFound:
            self._found = None
            return None
        text = (self._found.data or {}).get(self._key.key)
        return None if text is None else text.encode()

    async def write(self, content: bytes) -> None:
        text = content.decode()
        if self._found is None:
            metadata = {
                "name": self._key.name,
                "namespace": self._key.namespace,
                "labels": {"app.kubernetes.io/part-of": "podstamp"},
            }
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
            self._found = await self._client.create(
                paths.configmaps(self._key.namespace),
                {**body, "data": {self._key.key: text}},
                type=_ConfigMap,
            )
            return
        patch = {
            "metadata": {
                "uid": self._found.metadata.uid,
                "resourceVersion": self._found.metadata.resource_version,
            },
            "data": {self._key.key: text},
        }
        self._found = await self._client.patch(self._path, patch, type=_ConfigMap)


def document_of(client: ApiClient, file: str, config_map: ConfigMapKey | None) -> Document:
    """The one of the two that is configured."""
    return ConfigMapDocument(client, config_map) if config_map is not None else FileDocument(file)
