"""Which published CAs stay, by what is known of the replicas that may still serve their leaves."""

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from certs.steps import Replica
from certs.validity import fingerprint, inspect
from certs.writes import still_needed
from tests.certs.world import DAY, NAMES, Authority

NOW = datetime(2026, 1, 1, tzinfo=UTC)
OLD, NEW = Authority.make(NOW), Authority.make(NOW)
OLD_CA = fingerprint(OLD.certificate)
STORED = inspect(NEW.secret(NEW.leaf(NOW)), NAMES, NOW)


@pytest.mark.parametrize(
    ("replicas", "stays"),
    [
        pytest.param(None, True, id="who serves what cannot be read"),
        pytest.param((Replica("a", "old", "", NOW + DAY),), True, id="its CA is not known"),
        pytest.param((Replica("a", "old", OLD_CA, NOW + DAY),), True, id="it serves the old one"),
        pytest.param((Replica("a", "old", OLD_CA, NOW - DAY),), False, id="what it serves is over"),
        pytest.param((Replica("a", "old", "another", NOW + DAY),), False, id="it needs another"),
        pytest.param((), False, id="nobody serves"),
    ],
)
def test_a_published_ca_that_is_not_stored_stays_while_somebody_may_serve_its_leaf(
    replicas: Sequence[Replica] | None, stays: bool
) -> None:
    published = (OLD.certificate, NEW.certificate)
    kept = still_needed(STORED, published, None, replicas, NOW)
    assert kept[0] == NEW.certificate
    assert (OLD.certificate in kept) is stays
