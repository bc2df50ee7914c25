"""Drives one target: observe, difference, apply, observe again; and tells people what it sees.

Invariant: lanes share nothing that one of them could hold up, so a replica that hangs delays no
other; an expected failure is counted, said once, and tried again with backoff.
"""

from __future__ import annotations

import random as random_module
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from controller.routers.desired import Desired
from controller.routers.kinds import Difference, Target
from controller.routers.metrics import RouterMetrics
from controller.routers.wake import Wake, backoff_s, jittered_s
from kube.clock import Clock
from kube.errors import KubeError
from kube.events import EventRecorder, ObjectReference
from kube.logs import get_logger

_log = get_logger(__name__)

_RETRY_FIRST_S = 0.5
_RETRY_LIMIT_S = 10.0
_RECHECK_FIRST_S = 0.1
_RECHECK_LIMIT_S = 1.0
# After so many looks, what is pending is in no hurry any more.
_RECHECKS = 100
# One lost answer is no outage.
_UNREACHABLE_AFTER = 2


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the lanes of one router have in common."""

    router: str
    period_s: float
    clock: Clock
    random: random_module.Random
    metrics: RouterMetrics
    recorder: EventRecorder
    regarding: Callable[[], ObjectReference]
    desired: Callable[[], Desired]
    may_act: Callable[[], bool]
    compared: Callable[[], None]


class Lane:
    """One target, one task."""

    def __init__(self, target: Target, around: Surroundings) -> None:
        self.target = target
        self.difference = Difference()
        self.error = ""
        self.failures = 0
        self.settled_at: datetime | None = None
        self._around = around
        self._wake = Wake(around.clock)
        self._settled_for: Desired | None = None
        self._rechecks = 0
        self._announced = False

    def wake(self) -> None:
        """Look again now."""
        self._wake.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self._wake.clear()
            await self._wake.wait(await self.reconcile())

    async def reconcile(self) -> float:
        """Compare once and apply; returns after how many seconds to look again."""
        around = self._around
        started = around.clock.monotonic()
        desired = around.desired()
        try:
            await self._compare(desired)
        except KubeError as error:
            self._failed(error)
            limit_s = min(_RETRY_LIMIT_S, around.period_s)
            return backoff_s(
                self.failures, first_s=_RETRY_FIRST_S, limit_s=limit_s, random=around.random
            )
        self._succeeded()
        seconds = around.metrics.pass_seconds.labels(around.router)
        seconds.observe(around.clock.monotonic() - started)
        around.compared()
        if self.difference.settled:
            self._settled_for, self._rechecks = desired, 0
            self.settled_at = around.clock.now()
            return jittered_s(around.period_s, around.random)
        self._rechecks += 1
        limit_s = _RECHECK_LIMIT_S if self._rechecks < _RECHECKS else around.period_s
        return backoff_s(
            self._rechecks, first_s=_RECHECK_FIRST_S, limit_s=limit_s, random=around.random
        )

    async def _compare(self, desired: Desired) -> None:
        target = self.target
        await target.observe()
        self.difference = target.difference(desired)
        if self._settled_for is desired and not self.difference.settled:
            self._drifted()
        self._settled_for = None
        if self.difference.idle or not self._around.may_act():
            return
        await target.apply(desired, self.difference)
        await target.observe()
        self.difference = target.difference(self._around.desired())

    def _drifted(self) -> None:
        """It was equal, nothing was wanted otherwise, and yet it differs: somebody changed it,
        or it has restarted and forgotten."""
        note = f"{self.target.label} no longer matches the engines: {describe(self.difference)}"
        _log.warning(
            "router drifted",
            router=self._around.router,
            target=self.target.label,
            difference=describe(self.difference),
        )
        self._record("RouterDrifted", note, warning=True)

    def _failed(self, error: KubeError) -> None:
        self.failures += 1
        self.error = str(error)
        self._settled_for = None
        self._gauge(reachable=0)
        if self.failures == _UNREACHABLE_AFTER:
            _log.warning(
                "router cannot be driven",
                router=self._around.router,
                target=self.target.label,
                error=error,
            )
            note = f"{self.target.label} cannot be kept in step: {error}"
            self._record("RouterUnreachable", note, warning=True)
            self._announced = True

    def _succeeded(self) -> None:
        self.failures, self.error = 0, ""
        self._gauge(reachable=1)
        if self._announced:
            self._announced = False
            _log.info(
                "router can be driven again", router=self._around.router, target=self.target.label
            )
            self._record("RouterReachable", f"{self.target.label} answers again", warning=False)

    def _record(self, reason: str, note: str, *, warning: bool) -> None:
        self._around.recorder.record(
            self.target.regarding or self._around.regarding(),
            reason=reason,
            note=note,
            type="Warning" if warning else "Normal",
            action="Reconcile",
        )

    def _gauge(self, *, reachable: int) -> None:
        metrics, router, label = self._around.metrics, self._around.router, self.target.label
        metrics.reachable.labels(router, label).set(reachable)
        for name in ("add", "remove", "change", "pending"):
            count = len(getattr(self.difference, name))
            metrics.difference.labels(router, label, name).set(count)

    def forget(self) -> None:
        """Drop the metrics of a target that is no more."""
        metrics, router, label = self._around.metrics, self._around.router, self.target.label
        metrics.reachable.remove(router, label)
        for name in ("add", "remove", "change", "pending"):
            metrics.difference.remove(router, label, name)


def describe(difference: Difference) -> str:
    """In a few words: `2 missing (http://…, http://…), 1 too many (http://…)`."""
    parts = []
    for entries, words in (
        (difference.add, "missing"),
        (difference.remove, "too many"),
        (difference.change, "out of date"),
        (difference.pending, "pending"),
    ):
        if entries:
            shown = ", ".join(entries[:3]) + (", …" if len(entries) > 3 else "")
            parts.append(f"{len(entries)} {words} ({shown})")
    return ", ".join(parts) or "none"
