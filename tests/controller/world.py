"""One leader's surroundings on a fake clock: stores, ledger, reports and a fake API."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from prometheus_client import CollectorRegistry

from controller.backoff import SlotBackoff
from controller.budget import DeleteBudget
from controller.deleting import Deleter, Gate
from controller.metrics import ReaperMetrics
from controller.records import RecordSource
from controller.records_stamps import StampRecords
from controller.reports import Reports
from controller.retired import RetiredPolicy, RetiredReaper
from controller.terminal import TerminalPolicy, TerminalReaper
from controller.trust import Ledger
from controller.verdict import OwnerKind
from controller.watchdog import Watchdog
from kube.events import EventRecorder
from kube.namespace import Namespace
from kube.pod import Pod
from kube.store import Change, Store
from tests.clock import FakeClock
from tests.controller.fakeapi import FakeApi
from tests.controller.pods import as_pod, namespace

PODSETS = frozenset({OwnerKind("PodSet", "orchestration.aibrix.ai")})


class World:
    """The API and the stores; `sync` tells the stores what the API holds, as a watch would."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.api = FakeApi(clock)
        self.registry = CollectorRegistry()
        self.metrics = ReaperMetrics(self.registry)
        self.pods: Store[Pod] = Store(clock)
        self.namespaces: Store[Namespace] = Store(clock)
        self.ledger = Ledger()
        self.pods.subscribe(self._changed)
        self.recorder = EventRecorder(
            self.api.client, instance="test", clock=clock, random=random.Random(1)
        )
        self.reports = Reports(self.recorder)
        self.watchdog = Watchdog(clock.monotonic)
        self.budget = DeleteBudget()
        self.backoff = SlotBackoff()
        self.leading = True
        self.fresh = True
        self.pods.replace(())
        self.namespaces.replace((namespace(),))

    def add(self, *documents: dict[str, Any]) -> None:
        """Pods that exist and that the stores know of."""
        for document in documents:
            self.api.put(document)
            self.pods.put(as_pod(document))

    def sync(self) -> None:
        """A full list: the stores become what the API holds."""
        pods = [value for path, value in self.api.objects.items() if "/pods/" in path]
        self.pods.replace([as_pod(document) for document in pods])

    def count(self, **labels: str) -> float:
        """Sum of podstamp_reaper_outcomes_total over the series with these labels."""
        return sum(
            sample.value
            for metric in self.registry.collect()
            for sample in metric.samples
            if sample.name == "podstamp_reaper_outcomes_total"
            and labels.items() <= sample.labels.items()
        )

    def deleter(self, loop: str, *, dry_run: bool = False) -> Deleter:
        return Deleter(
            self.api.client,
            loop,
            clock=self.clock,
            gate=self.gate(),
            budget=self.budget,
            dry_run=dry_run,
            reports=self.reports,
            metrics=self.metrics,
        )

    def gate(self) -> Gate:
        return Gate(lambda: self.leading, lambda: self.fresh)

    def terminal(self, *, dry_run: bool = False, **policy: Any) -> TerminalReaper:
        return TerminalReaper(
            TerminalPolicy(owner_kinds=policy.pop("owner_kinds", PODSETS), **policy),
            client=self.api.client,
            pods=self.pods,
            namespaces=self.namespaces,
            ledger=self.ledger,
            deleter=self.deleter("terminal", dry_run=dry_run),
            gate=self.gate(),
            backoff=self.backoff,
            reports=self.reports,
            metrics=self.metrics,
            watchdog=self.watchdog,
            clock=self.clock,
            random=random.Random(2),
        )

    def retired(
        self, *, dry_run: bool = False, source: RecordSource | None = None, **policy: Any
    ) -> RetiredReaper:
        return RetiredReaper(
            RetiredPolicy(**policy),
            client=self.api.client,
            source=source or StampRecords(),
            pods=self.pods,
            namespaces=self.namespaces,
            ledger=self.ledger,
            deleter=self.deleter("retired", dry_run=dry_run),
            gate=self.gate(),
            reports=self.reports,
            metrics=self.metrics,
            watchdog=self.watchdog,
            clock=self.clock,
        )

    @asynccontextmanager
    async def running(self, *loops: TerminalReaper | RetiredReaper) -> AsyncIterator[None]:
        """The loops and the event recorder at work; all that is due now is done on entry."""
        tasks = [asyncio.ensure_future(loop.run()) for loop in loops]
        tasks.append(asyncio.ensure_future(self.recorder.run()))
        await self.clock.advance(0)
        await self.clock.settle(1000)  # Many deletes, a few at a time, take many turns.
        try:
            yield
            for task in tasks:
                assert not task.done(), f"a loop ended by itself: {task}"
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self.api.client.aclose()

    def _changed(self, change: Change[Pod]) -> None:
        if change.new is not None:
            self.ledger.seen(change.new)
        elif change.old is not None:
            self.ledger.gone(change.old, self.clock.now())
            self.reports.forget(change.old.metadata.uid)
