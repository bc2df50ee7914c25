"""Metrics of certificates: when they expire, and what went wrong with them.

Invariant: made once for a registry; a gauge that nobody has set yet is not exported as zero.
"""

from datetime import datetime

from prometheus_client import CollectorRegistry, Counter, Gauge


class CertMetrics:
    """What a process exports about certificates; times are seconds since the epoch."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._not_after = Gauge(
            "podstamp_certificate_not_after_timestamp_seconds",
            "End of validity: served = what this process serves, serving and ca = as stored.",
            ["certificate"],
            registry=registry,
        )
        self._refused = Counter(
            "podstamp_certificate_refused_pairs_total",
            "Pairs that were offered and not taken, because they could not serve.",
            registry=registry,
        )
        self._overdue = Gauge(
            "podstamp_certificate_renewal_overdue",
            "1 while a certificate should long have been renewed and was not.",
            registry=registry,
        )
        self._steps = Counter(
            "podstamp_certificate_steps_total",
            "Certificate steps that this process took.",
            ["step"],
            registry=registry,
        )
        self._repairs = Counter(
            "podstamp_ca_bundle_repairs_total",
            "Times that this process put a caBundle right.",
            ["configuration"],
            registry=registry,
        )
        self._contested = Gauge(
            "podstamp_ca_bundle_contested",
            "1 while another writer keeps resetting a caBundle and repairs are slowed down.",
            ["configuration"],
            registry=registry,
        )
        self._errors = Counter(
            "podstamp_certificate_pass_errors_total",
            "Passes over the certificates that ended in an error.",
            registry=registry,
        )

    def served(self, not_after: datetime) -> None:
        self._not_after.labels("served").set(not_after.timestamp())

    def stored(self, *, serving: datetime | None, ca: datetime | None) -> None:
        for name, end in (("serving", serving), ("ca", ca)):
            self._not_after.labels(name).set(end.timestamp() if end else 0)

    def refused(self) -> None:
        self._refused.inc()

    def overdue(self, overdue: bool) -> None:
        self._overdue.set(overdue)

    def stepped(self, step: str) -> None:
        self._steps.labels(step).inc()

    def repaired(self, configuration: str) -> None:
        self._repairs.labels(configuration).inc()

    def contested(self, configuration: str, contested: bool) -> None:
        self._contested.labels(configuration).set(contested)

    def failed(self) -> None:
        self._errors.inc()
