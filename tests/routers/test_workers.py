"""What a router's list lacks and has too much of."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from controller.routers.dialects import Entry, Observed
from controller.routers.kinds import Difference
from controller.routers.ownership import Claim
from controller.routers.worker_difference import compare

AT = datetime(2026, 1, 1, tzinfo=UTC)
A, B, C = (f"http://10.0.0.{n}:8000" for n in (1, 2, 3))


def entries(*urls: str, model: str = "", uid: str = "uid") -> dict[str, Entry]:
    return {url: Entry(url, uid, "inc", model) for url in urls}


def claims(*urls: str, uid: str = "uid") -> dict[str, Claim]:
    return {url: Claim(uid, "inc", AT) for url in urls}


def listed(*urls: str, model: str = "") -> list[Observed]:
    return [Observed(url, model=model) for url in urls]


def test_what_is_equal_differs_in_nothing() -> None:
    found = compare(entries(A, B), listed(A, B), claims(A, B))
    assert found == Difference()
    assert found.settled
    assert found.idle


def test_each_missing_engine_is_added_and_each_ghost_of_ours_removed() -> None:
    found = compare(
        entries(A, B), listed(C, "http://10.0.0.4:8000"), claims(C, "http://10.0.0.4:8000")
    )
    assert found == Difference(add=(A, B), remove=(C, "http://10.0.0.4:8000"))


def test_foreign_workers_are_left_alone() -> None:
    found = compare(entries(A), listed(A, B, C), claims(A, B))
    assert found == Difference(remove=(B,))


def test_a_foreign_worker_at_an_engine_is_ours_from_now_on() -> None:
    assert compare(entries(A), listed(A), {}) == Difference(claim=(A,))


def test_a_successor_at_the_same_url_is_claimed_and_not_touched() -> None:
    found = compare(entries(A, uid="B"), listed(A), claims(A, uid="A"))
    assert found == Difference(claim=(A,))
    assert found.settled
    assert not found.idle


def test_ranks_of_a_data_parallel_engine_count_as_the_engine() -> None:
    ranks = listed(f"{A}@0", f"{A}@1", f"{B}@0", f"{B}@1")
    assert compare(entries(A), ranks, claims(A, B)) == Difference(remove=(B,))


def test_another_spelling_is_another_worker() -> None:
    assert compare(entries(A), listed(f"{A}/"), claims(A)) == Difference(add=(A,))


@pytest.mark.parametrize(
    ("model", "shown", "change"),
    [
        pytest.param("base", "base", (), id="the same model"),
        pytest.param("base", "unknown", (A,), id="registered without its model"),
        pytest.param("", "unknown", (), id="no model is known of the engine"),
    ],
)
def test_a_worker_with_another_model_is_made_anew(
    model: str, shown: str, change: tuple[str, ...]
) -> None:
    found = compare(entries(A, model=model), listed(A, model=shown), claims(A))
    assert found == Difference(change=change)


@pytest.mark.parametrize("wanted", [True, False])
def test_a_draining_worker_is_waited_for_and_not_removed_again(wanted: bool) -> None:
    found = compare(entries(A) if wanted else {}, [Observed(A, draining=True)], claims(A))
    assert found == Difference(pending=(A,))


def test_a_foreign_draining_worker_is_nobodys_concern() -> None:
    assert compare({}, [Observed(A, draining=True)], {}) == Difference()


def test_an_add_that_is_under_way_is_not_asked_for_twice() -> None:
    found = compare(entries(A, B), [], claims(A), waiting=[A])
    assert found == Difference(add=(B,), pending=(A,))


def test_what_may_still_appear_keeps_the_router_unsettled() -> None:
    found = compare({}, [], claims(A), limbo=[A])
    assert found == Difference(pending=(A,))
    assert not found.settled


def test_what_has_appeared_is_removed() -> None:
    assert compare({}, listed(A), claims(A), limbo=[A]) == Difference(remove=(A,))


def test_what_is_undecided_stays_as_it_is_listed() -> None:
    adapter = f"{A}/lora-a/.."
    found = compare({}, listed(A, adapter, B), claims(A, adapter, B), undecided=[A])
    assert found == Difference(remove=(B,))


def test_a_worker_that_is_listed_as_pending_is_waited_for_or_taken_away() -> None:
    pending = [Observed(A, pending=True), Observed(B, pending=True)]
    found = compare(entries(A, model="base"), pending, claims(A, B))
    assert found == Difference(pending=(A,), remove=(B,))
