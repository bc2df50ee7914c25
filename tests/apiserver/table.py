"""Tables: the columns that `kubectl get` prints, made by the server as the real one does."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, NamedTuple

from tests.apiserver.kinds import Object, Resource


class Column(NamedTuple):
    """`priority` 1 shows with `-o wide` only."""

    name: str
    value: Callable[[Object], Any]
    type: str = "string"
    priority: int = 0
    format: str = ""
    description: str = ""


def age(stamp: str | None, now: datetime | None = None) -> str:
    """How long ago, as kubectl shortens it; <unknown> without a time."""
    if not stamp:
        return "<unknown>"
    then = datetime.fromisoformat(stamp.replace("Z", "+00:00"))
    seconds = int(((now or datetime.now(UTC)) - then).total_seconds())
    if seconds < 0:
        return "0s" if seconds > -2 else "<invalid>"
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        return f"{minutes}m{seconds % 60}s" if seconds % 60 else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    if hours < 192:
        return f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"
    return f"{days}d" if days < 730 else f"{days // 365}y"


def _created(obj: Object) -> str:
    return age(obj["metadata"].get("creationTimestamp"))


def _path(path: str, default: str = "") -> Callable[[Object], Any]:
    """A getter for a dotted path."""
    steps = path.split(".")

    def value(obj: Object) -> Any:
        found: Any = obj
        for step in steps:
            found = found.get(step) if isinstance(found, dict) else None
        return default if found is None else found

    return value


def _count(*paths: str) -> Callable[[Object], Any]:
    getters = [_path(path) for path in paths]
    return lambda obj: sum(len(get(obj)) for get in getters)


NAME = Column("Name", lambda obj: obj["metadata"].get("name", ""), format="name")
AGE = Column("Age", _created)


# pods


def _pod_ready(pod: Object) -> str:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    ready = sum(bool(s.get("ready")) and "running" in (s.get("state") or {}) for s in statuses)
    return f"{ready}/{len(pod['spec'].get('containers', ()))}"


def _pod_status(pod: Object) -> str:
    status = pod.get("status") or {}
    reason = status.get("reason") or status.get("phase") or "Unknown"
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("reason") == "SchedulingGated":
            reason = "SchedulingGated"
    initial = _init_reason(pod, status)
    if initial is not None:
        reason = initial
    else:
        has_running = False
        for container in reversed(status.get("containerStatuses") or []):
            state = container.get("state") or {}
            waiting, ended = state.get("waiting") or {}, state.get("terminated") or {}
            if waiting.get("reason"):
                reason = waiting["reason"]
            elif ended.get("reason"):
                reason = ended["reason"]
            elif "terminated" in state:
                signal = ended.get("signal")
                reason = f"Signal:{signal}" if signal else f"ExitCode:{ended.get('exitCode', 0)}"
            elif container.get("ready") and "running" in state:
                has_running = True
        if reason == "Completed" and has_running:
            ready = any(
                c.get("type") == "Ready" and c.get("status") == "True"
                for c in status.get("conditions") or ()
            )
            reason = "Running" if ready else "NotReady"
    if pod["metadata"].get("deletionTimestamp"):
        if status.get("reason") == "NodeLost":
            return "Unknown"
        if status.get("phase") not in ("Failed", "Succeeded"):
            return "Terminating"
    return str(reason)


def _init_reason(pod: Object, status: Object) -> str | None:
    total = len(pod["spec"].get("initContainers", ()))
    for index, container in enumerate(status.get("initContainerStatuses") or ()):
        state = container.get("state") or {}
        ended = state.get("terminated")
        if ended is not None and ended.get("exitCode", 0) == 0:
            continue
        if ended is not None:
            return "Init:" + (ended.get("reason") or f"ExitCode:{ended.get('exitCode')}")
        waiting = (state.get("waiting") or {}).get("reason")
        if waiting and waiting != "PodInitializing":
            return f"Init:{waiting}"
        return f"Init:{index}/{total}"
    return None


def _pod_restarts(pod: Object) -> str:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return str(sum(s.get("restartCount", 0) for s in statuses))


def _gates(pod: Object) -> str:
    gates = pod["spec"].get("readinessGates") or ()
    if not gates:
        return "<none>"
    held = {
        c.get("type"): c.get("status") for c in (pod.get("status") or {}).get("conditions") or ()
    }
    true = sum(held.get(gate.get("conditionType")) == "True" for gate in gates)
    return f"{true}/{len(gates)}"


# events


def _event_times(event: Object) -> tuple[str, str]:
    """First and last seen, from whichever fields the event has."""
    first = event.get("firstTimestamp") or event.get("deprecatedFirstTimestamp")
    last = event.get("lastTimestamp") or event.get("deprecatedLastTimestamp")
    series = event.get("series") or {}
    first = first or event.get("eventTime")
    return age(first), age(series.get("lastObservedTime") or last or first)


def _event_object(event: Object) -> str:
    involved = event.get("involvedObject") or event.get("regarding") or {}
    return f"{involved.get('kind', '').lower()}/{involved.get('name', '')}"


def _event_source(event: Object) -> str:
    source = event.get("source") or event.get("deprecatedSource") or {}
    component = source.get("component") or event.get("reportingComponent")
    component = component or event.get("reportingController") or ""
    host = source.get("host") or event.get("reportingInstance")
    return f"{component}, {host}" if host else component


def _event_count(event: Object) -> Any:
    series = event.get("series") or {}
    return series.get("count") or event.get("count") or event.get("deprecatedCount") or 1


def _event_field(obj: Object) -> str:
    involved = obj.get("involvedObject") or obj.get("regarding") or {}
    return str(involved.get("fieldPath", ""))


# others


def _node_status(node: Object) -> str:
    status = "Unknown"
    for condition in (node.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "Ready":
            status = "Ready" if condition.get("status") == "True" else "NotReady"
    cordoned = (node.get("spec") or {}).get("unschedulable")
    return f"{status},SchedulingDisabled" if cordoned else status


def _ports(service: Object) -> str:
    ports = (service.get("spec") or {}).get("ports") or ()
    return ",".join(f"{p.get('port')}/{p.get('protocol')}" for p in ports) or "<none>"


def _endpoints(obj: Object) -> str:
    found = [a for e in obj.get("endpoints") or () for a in e.get("addresses") or ()]
    more = f" + {len(found) - 3} more..." if len(found) > 3 else ""
    return ",".join(found[:3]) + more if found else "<unset>"


def _ready_of(want: str) -> Callable[[Object], str]:
    wanted, ready = _path(want, "0"), _path("status.readyReplicas", "0")
    return lambda obj: f"{ready(obj)}/{wanted(obj)}"


_WEBHOOKS = (NAME, Column("Webhooks", lambda o: len(o.get("webhooks") or ()), "integer"), AGE)

_COLUMNS: dict[str, tuple[Column, ...]] = {
    "pods": (
        NAME,
        Column("Ready", _pod_ready),
        Column("Status", _pod_status),
        Column("Restarts", _pod_restarts),
        AGE,
        Column("IP", _path("status.podIP", "<none>"), priority=1),
        Column("Node", _path("spec.nodeName", "<none>"), priority=1),
        Column("Nominated Node", _path("status.nominatedNodeName", "<none>"), priority=1),
        Column("Readiness Gates", _gates, priority=1),
    ),
    "events": (
        Column("Last Seen", lambda event: _event_times(event)[1]),
        Column("Type", _path("type")),
        Column("Reason", _path("reason")),
        Column("Object", _event_object),
        Column("Subobject", _event_field, priority=1),
        Column("Source", _event_source, priority=1),
        Column("Message", lambda e: (e.get("message") or e.get("note") or "").strip()),
        Column("First Seen", lambda event: _event_times(event)[0], priority=1),
        Column("Count", _event_count, priority=1),
        NAME._replace(priority=1),
    ),
    "namespaces": (NAME, Column("Status", _path("status.phase")), AGE),
    "secrets": (NAME, Column("Type", _path("type")), Column("Data", _count("data")), AGE),
    "configmaps": (NAME, Column("Data", _count("data", "binaryData")), AGE),
    "serviceaccounts": (NAME, Column("Secrets", _count("secrets")), AGE),
    "services": (
        NAME,
        Column("Type", _path("spec.type")),
        Column("Cluster-IP", _path("spec.clusterIP", "<none>")),
        Column("External-IP", lambda _: "<none>"),
        Column("Port(s)", _ports),
        AGE,
    ),
    "nodes": (
        NAME,
        Column("Status", _node_status),
        Column("Roles", lambda _: "<none>"),
        AGE,
        Column("Version", _path("status.nodeInfo.kubeletVersion")),
    ),
    "deployments.apps": (
        NAME,
        Column("Ready", _ready_of("spec.replicas")),
        Column("Up-to-date", _path("status.updatedReplicas", "0")),
        Column("Available", _path("status.availableReplicas", "0")),
        AGE,
    ),
    "statefulsets.apps": (NAME, Column("Ready", _ready_of("spec.replicas")), AGE),
    "leases.coordination.k8s.io": (NAME, Column("Holder", _path("spec.holderIdentity")), AGE),
    "endpointslices.discovery.k8s.io": (
        NAME,
        Column("AddressType", _path("addressType")),
        Column("Endpoints", _endpoints),
        AGE,
    ),
    "priorityclasses.scheduling.k8s.io": (NAME, Column("Value", _path("value")), AGE),
    "mutatingwebhookconfigurations.admissionregistration.k8s.io": _WEBHOOKS,
    "validatingwebhookconfigurations.admissionregistration.k8s.io": _WEBHOOKS,
    "customresourcedefinitions.apiextensions.k8s.io": (
        NAME,
        Column("Created At", lambda o: o["metadata"].get("creationTimestamp", "")),
    ),
}

_STEP = re.compile(r"\.([\w-]+)|\[(\d+)\]|\[\?\(@\.([\w.-]+)==[\"']([^\"']*)[\"']\)\]")


def json_path(path: str) -> Callable[[Object], Any]:
    """The subset that printer columns use: fields, indexes, and `[?(@.type=="Ready")]`."""
    steps = [match.groups() for match in _STEP.finditer(path)]

    def value(obj: Object) -> Any:
        found: Any = obj
        for name, index, key, wanted in steps:
            if name is not None:
                found = found.get(name) if isinstance(found, dict) else None
            elif index is not None:
                at = int(index)
                found = found[at] if isinstance(found, list) and at < len(found) else None
            else:
                items = found if isinstance(found, list) else []
                found = next((i for i in items if _path(key)(i) == wanted), None)
        return found

    return value


def _printer_column(column: Object) -> Column:
    get = json_path(column.get("jsonPath", ""))
    kind = column.get("type", "string")

    def value(obj: Object) -> Any:
        found = get(obj)
        if kind == "date":
            return age(found) if found else None
        return found

    return Column(
        column.get("name", ""),
        value,
        kind,
        column.get("priority", 0),
        column.get("format", ""),
        column.get("description", ""),
    )


def columns_of(resource: Resource) -> tuple[Column, ...]:
    if resource.definition is not None:
        printed = resource.definition.get("additionalPrinterColumns")
        return (NAME, *(_printer_column(column) for column in printed)) if printed else (NAME, AGE)
    return _COLUMNS.get(resource.storage, (NAME, AGE))


def table(
    resource: Resource, objects: Iterable[Object], version: str, with_columns: bool
) -> Object:
    """A meta.k8s.io/v1 Table of these objects, each row with the object's metadata."""
    columns = columns_of(resource)
    definitions = [
        {
            "name": column.name,
            "type": column.type,
            "format": column.format,
            "description": column.description or f"{column.name} of the {resource.kind}",
            "priority": column.priority,
        }
        for column in columns
    ]
    rows = [
        {
            "cells": [column.value(obj) for column in columns],
            "object": {
                "kind": "PartialObjectMetadata",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": obj["metadata"],
            },
        }
        for obj in objects
    ]
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": version},
        "columnDefinitions": definitions if with_columns else [],
        "rows": rows,
    }
