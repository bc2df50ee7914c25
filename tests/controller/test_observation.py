"""The observation clock."""

from __future__ import annotations

from controller.observation import ObservationClock
from controller.verdict import Shape

RETIRED = Shape.TERMINAL_RETIRED
NEVER_STARTED = Shape.REPLACED_NEVER_STARTED


def test_time_runs_from_the_first_sight_and_not_from_the_last() -> None:
    clock = ObservationClock()
    clock.scan({"a": RETIRED}, 100)
    clock.scan({"a": RETIRED}, 250)
    assert clock.remaining("a", 250, 300) == 150
    assert clock.remaining("a", 400, 300) == 0
    assert clock.remaining("a", 900, 300) == 0


def test_what_was_not_seen_has_no_time() -> None:
    assert ObservationClock().remaining("a", 1000, 0) is None


def test_a_scan_without_a_pod_restarts_that_pod_alone() -> None:
    clock = ObservationClock()
    clock.scan({"a": RETIRED, "b": RETIRED}, 0)
    clock.scan({"b": RETIRED}, 10)
    clock.scan({"a": RETIRED, "b": RETIRED}, 20)
    assert clock.remaining("a", 20, 300) == 300
    assert clock.remaining("b", 20, 300) == 280


def test_a_scan_in_another_shape_restarts() -> None:
    clock = ObservationClock()
    clock.scan({"a": NEVER_STARTED, "b": NEVER_STARTED}, 0)
    clock.scan({"a": RETIRED, "b": NEVER_STARTED}, 100)
    assert clock.remaining("a", 100, 300) == 300
    assert clock.remaining("b", 100, 300) == 200


def test_clear_restarts_all() -> None:
    clock = ObservationClock()
    clock.scan({"a": RETIRED, "b": RETIRED}, 0)
    clock.clear()
    assert len(clock) == 0
    assert clock.remaining("b", 500, 300) is None


def test_observing_one_pod_leaves_the_others() -> None:
    clock = ObservationClock()
    clock.observe("a", Shape.TERMINAL, 0)
    clock.observe("b", Shape.TERMINAL, 5)
    clock.observe("a", None, 10)
    assert clock.remaining("a", 10, 60) is None
    assert clock.remaining("b", 10, 60) == 55
