"""What `/metrics` says of admission.

Invariant: counting one review is a handful of dictionary and list steps; Prometheus' own types
are made only when somebody asks. Every label has few values, whatever clients send.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from webhook.judge import Verdict

OPERATIONS: Final = frozenset({"CREATE", "UPDATE", "DELETE", "CONNECT"})
BUCKETS_S: Final = (
    0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 2.5
)  # fmt: skip


class _Latencies:
    """One histogram: counts of each bucket, the last one for all that is slower."""

    __slots__ = ("counts", "sum_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS_S) + 1)
        self.sum_s = 0.0


class Tally(Collector):
    """Counts of one process. `store_age_s` is None where there is no store."""

    def __init__(self, store_age_s: Callable[[], float] | None = None) -> None:
        self.reviews: dict[tuple[str, str, str, str], int] = {}
        self.failures: dict[int, int] = {}
        self.confirmations: dict[str, int] = {}
        self._latencies: dict[str, _Latencies] = {}
        self._store_age_s = store_age_s

    def review(self, endpoint: str, operation: str, verdict: Verdict, seconds: float) -> None:
        """One review that was answered by a verdict."""
        word = ("patched" if verdict.operations else "allowed") if verdict.allowed else "denied"
        self._count(endpoint, operation, word, verdict.rule, seconds)

    def malformed(self, endpoint: str, seconds: float) -> None:
        """One review whose pod could not be read."""
        self._count(endpoint, "unknown", "denied", "malformed", seconds)

    def _count(self, endpoint: str, operation: str, word: str, rule: str, seconds: float) -> None:
        if operation not in OPERATIONS:
            operation = "unknown"
        key = (endpoint, operation, word, rule)
        self.reviews[key] = self.reviews.get(key, 0) + 1
        latencies = self._latencies.get(endpoint)
        if latencies is None:
            latencies = self._latencies[endpoint] = _Latencies()
        latencies.counts[bisect_left(BUCKETS_S, seconds)] += 1
        latencies.sum_s += seconds

    def failed(self, status: int) -> None:
        """One call that was answered by an HTTP error; 503 is a connection turned away."""
        self.failures[status] = self.failures.get(status, 0) + 1

    def confirmed(self, result: str) -> None:
        """One fresh read of a pod that seemed to hold an index: held, free or unknown."""
        self.confirmations[result] = self.confirmations.get(result, 0) + 1

    def collect(self) -> Iterator[Metric]:
        """The families, for the registry."""
        reviews = CounterMetricFamily(
            "podstamp_admission_reviews",
            "Reviews answered. rule: the one that refused, or what the write was.",
            labels=("endpoint", "operation", "verdict", "rule"),
        )
        for key, count in self.reviews.items():
            reviews.add_metric(key, count)
        yield reviews
        failures = CounterMetricFamily(
            "podstamp_admission_failures",
            "Calls answered by an HTTP error; 503: connections turned away.",
            labels=("code",),
        )
        for status, count in self.failures.items():
            failures.add_metric((str(status),), count)
        yield failures
        confirmations = CounterMetricFamily(
            "podstamp_admission_confirmations",
            "Fresh reads of a pod that seemed to hold an index.",
            labels=("result",),
        )
        for result, count in self.confirmations.items():
            confirmations.add_metric((result,), count)
        yield confirmations
        duration = HistogramMetricFamily(
            "podstamp_admission_duration_seconds",
            "From the whole body of a review to its answer.",
            labels=("endpoint",),
        )
        for endpoint, latencies in self._latencies.items():
            total, buckets = 0, []
            for bound, count in zip((*BUCKETS_S, "+Inf"), latencies.counts, strict=True):
                total += count
                buckets.append((str(bound), total))
            duration.add_metric((endpoint,), buckets, latencies.sum_s)
        yield duration
        if self._store_age_s is not None:
            yield GaugeMetricFamily(
                "podstamp_admission_store_age_seconds",
                "Seconds since the webhook's own store was known to be current.",
                value=self._store_age_s(),
            )
