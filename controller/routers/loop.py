"""Runs every configured router for one term of leadership.

Invariant: everything started here ends with `run`, and nothing acts before the pods are known;
a fault in any task ends them all, so that no router is left behind in silence.
"""

from __future__ import annotations

import asyncio
import random as random_module
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from controller.routers.adapter_objects import RESOURCES, Resource, pods_to_reread
from controller.routers.build import Parts, make_kind, refresh_s, replicas_config
from controller.routers.config import EngineSource, RouterConfig
from controller.routers.desired import Desired
from controller.routers.kinds import Kind
from controller.routers.metrics import RouterMetrics
from controller.routers.probes import Prober
from controller.routers.record import Record
from controller.routers.replicas import selector_text
from controller.routers.router import Router
from controller.routers.sources import PodSource, ServiceSource, Source
from controller.routers.status import router_status
from controller.routers.transport import Connector
from kube import paths
from kube.client import ApiClient
from kube.clock import Clock
from kube.errors import KubeError, NotFound
from kube.events import EventRecorder, ObjectReference
from kube.logs import get_logger
from kube.meta import KubeObject
from kube.pod import Pod
from kube.reflector import Reflector
from kube.service import EndpointSlice, Service
from kube.store import Change, Store

_log = get_logger(__name__)
T = TypeVar("T", bound=KubeObject)

_BEAT_S = 5.0
_LOOK_FOR_CRD_S = 60.0
# A pass waits for nothing but one list, whose own time-out is far below this.
_STUCK_S = 60.0


class _ServedResource(msgspec.Struct):
    name: str = ""


class _ServedResources(msgspec.Struct):
    resources: list[_ServedResource] = []


