"""How engines are laid out in EndpointSlices.

Invariant: pure; an endpoint that is in a slice stays in it, so that a change of one engine
rewrites one slice, and an engine is in one slice of its address family and port, never in two.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import msgspec

from controller.routers.config import EndpointSliceRouter
from controller.routers.desired import Desired
from controller.routers.engines import Engine, family_of

SERVICE_NAME_LABEL = "kubernetes.io/service-name"
MANAGED_BY_LABEL = "endpointslice.kubernetes.io/managed-by"
MANAGED_BY = "routers.podstamp.dev"

Group: TypeAlias = tuple[str, int]
"""Address family and port: what all endpoints of one slice share."""


class Conditions(msgspec.Struct, frozen=True):
    """discovery/v1 EndpointConditions: `ready` is false for what is on its way out, `serving`
    says whether it could still answer."""

    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None


class TargetRef(msgspec.Struct, frozen=True):
    """The incarnation behind an endpoint."""

    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class Endpoint(msgspec.Struct, frozen=True, rename="camel"):
    """One endpoint, with one address, as Kubernetes itself writes them."""

    addresses: tuple[str, ...] = ()
    conditions: Conditions = Conditions()
    target_ref: TargetRef | None = None
    node_name: str | None = None
    zone: str | None = None


class Port(msgspec.Struct, frozen=True):
    """One port of a slice."""

    name: str = ""
    port: int = 0
    protocol: str = "TCP"


class Owner(msgspec.Struct, frozen=True, rename="camel"):
    """The Service, with which the slices go."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class SliceMetadata(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What is written, and what a write is guarded with."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    owner_references: tuple[Owner, ...] = ()


class Slice(msgspec.Struct, frozen=True, rename="camel"):
    """One EndpointSlice."""

    metadata: SliceMetadata
    address_type: str
    endpoints: tuple[Endpoint, ...] = ()
    ports: tuple[Port, ...] = ()
    api_version: str = "discovery.k8s.io/v1"
    kind: str = "EndpointSlice"


class ServiceMetadata(msgspec.Struct, frozen=True):
    """Identity of the Service."""

    name: str = ""
    uid: str = ""


class ServiceSpec(msgspec.Struct, frozen=True, rename="camel"):
    """What decides whether and how it gets slices."""

    selector: dict[str, str] | None = None
    ip_families: tuple[str, ...] = ()


class Service(msgspec.Struct, frozen=True):
    """The Service whose slices these are."""

    metadata: ServiceMetadata = ServiceMetadata()
    spec: ServiceSpec = ServiceSpec()


class Plan(NamedTuple):
    """Writes that make the slices right."""

    create: tuple[Slice, ...] = ()
    update: tuple[Slice, ...] = ()
    delete: tuple[Slice, ...] = ()

    @property
    def empty(self) -> bool:
        return not (self.create or self.update or self.delete)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(s.metadata.name for s in (*self.create, *self.update, *self.delete))


def group_of(entry: Slice) -> Group:
    """The group of a slice; one that we did not make so has port 0, and is emptied."""
    return (entry.address_type, entry.ports[0].port if len(entry.ports) == 1 else 0)


def endpoints_of(
    desired: Desired,
    service: Service,
    config: EndpointSliceRouter,
    zones: Mapping[str, str],
) -> dict[Group, tuple[Endpoint, ...]]:
    """Every engine with an address, under each family that the Service has.

    Engines that are not ready are published as such, as Kubernetes does for its own slices.
    """
    families = service.spec.ip_families
    chosen = config.engines.address_family
    groups: dict[Group, list[Endpoint]] = {}
    known = {engine.url for engine in desired.addressed}
    held = [b.engine for url, b in desired.backends.items() if url not in known]
    for engine in (*desired.addressed, *held):
        backend = desired.backends.get(engine.url)
        ready = backend is not None and backend.engine.uid == engine.uid
        # What a former leader published is not taken back before its engine was asked.
        ready = ready or (engine.ready and engine.url in desired.undecided)
        taken: set[str] = set()
        for address in engine.addresses:
            family = family_of(address)
            if family in taken or (families and family not in families):
                continue
            if chosen not in ("primary", family):
                continue
            taken.add(family)
            endpoint = _endpoint(engine, address, ready, zones)
            groups.setdefault((family, engine.port), []).append(endpoint)
    return {
        group: tuple(sorted(found, key=lambda e: e.addresses)) for group, found in groups.items()
    }


