"""The Keeper: each webhook replica keeps the certificates and serves what comes of it.

One task: it wakes when the Secret or a configuration changes or when something is due, does a pass
(`certs.upkeep`), takes the stored pair into service and confirms it.
Invariant: a pair that works is only replaced by one whose CA every caBundle of ours has trusted for
the settle time.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import Protocol

import msgspec

from certs.confirmations import Served, replica_key, take_away
from certs.metrics import CertMetrics
from certs.settings import CONFIGURATION, CertSettings
from certs.steps import overdue
from certs.upkeep import LOOK_S, Outcome, Upkeep
from certs.validity import Leaf, fingerprint
from kube import paths
from kube.client import ApiClient
from kube.clock import Clock
from kube.errors import Forbidden, KubeError
from kube.events import EventRecorder
from kube.logs import get_logger
from kube.meta import Identity
from kube.reflector import Reflector
from kube.store import Change, Store

log = get_logger(__name__)

_BACKOFF_S = 0.25
_BACKOFF_LONGEST_S = 5.0
_SHORTEST_S = 0.02
_REFUSED_S = 2.0


class Serving(Protocol):
    """The TLS side, `webhook.tls.ServingContext`."""

    @property
    def fingerprint(self) -> str | None: ...
    def offer(self, cert_pem: bytes, key_pem: bytes) -> str | None: ...
    def ready(self) -> str | None: ...


class _Watched(msgspec.Struct, frozen=True):
    """All that a change of a watched object has to tell."""

    metadata: Identity = Identity()


class Keeper:
    """Runs in every webhook replica that manages its own certificates."""

    def __init__(
        self,
        client: ApiClient,
        serving: Serving,
        *,
        namespace: str,
        settings: CertSettings,
        identity: str,
        clock: Clock,
        random: Random,
        recorder: EventRecorder | None = None,
        metrics: CertMetrics | None = None,
    ) -> None:
        self._upkeep = Upkeep(
            client,
            namespace=namespace,
            settings=settings,
            clock=clock,
            random=random,
            recorder=recorder,
            metrics=metrics,
        )
        self._client = client
        self._serving = serving
        self._namespace = namespace
        self._settings = settings
        self._identity = replica_key(identity)
        self._clock = clock
        self._random = random
        self._metrics = metrics
        self._wake = asyncio.Event()
        self._held: Leaf | None = None
        self._confirmed: Served | None = None
        self._confirm_due = 0.0
        self._unconfirmed: str | None = None
        self._problem: str | None = None
        self._late: str | None = None

    async def run(self) -> None:
        """Keep the certificates until cancelled."""
        async with asyncio.TaskGroup() as group:
            for reflector in self._reflectors():
                group.create_task(reflector.run())
            group.create_task(self._keep())

    async def stop(self) -> None:
        """Say that this replica serves no more. After the drain, and after `run` was cancelled."""
        await take_away(self._upkeep.confirmations, self._identity)

    def ready(self) -> str | None:
        """None while a certificate that is valid now is served; otherwise what is wrong."""
        unready = self._serving.ready()
        return f"{unready}; {self._problem}" if unready and self._problem else unready

    def notice(self) -> str | None:
        """What people should know although all works: a renewal that is overdue, and why."""
        if self._late and self._problem:
            return f"{self._late}; {self._problem}"
        return self._late or self._problem

    async def look(self) -> float:
        """One pass, with serving and confirming; returns seconds until the next one is due."""
        outcome = await self._upkeep.advance(self._held)
        refused, serve_s = self._serve(outcome)
        confirm_s = await self._confirm(outcome)
        self._late = overdue(outcome.stored, self._clock.now())
        self._problem = refused or outcome.problem or self._unconfirmed
        return min(outcome.wait_s, serve_s, confirm_s)

    async def _keep(self) -> None:
        failures = 0
        while True:
            self._wake.clear()
            try:
                wait_s = await self.look()
                failures = 0
            except KubeError as error:
                if str(error) != self._problem:
                    log.error("cannot keep the certificates", error=str(error))
                if self._metrics is not None:
                    self._metrics.failed()
                self._problem = str(error)
                wait_s = min(_BACKOFF_S * 2.0 ** min(failures, 16), _BACKOFF_LONGEST_S)
                wait_s *= 0.5 + self._random.random()
                failures += 1
                await self._clock.sleep(wait_s)  # no change makes a failing server answer sooner
                continue
            await self._wait(wait_s)

    async def _wait(self, seconds: float) -> None:
        """Until something changes, at most that long."""
        woken = asyncio.create_task(self._wake.wait())
        slept = asyncio.create_task(self._clock.sleep(max(seconds, _SHORTEST_S)))
        try:
            await asyncio.wait({woken, slept}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (woken, slept):
                task.cancel()

    def _serve(self, outcome: Outcome) -> tuple[str | None, float]:
        """Take the stored pair into service if that is safe.

        Returns why it cannot be served, if so, and the seconds until it is time to try.
        """
        leaf = outcome.stored.leaf
        if leaf is None:
            return None, LOOK_S
        if fingerprint(leaf.certificate) != self._serving.fingerprint:
            settled_s = outcome.observed.trusted_for_s.get(fingerprint(leaf.issuer), float("-inf"))
            unsettled_s = self._settings.settle_seconds - settled_s
            if self._held is not None and self._serving.ready() is None and unsettled_s > 0:
                return None, min(unsettled_s, LOOK_S)
            refused = self._serving.offer(leaf.cert_pem, leaf.key_pem)
            if refused is not None:
                return f"the stored certificate cannot be served: {refused}", LOOK_S
        self._held = leaf
        return None, LOOK_S

    async def _confirm(self, outcome: Outcome) -> float:
        """Confirm what is served if that is due; seconds until it is due again."""
        if self._held is None:
            return LOOK_S
        leaf = self._held
        served = Served(
            fingerprint(leaf.certificate),
            fingerprint(leaf.issuer),
            leaf.certificate.not_valid_after_utc,
        )
        now = self._clock.monotonic()
        told = outcome.records is None or any(
            r.leaf == served.leaf and r.name == self._identity for r in outcome.records.replicas
        )
        if now < self._confirm_due and (self._unconfirmed or (served == self._confirmed and told)):
            return self._confirm_due - now
        period_s = self._settings.confirm_seconds * self._random.uniform(0.8, 1)
        self._confirm_due = now + period_s
        try:
            await self._upkeep.confirmations.confirm(self._identity, served, self._clock.now())
        except Forbidden as error:
            # Maybe for ever; but an API server that has just started refuses for a second or two.
            self._unconfirmed = f"cannot confirm what is served: {error}"
            self._confirm_due = now + min(period_s, _REFUSED_S)
            return self._confirm_due - now
        self._confirmed, self._unconfirmed = served, None
        return period_s

    def _reflectors(self) -> list[Reflector[_Watched]]:
        watched = (
            (paths.secrets(self._namespace), self._settings.secret),
            (paths.mutating_webhooks(), CONFIGURATION),
            (paths.validating_webhooks(), CONFIGURATION),
        )
        reflectors = []
        for path, name in watched:
            store: Store[_Watched] = Store(self._clock)
            store.subscribe(self._changed)
            reflector = Reflector(
                self._client,
                path,
                _Watched,
                store,
                field_selector=f"metadata.name={name}",
                clock=self._clock,
                random=self._random,
            )
            reflectors.append(reflector)
        return reflectors

    def _changed(self, _change: Change[_Watched]) -> None:
        self._wake.set()
