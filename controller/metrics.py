"""What the controller counts and measures, under the names that dashboards use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import Counter, Gauge, Histogram

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from controller.verdict import Keep

_LATENCY_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900)
_PASS_BUCKETS = (0.005, 0.01, 0.05, 0.1, 0.5, 1, 2.5, 5, 10, 20, 45)


class ReaperMetrics:
    """Made once in a process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.outcomes = Counter(
            "podstamp_reaper_outcomes",
            "What became of a pod that a reaper looked at: deleted, would-reap, gone, kept, …",
            ("loop", "shape", "outcome", "mode"),
            registry=registry,
        )
        self.latency_s = Histogram(
            "podstamp_reaper_latency_seconds",
            "From the sight of a pod that is over to its name being free.",
            ("loop",),
            buckets=_LATENCY_BUCKETS,
            registry=registry,
        )
        self.pass_s = Histogram(
            "podstamp_reaper_pass_seconds",
            "Time of one pass, its look-ups and deletes included.",
            ("loop", "result"),
            buckets=_PASS_BUCKETS,
            registry=registry,
        )
        self.candidates = Gauge(
            "podstamp_reaper_candidates",
            "Pods that a reaper has judged as over and that are still there.",
            ("loop",),
            registry=registry,
        )
        self.store_age_s = Gauge(
            "podstamp_store_age_seconds",
            "Since the store was last known to be current.",
            ("store",),
            registry=registry,
        )
        self.store_objects = Gauge(
            "podstamp_store_objects", "Objects in the store.", ("store",), registry=registry
        )
        self.leader = Gauge(
            "podstamp_leader", "1 while this process leads, 0 otherwise.", registry=registry
        )
        self.sightings = Counter(
            "podstamp_sightings",
            "Pods with something odd, each counted once: unknown phase, held by finalizers, index"
            " held twice, replacement that died at once.",
            ("kind",),
            registry=registry,
        )
        self.events_dropped = Gauge(
            "podstamp_events_dropped", "Events that could not be written.", registry=registry
        )
        self.config_reloads = Counter(
            "podstamp_config_reloads",
            "Changed configuration files, by what became of them: applied or refused.",
            ("result",),
            registry=registry,
        )

    def outcome(self, loop: str, shape: str, outcome: str, *, dry_run: bool) -> None:
        """Count one outcome; `shape` is empty where none was reached."""
        mode = "dry-run" if dry_run else "live"
        self.outcomes.labels(loop, shape, outcome, mode).inc()

    def kept(self, loop: str, shape: str, verdict: Keep, *, dry_run: bool) -> None:
        """Count a pod that is kept, by why."""
        self.outcome(loop, shape, f"kept-{verdict.why}", dry_run=dry_run)
