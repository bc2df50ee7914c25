"""Where engines come from: the store of pods, or Services with their EndpointSlices.

Invariant: reading a source makes no call; `confirm` makes a consistent list of its own, so that
it can contradict the store.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from controller.routers.config import EngineSource
from controller.routers.engines import Engine, Excluded, Fleet, engine_of, fleet_of, selects
from controller.routers.replicas import selector_text
from controller.routers.services import selects_service, service_candidates
from kube import paths
from kube.client import ApiClient
from kube.pod import Pod
from kube.service import EndpointSlice, Service
from kube.store import Change, Store
from webhook import stamps


class Source(Protocol):
    """The engines of one router, as they are known now."""

    async def wait_synced(self) -> None:
        """Return once the stores hold a full list."""

    def fleet(self) -> Fleet:
        """From the stores."""

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` when something changes that may matter; returns what ends it."""

    async def confirm(self) -> Fleet:
        """From a fresh, consistent list. KubeError: there is none."""


class PodSource:
    """Managed pods. What a pod means is worked out once for each of its versions."""

    def __init__(self, config: EngineSource, pods: Store[Pod], client: ApiClient) -> None:
        self._config = config
        self._pods = pods
        self._client = client
        self._known: dict[str, tuple[Pod, Engine | Excluded]] = {}

    async def wait_synced(self) -> None:
        await self._pods.wait_synced()

    def fleet(self) -> Fleet:
        known: dict[str, tuple[Pod, Engine | Excluded]] = {}
        for pod in self._pods.values():
            uid = pod.metadata.uid
            entry = self._known.get(uid)
            if entry is None or entry[0] is not pod:
                if not selects(pod, self._config):
                    continue
                entry = (pod, engine_of(pod, self._config))
            known[uid] = entry
        self._known = known
        return fleet_of(candidate for _, candidate in known.values())

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        def changed(change: Change[Pod]) -> None:
            if any(pod is not None and selects(pod, self._config) for pod in change):
                wake()

        return self._pods.subscribe(changed)

    async def confirm(self) -> Fleet:
        labels = {stamps.MANAGED: "true", **self._config.selector}
        pods: list[Pod] = []
        async for page in self._client.list_pages(
            paths.pods(self._config.namespace or None),
            type=Pod,
            label_selector=selector_text(labels),
        ):
            pods.extend(page.items)
        return fleet_of(engine_of(p, self._config) for p in pods if selects(p, self._config))


class ServiceSource:
    """Services and their slices, from stores that hold those of the source's namespace."""

    def __init__(
        self,
        config: EngineSource,
        services: Store[Service],
        slices: Store[EndpointSlice],
        client: ApiClient,
    ) -> None:
        self._config = config
        self._services = services
        self._slices = slices
        self._client = client

    async def wait_synced(self) -> None:
        await self._services.wait_synced()
        await self._slices.wait_synced()

    def fleet(self) -> Fleet:
        return fleet_of(
            service_candidates(self._services.values(), self._slices.values(), self._config)
        )

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        def service_changed(change: Change[Service]) -> None:
            if any(s is not None and selects_service(s, self._config) for s in change):
                wake()

        def slice_changed(change: Change[EndpointSlice]) -> None:
            wake()

        ends = (
            self._services.subscribe(service_changed),
            self._slices.subscribe(slice_changed),
        )

        def unsubscribe() -> None:
            for end in ends:
                end()

        return unsubscribe

    async def confirm(self) -> Fleet:
        namespace = self._config.namespace or None
        services: list[Service] = []
        async for page in self._client.list_pages(
            paths.services(namespace),
            type=Service,
            label_selector=selector_text(self._config.selector),
        ):
            services.extend(page.items)
        slices: list[EndpointSlice] = []
        async for found in self._client.list_pages(
            paths.endpointslices(namespace), type=EndpointSlice
        ):
            slices.extend(found.items)
        return fleet_of(service_candidates(services, slices, self._config))
