"""Keys and pure functions of the stamps."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from hashlib import sha256
from uuid import RFC_4122, UUID

import pytest

from webhook import stamps

NOW = datetime(2026, 3, 4, 5, 6, 7, 89_000, tzinfo=UTC)
RANDOM = bytes(range(240, 250))


@pytest.mark.parametrize("random_bytes", [bytes(10), b"\xff" * 10, RANDOM])
def test_an_incarnation_is_a_uuid_of_version_7_that_carries_its_time(random_bytes: bytes) -> None:
    text = stamps.new_incarnation(NOW, random_bytes)
    parsed = UUID(text)
    assert (parsed.version, parsed.variant) == (7, RFC_4122)
    assert str(parsed) == text
    assert stamps.incarnation_time(text) == NOW


def test_incarnations_of_one_millisecond_differ_by_their_random_part() -> None:
    assert stamps.new_incarnation(NOW, bytes(10)) != stamps.new_incarnation(NOW, RANDOM)


def test_incarnations_sort_by_their_time() -> None:
    later = stamps.new_incarnation(NOW + timedelta(milliseconds=1), bytes(10))
    assert stamps.new_incarnation(NOW, b"\xff" * 10) < later


def test_too_few_random_bytes_are_refused() -> None:
    with pytest.raises(ValueError, match="ten random bytes"):
        stamps.new_incarnation(NOW, bytes(9))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "true",
        "0f8fad5b-d9cb-469f-a165-70867728950e",
        "019cb72e-7f01-7abc-7def-0123456789ab",
        "019CB72E-7F01-7ABC-8DEF-0123456789AB",
        "019cb72e7f017abc8def0123456789ab",
        "019cb72e-7f01-7abc-8def-0123456789ab\n",
        "ffffffff-ffff-7fff-bfff-ffffffffffff",
    ],
    ids=["empty", "word", "v4", "variant", "upper", "bare", "newline", "beyond-year-9999"],
)
def test_what_is_no_uuid_of_version_7_has_no_time(text: str) -> None:
    assert stamps.incarnation_time(text) is None


SECOND = 1_000_000_000
BASE = int(datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC).timestamp()) * SECOND


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("2026-03-04T05:06:07Z", BASE),
        ("2026-03-04T05:06:07.123456789Z", BASE + 123_456_789),
        ("2026-03-04T05:06:07.12Z", BASE + 120_000_000),
        ("2026-03-04T05:06:07.1234567899Z", BASE + 123_456_789),
        ("2026-03-04T10:36:07.5+05:30", BASE + 500_000_000),
        ("2026-03-03T21:06:07-08:00", BASE),
        ("2026-03-04t05:06:07z", BASE),
        ("1969-12-31T23:59:59.999999999Z", -1),
    ],
    ids=["whole", "ns", "trimmed", "ten-digits", "east", "west", "lower-case", "before-1970"],
)
def test_an_instant_is_read_at_any_offset_and_precision(text: str, ns: int) -> None:
    assert stamps.parse_instant(text) == ns


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "2026-03-04",
        "2026-03-04T05:06:07",
        "2026-03-04 05:06:07Z",
        "2026-02-30T05:06:07Z",
        "2026-03-04T24:06:07Z",
        "2026-03-04T05:06:07.Z",
        "2026-03-04T05:06:07+24:00",
        "2026-03-04T05:06:07+01:60",
        "٢٠٢٦-03-04T05:06:07Z",
        "0000-03-04T05:06:07Z",
        "2026-03-04T05:06:07Z\n",
    ],
)
def test_what_is_no_rfc_3339_time_is_unreadable(text: str) -> None:
    assert stamps.parse_instant(text) is None


@pytest.mark.parametrize("ns", [0, -1, BASE, BASE + 1, BASE + 123_456_789])
def test_a_formatted_instant_reads_back_as_itself(ns: int) -> None:
    text = stamps.format_instant(ns)
    assert text.endswith("Z")
    assert stamps.parse_instant(text) == ns


@pytest.mark.parametrize(
    ("text", "step", "formatted"),
    [
        ("9999-12-31T23:59:59.999999999-14:00", 1, "9999-12-31T23:59:59.999999999Z"),
        ("0001-01-01T00:00:00+14:00", -1, "0001-01-01T00:00:00.000000000Z"),
    ],
)
def test_instants_beyond_the_calendar_are_held_at_its_ends(
    text: str, step: int, formatted: str
) -> None:
    ns = stamps.parse_instant(text)
    assert ns is not None
    assert stamps.format_instant(ns + step) == formatted


def test_the_digest_depends_on_the_set_of_names_alone() -> None:
    expected = sha256(b"chat,code").hexdigest()[:16]
    assert stamps.adapters_digest(["code", "chat"]) == expected
    assert stamps.adapters_digest(["chat", "code", "chat"]) == expected
    assert stamps.adapters_digest(["chat"]) != expected
