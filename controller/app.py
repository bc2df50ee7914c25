"""The controller as one process: stores, leadership, the loops of a term, and the health server.

Only the leader acts; every replica keeps its stores, so a follower can lead at once. Whatever loop
raises or hangs ends the process; an API server that is away does not.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from controller.config import LEASE
from controller.configfile import LiveConfig
from controller.deleting import Gate
from controller.metrics import ReaperMetrics
from controller.reports import Reports
from controller.status import report
from controller.term import ROUTERS, Surroundings, Term
from controller.trust import Ledger
from controller.watchdog import Watchdog
from kube import paths
from kube.events import EventRecorder
from kube.health import HealthServer
from kube.lease import LeaderElector
from kube.logs import get_logger
from kube.namespace import Namespace
from kube.pod import Pod
from kube.reflector import Reflector
from kube.store import Store
from webhook import stamps

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from prometheus_client import CollectorRegistry

    from controller.config import ControllerConfig
    from kube.client import ApiClient
    from kube.clock import Clock
    from kube.store import Change

log = get_logger("controller.app")

FLUSH_S = 2.0
EVENT_LOOP = "event loop"


class Controller:
    """Composes the parts around one client; `identity` names this process in the Lease."""

    def __init__(
        self,
        client: ApiClient,
        config: ControllerConfig,
        load: Callable[[], ControllerConfig],
        *,
        identity: str,
        clock: Clock,
        random: Random,
        registry: CollectorRegistry,
        config_file: Path | None = None,
        make_routers: Callable[[ControllerConfig], Any] | None = None,
    ) -> None:
        """`make_routers` makes the router loop of a configuration, or None if it lists none."""
        self._client = client
        self._clock = clock
        self._random = random
        self._registry = registry
        self._config_file = config_file
        self.identity = identity
        self.metrics = ReaperMetrics(registry)
        self.config = LiveConfig(config, load, self.metrics)
        self.pods: Store[Pod] = Store(clock)
        self.namespaces: Store[Namespace] = Store(clock)
        self.ledger = Ledger()
        self.watchdog = Watchdog(clock.monotonic)
        self.recorder = EventRecorder(client, instance=identity, clock=clock, random=random)
        self.reports = Reports(self.recorder)
        self.term: Term | None = None
        self._router_metrics: Any = None
        self._make_routers = make_routers or self._routers_of
        lease = config.leadership
        self.elector = LeaderElector(
            client,
            config.namespace,
            LEASE,
            identity,
            clock=clock,
            random=random,
            duration_s=lease.lease_duration_seconds,
            renew_deadline_s=lease.renew_deadline_seconds,
            retry_period_s=lease.retry_period_seconds,
        )
        self.health = HealthServer(
            config.health_port,
            self.live_problem,
            self.ready_problem,
            {"/status": self.status, "/routers": self.router_status},
            registry,
        )
        self.pods.subscribe(self._pod_changed)
        self._measure()

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop` is set: then the loops end, the lease is released, events are sent."""
        await self.health.start()
        self._write_ports()
        log.info("serving", port=self.health.port, identity=self.identity)
        async with asyncio.TaskGroup() as tasks:
            background = [tasks.create_task(part) for part in self._background()]
            leading = tasks.create_task(self.elector.run(self._lead))
            await stop.wait()
            leading.cancel()
            await asyncio.wait({leading})
            await self.recorder.flush(FLUSH_S)
            for task in background:
                task.cancel()

    def is_fresh(self) -> bool:
        """Whether the stores may be decided upon."""
        return self.ready_problem() is None

    def live_problem(self) -> str | None:
        """Liveness: never depends on the API server or on the store's age."""
        hung = self.watchdog.overdue()
        return f"hung: {', '.join(hung)}" if hung else None

    def ready_problem(self) -> str | None:
        """Readiness: both stores are synced and current."""
        limit_s = self.config.current.store.max_age_seconds
        for name, store in (("pods", self.pods), ("namespaces", self.namespaces)):
            if not store.synced:
                return f"{name} are not listed yet"
            if store.age_s() > limit_s:
                return f"{name} were last known {store.age_s():.0f} s ago (limit {limit_s:.0f} s)"
        return None

    def status(self) -> dict[str, Any]:
        return report(self.identity, self.pods, self.config, self.term)

    def router_status(self) -> dict[str, Any]:
        """What the router loop knows; a follower has none."""
        if self.term is None:
            return {"leader": False, "routers": []}
        routers = self.term.routers
        return {"leader": True, "routers": [] if routers is None else routers.status()}

    def _background(self) -> list[Any]:
        parts: list[Any] = [
            self._reflect(paths.pods(), Pod, self.pods, f"{stamps.MANAGED}=true"),
            self._reflect(paths.namespaces(), Namespace, self.namespaces, ""),
            self.recorder.run(),
            self.health.run(),
            self.watchdog.run(self._clock),
            self._pulse(),
        ]
        if self._config_file is not None:
            parts.append(self.config.watch(self._config_file, self._clock))
        return parts

    async def _reflect(self, path: str, kind: Any, store: Any, selector: str) -> None:
        reflector = Reflector(
            self._client,
            path,
            kind,
            store,
            label_selector=selector,
            clock=self._clock,
            random=self._random,
        )
        await reflector.run()

    async def _pulse(self) -> None:
        """Show that the event loop itself goes on, for whoever looks from another thread."""
        while True:
            self.watchdog.beat(EVENT_LOOP)
            await self._clock.sleep(1.0)

    async def _lead(self) -> None:
        around = Surroundings(
            client=self._client,
            pods=self.pods,
            namespaces=self.namespaces,
            ledger=self.ledger,
            reports=self.reports,
            metrics=self.metrics,
            watchdog=self.watchdog,
            clock=self._clock,
            random=self._random,
            gate=Gate(self.elector.may_act, self.is_fresh),
        )
        self.term = Term(around, self.config, self._make_routers)
        try:
            await self.term.run()
        finally:
            self.term = None

    def _routers_of(self, config: ControllerConfig) -> Any:
        if not config.routers:
            return None
        # Imported only where routers are configured: it costs memory that a reaper does not need.
        from controller.routers.loop import RouterLoop
        from controller.routers.metrics import RouterMetrics

        if self._router_metrics is None:
            self._router_metrics = RouterMetrics(self._registry)
        return RouterLoop(
            config.routers,
            client=self._client,
            pods=self.pods,
            clock=self._clock,
            random=self._random,
            recorder=self.recorder,
            metrics=self._router_metrics,
            namespace=config.namespace,
            may_act=self.elector.may_act,
            beat=lambda: self.watchdog.beat(ROUTERS),
        )

    def _pod_changed(self, change: Change[Pod]) -> None:
        if change.new is not None:
            self.ledger.seen(change.new)
        elif change.old is not None:
            self.ledger.gone(change.old, self._clock.now())
            self.reports.forget(change.old.metadata.uid)

    def _measure(self) -> None:
        metrics = self.metrics
        for name, store in (("pods", self.pods), ("namespaces", self.namespaces)):
            metrics.store_age_s.labels(name).set_function(store.age_s)
            metrics.store_objects.labels(name).set_function(store.__len__)
        metrics.events_dropped.set_function(lambda: float(self.recorder.dropped))
        metrics.leader.set_function(lambda: float(self.term is not None))
        metrics.candidates.labels("terminal").set_function(
            lambda: self.term.terminal.candidates() if self.term and self.term.terminal else 0
        )
        metrics.candidates.labels("retired").set_function(
            lambda: self.term.retired.candidates() if self.term and self.term.retired else 0
        )

    def _write_ports(self) -> None:
        if not self.config.current.port_file:
            return
        file = Path(self.config.current.port_file)
        draft = file.with_name(f"{file.name}.new")
        draft.write_bytes(msgspec.json.encode({"health_port": self.health.port}))
        draft.replace(file)
