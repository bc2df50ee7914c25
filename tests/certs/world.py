"""Webhook configurations, replicas and API servers, as the certificate tests need them."""

from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from random import Random
from typing import Any

from cryptography import x509

from certs.bundles import SUFFIX
from certs.issue import KeyPair, issue_ca, issue_leaf, server_names
from certs.rotation import Keeper
from certs.settings import CertSettings
from certs.validity import certificates, chain_problem, date_problem, signer_of, to_pem
from tests.certs.memory import MUTATING, SECRET, VALIDATING, MemoryApi, MemoryClient
from tests.certs.tls import blind_context, handshake
from tests.clock import FakeClock
from webhook.tls import ServingContext

NAMES = server_names("podstamp-webhook", "podstamp-system", "cluster.local")
SETTINGS = CertSettings()
SETTLE_S = SETTINGS.settle_seconds
DAY = timedelta(days=1)
_BLIND = blind_context()


def encode(data: Mapping[str, bytes]) -> dict[str, str]:
    return {key: b64encode(value).decode() for key, value in data.items()}


def entry(name: str, bundle: bytes | str | None = None, **client: Any) -> dict[str, Any]:
    """A webhook entry; `bundle` as PEM, or as text as it stands in the field."""
    config: dict[str, Any] = client or {
        "service": {"name": "podstamp-webhook", "namespace": "podstamp-system"}
    }
    if bundle is not None:
        text = bundle if isinstance(bundle, str) else b64encode(bundle).decode()
        config = config | {"caBundle": text}
    return {"name": name, "clientConfig": config}


def install(api: MemoryApi) -> None:
    """Our two configurations as the manifests have them: no caBundle at all."""
    api.put(MUTATING, {"webhooks": [entry(f"{n}.mutate{SUFFIX}") for n in ("create", "update")]})
    api.put(VALIDATING, {"webhooks": [entry(f"create.validate{SUFFIX}")]})


def store(api: MemoryApi, data: Mapping[str, bytes], **annotations: str) -> None:
    """The Secret, as another writer leaves it."""
    api.put(SECRET, {"metadata": {"annotations": annotations}, "data": encode(data)})


def bundles(api: MemoryApi) -> dict[str, list[x509.Certificate]]:
    """What each entry of ours trusts."""
    return {
        webhook["name"]: certificates(b64decode(webhook["clientConfig"].get("caBundle", "")))
        for path in (MUTATING, VALIDATING)
        for webhook in api.objects[path]["webhooks"]
        if webhook["name"].endswith(SUFFIX)
    }


def wipe(api: MemoryApi, text: str = "") -> None:
    """Reset every caBundle of ours, as an apply of a bad manifest does."""
    for path in (MUTATING, VALIDATING):
        webhooks = [
            webhook | {"clientConfig": webhook["clientConfig"] | {"caBundle": text}}
            for webhook in api.objects[path]["webhooks"]
        ]
        api.put(path, api.objects[path] | {"webhooks": webhooks})


@dataclass(frozen=True)
class Authority:
    """A CA with its key, and what it issued."""

    ca: KeyPair

    @classmethod
    def make(cls, now: datetime, life: timedelta = 1825 * DAY) -> "Authority":
        return cls(issue_ca(now, life))

    @property
    def certificate(self) -> x509.Certificate:
        return certificates(self.ca.cert_pem)[0]

    def leaf(
        self, now: datetime, life: timedelta = 90 * DAY, names: Iterable[str] = NAMES
    ) -> KeyPair:
        signer = signer_of(self.ca)
        return issue_leaf(signer.certificate, signer.key, names, now, life)

    def secret(self, leaf: KeyPair) -> dict[str, bytes]:
        return {
            "ca.crt": self.ca.cert_pem,
            "ca.key": self.ca.key_pem,
            "tls.crt": leaf.cert_pem,
            "tls.key": leaf.key_pem,
        }


@dataclass(frozen=True)
class SkewedClock:
    """The time of `clock`, but the wall is off."""

    clock: FakeClock
    off: timedelta

    def now(self) -> datetime:
        return self.clock.now() + self.off

    def monotonic(self) -> float:
        return self.clock.monotonic()

    async def sleep(self, seconds: float) -> None:
        await self.clock.sleep(seconds)


