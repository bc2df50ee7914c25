"""Services as engines, for routers that find their engines by Service name.

Invariant: pure; readiness comes from EndpointSlices alone, and adapters are never compared,
because a Service speaks for pods whose adapters may differ.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from controller.routers.config import EngineSource
from controller.routers.engines import Engine, EngineKey, Excluded, Reason, url_of
from kube.service import EndpointSlice, Service


def selects_service(service: Service, source: EngineSource) -> bool:
    """Whether namespace and labels make this Service an engine of the source."""
    metadata = service.metadata
    if source.namespace and metadata.namespace != source.namespace:
        return False
    return all(metadata.labels.get(k) == v for k, v in source.selector.items())


def service_engine(
    service: Service, slices: Iterable[EndpointSlice], source: EngineSource
) -> Engine | Excluded:
    """The engine that a selected Service is, or why it is none.

    A headless or ExternalName Service has no address of its own to balance behind, and one
    without a ready endpoint refuses connections: each is left out without touching the others.
    """
    metadata, spec = service.metadata, service.spec

    def excluded(reason: Reason) -> Excluded:
        return Excluded(metadata.uid, metadata.namespace, metadata.name, reason)

    if spec.type == "ExternalName" or spec.external_name:
        return excluded(Reason.EXTERNAL_NAME)
    if spec.cluster_ip == "None":
        return excluded(Reason.HEADLESS)
    if not spec.cluster_ip:
        return excluded(Reason.NO_ADDRESS)
    port = _port(service, source.port)
    if port is None:
        return excluded(Reason.NO_PORT)
    by_name = source.service_address == "dns"
    host = f"{metadata.name}.{metadata.namespace}.svc" if by_name else spec.cluster_ip
    ready = _has_ready_endpoint(slices)
    if not ready:
        return excluded(Reason.NO_ENDPOINT)
    labels = metadata.labels
    return Engine(
        key=EngineKey(
            uid=metadata.uid,
            url=url_of(source.scheme, host, port),
            containers=(),
            model_label=labels.get(source.model_label, ""),
            sleeping=labels.get(source.sleeping_label, "").lower() == "true",
            lora_modified_ns=None,
        ),
        namespace=metadata.namespace,
        name=metadata.name,
        incarnation="",
        address=spec.cluster_ip,
        addresses=(spec.cluster_ip,),
        port=port,
        created=metadata.creation_timestamp,
        node="",
        zone="",
        ready=True,
        terminating=metadata.deletion_timestamp is not None,
    )


def service_candidates(
    services: Iterable[Service], slices: Collection[EndpointSlice], source: EngineSource
) -> list[Engine | Excluded]:
    """Each selected Service, judged by its own slices."""
    by_service: dict[tuple[str, str], list[EndpointSlice]] = {}
    for entry in slices:
        by_service.setdefault((entry.metadata.namespace, entry.service_name), []).append(entry)
    return [
        service_engine(service, by_service.get(service.key, ()), source)
        for service in services
        if selects_service(service, source)
    ]


def _port(service: Service, port: int | str) -> int | None:
    """The port by name or number; unlike a container's, a Service's port must be declared."""
    for entry in service.spec.ports:
        if port in (entry.name, entry.port):
            return entry.port
    return None


def _has_ready_endpoint(slices: Iterable[EndpointSlice]) -> bool:
    """An endpoint whose ready is true or unknown (discovery/v1: nil counts as true)."""
    return any(
        endpoint.conditions.ready is not False and endpoint.addresses
        for entry in slices
        for endpoint in entry.endpoints
    )
