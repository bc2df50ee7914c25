"""One pass over the certificates: read everything, put bundles right, take the next step.

Any number of processes may do this side by side, and each may die at any await: every write is
guarded by the version it was decided from, and every pass begins from what is stored.
Invariant: the configurations are read before the Secret (see `certs.bundles`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from certs.bundles import BundleStore, Configuration, Pace, published
from certs.confirmations import Confirmations, Records, Roll
from certs.metrics import CertMetrics
from certs.publish import Publisher
from certs.secret import Secret, SecretStore
from certs.settings import CONFIGURATION, REPLICAS, CertSettings
from certs.steps import Keep, Observed, Step, next_step, overdue
from certs.validity import Leaf, Stored, fingerprint, inspect
from certs.writes import Write, Writing, carry_out, still_needed
from kube.client import ApiClient
from kube.clock import Clock
from kube.errors import Conflict, Forbidden, NotFound
from kube.events import EventRecorder
from kube.logs import get_logger

log = get_logger(__name__)

LOOK_S = 60.0
"""The longest wait between two passes when nothing changes, in seconds."""

_OVERDUE_EVENT_S = 6 * 3600.0
_EVENTS = {
    "Reissue": "CertificatesIssued",
    "RenewLeaf": "CertificateRenewed",
    "PublishNewCA": "CAAdded",
    "ServeNewLeaf": "CertificateRenewed",
    "DropOldCA": "OldCADropped",
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a pass saw, and the step that it took or refrained from.

    `wait_s`: seconds until the next pass is due; 0: something changed, look again. `problem`: what
    could not be done, in one line. `replicas`: as in `Observed`, where `observed` has the rest.
    """

    secret: Secret | None
    configurations: tuple[Configuration, ...]
    records: Records | None
    names: tuple[str, ...]
    observed: Observed
    step: Step
    wait_s: float
    problem: str | None = None

    @property
    def stored(self) -> Stored:
        return self.observed.stored