def plan_slices(
    wanted: Mapping[Group, Sequence[Endpoint]],
    existing: Sequence[Slice],
    service: Service,
    config: EndpointSliceRouter,
) -> Plan:
    """The fewest writes: what is right stays where it is, gaps are filled, empty slices go."""
    create: list[Slice] = []
    update: list[Slice] = []
    delete: list[Slice] = []
    names = {s.metadata.name for s in existing}
    placed: dict[Group, list[Slice]] = {}
    for s in existing:
        placed.setdefault(group_of(s), []).append(s)
    for group in sorted({*wanted, *placed}):
        left = {_identity(endpoint): endpoint for endpoint in wanted.get(group, ())}
        kept: list[tuple[Slice, list[Endpoint]]] = []
        for s in placed.get(group, ()):
            stays: list[Endpoint] = []
            for endpoint in s.endpoints:
                if _identity(endpoint) in left and len(stays) < config.max_endpoints:
                    stays.append(left.pop(_identity(endpoint)))
            kept.append((s, stays))
        fresh = list(left.values())
        for s, stays in kept:
            room = config.max_endpoints - len(stays)
            stays += fresh[:room]
            del fresh[:room]
            if not stays:
                delete.append(s)
                continue
            right = _slice(s.metadata, group, stays, service, config)
            if right != s:
                update.append(right)
        while fresh:
            name = _free_name(config.service, group, names)
            names.add(name)
            metadata = SliceMetadata(name=name, namespace=config.namespace)
            create.append(_slice(metadata, group, fresh[: config.max_endpoints], service, config))
            del fresh[: config.max_endpoints]
    return Plan(tuple(create), tuple(update), tuple(delete))


def describe(groups: Mapping[Group, Iterable[Endpoint]]) -> Iterable[tuple[str, str]]:
    """Address with port, and in words what is published of it, for comparison and for people."""
    for (_, port), endpoints in groups.items():
        for endpoint in endpoints:
            uid = endpoint.target_ref.uid if endpoint.target_ref else ""
            conditions = endpoint.conditions
            words = f"{uid} ready={conditions.ready} serving={conditions.serving}"
            words += f" terminating={conditions.terminating} zone={endpoint.zone}"
            for address in endpoint.addresses:
                host = f"[{address}]" if ":" in address else address
                yield f"{host}:{port}", words


def _endpoint(engine: Engine, address: str, ready: bool, zones: Mapping[str, str]) -> Endpoint:
    return Endpoint(
        addresses=(address,),
        conditions=Conditions(
            ready=ready and not engine.terminating,
            serving=engine.ready,
            terminating=engine.terminating,
        ),
        target_ref=TargetRef("Pod", engine.namespace, engine.name, engine.uid),
        node_name=engine.node or None,
        zone=engine.zone or zones.get(engine.node) or None,
    )


def _slice(
    metadata: SliceMetadata,
    group: Group,
    endpoints: Iterable[Endpoint],
    service: Service,
    config: EndpointSliceRouter,
) -> Slice:
    family, port = group
    owner = Owner("v1", "Service", config.service, service.metadata.uid, controller=True)
    labels = {SERVICE_NAME_LABEL: config.service, MANAGED_BY_LABEL: MANAGED_BY}
    return Slice(
        metadata=msgspec.structs.replace(
            metadata, labels={**metadata.labels, **labels}, owner_references=(owner,)
        ),
        address_type=family,
        endpoints=tuple(endpoints),
        ports=(Port(config.port_name, port),),
    )


def _identity(endpoint: Endpoint) -> tuple[str, tuple[str, ...]]:
    """An incarnation at an address; the same address of another incarnation is another one."""
    return (endpoint.target_ref.uid if endpoint.target_ref else "", endpoint.addresses)


def _free_name(service: str, group: Group, taken: set[str]) -> str:
    """Not left to the server, so that a create whose answer was lost is not made twice."""
    number = 0
    while (name := f"{service}-podstamp-{group[0].lower()}-{group[1]}-{number}") in taken:
        number += 1
    return name
