"""Keeps the `caBundle`s of our entries right, and knows for how long they have been.

Invariant: what another writer resets is put right in a moment, but ever more slowly if he does it
again and again, and then an event says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from cryptography import x509

from certs.bundles import BundleStore, Configuration, Pace, repair, trusted
from certs.metrics import CertMetrics
from certs.validity import fingerprint
from kube.clock import Clock
from kube.errors import ApiError, Conflict, Invalid
from kube.events import EventRecorder
from kube.logs import get_logger

log = get_logger(__name__)

_RETRY_S = 0.05
_RETRY_LONGEST_S = 30.0


@dataclass(frozen=True, slots=True)
class Published:
    """How putting the bundles right went.

    `changed`: look again at once. `wait_s`: seconds until the next try is due, if one is.
    `problem`: what went wrong, in one line, if something did.
    """

    changed: bool = False
    wait_s: float | None = None
    problem: str | None = None


@dataclass(slots=True)
class _State:
    """What is remembered of one configuration."""

    written: frozenset[str] = frozenset()
    pace: Pace = field(default_factory=Pace)
    refused: int = 0
    due: float = 0.0
    contested: bool = False
    problem: str | None = None


class Publisher:
    """One for each process that keeps certificates."""

    def __init__(
        self,
        store: BundleStore,
        *,
        clock: Clock,
        random: Random,
        recorder: EventRecorder | None = None,
        metrics: CertMetrics | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._random = random
        self._recorder = recorder
        self._metrics = metrics
        self._states: dict[str, _State] = {}
        self._generations: dict[str, str] = {}
        self._since: dict[str, float] = {}

    async def read(self) -> tuple[Configuration, ...]:
        """Our configurations, as they are now."""
        return await self._store.read()

    def trusted_for_s(
        self, configurations: Sequence[Configuration], cas: Sequence[x509.Certificate]
    ) -> dict[str, float]:
        """For each CA that every entry of ours holds: for how many seconds without a break.

        If there is no entry, nobody calls us and nobody can be cut off: all of `cas`, for ever.
        """
        now = self._clock.monotonic()
        generations = {c.kind: f"{c.uid}/{c.generation}" for c in configurations}
        if generations != self._generations:
            self._generations = generations
            self._since = {}  # API servers learn of the new generation from now on
        held = trusted(configurations)
        if held is None:
            return {fingerprint(ca): float("inf") for ca in cas}
        self._since = {ca: self._since.get(ca, now) for ca in held}
        return {ca: now - since for ca, since in self._since.items()}

    async def publish(
        self, configurations: Sequence[Configuration], cas: Sequence[x509.Certificate]
    ) -> Published:
        """Make every entry of ours hold just `cas`, unless cert-manager fills its configuration."""
        results = [await self._publish(c, cas) for c in configurations if c.injector is None]
        waits = [r.wait_s for r in results if r.wait_s is not None]
        return Published(
            changed=any(r.changed for r in results),
            wait_s=min(waits, default=None),
            problem=next((r.problem for r in results if r.problem), None),
        )

    async def _publish(
        self, configuration: Configuration, cas: Sequence[x509.Certificate]
    ) -> Published:
        state = self._states.setdefault(configuration.kind, _State())
        now = self._clock.monotonic()
        patch = repair(configuration, cas)
        if not patch:
            state.refused = 0
            state.problem = None
            self._mark(configuration, state, now)
            return Published()
        wanted = frozenset(map(fingerprint, cas))
        reset = wanted == state.written  # it was right before, so somebody else undid it
        pause_s = max(state.due - now, state.pace.wait_s(now) if reset else 0.0)
        if pause_s > 0:
            return Published(wait_s=pause_s, problem=state.problem)
        try:
            await self._store.patch(configuration, patch)
        except (Conflict, Invalid):
            return self._retry(state, now, None)  # it is another by now: read and decide again
        except ApiError as error:
            problem = f"cannot write the caBundle of {configuration.kind}: {error}"
            if problem != state.problem:
                log.error("cannot write a caBundle", kind=configuration.kind, error=str(error))
            return self._retry(state, now, problem)
        state.refused, state.problem, state.written = 0, None, wanted
        if reset:
            state.pace.record(now)
        log.info("caBundle written", kind=configuration.kind, reset=reset, cas=len(cas))
        if self._metrics is not None:
            self._metrics.repaired(configuration.kind)
        self._mark(configuration, state, now)
        return Published(changed=True)

    def _retry(self, state: _State, now: float, problem: str | None) -> Published:
        pause_s = min(_RETRY_S * 2.0 ** min(state.refused, 16), _RETRY_LONGEST_S)
        pause_s *= 0.5 + self._random.random()
        state.refused += 1
        state.problem = problem
        state.due = now + pause_s
        return Published(wait_s=pause_s, problem=problem)

    def _mark(self, configuration: Configuration, state: _State, now: float) -> None:
        """Say when a fight begins and when it is over."""
        contested = state.pace.contested(now)
        if contested == state.contested:
            return
        state.contested = contested
        if self._metrics is not None:
            self._metrics.contested(configuration.kind, contested)
        if not contested:
            log.info("caBundle is left alone again", kind=configuration.kind)
            return
        note = (
            "another writer keeps resetting the caBundle; it is put right more and more slowly. "
            "Leave the field caBundle out of what that writer applies."
        )
        log.error("caBundle contested", kind=configuration.kind, name=configuration.name, note=note)
        if self._recorder is not None:
            self._recorder.record(
                configuration.reference, reason="CABundleContested", note=note, type="Warning"
            )
