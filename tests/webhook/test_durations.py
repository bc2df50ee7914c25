"""Go durations."""

import pytest

from webhook.durations import parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("5s", 5), ("1m30s", 90), ("250ms", 0.25), ("1.5s", 1.5), (".5s", 0.5), ("1h", 3600),
     ("10us", 1e-5), ("10µs", 1e-5), ("5ns", 5e-9), ("2m0s", 120)],
)  # fmt: skip
def test_a_duration_is_seconds(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "5", "s", "5 s", "-5s", "5s5", "x5s", "٥s", "1d"])
def test_anything_else_is_none(text: str) -> None:
    assert parse_duration(text) is None
