"""The `caBundle`s of our entries in the webhook configurations.

Entries are found by name, wherever a user moved them to; foreign entries are never touched. A patch
tests the resourceVersion that it was computed from: whoever changed the configuration since, wins.
Invariant: read the configurations before the Secret, so that no bundle is written from a Secret
that is older than the one the configuration was last made from.
"""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from cryptography import x509

from certs.validity import certificates, fingerprint, to_pem
from kube import paths
from kube.client import ApiClient
from kube.errors import NotFound
from kube.events import ObjectReference

SUFFIX = ".podstamp.dev"
_INJECTED = (
    "cert-manager.io/inject-ca-from",
    "cert-manager.io/inject-ca-from-secret",
    "cert-manager.io/inject-apiserver-ca",
)


@dataclass(frozen=True, slots=True)
class Entry:
    """One webhook entry of ours; `bundle` is what its caBundle holds, junk left out."""

    name: str
    index: int
    bundle: tuple[x509.Certificate, ...]
    clean: bool

    def holds_just(self, cas: Iterable[x509.Certificate]) -> bool:
        return self.clean and set(self.bundle) == set(cas)


@dataclass(frozen=True, slots=True)
class Configuration:
    """One webhook configuration, as far as certificates go.

    `version` changes with every write, `generation` only with the webhooks themselves.
    `injector`: the cert-manager annotation by which another writer fills its bundles, if any.
    """

    kind: str
    path: str
    name: str
    uid: str
    version: str
    generation: str
    injector: str | None
    entries: tuple[Entry, ...]

    @property
    def reference(self) -> ObjectReference:
        """For events about it."""
        return ObjectReference(
            "admissionregistration.k8s.io/v1", self.kind, "", self.name, self.uid
        )


def read_configuration(kind: str, path: str, raw: dict[str, Any]) -> Configuration:
    """The part of a configuration, as the API returned it, that matters here."""
    metadata = raw.get("metadata") or {}
    annotations = metadata.get("annotations") or {}
    entries = [
        _entry(index, entry)
        for index, entry in enumerate(raw.get("webhooks") or [])
        if str(entry.get("name", "")).endswith(SUFFIX)
    ]
    version = str(metadata.get("resourceVersion", ""))
    return Configuration(
        kind=kind,
        path=path,
        name=str(metadata.get("name", "")),
        uid=str(metadata.get("uid", "")),
        version=version,
        generation=str(metadata.get("generation") or version),
        injector=next((key for key in _INJECTED if key in annotations), None),
        entries=tuple(entries),
    )


def trusted(configurations: Sequence[Configuration]) -> frozenset[str] | None:
    """Fingerprints of the CAs that every entry of ours holds; None if there is no entry."""
    bundles = [e.bundle for c in configurations for e in c.entries]
    if not bundles:
        return None
    return frozenset.intersection(*(frozenset(map(fingerprint, b)) for b in bundles))


def published(configurations: Sequence[Configuration]) -> tuple[x509.Certificate, ...]:
    """Every certificate that any entry of ours holds, each once."""
    return tuple(dict.fromkeys(ca for c in configurations for e in c.entries for ca in e.bundle))


def repair(configuration: Configuration, cas: Sequence[x509.Certificate]) -> list[dict[str, Any]]:
    """JSON Patch that makes each entry of ours hold just `cas`; empty if nothing is wrong."""
    wrong = [entry for entry in configuration.entries if not entry.holds_just(cas)]
    if not wrong or not cas:
        return []
    bundle = b64encode(to_pem(cas)).decode()
    # At this version the entries also stand where they were read.
    patch: list[dict[str, Any]] = [
        {"op": "test", "path": "/metadata/resourceVersion", "value": configuration.version}
    ]
    for entry in wrong:
        path = f"/webhooks/{entry.index}/clientConfig/caBundle"
        patch.append({"op": "add", "path": path, "value": bundle})
    return patch


class Pace:
    """How soon one thing may be put right again, so that two writers do not fight for ever.

    The first few times are free; then the waits double up to a bound, and are forgotten after a
    quiet while. Times are monotonic seconds.
    """

    def __init__(self, *, free: int = 5, longest_s: float = 300.0, quiet_s: float = 600.0) -> None:
        self._free = free
        self._longest_s = longest_s
        self._quiet_s = quiet_s
        self._last: deque[float] = deque(maxlen=free + 16)

    def record(self, now: float) -> None:
        """It was put right at `now`."""
        self._forget(now)
        self._last.append(now)

    def wait_s(self, now: float) -> float:
        """Seconds until it may be put right again; 0: now."""
        self._forget(now)
        over = len(self._last) - self._free
        if over < 0:
            return 0.0
        return max(0.0, self._last[-1] + min(2.0 ** (over + 1), self._longest_s) - now)

    def contested(self, now: float) -> bool:
        """Whether somebody keeps undoing it."""
        self._forget(now)
        return len(self._last) >= self._free

    def _forget(self, now: float) -> None:
        if self._last and now - self._last[-1] > self._quiet_s:
            self._last.clear()


class BundleStore:
    """Reads and patches our two configurations; one that is not installed is left out."""

    def __init__(self, client: ApiClient, name: str) -> None:
        self._client = client
        self._paths = (
            ("MutatingWebhookConfiguration", paths.mutating_webhook(name)),
            ("ValidatingWebhookConfiguration", paths.validating_webhook(name)),
        )

    async def read(self) -> tuple[Configuration, ...]:
        found = []
        for kind, path in self._paths:
            try:
                raw: dict[str, Any] = await self._client.get(path)
            except NotFound:
                continue
            found.append(read_configuration(kind, path, raw))
        return tuple(found)

    async def patch(self, configuration: Configuration, patch: list[dict[str, Any]]) -> None:
        """Apply it. Conflict, Invalid: the configuration is another by now, read again."""
        await self._client.patch(
            configuration.path, patch, content_type="application/json-patch+json"
        )


def _entry(index: int, raw: dict[str, Any]) -> Entry:
    text = (raw.get("clientConfig") or {}).get("caBundle") or ""
    try:
        pem = b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        pem = b""
    bundle = tuple(certificates(pem))
    # Junk beside good certificates is wrong too: what a reader makes of it is up to that reader.
    return Entry(str(raw["name"]), index, bundle, clean=pem.split() == to_pem(bundle).split())
