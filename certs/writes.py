"""What each certificate step writes to the Secret.

Pure but for the new keys. Invariant: a CA that vouches for a leaf which may still be served stays
in `ca.crt` until `DropOldCA`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from cryptography import x509

from certs.issue import KeyPair, issue_ca, issue_leaf
from certs.settings import CertSettings
from certs.steps import (
    Asked,
    DropOldCA,
    PublishNewCA,
    Reissue,
    RenewLeaf,
    Replica,
    ServeNewLeaf,
)
from certs.validity import (
    CA_KEY,
    CA_PRIVATE_KEY,
    CERT_KEY,
    PRIVATE_KEY,
    Leaf,
    Signer,
    Stored,
    ca_problem,
    certificates,
    fingerprint,
    signer_of,
    to_pem,
)

Writing = RenewLeaf | PublishNewCA | ServeNewLeaf | DropOldCA | Reissue


@dataclass(frozen=True, slots=True)
class Write:
    """Keys to store, and the requests to rotate that are fulfilled thereby."""

    data: dict[str, bytes]
    done: tuple[Asked, ...] = ()


def carry_out(
    step: Writing,
    stored: Stored,
    *,
    keep: Sequence[x509.Certificate],
    held: Leaf | None,
    names: Sequence[str],
    settings: CertSettings,
    now: datetime,
) -> Write:
    """The write for `step`.

    `keep`: CAs that are to stay trusted beside a new one (see `still_needed`). `held`: the pair
    that this process serves; it is restored where none is stored.
    """
    match step:
        case Reissue():
            ca = issue_ca(now, settings.ca_life)
            leaf = _leaf(signer_of(ca), names, settings, now)
            return Write(_ca(ca, ()) | _pair(leaf), ("leaf", "ca"))
        case PublishNewCA():
            ca = issue_ca(now, settings.ca_life)
            data = _ca(ca, keep)
            if stored.leaf is None and held is not None:
                data |= {CERT_KEY: held.cert_pem, PRIVATE_KEY: held.key_pem}
            return Write(data, ("ca",))
        case RenewLeaf() | ServeNewLeaf():
            return Write(_pair(_leaf(_signer(stored), names, settings, now)), ("leaf",))
        case DropOldCA():
            return Write({CA_KEY: to_pem([_signer(stored).certificate])})


def still_needed(
    stored: Stored,
    published: Iterable[x509.Certificate],
    held: Leaf | None,
    replicas: Sequence[Replica] | None,
    now: datetime,
) -> tuple[x509.Certificate, ...]:
    """The CAs that have to be trusted now: those that are stored, the signer's first, and those
    that are published or held, not stored, and vouch for what a live replica serves.

    While neither CA nor leaf is stored, all that are published: a replica may just be taking into
    service, and have not yet confirmed, what was stored before.
    """
    current = fingerprint(stored.leaf.certificate) if stored.leaf else None
    others = [r for r in replicas or () if r.leaf != current and r.not_after > now]
    lost = stored.signer is None and stored.leaf is None
    unknown = lost or replicas is None or any(not r.ca for r in others)
    served = {r.ca for r in others}
    extra = [
        ca
        for ca in published
        if (unknown or fingerprint(ca) in served) and ca_problem(ca, now) is None
    ]
    if held is not None and ca_problem(held.issuer, now) is None:
        extra.append(held.issuer)
    return tuple(dict.fromkeys((*stored.cas, *extra)))


def _signer(stored: Stored) -> Signer:
    assert stored.signer is not None, "a step that signs or drops needs a signer"
    return stored.signer


def _leaf(signer: Signer, names: Sequence[str], settings: CertSettings, now: datetime) -> KeyPair:
    return issue_leaf(signer.certificate, signer.key, names, now, settings.leaf_life)


def _ca(ca: KeyPair, others: Sequence[x509.Certificate]) -> dict[str, bytes]:
    bundle = to_pem((*certificates(ca.cert_pem), *others))
    return {CA_KEY: bundle, CA_PRIVATE_KEY: ca.key_pem}


def _pair(leaf: KeyPair) -> dict[str, bytes]:
    return {CERT_KEY: leaf.cert_pem, PRIVATE_KEY: leaf.key_pem}
