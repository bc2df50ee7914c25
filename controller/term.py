"""One leader's term: its loops with the configuration in force, made anew when that changes.

Budgets and backoff live as long as the term; observation clocks only as long as the loops. An error
of any loop ends the term, and with it the process.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from controller.backoff import SlotBackoff
from controller.budget import DeleteBudget
from controller.deleting import Deleter, Gate
from controller.records_postgres import PostgresRecords, PostgresSettings
from controller.records_stamps import StampRecords
from controller.retired import LOOP as RETIRED
from controller.retired import RetiredPolicy, RetiredReaper
from controller.sightings import Sightings
from controller.terminal import LOOP as TERMINAL
from controller.terminal import TerminalPolicy, TerminalReaper

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from controller.config import ControllerConfig, RetiredConfig
    from controller.configfile import LiveConfig
    from controller.metrics import ReaperMetrics
    from controller.records import RecordSource
    from controller.reports import Reports
    from controller.trust import Ledger
    from controller.watchdog import Watchdog
    from kube.client import ApiClient
    from kube.clock import Clock
    from kube.namespace import Namespace
    from kube.pod import Pod
    from kube.store import Store

ROUTERS = "routers"
"""The router loop's name to the watchdog."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a term uses and does not own."""

    client: ApiClient
    pods: Store[Pod]
    namespaces: Store[Namespace]
    ledger: Ledger
    reports: Reports
    metrics: ReaperMetrics
    watchdog: Watchdog
    clock: Clock
    random: Random
    gate: Gate


class Term:
    """run() for as long as leadership lasts; cancelled on its loss."""

    def __init__(
        self,
        around: Surroundings,
        config: LiveConfig,
        routers: Callable[[ControllerConfig], Any],
    ) -> None:
        """`routers` makes the router loop of a configuration, None if it lists none."""
        self._around = around
        self._config = config
        self._make_routers = routers
        self._budgets = {TERMINAL: DeleteBudget(), RETIRED: DeleteBudget()}
        self._backoff = SlotBackoff()
        self.terminal: TerminalReaper | None = None
        self.retired: RetiredReaper | None = None
        self.routers: Any = None

    async def run(self) -> None:
        while True:
            config = self._config.current
            loops = asyncio.ensure_future(self._run_loops(config))
            changed = asyncio.ensure_future(self._config.changed_from(config))
            try:
                await asyncio.wait({loops, changed}, return_when=asyncio.FIRST_COMPLETED)
                if loops.done():
                    await loops
            finally:
                for task in (loops, changed):
                    task.cancel()
                await asyncio.gather(loops, changed, return_exceptions=True)

    async def _run_loops(self, config: ControllerConfig) -> None:
        around = self._around
        self.terminal = self._terminal(config) if config.terminal.enabled else None
        self.retired = self._retired(config) if config.retired.enabled else None
        self.routers = self._make_routers(config)
        sightings = Sightings(around.pods, around.reports, around.metrics)
        # An unknown namespace would look like one that is not enabled.
        await around.pods.wait_synced()
        await around.namespaces.wait_synced()
        sightings.start()
        try:
            async with asyncio.TaskGroup() as tasks:
                for loop in (self.terminal, self.retired, self.routers):
                    if loop is not None:
                        tasks.create_task(loop.run())
                tasks.create_task(self._tidy(config))
        finally:
            sightings.stop()
            around.watchdog.end(ROUTERS)
            self.terminal = self.retired = self.routers = None

    async def _tidy(self, config: ControllerConfig) -> None:
        """Forget slots that need no backoff any more; keeps the term's memory bounded."""
        while True:
            await self._around.clock.sleep(60.0)
            self._backoff.forget(self._around.clock.monotonic(), config.terminal.backoff.policy())

    def _deleter(self, loop: str, *, dry_run: bool, limit: int) -> Deleter:
        around = self._around
        budget = self._budgets[loop]
        budget.set_limit(limit)
        return Deleter(
            around.client,
            loop,
            clock=around.clock,
            gate=around.gate,
            budget=budget,
            dry_run=dry_run,
            reports=around.reports,
            metrics=around.metrics,
        )

    def _terminal(self, config: ControllerConfig) -> TerminalReaper:
        around, settings = self._around, config.terminal
        policy = TerminalPolicy(
            owner_kinds=settings.kinds(),
            hold_s=settings.hold_seconds,
            node_check_s=settings.node_check_seconds,
            backoff=settings.backoff.policy(),
        )
        return TerminalReaper(
            policy,
            client=around.client,
            pods=around.pods,
            namespaces=around.namespaces,
            ledger=around.ledger,
            deleter=self._deleter(
                TERMINAL, dry_run=settings.dry_run, limit=settings.max_deletes_per_minute
            ),
            gate=around.gate,
            backoff=self._backoff,
            reports=around.reports,
            metrics=around.metrics,
            watchdog=around.watchdog,
            clock=around.clock,
            random=around.random,
        )

    def _retired(self, config: ControllerConfig) -> RetiredReaper:
        around, settings = self._around, config.retired
        return RetiredReaper(
            retired_policy(settings),
            client=around.client,
            source=record_source(settings),
            pods=around.pods,
            namespaces=around.namespaces,
            ledger=around.ledger,
            deleter=self._deleter(
                RETIRED, dry_run=settings.dry_run, limit=settings.max_deletes_per_minute
            ),
            gate=around.gate,
            reports=around.reports,
            metrics=around.metrics,
            watchdog=around.watchdog,
            clock=around.clock,
        )


def check_usable(config: ControllerConfig) -> None:
    """ConfigError for what is well written and cannot be used on this machine: a DSN, a driver that
    is not installed, a CA file. A term that began with it would end the process."""
    if config.retired.enabled:
        record_source(config.retired)
    if config.routers:
        from controller.routers.build import check_files

        for router in config.routers:
            check_files(router)


def retired_policy(settings: RetiredConfig) -> RetiredPolicy:
    """What the retired reaper, or a plan of it, reads of the configuration."""
    postgres = settings.source == "postgres"
    return RetiredPolicy(
        hold_s=settings.hold_seconds,
        interval_s=settings.interval_seconds,
        pass_s=settings.pass_seconds,
        by_name=postgres and settings.postgres.without_incarnation == "by-name",
    )


def record_source(settings: RetiredConfig) -> RecordSource:
    """The configured source of records; ConfigError if it cannot be used here."""
    if settings.source == "stamps":
        return StampRecords()
    postgres = settings.postgres
    return PostgresRecords(
        PostgresSettings(
            dsn=postgres.dsn,
            dsn_file=postgres.dsn_file,
            query=postgres.query,
            ssl_mode=postgres.ssl_mode,
            ssl_root_cert=postgres.ssl_root_cert,
            batch_size=postgres.batch_size,
            statement_timeout_s=postgres.statement_timeout_seconds,
            connect_timeout_s=postgres.connect_timeout_seconds,
        )
    )
