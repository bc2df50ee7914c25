"""One entry of `routers:`: works out the desired set and keeps a lane for each target.

Invariant: the task here makes no call but the list that confirms a large removal; engines are
asked by the prober and targets driven by their lanes, so none of them delays this one.
"""

from __future__ import annotations

import asyncio
import random as random_module
from collections.abc import Callable, Collection

from controller.routers.config import RouterConfig
from controller.routers.desired import Desired, desired_of, needs_confirmation
from controller.routers.engines import Fleet
from controller.routers.kinds import Kind, Target
from controller.routers.lane import Lane, Surroundings
from controller.routers.metrics import RouterMetrics
from controller.routers.probes import Prober
from controller.routers.sources import Source
from controller.routers.wake import Spawn, Wake, backoff_s
from kube.clock import Clock, within
from kube.errors import KubeError
from kube.events import EventRecorder, ObjectReference
from kube.logs import get_logger

_log = get_logger(__name__)

# A burst of events is one pass; with many engines a pass takes longer, and so does the wait.
_DEBOUNCE_S = 0.005
_DEBOUNCE_LIMIT_S = 0.25
_CONFIRM_S = 10.0
_RETRY_FIRST_S = 0.5
_RETRY_LIMIT_S = 5.0


class Router:
    """Level-triggered: each pass starts from the stores, never from the event that woke it."""

    def __init__(
        self,
        config: RouterConfig,
        *,
        kind: Callable[[Callable[[], Desired], Callable[[], None]], Kind],
        source: Source,
        prober: Callable[[Callable[[], None]], Prober],
        regarding: Callable[[], ObjectReference],
        recorder: EventRecorder,
        clock: Clock,
        random: random_module.Random,
        metrics: RouterMetrics,
        may_act: Callable[[], bool],
        spawn: Spawn,
    ) -> None:
        """`kind` and `prober` are made here, since they need the desired set and the wake."""
        self.config = config
        self.desired = Desired({})
        self.fleet = Fleet({}, (), ())
        self.lanes: dict[str, Lane] = {}
        self.unconfirmed: frozenset[str] = frozenset()
        self.error = ""
        self.passed_at: float | None = None
        self._wake = Wake(clock)
        self.prober = prober(self._wake.set)
        self.kind = kind(lambda: self.desired, self.wake_lanes)
        self._source = source
        self._clock = clock
        self._random = random
        self._metrics = metrics
        self._spawn = spawn
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._first = True
        self._inherited: frozenset[str] = frozenset()
        self._starting = True
        self._settle = False
        self._around = Surroundings(
            router=config.name,
            period_s=config.period_seconds,
            clock=clock,
            random=random,
            metrics=metrics,
            recorder=recorder,
            regarding=regarding,
            desired=lambda: self.desired,
            may_act=may_act,
            compared=self._compared,
        )

    def wake(self) -> None:
        """Something changed that may matter."""
        self._wake.set()

    def wake_lanes(self) -> None:
        """Compare with every target again."""
        for lane in self.lanes.values():
            lane.wake()

    async def run(self) -> None:
        """Until cancelled."""
        unsubscribe = self._source.subscribe(self._wake.set)
        try:
            await self._source.wait_synced()
            await self._load()
            while True:
                self._wake.clear()
                started = self._clock.monotonic()
                again_s = await self.reconcile()
                ended = self.passed_at = self._clock.monotonic()
                debounce_s = max(_DEBOUNCE_S, 2 * (ended - started))
                await self._wake.wait(again_s)
                await self._clock.sleep(min(debounce_s, _DEBOUNCE_LIMIT_S))
        finally:
            unsubscribe()
            for task in self._tasks.values():
                task.cancel()
            await self.kind.aclose()

    async def reconcile(self) -> float:
        """Work out the desired set once; returns after how many seconds to do so again."""
        self.fleet = self._source.fleet()
        self.prober.track(self.fleet.serving)
        lost = self._guarded()
        if not lost and not (self._first and not self.fleet.serving):
            self.unconfirmed = frozenset()
            self._publish(())
            return self.config.period_seconds
        # What is new need not wait for the list.
        if not self._first:
            self._publish(lost)
        kept = await self._confirm(lost)
        if kept is None:
            self.unconfirmed = lost
            return backoff_s(
                1, first_s=2 * _RETRY_FIRST_S, limit_s=_RETRY_LIMIT_S, random=self._random
            )
        self.unconfirmed = kept
        self._publish(kept)
        return _RETRY_FIRST_S if kept else self.config.period_seconds

    def _guarded(self) -> frozenset[str]:
        """Entries that would go, if so many go that it needs a second list."""
        last: Collection[str] = (
            self.kind.applied_urls() if self._first else self.desired.backends.keys()
        )
        serving = self.fleet.serving
        share = self.config.guard.max_removal_share
        lost = frozenset(last).difference(serving)
        # What a second list did not confirm is not let go because less is left to compare with.
        if lost & self.unconfirmed:
            return lost
        needed = needs_confirmation(last, serving.keys(), share, first=self._first)
        return lost if needed else frozenset()

    async def _confirm(self, lost: frozenset[str]) -> frozenset[str] | None:
        """Those of `lost` that a second list still shows; None: there is no such list, or it
        contradicts the first in the only pass in which nothing could be kept."""
        await self._clock.sleep(self.config.guard.confirm_after_seconds)
        try:
            second = await within(self._clock, _CONFIRM_S, self._source.confirm())
        except (KubeError, TimeoutError) as error:
            self._count_guard("no list")
            self._say("engines cannot be listed a second time; the last list stays", error)
            return None
        kept = lost.intersection(second.serving)
        emptied = not self.fleet.serving and bool(second.serving)
        contradicted = bool(kept) or (self._first and emptied)
        self._count_guard("contradicted" if contradicted else "confirmed")
        if contradicted and self._first:
            return None
        self.error = ""
        return kept

    def _publish(self, retained: Collection[str]) -> None:
        """Make the desired set known to the lanes, if it is another one."""
        fresh = desired_of(
            self.fleet, self.prober, self.desired.backends, retained, self._still_inherited()
        )
        if self._first or fresh != self.desired:
            self.desired = fresh
            self.wake_lanes()
        self._first = False
        self._update_lanes()
        self._metrics.engines.labels(self.config.name).set(len(self.desired.backends))
        self._count_excluded()

    def _still_inherited(self) -> frozenset[str]:
        """What the router has from before this term, by the record, until its engine answers;
        and, until all have been asked once, whoever has not been: some kinds have no record."""
        serving, prober = self.fleet.serving, self.prober
        if self._first:
            self._inherited = self.kind.applied_urls()
        self._inherited = frozenset(
            url for url in self._inherited if url in serving and prober.facts(serving[url]) is None
        )
        unasked = {url for url, engine in serving.items() if not prober.asked(engine)}
        self._starting = self._starting and bool(unasked)
        return self._inherited | unasked if self._starting else self._inherited

    def _update_lanes(self) -> None:
        targets = self.kind.targets()
        for key, lane in list(self.lanes.items()):
            if targets.get(key) is not lane.target:
                self._tasks.pop(key).cancel()
                del self.lanes[key]
                lane.forget()
        for key, target in targets.items():
            if key not in self.lanes:
                self._start_lane(key, target)

    def _start_lane(self, key: str, target: Target) -> None:
        lane = Lane(target, self._around)
        self.lanes[key] = lane
        self._tasks[key] = self._spawn(lane.run())

    def _compared(self) -> None:
        """A lane has looked: perhaps nobody needs some claims any more."""
        if not self._settle:
            self._settle = True
            self._spawn(self._settle_kind())

    async def _settle_kind(self) -> None:
        try:
            await self.kind.settle(self.desired)
        except KubeError as error:
            self._say("router record cannot be written", error)
        finally:
            self._settle = False

    async def _load(self) -> None:
        failures = 0
        while True:
            try:
                await self.kind.load()
            except KubeError as error:
                failures += 1
                self._say("router record cannot be read; nothing is changed before", error)
            else:
                self.error = ""
                return
            await self._clock.sleep(
                backoff_s(
                    failures, first_s=_RETRY_FIRST_S, limit_s=_RETRY_LIMIT_S, random=self._random
                )
            )

    def _say(self, message: str, error: Exception) -> None:
        if self.error != str(error):
            self.error = str(error)
            _log.warning(message, router=self.config.name, error=error)

    def _count_guard(self, outcome: str) -> None:
        self._metrics.guarded.labels(self.config.name, outcome).inc()

    def _count_excluded(self) -> None:
        counts: dict[str, int] = {}
        for entry in self.fleet.excluded:
            counts[entry.reason.value] = counts.get(entry.reason.value, 0) + 1
        for reason in {*counts, *self._reasons}:
            self._metrics.excluded.labels(self.config.name, reason).set(counts.get(reason, 0))
        self._reasons = frozenset(counts)

    _reasons: frozenset[str] = frozenset()
