"""The retired-pod reaper: a periodic pass over pods whose record says that they are over.

Look up the records of all that could go, let the observation clock see the result, and delete what
it has seen for the hold time. A pass that fails or is cut off says nothing, and clears the clock.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from controller.deleting import FORBIDDEN_PAUSE_S, Deleter, Gate, Outcome
from controller.guards import read_guards
from controller.observation import ObservationClock
from controller.records import Miss, PodKey, Record, RecordSource, RecordsUnavailable, match
from controller.reports import identity
from controller.trust import Guards, Ledger, doubt_retirement, doubt_stamps
from controller.verdict import Keep, Reap, Verdict, Why, judge_retired, may_be_retired
from kube.clock import within
from kube.errors import Forbidden, KubeError
from kube.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from controller.metrics import ReaperMetrics
    from controller.reports import Reports
    from controller.watchdog import Watchdog
    from kube.client import ApiClient
    from kube.clock import Clock
    from kube.namespace import Namespace
    from kube.pod import Pod
    from kube.store import Store

log = get_logger("controller.retired")

LOOP = "retired"
_HOPELESS = {Outcome.NOT_LEADER, Outcome.STALE, Outcome.FORBIDDEN, Outcome.OVER_BUDGET}
"""What would meet the next pod of the pass just the same."""
PARALLEL = 4
"""Deletes under way at a time."""


@dataclass(frozen=True, slots=True)
class RetiredPolicy:
    """What of the configuration the loop reads; seconds."""

    hold_s: float = 300.0
    interval_s: float = 15.0
    pass_s: float = 45.0
    by_name: bool = False


class RetiredReaper:
    """One leader's term with one configuration; run() until cancelled."""

    def __init__(
        self,
        policy: RetiredPolicy,
        *,
        client: ApiClient,
        source: RecordSource,
        pods: Store[Pod],
        namespaces: Store[Namespace],
        ledger: Ledger,
        deleter: Deleter,
        gate: Gate,
        reports: Reports,
        metrics: ReaperMetrics,
        watchdog: Watchdog,
        clock: Clock,
    ) -> None:
        self._policy = policy
        self._client = client
        self._source = source
        self._pods = pods
        self._namespaces = namespaces
        self._ledger = ledger
        self._deleter = deleter
        self._gate = gate
        self._reports = reports
        self._metrics = metrics
        self._watchdog = watchdog
        self._clock = clock
        self._observed = ObservationClock()
        self._pause_s = 0.0
        self._complaint = ""
        self._judged: dict[str, Verdict] = {}
        self._kept: dict[str, Why] = {}

    async def run(self) -> None:
        """A pass, a pause, until cancelled; both stores must be synced."""
        try:
            while True:
                with self._watchdog.working(LOOP):
                    await self.run_pass()
                await self._clock.sleep(max(self._policy.interval_s, self._pause_s))
        finally:
            await self._source.aclose()

    async def run_pass(self) -> str:
        """One pass within its time budget; how it ended: done, stale, failed or cut-off."""
        began = self._clock.monotonic()
        self._pause_s = 0.0
        try:
            result = await within(self._clock, self._policy.pass_s, self._pass())
        except TimeoutError:
            log.warning("pass cut off", loop=LOOP, seconds=self._policy.pass_s)
            result = "cut-off"
        except Forbidden as error:
            if str(error) != self._complaint:
                self._complaint = str(error)
                log.error("role lacks a verb", loop=LOOP, error=self._complaint)
            self._pause_s = FORBIDDEN_PAUSE_S
            result = "failed"
        except KubeError as error:
            log.warning("pass failed", loop=LOOP, error=str(error))
            result = "failed"
        if result != "done":
            self._observed.clear()
            self._judged.clear()
        self._metrics.pass_s.labels(LOOP, result).observe(self._clock.monotonic() - began)
        return result

    def verdict(self, pod: Pod) -> Verdict | None:
        """What the last whole pass said of a pod; None if it said nothing."""
        return self._judged.get(pod.metadata.uid)

    def remaining_s(self, pod: Pod) -> float | None:
        """Seconds until a pod that is over may be reaped; None if it was not seen as over."""
        now = self._clock.monotonic()
        return self._observed.remaining(pod.metadata.uid, now, self._policy.hold_s)

    def candidates(self) -> int:
        """Pods that the last whole pass judged as over."""
        return len(self._observed)

    async def _pass(self) -> str:
        if not self._gate.is_fresh():
            return "stale"
        pods = [pod for pod in self._pods.values() if may_be_retired(pod)]
        guards = await self._read_guards() if pods else Guards(())
        rows = await self._source.look_up(pods) if pods else {}
        over: list[tuple[Pod, Reap]] = []
        judged: dict[str, Verdict] = {}
        for pod in pods:
            namespace = self._namespaces.get("", pod.metadata.namespace)
            verdict = self._judge(pod, namespace, rows, guards)
            judged[pod.metadata.uid] = verdict
            if isinstance(verdict, Reap):
                over.append((pod, verdict))
        self._judged = judged
        self._count_kept(pods)
        now = self._clock.monotonic()
        self._observed.scan({verdict.uid: verdict.shape for _, verdict in over}, now)
        due = [pod for pod, verdict in over if self._is_due(verdict, now)]
        await self._delete(due, guards)
        return "done"

    def _is_due(self, verdict: Reap, now: float) -> bool:
        if self._deleter.dry_run and self._reports.is_named(verdict.uid, verdict.shape):
            return False
        return self._observed.remaining(verdict.uid, now, self._policy.hold_s) == 0

    async def _delete(self, due: Sequence[Pod], guards: Guards) -> None:
        """Attempt each, a few at a time, until the budget ends; the next pass goes on from there.

        RecordsUnavailable if a record could not be read: nothing is known of the others either.
        """
        waiting = iter(due)

        async def decide(pod: Pod, namespace: Namespace | None) -> Verdict:
            rows = await self._source.look_up([pod])
            return self._judge(pod, namespace, rows, guards)

        async def work() -> None:
            for pod in waiting:
                if self._deleter.budget.wait_s(self._clock.monotonic()) > 0:
                    return
                seen = self._observed.since(pod.metadata.uid)
                result = await self._deleter.attempt(pod, decide)
                if result.outcome is Outcome.DELETED and seen is not None:
                    latency_s = self._clock.monotonic() - seen
                    self._metrics.latency_s.labels(LOOP).observe(latency_s)
                if isinstance(result.verdict, Keep):
                    uid = pod.metadata.uid
                    self._judged[uid] = result.verdict
                    self._kept[uid] = result.verdict.why  # The attempt has counted it.
                    self._observed.observe(uid, None, self._clock.monotonic())
                if isinstance(result.error, RecordsUnavailable):
                    raise result.error
                if result.outcome in _HOPELESS:
                    return

        workers = [asyncio.ensure_future(work()) for _ in range(min(PARALLEL, len(due)))]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)

    async def _read_guards(self) -> Guards:
        return await read_guards(self._client) if self._source.claimed else Guards(())

    def _judge(
        self,
        pod: Pod,
        namespace: Namespace | None,
        rows: Mapping[PodKey, Sequence[Record]],
        guards: Guards,
    ) -> Verdict:
        record = match(pod, rows.get(pod.key, ()), by_name=self._policy.by_name)
        doubt = doubt_stamps(pod, namespace, self._ledger)
        if doubt is None and self._source.claimed and not isinstance(record, Miss):
            doubt = doubt_retirement(pod, guards)
        return judge_retired(pod, record=record, doubt=doubt)

    def _count_kept(self, pods: Sequence[Pod]) -> None:
        """Count and tell, once for each pod, what speaks against a record that is there."""
        kept: dict[str, Why] = {}
        for pod in pods:
            uid = pod.metadata.uid
            verdict = self._judged[uid]
            if not isinstance(verdict, Keep) or verdict.why is Why.NOT_RETIRED:
                continue
            kept[uid] = verdict.why
            if self._kept.get(uid) is not verdict.why:
                self._metrics.kept(LOOP, "", verdict, dry_run=self._deleter.dry_run)
                odd = verdict.why in (Why.UNVERIFIED, Why.MISMATCH, Why.AMBIGUOUS)
                tell = log.warning if odd else log.debug
                tell("kept a retired pod", **identity(pod), reason=verdict.reason)
        self._kept = kept
