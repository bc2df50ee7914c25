"""The one place that deletes a pod.

Invariant: nothing is deleted but what a fresh read of the pod and its namespace, and of its record,
still judges as over, under both preconditions, while leadership is certain and the budget allows.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from controller.reports import identity
from controller.verdict import Keep, Reap, Verdict
from kube import paths
from kube.errors import Conflict, Forbidden, KubeError, NotFound, TooManyRequests, Unreachable
from kube.logs import get_logger
from kube.namespace import Namespace
from kube.pod import Pod, is_terminating

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from controller.budget import DeleteBudget
    from controller.metrics import ReaperMetrics
    from controller.reports import Reports
    from kube.client import ApiClient
    from kube.clock import Clock

log = get_logger("controller.deleting")

MAX_DECISIONS = 4
"""How often a 409 leads to another read and decision before the pod is put off."""
CALL_TIMEOUT_S = 3.0
LAST_ANSWER_S = 1.0
"""How long a loop that is stopped waits for the answer to a delete that it has sent."""
FORBIDDEN_PAUSE_S = 5.0
"""Short: an API server that has just started forbids everything until it has read the roles."""


class Outcome(StrEnum):
    """What became of one attempt; the value is a metric label."""

    DELETED = "deleted"
    WOULD_REAP = "would-reap"
    GONE = "gone"
    SUPERSEDED = "superseded"
    KEPT = "kept"
    CONFLICT = "conflict"
    NOT_LEADER = "not-leader"
    STALE = "stale-store"
    OVER_BUDGET = "over-budget"
    FORBIDDEN = "forbidden"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Result:
    """`retry_after_s` is set where another attempt makes sense only later."""

    outcome: Outcome
    verdict: Verdict | None = None
    retry_after_s: float | None = None
    error: KubeError | None = None


@dataclass(frozen=True, slots=True)
class Gate:
    """What must hold at the moment of a delete, whatever the pod looks like."""

    may_act: Callable[[], bool]
    is_fresh: Callable[[], bool]


class Deleter:
    """Deletes for one loop; `budget` is that loop's, for the leader's term.

    A dry run does all but the delete, and keeps to the budget too: it reports no faster than the
    events of its reports can be written.
    """

    def __init__(
        self,
        client: ApiClient,
        loop: str,
        *,
        clock: Clock,
        gate: Gate,
        budget: DeleteBudget,
        dry_run: bool,
        reports: Reports,
        metrics: ReaperMetrics,
    ) -> None:
        self.loop = loop
        self.dry_run = dry_run
        self.budget = budget
        self._client = client
        self._clock = clock
        self._gate = gate
        self._reports = reports
        self._metrics = metrics
        self._complained: set[str] = set()

    async def attempt(
        self, seen: Pod, decide: Callable[[Pod, Namespace | None], Awaitable[Verdict]]
    ) -> Result:
        """Read the pod that was seen anew, decide anew, and delete it if it is still over.

        `decide` may read more (a record, a Node); a KubeError from it keeps the pod.
        """
        result = await self._attempt(seen, decide)
        if isinstance(result.verdict, Keep):
            self._metrics.kept(self.loop, "", result.verdict, dry_run=self.dry_run)
        else:
            shape = result.verdict.shape if result.verdict else ""
            self._metrics.outcome(self.loop, shape, result.outcome, dry_run=self.dry_run)
        return result

    async def _attempt(
        self, seen: Pod, decide: Callable[[Pod, Namespace | None], Awaitable[Verdict]]
    ) -> Result:
        verdict: Verdict | None = None
        for _ in range(MAX_DECISIONS):
            try:
                pod, namespace = await self._read(seen)
                if pod is None:
                    return Result(Outcome.GONE)
                if pod.metadata.uid != seen.metadata.uid:
                    return Result(Outcome.SUPERSEDED)
                verdict = await decide(pod, namespace)
            except KubeError as error:
                return self._failed("get", seen, error)
            if isinstance(verdict, Keep):
                return Result(Outcome.KEPT, verdict)
            refused = self._refuse(verdict)
            if refused is not None:
                return refused
            if self.dry_run:
                self._reports.would_reap(pod, verdict)
                return Result(Outcome.WOULD_REAP, verdict)
            try:
                await self._delete(pod, verdict)
            except NotFound:
                return Result(Outcome.GONE, verdict)
            except Conflict:
                log.info("pod changed before its delete", **identity(pod))
                continue
            except KubeError as error:
                if not isinstance(error, Unreachable) or not await self._is_over_with(pod):
                    return self._failed("delete", pod, error, verdict)
            self._complained.clear()
            self._reports.reaped(pod, verdict)
            return Result(Outcome.DELETED, verdict)
        return Result(Outcome.CONFLICT, verdict)

    async def _delete(self, pod: Pod, verdict: Reap) -> None:
        """Send it; whoever is cancelled meanwhile still hears its answer, for a short time: what
        was sent cannot be called back, and a pod that is gone is told."""
        sent = asyncio.ensure_future(
            self._client.delete(
                paths.pod(*pod.key),
                uid=verdict.uid,
                resource_version=verdict.resource_version,
                timeout_s=CALL_TIMEOUT_S,
            )
        )
        try:
            await asyncio.shield(sent)
        except asyncio.CancelledError:
            done, _ = await asyncio.wait({sent}, timeout=LAST_ANSWER_S)
            if done and sent.exception() is None:
                self._reports.reaped(pod, verdict)
                self._metrics.outcome(
                    self.loop, verdict.shape, Outcome.DELETED, dry_run=self.dry_run
                )
            raise
        finally:
            sent.cancel()

    async def _is_over_with(self, pod: Pod) -> bool:
        """Whether a delete without an answer went through, as far as one read can tell."""
        try:
            now = await self._client.get(paths.pod(*pod.key), type=Pod, timeout_s=CALL_TIMEOUT_S)
        except NotFound:
            return True
        except KubeError:
            return False
        return now.metadata.uid != pod.metadata.uid or is_terminating(now)

    async def _read(self, seen: Pod) -> tuple[Pod | None, Namespace | None]:
        """The pod and its namespace, side by side; None for what does not exist."""
        pod, namespace = await asyncio.gather(
            self._client.get(paths.pod(*seen.key), type=Pod, timeout_s=CALL_TIMEOUT_S),
            self._client.get(
                paths.namespace(seen.metadata.namespace), type=Namespace, timeout_s=CALL_TIMEOUT_S
            ),
            return_exceptions=True,
        )
        if isinstance(pod, BaseException) and not isinstance(pod, NotFound):
            raise pod
        if isinstance(namespace, BaseException) and not isinstance(namespace, NotFound):
            raise namespace
        return (
            None if isinstance(pod, BaseException) else pod,
            None if isinstance(namespace, BaseException) else namespace,
        )

    def _refuse(self, verdict: Reap) -> Result | None:
        """The last questions; nothing is awaited between them and the delete."""
        if not self._gate.is_fresh():
            return Result(Outcome.STALE, verdict)
        if not self._gate.may_act():
            return Result(Outcome.NOT_LEADER, verdict)
        now = self._clock.monotonic()
        if not self.budget.take(now):
            return Result(Outcome.OVER_BUDGET, verdict, self.budget.wait_s(now))
        return None

    def _failed(
        self, verb: str, pod: Pod, error: KubeError, verdict: Verdict | None = None
    ) -> Result:
        if isinstance(error, Forbidden):
            if verb not in self._complained:
                self._complained.add(verb)
                log.error("role lacks a verb", verb=verb, resource="pods", error=str(error))
            return Result(Outcome.FORBIDDEN, verdict, FORBIDDEN_PAUSE_S, error)
        log.warning("pod could not be judged or deleted", **identity(pod), error=str(error))
        wait_s = error.retry_after_s if isinstance(error, TooManyRequests) else None
        return Result(Outcome.FAILED, verdict, wait_s, error)
