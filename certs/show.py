"""What `python -m certs show` tells: certificates, where they are published, who serves what.

Pure: from what was read to one dictionary, and from that to a table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from cryptography import x509

from certs.bundles import Configuration
from certs.confirmations import Records
from certs.secret import Secret
from certs.steps import overdue
from certs.validity import (
    Stored,
    certificates,
    fingerprint,
    leaf_names,
    renew_at,
    stamp,
)

_SHORT = 16


def describe(
    secret: Secret | None,
    stored: Stored,
    configurations: Sequence[Configuration],
    records: Records,
    now: datetime,
) -> dict[str, Any]:
    """Everything, as JSON has it: times RFC 3339 UTC, fingerprints SHA-256 in hex."""
    late = overdue(stored, now)
    leaf = _stored_leaf(secret)
    return {
        "secret": {
            "namespace": secret.metadata.namespace,
            "name": secret.metadata.name,
            "asked": secret.asked,
            "certManagerCertificate": secret.certificate,
        }
        if secret
        else None,
        "problems": [*stored.problems, *([late] if late else [])],
        "serving": _certificate(leaf, now) | {"names": list(leaf_names(leaf))} if leaf else None,
        "cas": [
            _certificate(ca, now)
            | {"signs": stored.signer is not None and ca == stored.signer.certificate}
            for ca in stored.cas
        ],
        "published": [
            {
                "kind": configuration.kind,
                "entry": entry.name,
                "cas": [fingerprint(ca) for ca in entry.bundle],
                "state": _state(entry.bundle, stored.cas),
            }
            for configuration in configurations
            for entry in configuration.entries
        ],
        "replicas": [
            {
                "name": replica.name,
                "serves": replica.leaf,
                "ca": replica.ca or None,
                "current": leaf is not None and replica.leaf == fingerprint(leaf),
                "seen": stamp(records.seen[replica.name]),
            }
            for replica in records.replicas
        ],
    }


def to_table(told: dict[str, Any]) -> str:
    """The same for people: short fingerprints, times as spans."""
    parts = []
    rows = [_row("ca", ca, "yes" if ca["signs"] else "no") for ca in told["cas"]]
    if told["serving"]:
        rows.insert(0, _row("serving", told["serving"], "-"))
    columns = ("CERTIFICATE", "SUBJECT", "FINGERPRINT", "NOT AFTER", "LEFT", "RENEWAL", "SIGNS")
    if rows:
        parts.append(_table(columns, rows))
    else:
        parts.append("no certificates are stored; make some with `python -m certs issue`")
    if told["serving"]:
        parts.append("names: " + ", ".join(told["serving"]["names"]))
    if told["published"]:
        rows = [
            [p["kind"], p["entry"], ",".join(ca[:_SHORT] for ca in p["cas"]) or "-", p["state"]]
            for p in told["published"]
        ]
        parts.append(_table(("PUBLISHED IN", "ENTRY", "CAS", "STATE"), rows))
    else:
        parts.append("published nowhere: no webhook configuration of podstamp is installed")
    if told["replicas"]:
        rows = [
            [r["name"], r["serves"][:_SHORT] or "?", "yes" if r["current"] else "no", r["seen"]]
            for r in told["replicas"]
        ]
        parts.append(_table(("REPLICA", "SERVES", "CURRENT", "LAST SEEN"), rows))
    else:
        parts.append("no replica has confirmed what it serves")
    if told["secret"] and told["secret"]["asked"]:
        parts.append(f"asked for: rotation of {told['secret']['asked']}")
    if told["secret"] and told["secret"]["certManagerCertificate"]:
        parts.append(f"written by cert-manager: {told['secret']['certManagerCertificate']}")
    parts += [f"problem: {problem}" for problem in told["problems"]]
    return "\n\n".join(parts)


def span(seconds: float) -> str:
    """A time that is left, for people."""
    if seconds <= 0:
        return "none"
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{int(seconds // size)}{unit}"
    return f"{int(seconds)}s"


def _stored_leaf(secret: Secret | None) -> x509.Certificate | None:
    """The serving certificate as stored, usable or not."""
    chain = certificates((secret.data or {}).get("tls.crt", b"")) if secret else []
    return chain[0] if chain else None


def _certificate(certificate: x509.Certificate, now: datetime) -> dict[str, Any]:
    left = certificate.not_valid_after_utc - now
    return {
        "subject": certificate.subject.rfc4514_string(),
        "fingerprint": fingerprint(certificate),
        "serial": f"{certificate.serial_number:x}",
        "notBefore": stamp(certificate.not_valid_before_utc),
        "notAfter": stamp(certificate.not_valid_after_utc),
        "renewal": stamp(renew_at(certificate)),
        "leftSeconds": int(max(left, timedelta()).total_seconds()),
    }


def _state(bundle: Iterable[x509.Certificate], cas: Iterable[x509.Certificate]) -> str:
    has, wanted = set(bundle), set(cas)
    if not has:
        return "empty"
    if has == wanted:
        return "ok"
    return "lacks a CA" if wanted - has else "holds a foreign CA"


def _row(kind: str, told: dict[str, Any], signs: str) -> list[str]:
    left = span(told["leftSeconds"])
    short = told["fingerprint"][:_SHORT]
    return [kind, told["subject"], short, told["notAfter"], left, told["renewal"], signs]


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (columns, *rows)
    ]
    return "\n".join(lines)
