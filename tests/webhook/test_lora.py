"""`lora-modified` never moves back."""

from __future__ import annotations

from itertools import product

import pytest

from tests.webhook.builders import NOW_NS
from webhook.lora import next_modified
from webhook.stamps import LAST_INSTANT_NS, format_instant, parse_instant

STORED = "2026-01-01T00:00:00.5Z"
STORED_NS = parse_instant(STORED) or 0
NOW = format_instant(NOW_NS)
AFTER_STORED = format_instant(STORED_NS + 1)
FUTURE = "2030-01-01T00:00:00Z"
AFTER_FUTURE = format_instant((parse_instant(FUTURE) or 0) + 1)
EAST_EARLIER = "2026-01-01T05:30:00.4+05:30"
EAST_SAME = "2026-01-01T05:30:00.5+05:30"
EAST_LATER = "2026-01-01T05:30:00.500000001+05:30"
END = "9999-12-31T23:59:59.999999999Z"


@pytest.mark.parametrize(
    ("stored", "written", "changed", "value"),
    [
        (None, None, False, None),
        (None, None, True, NOW),
        (STORED, STORED, False, STORED),
        (STORED, STORED, True, NOW),
        (FUTURE, FUTURE, True, AFTER_FUTURE),
        (None, STORED, False, STORED),
        (None, STORED, True, STORED),
        (STORED, EAST_LATER, False, EAST_LATER),
        (STORED, EAST_SAME, False, EAST_SAME),
        (STORED, EAST_SAME, True, NOW),
        (STORED, EAST_EARLIER, False, AFTER_STORED),
        (STORED, "2025-12-31T23:59:59Z", True, NOW),
        (STORED, FUTURE, False, FUTURE),
        (STORED, FUTURE, True, FUTURE),
        (STORED, None, False, STORED),
        (STORED, None, True, NOW),
        (FUTURE, None, True, AFTER_FUTURE),
        ("broken", STORED, False, STORED),
        ("broken", None, False, "broken"),
        ("broken", "broken", False, "broken"),
        ("broken", "broken", True, NOW),
        (END, STORED, False, END),
        (END, None, True, END),
    ],
)  # fmt: skip
def test_the_stored_value_is_decided(
    stored: str | None, written: str | None, changed: bool, value: str | None
) -> None:
    modified = next_modified(stored, written, declared_changed=changed, now_ns=NOW_NS)
    assert modified == (value, None)


@pytest.mark.parametrize(
    ("stored", "value"), [(None, NOW), (STORED, NOW), (FUTURE, AFTER_FUTURE), ("broken", NOW)]
)
def test_an_unreadable_value_becomes_now_with_a_warning(stored: str | None, value: str) -> None:
    modified = next_modified(stored, "yesterday", declared_changed=False, now_ns=NOW_NS)
    assert modified.value == value
    assert "RFC 3339" in (modified.warning or "")


VALUES = (
    None,
    STORED,
    FUTURE,
    END,
    "2025-01-01T00:00:00Z",
    EAST_SAME,
    "broken",
)


@pytest.mark.parametrize(
    ("stored", "written", "changed"), list(product(VALUES, VALUES, (False, True)))
)
def test_it_never_moves_back_and_a_second_pass_changes_nothing(
    stored: str | None, written: str | None, changed: bool
) -> None:
    value = next_modified(stored, written, declared_changed=changed, now_ns=NOW_NS).value
    before = parse_instant(stored or "")
    if before is not None:
        after = parse_instant(value or "")
        assert after is not None
        assert after >= before
        # Changed adapters are seen by all who compare, unless time has come to its end.
        assert not changed or after > before or before >= LAST_INSTANT_NS
    again = next_modified(stored, value, declared_changed=changed, now_ns=NOW_NS)
    assert again == (value, None)
