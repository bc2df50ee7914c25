"""The terminal reaper: frees the names of set pods that are Failed or Succeeded, as they become so.

Event-driven: the store's changes put UIDs on a queue, a few workers judge and delete. One instance
serves one leader's term; what it knows of time dies with it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from controller.backoff import BackoffPolicy, Slot, SlotBackoff
from controller.deleting import Deleter, Gate, Outcome, Result
from controller.node import NodeReader
from controller.observation import ObservationClock
from controller.reports import identity
from controller.trust import Ledger, doubt_stamps
from controller.verdict import Keep, NodeStanding, OwnerKind, Shape, Verdict, Why
from controller.verdict import judge_terminal as judge
from controller.workqueue import WorkQueue
from kube.logs import get_logger
from kube.pod import controller_of, is_terminal
from webhook import stamps

if TYPE_CHECKING:
    from random import Random

    from controller.metrics import ReaperMetrics
    from controller.reports import Reports
    from controller.watchdog import Watchdog
    from kube.client import ApiClient
    from kube.clock import Clock
    from kube.namespace import Namespace
    from kube.pod import Pod
    from kube.store import Change, Store

log = get_logger("controller.terminal")

LOOP = "terminal"
WORKERS = 8
RETRY_S = 1.0
RECHECK_S = 30.0
"""After a fresh read that disagreed with the store: the store's own change comes earlier."""
MAX_FAILURE_DELAY_S = 30.0


@dataclass(frozen=True, slots=True)
class TerminalPolicy:
    """What of the configuration the loop reads; seconds."""

    owner_kinds: frozenset[OwnerKind]
    hold_s: float = 0.0
    node_check_s: float = 10.0
    backoff: BackoffPolicy = field(default_factory=BackoffPolicy)


