"""The next certificate step, from what is stored, published and confirmed, and the time.

Pure. Every step is one guarded write of the Secret, and what it leaves is itself a state that the
next decision starts from, so a process killed anywhere is simply followed by another one.
Invariant: a leaf is stored for serving only when every caBundle of ours has trusted its CA for
the settle time, unless no replica serves anything that could be cut off.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from certs.validity import Leaf, Stored, fingerprint, overdue_at, renew_at

Asked = Literal["leaf", "ca"]


@dataclass(frozen=True, slots=True)
class Keep:
    """Nothing to write. Look again after `again_s` seconds, or when something changes."""

    reason: str
    again_s: float


@dataclass(frozen=True, slots=True)
class RenewLeaf:
    """A fresh leaf from the CA that is trusted already."""

    reason: str


@dataclass(frozen=True, slots=True)
class PublishNewCA:
    """A new CA in front of the bundle, its key in the Secret; the leaf stays as it is."""

    reason: str


@dataclass(frozen=True, slots=True)
class ServeNewLeaf:
    """The new CA is trusted everywhere: a leaf of it goes into service."""

    reason: str


@dataclass(frozen=True, slots=True)
class DropOldCA:
    """Nobody serves a leaf of the old CA any more: it leaves the bundle."""

    reason: str


@dataclass(frozen=True, slots=True)
class Reissue:
    """Nothing usable is stored or served: a new CA and a leaf of it at once."""

    reason: str


Step = Keep | RenewLeaf | PublishNewCA | ServeNewLeaf | DropOldCA | Reissue


@dataclass(frozen=True, slots=True)
class Replica:
    """What one live webhook replica says that it serves; fingerprints of leaf and issuing CA."""

    name: str
    leaf: str
    ca: str
    not_after: datetime


@dataclass(frozen=True, slots=True)
class Observed:
    """Everything that a decision may look at.

    `trusted_for_s`: for each CA (fingerprint) that every caBundle of ours holds now, for how many
    seconds they have been watched holding it without a break. `leaf_for_s`: the same for the leaf
    that is stored. `replicas`: None if nobody can say. `held`: the pair that this very process
    serves, which may have to be restored.
    """

    stored: Stored
    trusted_for_s: Mapping[str, float]
    leaf_for_s: float
    replicas: Sequence[Replica] | None
    held: Leaf | None
    asked: Asked | None
    now: datetime


def next_step(observed: Observed, *, settle_s: float, look_s: float) -> Step:
    """What to do now. `look_s`: the longest wait between two looks, in seconds."""
    stored, now = observed.stored, observed.now
    signer, leaf = stored.signer, stored.leaf
    replicas = [r for r in observed.replicas or () if r.not_after > now]
    in_service = observed.held is not None or bool(replicas) or observed.replicas is None

    if signer is None:
        reason = stored.signer_problem or "no CA"
        if leaf is None and not in_service:
            return Reissue(reason)
        return PublishNewCA(reason)

    ca = fingerprint(signer.certificate)
    unsettled_s = settle_s - observed.trusted_for_s.get(ca, float("-inf"))
    if leaf is None:
        reason = stored.leaf_problem or "no serving certificate"
        if in_service and unsettled_s > 0:
            return Keep(f"{reason}; waiting until its CA is trusted", _wait(unsettled_s, look_s))
        return RenewLeaf(reason)
    if leaf.issuer != signer.certificate:
        if unsettled_s > 0:
            return Keep("waiting until the new CA is trusted", _wait(unsettled_s, look_s))
        return ServeNewLeaf("the new CA is trusted in every caBundle")

    old = len(stored.cas) > 1
    current = fingerprint(leaf.certificate)
    waiting = [r.name for r in replicas if r.ca != ca and r.leaf != current]
    unsettled_s = settle_s - observed.leaf_for_s
    if old and observed.replicas is not None and not waiting and unsettled_s <= 0:
        return DropOldCA("every replica serves the new certificate")
    if observed.asked == "ca" and not old:
        return PublishNewCA("asked for")
    if now >= renew_at(signer.certificate) and not old:
        return PublishNewCA("the CA is at two thirds of its life")
    if observed.asked == "leaf":
        return RenewLeaf("asked for")
    if now >= renew_at(leaf.certificate):
        return RenewLeaf("the serving certificate is at two thirds of its life")
    if old and observed.replicas is None:
        return Keep("the old CA stays: nobody can say what the replicas serve", look_s)
    if old and waiting:
        return Keep(f"waiting for {', '.join(waiting)} to serve the new certificate", 1.0)
    if old:
        return Keep("waiting before the old CA goes", _wait(unsettled_s, look_s))
    due = min(renew_at(leaf.certificate), renew_at(signer.certificate))
    return Keep("nothing is due", _wait((due - now).total_seconds(), look_s))


def overdue(stored: Stored, now: datetime) -> str | None:
    """What should long have been renewed and was not, in words; None while all is well."""
    leaf = stored.leaf.certificate if stored.leaf else None
    ca = stored.signer.certificate if stored.signer else None
    for what, certificate in (("serving certificate", leaf), ("CA", ca)):
        if certificate is not None and now >= overdue_at(certificate):
            left = certificate.not_valid_after_utc - now
            return f"the {what} expires in {_span(left.total_seconds())} and was not renewed"
    return None


def _span(seconds: float) -> str:
    if seconds >= 172800:
        return f"{seconds / 86400:.0f} days"
    return f"{seconds / 3600:.0f} hours" if seconds >= 7200 else f"{seconds / 60:.0f} minutes"


def _wait(seconds: float, look_s: float) -> float:
    return min(max(seconds, 0.05), look_s)
