"""Kind `endpointslice`: EndpointSlices of a Service that has no selector.

Invariant: slices of others are never touched; ours are updated in place, each write under the
resourceVersion that it was computed from.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import msgspec

from controller.routers.config import EndpointSliceRouter
from controller.routers.desired import Desired
from controller.routers.document_kind import difference_of
from controller.routers.engines import url_of
from controller.routers.kinds import Difference, Target
from controller.routers.slices import (
    MANAGED_BY,
    MANAGED_BY_LABEL,
    SERVICE_NAME_LABEL,
    Plan,
    Service,
    Slice,
    describe,
    endpoints_of,
    group_of,
    plan_slices,
)
from controller.routers.transport import RouterError
from kube import paths
from kube.client import ApiClient
from kube.errors import Forbidden, NotFound
from kube.events import ObjectReference
from kube.logs import get_logger

_log = get_logger(__name__)
_ZONE = "topology.kubernetes.io/zone"
_NODES_AT_ONCE = 8


class _NodeMetadata(msgspec.Struct):
    labels: dict[str, str] = {}


class _Node(msgspec.Struct):
    metadata: _NodeMetadata = msgspec.field(default_factory=_NodeMetadata)


class EndpointSlices:
    """The slices of one Service, as one target."""

    def __init__(
        self,
        config: EndpointSliceRouter,
        *,
        client: ApiClient,
        latest: Callable[[], Desired],
    ) -> None:
        """`latest`: the desired set, for the zones of its nodes."""
        self._config = config
        self._client = client
        self._latest = latest
        self._service = Service()
        self._slices: list[Slice] = []
        self._zones: dict[str, str] = {}
        self._nodes_refused = False
        self._told_refused = False

    @property
    def label(self) -> str:
        return f"{self._config.namespace}/{self._config.service}"

    @property
    def regarding(self) -> ObjectReference | None:
        uid = self._service.metadata.uid
        return ObjectReference("v1", "Service", self._config.namespace, self._config.service, uid)

    async def load(self) -> None:
        await self._list()

    def targets(self) -> Mapping[str, Target]:
        return {"": self}

    async def settle(self, desired: Desired) -> None:
        return

    def applied_urls(self) -> frozenset[str]:
        """What is published as ready, as the engines' URLs would be."""
        return frozenset(
            url_of(self._config.engines.scheme, address, group_of(entry)[1])
            for entry in self._slices
            for endpoint in entry.endpoints
            if endpoint.conditions.ready
            for address in endpoint.addresses
        )

    async def aclose(self) -> None:
        return

    async def observe(self) -> None:
        config = self._config
        path = paths.service(config.namespace, config.service)
        try:
            self._service = await self._client.get(path, type=Service)
        except NotFound as error:
            raise RouterError(
                f"Service {self.label} does not exist; create it without a selector"
            ) from error
        if self._service.spec.selector:
            raise RouterError(
                f"Service {self.label} has a selector, so Kubernetes makes its slices; remove it"
            )
        await self._list()
        await self._read_zones()

    def observed(self) -> tuple[str, ...]:
        return tuple(self._existing())

    def difference(self, desired: Desired) -> Difference:
        wanted = endpoints_of(desired, self._service, self._config, self._zones)
        plan = self._plan(desired)
        if plan.empty:
            return Difference()
        found = difference_of(dict(describe(wanted)), self._existing())
        # Labels, owner, ports or the division into slices: nothing that an address shows.
        return found if not found.settled else Difference(change=plan.names)

    async def apply(self, desired: Desired, difference: Difference) -> None:
        """Updates first, since they take ghosts out, then what is new, then empty slices."""
        config = self._config
        plan = self._plan(desired)
        for entry in plan.update:
            path = paths.endpointslice(config.namespace, entry.metadata.name)
            await self._client.replace(path, entry)
        for entry in plan.create:
            await self._client.create(paths.endpointslices(config.namespace), entry)
        for entry in plan.delete:
            path = paths.endpointslice(config.namespace, entry.metadata.name)
            version = entry.metadata.resource_version
            try:
                await self._client.delete(path, uid=entry.metadata.uid, resource_version=version)
            except NotFound:
                continue

    def _plan(self, desired: Desired) -> Plan:
        wanted = endpoints_of(desired, self._service, self._config, self._zones)
        return plan_slices(wanted, self._slices, self._service, self._config)

    def _existing(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for entry in self._slices:
            found.update(describe({group_of(entry): entry.endpoints}))
        return found

    async def _list(self) -> None:
        config = self._config
        selector = f"{SERVICE_NAME_LABEL}={config.service},{MANAGED_BY_LABEL}={MANAGED_BY}"
        found: list[Slice] = []
        async for page in self._client.list_pages(
            paths.endpointslices(config.namespace), type=Slice, label_selector=selector
        ):
            found.extend(page.items)
        self._slices = sorted(found, key=lambda entry: entry.metadata.name)

    async def _read_zones(self) -> None:
        """Zones of nodes whose pods do not carry one; each node is read once.

        One refusal ends the reads of this pass; the next one asks again, as a role may be granted.
        """
        if not self._config.zones:
            return
        self._nodes_refused = False
        nodes = {
            engine.node
            for engine in self._latest().addressed
            if engine.node and not engine.zone and engine.node not in self._zones
        }
        slots = asyncio.Semaphore(_NODES_AT_ONCE)
        await asyncio.gather(*(self._read_zone(node, slots) for node in sorted(nodes)))

    async def _read_zone(self, name: str, slots: asyncio.Semaphore) -> None:
        async with slots:
            if self._nodes_refused:
                return
            try:
                node = await self._client.get(paths.node(name), type=_Node)
            except NotFound:
                return
            except Forbidden as error:
                self._nodes_refused = True
                if not self._told_refused:
                    self._told_refused = True
                    _log.warning("zones are left out: nodes cannot be read", error=error)
                return
        self._zones[name] = node.metadata.labels.get(_ZONE, "")
