"""Every row of the table on the pure functions, and every rule by what is missing without it."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import jsonpatch
import msgspec
import pytest

from kube.pod import Pod
from kube.store import Store
from tests.webhook.builders import NOW_NS, POD_UID, RANDOM, Object, encode, review
from tests.webhook.outcomes import Outcome, problems
from tests.webhook.rows import FENCED_GROUP, FENCED_USER, ROWS, Neighbour, Row
from webhook.case import EXCLUSIONS, Endpoint, Settings
from webhook.conflicts import PodView
from webhook.judge import Judge, Verdict, denied
from webhook.neighbours import confirmed_conflict
from webhook.review import decode_review
from webhook.rules import RULES, Rule

SETTINGS = Settings(fenced_users=frozenset({FENCED_USER}), fenced_groups=frozenset({FENCED_GROUP}))
HOLD = "example.org/hold"


def run(row: Row, judge: Judge) -> Outcome:
    """Mutation, validation of what comes out, and the confirming read, as the server does it."""
    old, new = copy.deepcopy(row.stored), copy.deepcopy(row.write)
    for obj in (old, new):
        if obj is not None and row.stored is not None:
            obj["metadata"]["uid"] = POD_UID
            if row.terminating:
                obj["metadata"]["deletionTimestamp"] = "2026-09-21T14:13:20Z"
    operation = "DELETE" if new is None else "CREATE" if old is None else "UPDATE"
    options = {"preconditions": {"uid": POD_UID}} if row.preconditions else {}
    about: dict[str, Any] = {
        "namespace": row.namespace,
        "user": row.user,
        "groups": row.groups,
        "options": options,
    }
    warnings: list[str] = []
    if not row.bypass:
        request = decode_review(encode(review(operation, new, old, **about)))
        verdict = judge.mutate(request, NOW_NS, RANDOM)
        warnings += verdict.warnings
        if not verdict.allowed:
            return _refused(verdict, warnings)
        if verdict.operations:
            assert operation != "DELETE"
            new = jsonpatch.apply_patch(new, msgspec.to_builtins(verdict.operations))
    if new is not None and operation == "CREATE":
        new["metadata"].setdefault("uid", POD_UID)
        if "name" not in new["metadata"]:
            new["metadata"]["name"] = new["metadata"]["generateName"] + "24567"
    view = _view(row.neighbours, row.namespace)
    request = decode_review(encode(review(operation, new, old, **about)))
    verdict = judge.validate(request, NOW_NS, view)
    if verdict.suspicion is not None:
        fresh = view.holder(verdict.suspicion.namespace, verdict.suspicion.name)
        denial = confirmed_conflict(verdict.suspicion, fresh)
        assert denial is not None
        verdict = denied("index-conflict", denial, verdict.warnings)
    warnings += verdict.warnings
    if not verdict.allowed:
        return _refused(verdict, warnings)
    return Outcome(200, warnings=warnings, stored=new, now_ns=NOW_NS)


def _refused(verdict: Verdict, warnings: list[str]) -> Outcome:
    return Outcome(verdict.code, verdict.reason, verdict.message, warnings)


def _view(neighbours: Iterable[Neighbour], namespace: str) -> PodView:
    store: Store[Pod] = Store()
    view = PodView(store)
    store.replace(
        msgspec.convert(_existing(neighbour, at, namespace), Pod)
        for at, neighbour in enumerate(neighbours)
    )
    return view


def _existing(neighbour: Neighbour, at: int, namespace: str) -> Object:
    obj = copy.deepcopy(neighbour.pod)
    obj["metadata"] |= {"namespace": namespace, "uid": f"neighbour-{at}", "resourceVersion": "1"}
    if neighbour.terminating:
        obj["metadata"] |= {"deletionTimestamp": "2026-09-21T14:13:20Z", "finalizers": [HOLD]}
    return obj | {"status": {"phase": neighbour.phase}}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_admission_answers_as_the_row_says(row: Row) -> None:
    assert problems(row, run(row, Judge(SETTINGS))) == []


NAMES = [rule.name for rule in (*RULES, *EXCLUSIONS)]


@pytest.mark.parametrize("name", NAMES)
def test_a_row_breaks_when_its_rule_is_taken_out(name: str) -> None:
    judge = Judge(
        SETTINGS,
        [rule for rule in RULES if rule.name != name],
        [exclusion for exclusion in EXCLUSIONS if exclusion.name != name],
    )
    rows = [row for row in ROWS if row.rule == name]
    assert rows, f"no row is about {name}"
    assert [row.id for row in rows if not problems(row, run(row, judge))] == []


def _narrower(rule: Rule) -> Iterable[Any]:
    """The rule without one of its scopes, or without the validating endpoint: what both endpoints
    ask the validating one still refuses, so nothing shows that the mutating one is gone."""
    for scope in rule.scopes:
        scopes = tuple(other for other in rule.scopes if other is not scope)
        yield pytest.param(rule, rule._replace(scopes=scopes), id=f"{rule.name}-{scope.value}")
    if Endpoint.VALIDATE in rule.endpoints:
        endpoints = tuple(other for other in rule.endpoints if other is not Endpoint.VALIDATE)
        yield pytest.param(rule, rule._replace(endpoints=endpoints), id=f"{rule.name}-validate")


NARROWER = [narrower for rule in RULES for narrower in _narrower(rule)]


@pytest.mark.parametrize(("rule", "narrower"), NARROWER)
def test_a_row_breaks_when_a_rule_is_asked_less(rule: Rule, narrower: Rule) -> None:
    judge = Judge(SETTINGS, [narrower if other is rule else other for other in RULES])
    assert any(problems(row, run(row, judge)) for row in ROWS)


def test_rows_and_rules_have_names_of_their_own() -> None:
    assert len({row.id for row in ROWS}) == len(ROWS)
    assert len(set(NAMES)) == len(NAMES)
    assert {row.rule for row in ROWS} - {""} == set(NAMES)
