"""What counts of what is stored, and how the rest is called."""

from datetime import UTC, datetime, timedelta

import pytest

from certs.validity import ca_problem, certificates, inspect
from tests.certs.forge import forge_ca
from tests.certs.world import DAY, NAMES, Authority, pem

NOW = datetime(2026, 1, 1, tzinfo=UTC)
OURS = Authority.make(NOW)
LEAF = OURS.leaf(NOW)
GOOD = OURS.secret(LEAF)


def test_only_ca_certificates_that_are_valid_now_stand_in_the_bundle_the_signers_first() -> None:
    other, expired = Authority.make(NOW), Authority.make(NOW - 2000 * DAY)
    no_ca = forge_ca(NOW - DAY, ca=False)
    text = b"\n".join(
        [
            other.ca.cert_pem,
            b"junk",
            LEAF.cert_pem,
            no_ca.cert_pem,
            expired.ca.cert_pem,
            OURS.ca.cert_pem,
            other.ca.cert_pem,
        ]
    )
    stored = inspect({**GOOD, "ca.crt": text}, NAMES, NOW)
    assert stored.cas == (OURS.certificate, other.certificate)
    assert stored.problems == ()


def test_one_broken_certificate_hides_no_other() -> None:
    broken = OURS.ca.cert_pem.replace(b"MII", b"MIX", 1)
    other = Authority.make(NOW).certificate
    assert certificates(broken + pem(other) + broken) == [other]


@pytest.mark.parametrize(
    ("seconds", "problem"),
    [(-1, "is not valid before 2025-12-31T23:00:00Z"), (0, None), (3600, None)],
)
def test_the_first_second_of_validity_counts(seconds: int, problem: str | None) -> None:
    begin = OURS.certificate.not_valid_before_utc
    assert ca_problem(OURS.certificate, begin + timedelta(seconds=seconds)) == problem


def test_the_last_second_does_not() -> None:
    end = OURS.certificate.not_valid_after_utc
    assert ca_problem(OURS.certificate, end - timedelta(seconds=1)) is None
    assert ca_problem(OURS.certificate, end) == "expired at 2030-12-31T00:00:00Z"


@pytest.mark.parametrize(
    ("change", "problems"),
    [
        ({"tls.crt": b""}, ("tls.crt is missing",)),
        ({"tls.crt": b"x"}, ("tls.crt is unreadable",)),
        ({"tls.key": b"x"}, ("tls.key is unreadable",)),
        ({"tls.key": OURS.ca.key_pem}, ("tls.key is not the key of tls.crt",)),
        ({"ca.key": LEAF.key_pem}, ("ca.crt holds no CA for the key in ca.key",)),
        ({"ca.crt": b""}, ("ca.crt is missing", "ca.crt holds no valid CA")),
        (dict.fromkeys(GOOD, b""), ("nothing is stored",)),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_each_problem_has_a_name(change: dict[str, bytes], problems: tuple[str, ...]) -> None:
    assert inspect({**GOOD, **change}, NAMES, NOW).problems == problems
