"""Metrics of the routers; made once for a process, shared by every term of leadership."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram


class RouterMetrics:
    """Every metric bears the router's name, so that one router in trouble stands out."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.engines = Gauge(
            "podstamp_router_engines",
            "Engines that the router should have.",
            ["router"],
            registry=registry,
        )
        self.excluded = Gauge(
            "podstamp_router_engines_excluded",
            "Selected objects that are no engine now.",
            ["router", "reason"],
            registry=registry,
        )
        self.difference = Gauge(
            "podstamp_router_difference",
            "Entries that differ at the last look, by what they lack.",
            ["router", "target", "difference"],
            registry=registry,
        )
        self.reachable = Gauge(
            "podstamp_router_reachable",
            "1 if the router answered when it was last asked.",
            ["router", "target"],
            registry=registry,
        )
        self.actions = Counter(
            "podstamp_router_actions_total",
            "Entries added to and removed from routers.",
            ["router", "action", "outcome"],
            registry=registry,
        )
        self.superseded = Counter(
            "podstamp_router_superseded_total",
            "Late work of an incarnation that found its address in other hands, and stopped.",
            ["router", "work"],
            registry=registry,
        )
        self.guarded = Counter(
            "podstamp_router_guarded_total",
            "Removals that waited for a second list, by what became of them.",
            ["router", "outcome"],
            registry=registry,
        )
        self.probes = Counter(
            "podstamp_router_probes_total",
            "Engines asked for health and models.",
            ["router", "outcome"],
            registry=registry,
        )
        self.probe_seconds = Histogram(
            "podstamp_router_probe_seconds",
            "Time that one engine took to answer.",
            ["router"],
            buckets=(0.005, 0.02, 0.1, 0.5, 1, 3, 10),
            registry=registry,
        )
        self.pass_seconds = Histogram(
            "podstamp_router_pass_seconds",
            "Time of one comparison with a router, what it changed included.",
            ["router"],
            buckets=(0.005, 0.02, 0.1, 0.5, 1, 5, 15),
            registry=registry,
        )
