"""Backoff of one slot, and of no other."""

from __future__ import annotations

from controller.backoff import BackoffPolicy, SlotBackoff

POLICY = BackoffPolicy(initial_s=1, max_s=16, quick_death_s=10)


def delays(lives: int, life_s: float, backoff: SlotBackoff, slot: str = "web/1") -> list[float]:
    """Waiting times of a slot whose pods are over `life_s` after the last reap."""
    now, found = 0.0, []
    for _ in range(lives):
        ended = now + life_s
        now = backoff.due(slot, ended, POLICY)
        found.append(now - ended)
        backoff.reaped(slot, ended, now, POLICY)
    return found


def test_the_first_pod_of_a_slot_never_waits() -> None:
    assert SlotBackoff().due("web/1", 50, POLICY) == 50


def test_delays_double_up_to_the_limit() -> None:
    assert delays(8, 1, SlotBackoff()) == [0, 1, 2, 4, 8, 16, 16, 16]


def test_pods_that_live_on_never_wait() -> None:
    assert delays(5, 10, SlotBackoff()) == [0] * 5


def test_one_life_that_lasts_forgives_all() -> None:
    backoff = SlotBackoff()
    assert delays(4, 1, backoff)[-1] == 4
    assert delays(1, 1000, backoff) == [0]
    backoff.reaped("web/1", 2000, 2000, POLICY)
    assert backoff.due("web/1", 2001, POLICY) == 2002


def test_slots_do_not_share() -> None:
    backoff = SlotBackoff()
    delays(5, 1, backoff, "web/1")
    assert backoff.due("web/2", 50, POLICY) == 50


def test_forgetting_keeps_a_slot_whose_pod_still_waits() -> None:
    backoff = SlotBackoff()
    delays(6, 1, backoff)
    delays(1, 1, backoff, "web/2")
    ended = 40.0
    due = backoff.due("web/1", ended, POLICY)
    backoff.forget(due, POLICY)
    assert backoff.due("web/1", ended, POLICY) == due
    assert due > ended
    backoff.forget(10_000, POLICY)
    assert len(backoff) == 0