class Upkeep:
    """Does passes, and remembers between them what only the course of time can tell."""

    def __init__(
        self,
        client: ApiClient,
        *,
        namespace: str,
        settings: CertSettings,
        clock: Clock,
        random: Random,
        recorder: EventRecorder | None = None,
        metrics: CertMetrics | None = None,
    ) -> None:
        self.confirmations = Confirmations(client, namespace, REPLICAS)
        self.store = SecretStore(client, namespace, settings.secret)
        self._publisher = Publisher(
            BundleStore(client, CONFIGURATION),
            clock=clock,
            random=random,
            recorder=recorder,
            metrics=metrics,
        )
        self._settings = settings
        self._namespace = namespace
        self._clock = clock
        self._recorder = recorder
        self._metrics = metrics
        self._roll = Roll(lost_s=settings.lost_seconds, linger_s=settings.settle_seconds)
        self._leaf_since: tuple[str | None, float] = (None, 0.0)
        self._mending = Pace()
        self._overdue_told: float | None = None
        self._unreadable: str | None = None

    async def observe(self, held: Leaf | None = None) -> Outcome:
        """Read everything and change nothing. KubeError: something could not be read."""
        configurations = await self._publisher.read()
        secret = await self.store.read()
        records = await self._read_records()
        now = self._clock.now()
        extra = secret.extra_sans if secret else ()
        names = tuple(dict.fromkeys((*self._settings.names(self._namespace), *extra)))
        stored = inspect((secret.data if secret else None) or {}, names, now)
        if held is not None and held.certificate.not_valid_after_utc <= now:
            held = None
        observed = Observed(
            stored=stored,
            trusted_for_s=self._publisher.trusted_for_s(configurations, stored.cas),
            leaf_for_s=self._leaf_for_s(stored),
            replicas=None if records is None else self._roll.replicas(),
            held=held,
            asked=secret.asked if secret else None,
            now=now,
        )
        step = Keep("only observed", LOOK_S)
        return Outcome(secret, configurations, records, names, observed, step, LOOK_S)

    async def advance(self, held: Leaf | None = None) -> Outcome:
        """One pass; `held` is the pair that this process serves, if it serves one.

        KubeError: something could not be read, or the Secret not be written.
        """
        seen = await self.observe(held)
        secret, observed = seen.secret, seen.observed
        if secret is not None and secret.certificate is not None:
            theirs = f"cert-manager writes it, Certificate {secret.certificate}"
            return replace(seen, step=Keep(theirs, LOOK_S))
        self._report(secret, observed)

        await self._drop_lost(seen.records)
        stored, held = observed.stored, observed.held
        cas = still_needed(
            stored, published(seen.configurations), held, observed.replicas, observed.now
        )
        result = await self._publisher.publish(seen.configurations, cas)
        wait_s = LOOK_S if result.wait_s is None else result.wait_s
        if result.changed:
            step: Step = Keep("caBundles were just written", 0.0)
        else:
            settle_s = self._settings.settle_seconds
            step = next_step(observed, settle_s=settle_s, look_s=LOOK_S)
        if isinstance(step, Keep):
            wait_s = min(wait_s, step.again_s)
        else:
            write = carry_out(
                step,
                stored,
                keep=cas,
                held=held,
                names=seen.names,
                settings=self._settings,
                now=observed.now,
            )
            wait_s = min(wait_s, await self._write(step, write, secret, stored))
        return replace(seen, step=step, wait_s=wait_s, problem=result.problem)

    async def _drop_lost(self, records: Records | None) -> None:
        """Take away the keys of replicas that are lost, unless somebody wrote meanwhile."""
        lost = self._roll.lost(self._clock.monotonic())
        if records is None or not lost:
            return
        try:
            await self.confirmations.remove(lost, records.version)
        except (Conflict, NotFound):
            return
        self._roll.forget(lost)
        log.info("replicas lost", replicas=",".join(lost))

    async def _read_records(self) -> Records | None:
        """What replicas confirm; None if this process may not read it."""
        try:
            records = await self.confirmations.read()
        except Forbidden as error:
            if str(error) != self._unreadable:
                self._unreadable = str(error)
                log.error("cannot read what replicas confirm", error=self._unreadable)
            return None
        self._roll.observe(records, self._clock.monotonic())
        return records

    def _leaf_for_s(self, stored: Stored) -> float:
        now = self._clock.monotonic()
        leaf = fingerprint(stored.leaf.certificate) if stored.leaf else None
        if leaf != self._leaf_since[0]:
            self._leaf_since = (leaf, now)
        return now - self._leaf_since[1]

    async def _write(
        self, step: Writing, write: Write, secret: Secret | None, stored: Stored
    ) -> float:
        """Store what the step writes; returns the seconds until the next pass is due."""
        now = self._clock.monotonic()
        mends = stored.signer is None or stored.leaf is None
        if mends and (pause_s := self._mending.wait_s(now)) > 0:
            return pause_s  # somebody keeps breaking what is stored, or has another time
        try:
            after = await self.store.write(
                secret, write.data, done=write.done, extra_sans=self._settings.extra_sans
            )
        except Conflict:
            return 0.0  # somebody was faster: look at what is stored now
        except NotFound:
            if secret is None:  # not the Secret is missing, but the namespace
                raise
            return 0.0
        if mends:
            self._mending.record(now)
        name = type(step).__name__
        log.info("certificate step", step=name, reason=step.reason)
        if self._metrics is not None:
            self._metrics.stepped(name)
        if self._recorder is not None:
            self._recorder.record(after.reference, reason=_EVENTS[name], note=step.reason)
        return 0.0

    def _report(self, secret: Secret | None, observed: Observed) -> None:
        """Metrics, and an event while a renewal is overdue."""
        stored = observed.stored
        late = overdue(stored, observed.now)
        if self._metrics is not None:
            self._metrics.stored(
                serving=stored.leaf.certificate.not_valid_after_utc if stored.leaf else None,
                ca=stored.signer.certificate.not_valid_after_utc if stored.signer else None,
            )
            self._metrics.overdue(late is not None)
        if late is None or secret is None:
            self._overdue_told = None
            return
        now = self._clock.monotonic()
        if self._overdue_told is None or now - self._overdue_told >= _OVERDUE_EVENT_S:
            self._overdue_told = now
            log.error("certificate renewal is overdue", what=late)
            if self._recorder is not None:
                self._recorder.record(
                    secret.reference, reason="CertificateRenewalOverdue", note=late, type="Warning"
                )
