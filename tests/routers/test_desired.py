"""The desired set, and when a removal needs a second list."""

from __future__ import annotations

import pytest

from controller.routers.desired import Backend, desired_of, needs_confirmation
from controller.routers.engines import Engine, Fleet
from controller.routers.probes import Facts
from tests.routers.fleet import backend, engine

E1 = engine("e1", "http://10.0.0.1:8000")
E2 = engine("e2", "http://10.0.0.2:8000")
FACTS = Facts(models=("base",), adapters=("a", "b"))


class Known:
    """What engines have said, by UID."""

    def __init__(self, facts: dict[str, Facts], failed: frozenset[str] = frozenset()) -> None:
        self._facts = facts
        self._failed = failed

    def facts(self, engine: Engine) -> Facts | None:
        return self._facts.get(engine.uid)

    def asked(self, engine: Engine) -> bool:
        return engine.uid in self._facts or engine.uid in self._failed


def fleet(*engines: Engine) -> Fleet:
    return Fleet({e.url: e for e in engines}, engines, ())


def test_an_engine_is_desired_once_it_has_answered() -> None:
    found = desired_of(fleet(E1, E2), Known({E2.uid: FACTS}), {})
    assert found.backends == {E2.url: Backend(E2, ("base",), ("a", "b"))}


def test_an_engine_that_sleeps_is_not_desired() -> None:
    known = Known({E1.uid: Facts(sleeping=True), E2.uid: FACTS})
    assert list(desired_of(fleet(E1, E2), known, {}).backends) == [E2.url]


def test_a_successor_keeps_the_entry_while_it_is_asked_but_no_adapter() -> None:
    last = {E1.url: backend("e1", E1.url, uid="A", adapters=("a",))}
    successor = engine("e1", E1.url, uid="B")
    found = desired_of(fleet(successor), Known({}), last).backends[E1.url]
    assert (found.engine.uid, found.models, found.adapters) == ("B", ("base",), ())
    assert not found.asked


def test_a_successor_that_does_not_answer_loses_the_entry() -> None:
    last = {E1.url: backend("e1", E1.url, uid="A")}
    successor = engine("e1", E1.url, uid="B")
    assert not desired_of(fleet(successor), Known({}, frozenset({"B"})), last).backends


def test_what_is_retained_stays_as_it_was_and_nothing_else_does() -> None:
    last = {e.url: backend(e.name, e.url) for e in (E1, E2)}
    found = desired_of(fleet(), Known({}), last, retained=[E1.url, "http://10.9.9.9:1"])
    assert found.backends == {E1.url: last[E1.url]}


@pytest.mark.parametrize(
    ("last", "serving", "share", "first", "needed"),
    [
        pytest.param("abcd", "abcd", 0.5, False, False, id="nothing goes"),
        pytest.param("abcd", "bcd", 0.5, False, False, id="one of four goes"),
        pytest.param("abcd", "cd", 0.5, False, False, id="exactly the share goes"),
        pytest.param("abcd", "d", 0.5, False, True, id="more than the share goes"),
        pytest.param("abcd", "", 1.0, False, True, id="all go, whatever the share"),
        pytest.param("a", "", 1.0, False, True, id="the only one goes"),
        pytest.param("ab", "bcdefg", 0.0, False, True, id="share 0: each removal"),
        pytest.param("abcd", "wxyz", 0.5, False, True, id="all are others"),
        pytest.param("", "", 0.5, False, False, id="it was empty and is"),
        pytest.param("", "", 0.5, True, True, id="empty in the first pass"),
        pytest.param("", "ab", 0.5, True, False, id="first pass, nothing to lose"),
        pytest.param("abcd", "d", 0.5, True, True, id="first pass, the record says four"),
    ],
)
def test_a_large_removal_needs_a_second_list(
    last: str, serving: str, share: float, first: bool, needed: bool
) -> None:
    assert needs_confirmation(last, serving, share, first=first) is needed


def test_what_the_router_has_from_before_is_undecided_until_its_engine_answers() -> None:
    inherited = [E1.url, "http://10.9.9.9:1"]
    found = desired_of(fleet(E1, E2), Known({}), {}, inherited=inherited)
    assert found.undecided == {E1.url}
    assert not found.backends
    found = desired_of(fleet(E1, E2), Known({E1.uid: FACTS}), {}, inherited=inherited)
    assert not found.undecided
    assert list(found.backends) == [E1.url]
