"""Which pods are engines, at which URL, and what makes an engine new to a router.

Invariant: pure, and a function of the pods alone, so no order of events can change the answer;
an address belongs to one incarnation, the newest live one that claims it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import NamedTuple

from controller.routers.config import EngineSource
from kube.pod import Pod, condition, is_ready, is_terminal, is_terminating
from webhook import stamps


class EngineKey(NamedTuple):
    """What an engine is to a router: while none of these changes, nothing is asked or sent."""

    uid: str
    url: str
    containers: tuple[tuple[str, int, str], ...]
    model_label: str
    sleeping: bool
    lora_modified_ns: int | None


class Reason(Enum):
    """Why a selected object is no engine now."""

    TERMINAL = "terminal"
    TERMINATING = "terminating"
    NOT_READY = "not ready"
    SLEEPING = "sleeping"
    NO_ADDRESS = "no address"
    NO_PORT = "no such port"
    SUPERSEDED = "address belongs to another incarnation"
    HEADLESS = "headless Service"
    EXTERNAL_NAME = "ExternalName Service"
    NO_ENDPOINT = "no ready endpoint"


@dataclass(frozen=True, slots=True)
class Engine:
    """One incarnation at one address, ready or not."""

    key: EngineKey
    namespace: str
    name: str
    incarnation: str
    address: str
    addresses: tuple[str, ...]
    port: int
    created: datetime | None
    node: str
    zone: str
    ready: bool
    terminating: bool

    @property
    def uid(self) -> str:
        return self.key.uid

    @property
    def url(self) -> str:
        return self.key.url


@dataclass(frozen=True, slots=True)
class Excluded:
    """A selected object that has no place in any list, and why."""

    uid: str
    namespace: str
    name: str
    reason: Reason


@dataclass(frozen=True, slots=True)
class Fleet:
    """What one source holds now.

    `serving`: by URL, what routers should have. `addressed`: every pod that holds an address,
    ready or not, for EndpointSlices. `excluded`: all of what was selected that does not serve.
    """

    serving: Mapping[str, Engine]
    addressed: tuple[Engine, ...]
    excluded: tuple[Excluded, ...]


def selects(pod: Pod, source: EngineSource) -> bool:
    """Whether namespace, labels and set index make this pod an engine of the source."""
    metadata = pod.metadata
    if source.namespace and metadata.namespace != source.namespace:
        return False
    labels = metadata.labels
    if any(labels.get(key) != value for key, value in source.selector.items()):
        return False
    if not source.indexes:
        return True
    index = labels.get(stamps.PODSET_INDEX, "")
    return index.isdecimal() and int(index) in source.indexes


def engine_of(pod: Pod, source: EngineSource) -> Engine | Excluded:
    """The engine that a selected pod is, or why it is none.

    Readiness gates are looked at one by one: Ready is written by the kubelet, a gate by others,
    and a gate that has just fallen must not wait for the kubelet (core/v1 PodReadinessGate).
    """
    metadata = pod.metadata

    def excluded(reason: Reason) -> Excluded:
        return Excluded(metadata.uid, metadata.namespace, metadata.name, reason)

    if is_terminal(pod):
        return excluded(Reason.TERMINAL)
    address = address_of(pod, source.address_family)
    if address is None:
        return excluded(Reason.TERMINATING if is_terminating(pod) else Reason.NO_ADDRESS)
    port = port_of(pod, source.port, source.container)
    if port is None:
        return excluded(Reason.NO_PORT)
    labels = metadata.labels
    stamp = metadata.annotations.lora_modified
    key = EngineKey(
        uid=metadata.uid,
        url=url_of(source.scheme, address, port),
        containers=_containers(pod, port, source.container),
        model_label=labels.get(source.model_label, ""),
        sleeping=labels.get(source.sleeping_label, "").lower() == "true",
        lora_modified_ns=stamps.parse_instant(stamp) if stamp else None,
    )
    return Engine(
        key=key,
        namespace=metadata.namespace,
        name=metadata.name,
        incarnation=metadata.annotations.incarnation or "",
        address=address,
        addresses=tuple(addresses_of(pod)),
        port=port,
        created=metadata.creation_timestamp,
        node=pod.spec.node_name,
        zone=labels.get("topology.kubernetes.io/zone", ""),
        ready=is_ready(pod) and _gates_pass(pod),
        terminating=is_terminating(pod),
    )


def fleet_of(candidates: Iterable[Engine | Excluded]) -> Fleet:
    """Who serves, with each URL given to one incarnation.

    After an address was reused, the pod that had it may still be in the list with it (a lost
    node keeps a pod Ready for minutes). The newest live claim holds, ready or not: a request
    sent for the older one would reach the newer one.
    """
    holders: dict[str, Engine] = {}
    engines: list[Engine] = []
    excluded: list[Excluded] = []
    for candidate in candidates:
        if isinstance(candidate, Excluded):
            excluded.append(candidate)
            continue
        engines.append(candidate)
        if candidate.terminating:
            continue
        holder = holders.get(candidate.url)
        if holder is None or _age(candidate) > _age(holder):
            holders[candidate.url] = candidate
    serving: dict[str, Engine] = {}
    addressed: list[Engine] = []
    for engine in engines:
        if holders.get(engine.url, engine) is not engine:
            terminating = engine.terminating
            reason = Reason.TERMINATING if terminating else Reason.SUPERSEDED
            excluded.append(Excluded(engine.uid, engine.namespace, engine.name, reason))
            continue
        addressed.append(engine)
        if engine.terminating:
            reason = Reason.TERMINATING
        elif not engine.ready:
            reason = Reason.NOT_READY
        elif engine.key.sleeping:
            reason = Reason.SLEEPING
        else:
            serving[engine.url] = engine
            continue
        excluded.append(Excluded(engine.uid, engine.namespace, engine.name, reason))
    return Fleet(serving, tuple(addressed), tuple(excluded))


def address_of(pod: Pod, family: str) -> str | None:
    """The pod's address of that family (`primary`: the one that Kubernetes prefers), if valid."""
    for address in addresses_of(pod):
        if family in ("primary", family_of(address)):
            return address
    return None


