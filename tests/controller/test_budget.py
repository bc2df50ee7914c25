"""The delete budget rolls: no window of 60 seconds ever holds more than the limit."""

from __future__ import annotations

import random

from controller.budget import MAX_DELETES, DeleteBudget


def test_the_121st_delete_of_a_minute_waits_for_the_first_to_leave_the_window() -> None:
    budget = DeleteBudget()
    assert all(budget.take(100 + i * 0.1) for i in range(MAX_DELETES))
    assert not budget.take(112)
    assert budget.wait_s(112) == 48
    assert budget.take(160)
    assert not budget.take(160)


def test_no_rolling_minute_holds_more_whatever_the_rhythm() -> None:
    chance = random.Random(7)
    budget = DeleteBudget()
    now, sent = 0.0, []
    for _ in range(5000):
        now += chance.choice((0.0, 0.01, 0.1, 0.2, 1.0))
        if budget.take(now):
            sent.append(now)
    busiest = max(sum(1 for at in sent if start <= at < start + 60) for start in sent)
    assert busiest == MAX_DELETES


def test_a_lower_limit_counts_what_was_sent_under_the_higher_one() -> None:
    budget = DeleteBudget(limit=10)
    assert all(budget.take(0) for _ in range(6))
    budget.set_limit(3)
    assert budget.wait_s(10) == 50
    assert not budget.take(10)
    assert budget.take(60)


def test_a_refused_delete_is_not_counted() -> None:
    budget = DeleteBudget(limit=1)
    assert budget.take(0)
    assert not budget.take(59)
    assert budget.take(60)
