"""The Secret that holds CA and serving pair: the one place where all replicas agree.

Invariant: it is created once, whoever comes first, and every later write carries the
resourceVersion that its decision was read from; a Conflict means read and decide again.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from certs.issue import check_name
from certs.steps import Asked
from certs.validity import CERT_KEY, PRIVATE_KEY
from kube import paths
from kube.client import ApiClient
from kube.errors import ConfigError, NotFound
from kube.events import ObjectReference

ROTATE = "podstamp.dev/rotate"
"""Annotation: `leaf` or `ca`, a rotation that somebody asked for; taken away when it is done."""

EXTRA_SANS = "podstamp.dev/extra-sans"
"""Annotation: comma-separated names that the serving certificate bears beside the Service's."""

_CERT_MANAGER = "cert-manager.io/certificate-name"
_LABELS = {"app.kubernetes.io/name": "podstamp", "app.kubernetes.io/part-of": "podstamp"}


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class Secret(msgspec.Struct, frozen=True, rename="camel"):
    """The stored Secret as far as it is read."""

    metadata: _Metadata = _Metadata()
    data: dict[str, bytes] | None = None
    immutable: bool = False

    @property
    def asked(self) -> Asked | None:
        """The rotation that somebody asked for; an unknown word is none."""
        match (self.metadata.annotations or {}).get(ROTATE):
            case "leaf":
                return "leaf"
            case "ca":
                return "ca"
            case _:
                return None

    @property
    def extra_sans(self) -> tuple[str, ...]:
        """Further names, without those that no certificate could bear."""
        return tuple(filter(_is_name, _words((self.metadata.annotations or {}).get(EXTRA_SANS))))

    @property
    def certificate(self) -> str | None:
        """The cert-manager Certificate that writes this Secret, if one does."""
        return (self.metadata.annotations or {}).get(_CERT_MANAGER)

    @property
    def reference(self) -> ObjectReference:
        """For events about it."""
        meta = self.metadata
        return ObjectReference("v1", "Secret", meta.namespace, meta.name, meta.uid)


class SecretStore:
    """Reads and writes that Secret."""

    def __init__(self, client: ApiClient, namespace: str, name: str) -> None:
        self._client = client
        self.namespace = namespace
        self.name = name

    async def read(self) -> Secret | None:
        """The Secret as stored now, or None."""
        try:
            return await self._client.get(paths.secret(self.namespace, self.name), type=Secret)
        except NotFound:
            return None

    async def write(
        self,
        before: Secret | None,
        data: Mapping[str, bytes],
        *,
        done: Sequence[Asked] = (),
        extra_sans: Sequence[str] = (),
    ) -> Secret:
        """Store `data` over `before`, as it was read; keys that are not in `data` stay.

        `done`: the requests to rotate that this write fulfils. `extra_sans` are noted beside those
        that are there, for processes that were not told of them. Conflict: somebody was faster. An
        immutable Secret is deleted, as it was read, and made anew.
        """
        annotations: dict[str, str | None] = {}
        if before is not None and before.asked in done:
            annotations[ROTATE] = None
        known = before.extra_sans if before is not None else ()
        if not set(extra_sans) <= set(known):
            annotations[EXTRA_SANS] = ",".join(dict.fromkeys((*known, *extra_sans)))
        encoded = {key: b64encode(value).decode() for key, value in data.items()}
        path = paths.secret(self.namespace, self.name)
        if before is not None and not before.immutable:
            version = before.metadata.resource_version
            metadata = {"resourceVersion": version, "annotations": annotations}
            return await self._client.patch(
                path, {"metadata": metadata, "data": encoded}, type=Secret
            )
        if before is not None:
            meta = before.metadata
            await self._client.delete(path, uid=meta.uid, resource_version=meta.resource_version)
        body: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": self.name,
                "namespace": self.namespace,
                "labels": _LABELS,
                "annotations": {k: v for k, v in annotations.items() if v is not None},
            },
            "type": "kubernetes.io/tls",
            # This type must have both keys, be they empty.
            "data": {CERT_KEY: "", PRIVATE_KEY: ""} | encoded,
        }
        return await self._client.create(paths.secrets(self.namespace), body, type=Secret)

    async def ask(self, what: Asked) -> Secret:
        """Ask for a rotation; whoever keeps the certificates carries it out."""
        body = {"metadata": {"annotations": {ROTATE: what}}}
        return await self._client.patch(paths.secret(self.namespace, self.name), body, type=Secret)


def _words(text: str | None) -> list[str]:
    return [word.strip() for word in (text or "").split(",") if word.strip()]


def _is_name(text: str) -> bool:
    try:
        check_name(text)
    except ConfigError:
        return False
    return True