def addresses_of(pod: Pod) -> list[str]:
    """All its valid addresses, the preferred one first, each in its one spelling."""
    texts = [pod.status.pod_ip, *(entry.ip for entry in pod.status.pod_ips)]
    found: dict[str, None] = {}
    for text in texts:
        try:
            found[str(ipaddress.ip_address(text))] = None
        except ValueError:
            continue
    return list(found)


def family_of(address: str) -> str:
    """`IPv4` or `IPv6`, as EndpointSlices write it."""
    return f"IPv{ipaddress.ip_address(address).version}"


def port_of(pod: Pod, port: int | str, container: str = "") -> int | None:
    """A number is itself, also if no container declares it; a name must be declared."""
    if isinstance(port, int):
        return port
    for entry in pod.spec.containers:
        if container and entry.name != container:
            continue
        for declared in entry.ports:
            if declared.name == port:
                return declared.container_port
    return None


def url_of(scheme: str, host: str, port: int) -> str:
    """The one spelling of an engine's URL: no trailing slash, IPv6 in brackets."""
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _containers(pod: Pod, port: int, container: str) -> tuple[tuple[str, int, str], ...]:
    """Restarts that matter: those of the container that serves, or of all if none says it does.

    A sidecar that restarts takes no adapter with it.
    """
    serving = {
        entry.name
        for entry in pod.spec.containers
        if entry.name == container
        or (not container and any(p.container_port == port for p in entry.ports))
    }
    return tuple(
        sorted(
            (status.name, status.restart_count, status.container_id)
            for status in pod.status.container_statuses
            if not serving or status.name in serving
        )
    )


def _gates_pass(pod: Pod) -> bool:
    for gate in pod.spec.readiness_gates:
        found = condition(pod, gate.condition_type)
        if found is None or found.status != "True":
            return False
    return True


def _age(engine: Engine) -> tuple[float, str, str]:
    """Order of birth: the incarnation, being a UUID version 7, tells within one second."""
    created = engine.created.timestamp() if engine.created else 0.0
    return (created, engine.incarnation, engine.uid)
