"""What one router should have, has, and how they differ, as plain data for `/routers`.

Invariant: reads only; the same words that `kubectl podstamp routers` shows.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from controller.routers.config import kind_of
from controller.routers.engines import Engine
from controller.routers.lane import Lane
from controller.routers.router import Router


def router_status(router: Router, *, fresh: bool) -> dict[str, Any]:
    """One object for each router; times are RFC 3339, in UTC. `fresh`: the store is current."""
    return {
        "name": router.config.name,
        "kind": kind_of(router.config),
        "fresh": fresh,
        "error": router.error,
        "desired": sorted(router.desired.backends),
        "unconfirmed": sorted(router.unconfirmed),
        "engines": _engines(router),
        "targets": [_target(lane) for _, lane in sorted(router.lanes.items())],
    }


def _engines(router: Router) -> list[dict[str, Any]]:
    rows = [_engine(router, engine) for engine in router.fleet.serving.values()]
    by_uid = {engine.uid: engine for engine in router.fleet.addressed}
    for excluded in router.fleet.excluded:
        engine = by_uid.get(excluded.uid)
        rows.append(
            {
                "namespace": excluded.namespace,
                "name": excluded.name,
                "uid": excluded.uid,
                "incarnation": engine.incarnation if engine else "",
                "created": _time(engine.created) if engine else None,
                "url": engine.url if engine else "",
                "state": excluded.reason.value,
                "models": [],
                "adapters": [],
                "error": "",
            }
        )
    return sorted(rows, key=lambda row: (row["namespace"], row["name"], row["uid"]))


def _engine(router: Router, engine: Engine) -> dict[str, Any]:
    backend = router.desired.backends.get(engine.url)
    facts = router.prober.facts(engine)
    if facts is None:
        state = "not answering" if router.prober.asked(engine) else "being asked"
    else:
        state = "sleeping" if facts.sleeping else "serving"
    return {
        "namespace": engine.namespace,
        "name": engine.name,
        "uid": engine.uid,
        "incarnation": engine.incarnation,
        "created": _time(engine.created),
        "url": engine.url,
        "state": state,
        "models": list(backend.models) if backend else [],
        "adapters": list(backend.adapters) if backend else [],
        "error": router.prober.error(engine),
    }


def _target(lane: Lane) -> dict[str, Any]:
    difference = lane.difference
    return {
        "target": lane.target.label,
        "reachable": lane.failures == 0,
        "error": lane.error,
        "observed": list(lane.target.observed()),
        "difference": {
            "add": list(difference.add),
            "remove": list(difference.remove),
            "change": list(difference.change),
            "pending": list(difference.pending),
        },
        "settledAt": _time(lane.settled_at),
    }


def _time(at: datetime | None) -> str | None:
    return at.isoformat(timespec="seconds").replace("+00:00", "Z") if at else None