class TerminalReaper:
    """One leader's term with one configuration; run() until cancelled."""

    def __init__(
        self,
        policy: TerminalPolicy,
        *,
        client: ApiClient,
        pods: Store[Pod],
        namespaces: Store[Namespace],
        ledger: Ledger,
        deleter: Deleter,
        gate: Gate,
        backoff: SlotBackoff,
        reports: Reports,
        metrics: ReaperMetrics,
        watchdog: Watchdog,
        clock: Clock,
        random: Random,
    ) -> None:
        self._policy = policy
        self._nodes = NodeReader(client, clock)
        self._pods = pods
        self._namespaces = namespaces
        self._ledger = ledger
        self._deleter = deleter
        self._gate = gate
        self._backoff = backoff
        self._reports = reports
        self._metrics = metrics
        self._watchdog = watchdog
        self._clock = clock
        self._random = random
        self._observed = ObservationClock()
        self._queue: WorkQueue[str] = WorkQueue(clock)
        self._ended: dict[str, float] = {}
        self._deleted: dict[str, float] = {}
        self._kept: dict[str, Why] = {}
        self._failures: dict[str, int] = {}
        self._held: set[str] = set()

    async def run(self) -> None:
        """Reap until cancelled; both stores must be synced. An unexpected error ends it."""
        unsubscribe = (
            self._pods.subscribe(self._pod_changed),
            self._namespaces.subscribe(self._namespace_changed),
        )
        try:
            for pod in self._pods.values():
                self._sight(pod)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._queue.run())
                for number in range(WORKERS):
                    tasks.create_task(self._work(f"{LOOP}-{number}"))
        finally:
            for end in unsubscribe:
                end()

    def verdict(self, pod: Pod) -> Verdict:
        """What the store says of a pod, without asking for its Node."""
        return self._judge(pod, self._namespaces.get("", pod.metadata.namespace))

    def remaining_s(self, pod: Pod) -> float | None:
        """Seconds until a pod that is over may be reaped; None if it was not seen as over."""
        uid = pod.metadata.uid
        now = self._clock.monotonic()
        hold_s = self._observed.remaining(uid, now, self._policy.hold_s)
        if hold_s is None:
            return None
        due = self._backoff.due(_slot(pod), self._ended.get(uid, now), self._policy.backoff)
        return max(hold_s, due - now)

    def candidates(self) -> int:
        """Pods that were judged as over and are still there."""
        return len(self._observed)

    def _pod_changed(self, change: Change[Pod]) -> None:
        if change.new is not None:
            self._sight(change.new)
        elif change.old is not None:
            self._forget(change.old)

    def _namespace_changed(self, change: Change[Namespace]) -> None:
        changed = change.new or change.old
        for uid in list(self._ended):
            pod = self._pods.by_uid(uid)
            if pod and changed and pod.metadata.namespace == changed.metadata.name:
                self._queue.add(uid)

    def _sight(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        if is_terminal(pod):
            self._ended.setdefault(uid, self._clock.monotonic())
            self._queue.add(uid)
        elif uid in self._ended:
            # No server lets a pod come back to life, but a claim that it did keeps it.
            del self._ended[uid]
            self._observed.observe(uid, None, self._clock.monotonic())

    def _forget(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        now = self._clock.monotonic()
        self._ended.pop(uid, None)
        self._kept.pop(uid, None)
        self._failures.pop(uid, None)
        self._held.discard(uid)
        self._observed.observe(uid, None, now)
        ended = self._deleted.pop(uid, None)
        if ended is not None:
            self._metrics.latency_s.labels(LOOP).observe(now - ended)

    async def _work(self, name: str) -> None:
        while True:
            uid = await self._queue.get()
            try:
                with self._watchdog.working(name):
                    delay_s = await self._process(uid)
            finally:
                self._queue.done(uid)
            if delay_s is not None:
                self._queue.add_after(uid, delay_s)

    async def _process(self, uid: str) -> float | None:
        """Judge one pod, delete it if it is due; seconds until it is to be looked at again."""
        pod = self._pods.by_uid(uid)
        if pod is None or uid in self._deleted:
            return None
        if not self._gate.is_fresh():
            self._observed.clear()
            return RETRY_S
        verdict = await self._decide(pod, self._namespaces.get("", pod.metadata.namespace))
        if isinstance(verdict, Keep):
            return self._keep(pod, verdict)
        now = self._clock.monotonic()
        self._observed.observe(uid, verdict.shape, now)
        wait_s = self.remaining_s(pod)
        if wait_s is None or wait_s > 0:
            self._tell_backoff(pod, now)
            return wait_s
        if self._deleter.dry_run and self._reports.is_named(uid, verdict.shape):
            return None
        wait_s = self._deleter.budget.wait_s(now)
        if wait_s > 0:
            return wait_s
        ended = self._ended.get(uid, now)
        return self._after(pod, ended, await self._deleter.attempt(pod, self._decide))

    def _tell_backoff(self, pod: Pod, now: float) -> None:
        uid = pod.metadata.uid
        due = self._backoff.due(_slot(pod), self._ended.get(uid, now), self._policy.backoff)
        if due > now and uid not in self._held:
            self._held.add(uid)
            self._metrics.sightings.labels("backing-off").inc()
            log.warning("a replacement died at once", **identity(pod), seconds=round(due - now, 1))

    async def _decide(self, pod: Pod, namespace: Namespace | None) -> Verdict:
        verdict = self._judge(pod, namespace)
        if isinstance(verdict, Keep) and verdict.why is Why.CONTAINER_RUNNING:
            return self._judge(pod, namespace, await self._nodes.standing(pod))
        return verdict

    def _judge(
        self,
        pod: Pod,
        namespace: Namespace | None,
        node: NodeStanding = NodeStanding.NOT_ASKED,
    ) -> Verdict:
        return judge(
            pod,
            owner_kinds=self._policy.owner_kinds,
            doubt=doubt_stamps(pod, namespace, self._ledger),
            node=node,
        )

    def _keep(self, pod: Pod, verdict: Keep) -> float | None:
        uid = pod.metadata.uid
        self._observed.observe(uid, None, self._clock.monotonic())
        if self._kept.get(uid) is not verdict.why:
            self._kept[uid] = verdict.why
            self._metrics.kept(LOOP, Shape.TERMINAL, verdict, dry_run=self._deleter.dry_run)
            tell = log.warning if verdict.why is Why.UNVERIFIED else log.debug
            tell("kept a pod that is over", **identity(pod), reason=verdict.reason)
        return self._policy.node_check_s if verdict.why is Why.CONTAINER_RUNNING else None

    def _after(self, pod: Pod, ended: float, result: Result) -> float | None:
        uid = pod.metadata.uid
        now = self._clock.monotonic()
        if result.outcome is Outcome.FAILED and result.retry_after_s is None:
            failures = self._failures[uid] = self._failures.get(uid, 0) + 1
            jitter = 0.5 + self._random.random()
            return min(RETRY_S * 2.0 ** min(failures - 1, 10), MAX_FAILURE_DELAY_S) * jitter
        self._failures.pop(uid, None)
        if result.outcome is Outcome.DELETED:
            self._backoff.reaped(_slot(pod), ended, now, self._policy.backoff)
            if self._pods.by_uid(uid) is None:
                self._metrics.latency_s.labels(LOOP).observe(now - ended)
            else:
                self._deleted[uid] = ended
            return None
        if isinstance(result.verdict, Keep):
            self._kept[uid] = result.verdict.why  # The attempt has counted it.
            return self._keep(pod, result.verdict) or RECHECK_S
        if result.outcome in (Outcome.WOULD_REAP, Outcome.GONE, Outcome.SUPERSEDED):
            return None
        return RETRY_S if result.retry_after_s is None else result.retry_after_s


def _slot(pod: Pod) -> Slot:
    """Namespace, owner and index; a pod without an index is a slot of its own name."""
    owner = controller_of(pod)
    index = pod.metadata.labels.get(stamps.PODSET_INDEX, pod.metadata.name)
    return (pod.metadata.namespace, owner.uid if owner else "", index)