@dataclass
class Fleet:
    """Replicas by name, over one API and one clock."""

    api: MemoryApi
    clock: FakeClock
    settings: CertSettings = SETTINGS
    keepers: dict[str, Keeper] = field(default_factory=dict)
    contexts: dict[str, ServingContext] = field(default_factory=dict)
    _shown: dict[str, tuple[str | None, x509.Certificate]] = field(default_factory=dict)

    def start(self, name: str, off: timedelta = timedelta()) -> Keeper:
        """A new process of that name, which knows nothing, and whose wall clock is `off`."""
        clock = SkewedClock(self.clock, off)
        self.contexts[name] = ServingContext(clock=clock)
        self.keepers[name] = Keeper(
            MemoryClient(self.api, name),
            self.contexts[name],
            namespace="podstamp-system",
            settings=self.settings,
            identity=name,
            clock=clock,
            random=Random(1),
        )
        return self.keepers[name]

    def kill(self, name: str) -> None:
        """It is gone, and its confirmation stays."""
        del self.keepers[name], self.contexts[name]

    def shown(self, name: str) -> x509.Certificate | None:
        """What new connections to that replica get; None: it is not ready, so nobody comes."""
        served = self.contexts[name]
        if served.ready() is not None:
            return None
        if name not in self._shown or self._shown[name][0] != served.fingerprint:
            shown = handshake(served.context, _BLIND, NAMES[0])
            self._shown[name] = (served.fingerprint, shown)
        return self._shown[name][1]

    def untrusted(self, trusts: Mapping[str, list[x509.Certificate]]) -> list[str]:
        """Which replica's certificate a client with those bundles refuses, and at which entry."""
        problems = []
        for name in self.contexts:
            certificate = self.shown(name)
            if certificate is None:
                continue
            for webhook, cas in trusts.items():
                if not _trusts(cas, certificate, self.clock.now()):
                    problems.append(f"{name} at {webhook}, which trusts {len(cas)} CAs")
        return problems

    async def settle(self, seconds: float = 0.0, step_s: float = 10.0) -> None:
        """Let time pass in small steps, everyone looking at each, until nobody has more to do."""
        end = self.clock.monotonic() + seconds
        while True:
            waits = [await keeper.look() for keeper in list(self.keepers.values())]
            if any(wait == 0 for wait in waits):
                continue
            if self.clock.monotonic() >= end:
                return
            self.clock.set_forward(step_s)  # keepers only look, so nobody sleeps


@lru_cache(maxsize=1024)
def _vouches(ca: x509.Certificate, leaf: x509.Certificate) -> bool:
    """Whether `ca` vouches for `leaf` while both are within their dates."""
    both = max(ca.not_valid_before_utc, leaf.not_valid_before_utc)
    return chain_problem([leaf], ca, NAMES[0], both) is None


def _trusts(cas: Iterable[x509.Certificate], leaf: x509.Certificate, now: datetime) -> bool:
    return any(_vouches(ca, leaf) and date_problem(ca, now) is None for ca in cas)


def pem(*cas: x509.Certificate) -> bytes:
    return to_pem(cas)


class LaggingServers:
    """API servers that see a configuration up to `lag_s` late: every version of that time counts.

    After each write, and whenever asked, each replica's certificate has to hold under all of them
    since somebody serves.
    """

    def __init__(self, fleet: Fleet, lag_s: float) -> None:
        self._fleet = fleet
        self._lag_s = lag_s
        self._seen: list[tuple[float, dict[str, list[x509.Certificate]]]] = []
        self.note("")
        fleet.api.written = self.note

    def note(self, path: str) -> None:
        # What a test wiped fails without our doing; nobody else leaves a bundle empty.
        trusts = {entry: cas for entry, cas in bundles(self._fleet.api).items() if cas}
        self._seen.append((self._fleet.clock.monotonic(), trusts))
        self.check(path)

    def check(self, when: str = "") -> None:
        begin = self._fleet.clock.monotonic() - self._lag_s
        # The version that held at the beginning, and all that came since.
        first = max((i for i, (at, _) in enumerate(self._seen) if at <= begin), default=0)
        if all(self._fleet.shown(name) is None for name in self._fleet.contexts):
            # Every review fails by now, so whoever comes next cuts nobody off.
            first = len(self._seen) - 1
        self._seen = self._seen[first:]
        for _, trusts in self._seen:
            assert self._fleet.untrusted(trusts) == [], when


@contextmanager
def served_without_a_break(fleet: Fleet, lag_s: float = SETTLE_S - 1) -> Iterator[LaggingServers]:
    servers = LaggingServers(fleet, lag_s)
    yield servers
    servers.check("in the end")
    fleet.api.written = lambda path: None