class RouterLoop:
    """Made once for a set of configurations; `run` may be called again, one at a time."""

    def __init__(
        self,
        configs: Sequence[RouterConfig],
        *,
        client: ApiClient,
        pods: Store[Pod],
        clock: Clock,
        random: random_module.Random,
        recorder: EventRecorder,
        metrics: RouterMetrics,
        namespace: str = "podstamp-system",
        may_act: Callable[[], bool] = lambda: True,
        fresh: Callable[[], bool] = lambda: True,
        beat: Callable[[], None] = lambda: None,
    ) -> None:
        """`pods` holds the managed pods and is kept by the caller. `may_act` is asked before each
        change; `fresh` says whether the store is current, for the status; `beat` is called
        while no router is stuck. `namespace` holds the records."""
        self._configs = configs
        self._client = client
        self._pods = pods
        self._clock = clock
        self._random = random
        self._recorder = recorder
        self._metrics = metrics
        self._namespace = namespace
        self._may_act = may_act
        self._fresh = fresh
        self._beat = beat
        self._routers: list[Router] = []

    async def run(self) -> None:
        """Until cancelled. ConfigError: a CA file of a router cannot be read. Any other error is
        a fault of ours, raised as it is."""
        self._routers = []
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._watch(), name="routers")
                await self._pods.wait_synced()
                for config in self._configs:
                    router = self._make(config, group)
                    self._routers.append(router)
                    group.create_task(router.run(), name=f"router {config.name}")
                for resource in RESOURCES:
                    group.create_task(self._follow_adapters(resource, group))
        except BaseExceptionGroup as faults:
            if len(faults.exceptions) == 1:
                raise faults.exceptions[0] from None
            raise
        finally:
            self._routers = []

    def status(self) -> list[dict[str, Any]]:
        """What each router should have, has, and how they differ, for people."""
        fresh = self._fresh()
        return [router_status(router, fresh=fresh) for router in self._routers]

    async def _watch(self) -> None:
        while True:
            now = self._clock.monotonic()
            if all(
                router.passed_at is None
                or now - router.passed_at < router.config.period_seconds + _STUCK_S
                for router in self._routers
            ):
                self._beat()
            await self._clock.sleep(_BEAT_S)

    async def _follow_adapters(self, resource: Resource, group: asyncio.TaskGroup) -> None:
        """Wait until the kind exists, then read again the pods that its objects name."""
        path = f"/apis/{resource.group}/{resource.version}"
        while True:
            try:
                served = await self._client.get(path, type=_ServedResources)
            except KubeError as error:
                if not isinstance(error, NotFound):
                    _log.info("cannot ask for adapter objects", path=path, error=error)
            else:
                if any(entry.name == resource.plural for entry in served.resources):
                    break
            await self._clock.sleep(_LOOK_FOR_CRD_S)
        store = self._follow(
            group,
            paths.custom(resource.group, resource.version, resource.plural),
            resource.type,
            "",
        )
        await store.wait_synced()
        # What the first list holds was there before the engines were asked.
        store.subscribe(self._adapters_changed)

    def _adapters_changed(self, change: Change[Any]) -> None:
        pods = pods_to_reread(change)
        for router in self._routers:
            router.prober.reread(pods)

    def _make(
        self,
        config: RouterConfig,
        group: asyncio.TaskGroup,
    ) -> Router:
        record = Record(self._client, self._namespace, config.name)
        connector = Connector(
            https=config.engines.scheme == "https",
            ca_file=config.probe.ca_file,
            timeout_s=config.probe.timeout_seconds,
        )
        replicas = self._replica_pods(config, group)

        def prober(wake: Callable[[], None]) -> Prober:
            return Prober(
                config.name,
                config.probe,
                connector=connector,
                clock=self._clock,
                random=self._random,
                metrics=self._metrics,
                on_change=wake,
                spawn=group.create_task,
                refresh_s=refresh_s(config),
            )

        def kind(latest: Callable[[], Desired], wake: Callable[[], None]) -> Kind:
            parts = Parts(
                client=self._client,
                record=record,
                replicas=replicas,
                clock=self._clock,
                random=self._random,
                metrics=self._metrics,
                latest=latest,
                wake=wake,
                spawn=group.create_task,
            )
            return make_kind(config, parts)

        router = Router(
            config,
            kind=kind,
            source=self._source(config.engines, group),
            prober=prober,
            regarding=lambda: _regarding(config, record),
            recorder=self._recorder,
            clock=self._clock,
            random=self._random,
            metrics=self._metrics,
            may_act=self._may_act,
            spawn=group.create_task,
        )
        if replicas is not None:
            replicas.subscribe(lambda _: router.wake())
        return router

    def _replica_pods(self, config: RouterConfig, group: asyncio.TaskGroup) -> Store[Pod] | None:
        """The pods of the router itself, which are as a rule not managed."""
        replicas = replicas_config(config)
        if replicas is None or replicas.pods is None:
            return None
        chosen = replicas.pods
        return self._follow(
            group, paths.pods(chosen.namespace), Pod, selector_text(chosen.selector)
        )

    def _source(self, engines: EngineSource, group: asyncio.TaskGroup) -> Source:
        if engines.source == "pods":
            return PodSource(engines, self._pods, self._client)
        namespace = engines.namespace or None
        services = self._follow(
            group, paths.services(namespace), Service, selector_text(engines.selector)
        )
        slices = self._follow(group, paths.endpointslices(namespace), EndpointSlice, "")
        return ServiceSource(engines, services, slices, self._client)

    def _follow(
        self, group: asyncio.TaskGroup, path: str, type: type[T], label_selector: str
    ) -> Store[T]:
        store: Store[T] = Store(self._clock)
        said: set[str] = set()

        def failed(error: KubeError) -> None:
            if str(error) not in said:
                said.add(str(error))
                _log.warning("cannot follow objects of a router", path=path, error=error)

        reflector = Reflector(
            self._client,
            path,
            type,
            store,
            label_selector=label_selector,
            clock=self._clock,
            random=self._random,
            on_error=failed,
        )
        group.create_task(reflector.run(), name=f"reflector {path}")
        return store


def _regarding(config: RouterConfig, record: Record) -> ObjectReference:
    chosen = config.object
    if chosen is None:
        return record.reference
    return ObjectReference(chosen.api_version, chosen.kind, chosen.namespace, chosen.name)
