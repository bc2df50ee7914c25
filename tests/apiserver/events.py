"""Events in their two shapes: stored as core v1, served also as events.k8s.io/v1.

Field names follow the conversion of the real server: note is message, regarding is
involvedObject, the deprecated fields are the core ones.
"""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]

_TO_CORE = {
    "note": "message",
    "regarding": "involvedObject",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedCount": "count",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
}
_FROM_CORE = {core: new for new, core in _TO_CORE.items()}


def to_core(event: Object) -> Object:
    """The stored shape of an events.k8s.io/v1 Event."""
    core = {_TO_CORE.get(key, key): value for key, value in event.items()}
    return {**core, "apiVersion": "v1"}


def from_core(event: Object) -> Object:
    """The events.k8s.io/v1 shape of a stored Event."""
    new = {_FROM_CORE.get(key, key): value for key, value in event.items()}
    return {**new, "apiVersion": "events.k8s.io/v1"}
