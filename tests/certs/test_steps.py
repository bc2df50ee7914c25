"""The next step for every situation, as a table."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from certs.steps import (
    DropOldCA,
    Keep,
    Observed,
    PublishNewCA,
    Reissue,
    RenewLeaf,
    Replica,
    ServeNewLeaf,
    next_step,
    overdue,
)
from certs.validity import Leaf, Stored, fingerprint, inspect
from tests.certs.world import DAY, NAMES, Authority, pem

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SETTLE_S, LOOK_S = 10.0, 60.0
OLD, NEW = Authority.make(NOW), Authority.make(NOW)
OLD_CA, NEW_CA = fingerprint(OLD.certificate), fingerprint(NEW.certificate)


def stored(data: dict[str, bytes], now: datetime = NOW) -> Stored:
    return inspect(data, NAMES, now)


GOOD = stored(OLD.secret(OLD.leaf(NOW)))
BOTH = pem(NEW.certificate, OLD.certificate)
ADDED = stored({**OLD.secret(OLD.leaf(NOW)), "ca.crt": BOTH, "ca.key": NEW.ca.key_pem})
SERVED = stored({**NEW.secret(NEW.leaf(NOW)), "ca.crt": BOTH})
NOTHING = stored({})


def leaf_of(what: Stored) -> Leaf:
    assert what.leaf is not None
    return what.leaf


def serving(name: str, what: Stored, *, left: timedelta = DAY) -> Replica:
    leaf = leaf_of(what)
    return Replica(name, fingerprint(leaf.certificate), fingerprint(leaf.issuer), NOW + left)


BASE = Observed(
    stored=GOOD,
    trusted_for_s={OLD_CA: 1000.0, NEW_CA: 1000.0},
    leaf_for_s=1000.0,
    replicas=(),
    held=None,
    asked=None,
    now=NOW,
)
LONG_AFTER = NOW + 61 * DAY
CASES = [
    ("all is well", BASE, Keep),
    ("nothing at all", replace(BASE, stored=NOTHING), Reissue),
    (
        "nothing stored, one replica serves",
        replace(BASE, stored=NOTHING, replicas=(serving("a", GOOD),)),
        PublishNewCA,
    ),
    (
        "nothing stored, this one serves",
        replace(BASE, stored=NOTHING, held=leaf_of(GOOD)),
        PublishNewCA,
    ),
    (
        "nothing stored, nobody can say who serves",
        replace(BASE, stored=NOTHING, replicas=None),
        PublishNewCA,
    ),
    (
        "nothing stored, what a replica served expired",
        replace(BASE, stored=NOTHING, replicas=(serving("a", GOOD, left=-DAY),)),
        Reissue,
    ),
    (
        "leaf broken, nobody serves",
        replace(BASE, stored=replace(GOOD, leaf=None), trusted_for_s={}),
        RenewLeaf,
    ),
    (
        "leaf broken, others serve, CA trusted",
        replace(BASE, stored=replace(GOOD, leaf=None), replicas=(serving("a", GOOD),)),
        RenewLeaf,
    ),
    (
        "leaf broken, others serve, CA not yet",
        replace(
            BASE, stored=replace(GOOD, leaf=None), replicas=(serving("a", GOOD),), trusted_for_s={}
        ),
        Keep,
    ),
    ("CA key lost", replace(BASE, stored=replace(GOOD, signer=None)), PublishNewCA),
    (
        "CA added, trusted nowhere yet",
        replace(BASE, stored=ADDED, trusted_for_s={OLD_CA: 99.0}),
        Keep,
    ),
    (
        "CA added, trusted too briefly",
        replace(BASE, stored=ADDED, trusted_for_s={NEW_CA: 9.9}),
        Keep,
    ),
    (
        "CA added, trusted long enough",
        replace(BASE, stored=ADDED, trusted_for_s={NEW_CA: 10.0}),
        ServeNewLeaf,
    ),
    ("new leaf stored just now", replace(BASE, stored=SERVED, leaf_for_s=9.9), Keep),
    (
        "one of two still serves the old",
        replace(BASE, stored=SERVED, replicas=(serving("a", SERVED), serving("b", GOOD))),
        Keep,
    ),
    (
        "one serves nobody knows what",
        replace(BASE, stored=SERVED, replicas=(replace(serving("a", GOOD), leaf="", ca=""),)),
        Keep,
    ),
    (
        "all serve the new",
        replace(BASE, stored=SERVED, replicas=(serving("a", SERVED), serving("b", SERVED))),
        DropOldCA,
    ),
    (
        "one serves an earlier leaf of the new CA",
        replace(BASE, stored=SERVED, replicas=(replace(serving("a", SERVED), leaf="earlier"),)),
        DropOldCA,
    ),
    (
        "the old one that is served expired",
        replace(BASE, stored=SERVED, replicas=(serving("b", GOOD, left=timedelta()),)),
        DropOldCA,
    ),
    ("nobody can say what is served", replace(BASE, stored=SERVED, replicas=None), Keep),
    ("a leaf is asked for", replace(BASE, asked="leaf"), RenewLeaf),
    ("a CA is asked for", replace(BASE, asked="ca"), PublishNewCA),
    (
        "a CA is asked for in the middle of a rotation",
        replace(BASE, stored=SERVED, asked="ca", leaf_for_s=0.0),
        Keep,
    ),
    (
        "a leaf is asked for before the new CA is trusted",
        replace(BASE, stored=ADDED, asked="leaf", trusted_for_s={}),
        Keep,
    ),
    ("two thirds of the leaf are over", replace(BASE, now=LONG_AFTER), RenewLeaf),
    ("two thirds of the CA are over", replace(BASE, now=NOW + 1217 * DAY), PublishNewCA),
]


@pytest.mark.parametrize(("observed", "kind"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_next_step(observed: Observed, kind: type) -> None:
    step = next_step(observed, settle_s=SETTLE_S, look_s=LOOK_S)
    assert isinstance(step, kind), step
    assert step.reason
    if isinstance(step, Keep):
        assert 0 < step.again_s <= LOOK_S


def test_whoever_is_waited_for_is_named() -> None:
    observed = replace(BASE, stored=SERVED, replicas=(serving("a", GOOD), serving("b", GOOD)))
    step = next_step(observed, settle_s=SETTLE_S, look_s=LOOK_S)
    assert "a, b" in step.reason


@pytest.mark.parametrize(
    ("days", "told"),
    [
        (0, None),
        (74, None),
        (76, "the serving certificate expires in 14 days and was not renewed"),
        (89.5, "the serving certificate expires in 12 hours and was not renewed"),
        (89.99, "the serving certificate expires in 14 minutes and was not renewed"),
    ],
)
def test_a_renewal_that_does_not_happen_is_told_long_before_the_end(
    days: float, told: str | None
) -> None:
    assert overdue(GOOD, NOW + timedelta(days=days)) == told


def test_a_ca_that_was_not_renewed_is_told_too() -> None:
    told = overdue(replace(GOOD, leaf=None), NOW + 1600 * DAY)
    assert told is not None
    assert told.startswith("the CA expires in 225 days")
