"""Events in their two shapes: stored as core v1, served also as events.k8s.io/v1.

Names and rules follow the real server: note is message, regarding is involvedObject, the
deprecated fields are the core ones; the newer shape is held to stricter rules.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

from tests.apiserver.errors import Cause
from tests.apiserver.metadata import check_key, invalid_value, required

Object = dict[str, Any]

MAX_NOTE = 1024
MAX_OTHER = 128
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
_FIXED = (
    "involvedObject",
    "reason",
    "message",
    "source",
    "firstTimestamp",
    "lastTimestamp",
    "count",
    "type",
    "action",
    "related",
    "reportingComponent",
    "reportingInstance",
)


def to_core(event: Object) -> Object:
    """The stored shape of an events.k8s.io/v1 Event."""
    core = {_TO_CORE.get(key, key): value for key, value in event.items()}
    return {**core, "apiVersion": "v1"}


def from_core(event: Object) -> Object:
    """The events.k8s.io/v1 shape of a stored Event."""
    new = {_FROM_CORE.get(key, key): value for key, value in event.items()}
    return {**new, "apiVersion": "events.k8s.io/v1"}


def validate(event: Object) -> list[Cause]:
    """What every event obeys, in whichever shape it came."""
    namespace = event["metadata"].get("namespace")
    involved = (event.get("involvedObject") or {}).get("namespace")
    timed = bool(event.get("eventTime"))
    causes: list[Cause] = []
    if involved:
        fits = timed or involved == namespace
    else:
        fits = namespace == "default" or (timed and namespace == "kube-system")
    if not fits:
        why = "does not match event.namespace"
        causes.append(invalid_value("involvedObject.namespace", involved or "", why))
    if not timed:
        return causes
    controller = event.get("reportingComponent") or ""
    if not controller:
        causes.append(required("reportingController"))
    else:
        causes += check_key("reportingController", controller)
    for field, most in (
        ("reportingInstance", MAX_OTHER),
        ("action", MAX_OTHER),
        ("reason", MAX_OTHER),
        ("message", MAX_NOTE),
    ):
        value = event.get(field) or ""
        if not value and field != "message":
            causes.append(required(field))
        if len(value) > most:
            causes.append(invalid_value(field, "", f"can have at most {most} characters"))
    return causes


def validate_new(event: Object) -> list[Cause]:
    """What an event created as events.k8s.io/v1 obeys beyond that; in the stored shape."""
    causes = _check_series(event)
    if not event.get("eventTime"):
        causes.append(required("eventTime"))
    if event.get("type") not in ("Normal", "Warning"):
        causes.append(invalid_value("type", "", f"has invalid value: {event.get('type', '')}"))
    causes += [
        invalid_value(field, "", "needs to be unset")
        for field in ("firstTimestamp", "lastTimestamp", "count", "source")
        if event.get(field)
    ]
    return causes


def validate_new_update(event: Object, old: Object) -> list[Cause]:
    """Only the series of an event may change through events.k8s.io/v1."""
    causes = [] if event.get("series") == old.get("series") else _check_series(event)
    causes += [
        invalid_value(field, event.get(field) or "", "field is immutable")
        for field in _FIXED
        if (event.get(field) or None) != (old.get(field) or None)
    ]
    if _micros(event.get("eventTime")) != _micros(old.get("eventTime")):
        causes.append(invalid_value("eventTime", event.get("eventTime"), "field is immutable"))
    return causes


def _check_series(event: Object) -> list[Cause]:
    series = event.get("series")
    if series is None:
        return []
    causes = []
    if series.get("count", 0) < 2:
        causes.append(invalid_value("series.count", "", "should be at least 2"))
    if not series.get("lastObservedTime"):
        causes.append(required("series.lastObservedTime"))
    return causes


def _micros(text: str | None) -> datetime | None:
    """The instant, cut to microseconds."""
    if not text:
        return None
    return datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", text.replace("Z", "+00:00")))
