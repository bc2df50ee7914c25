"""Label selectors of webhooks and policies."""

from typing import Any

import pytest

from tests.apiserver.admission.selectors import selects, unknown_operators


def requirement(operator: str, *values: str, key: str = "a") -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


LABELS = {"a": "1", "b": "2"}
CASES: dict[str, tuple[Any, dict[str, str] | None, bool]] = {
    "none": (None, LABELS, True),
    "empty": ({}, LABELS, True),
    "empty-no-labels": ({}, None, True),
    "labels": ({"matchLabels": {"a": "1", "b": "2"}}, LABELS, True),
    "one-label-differs": ({"matchLabels": {"a": "1", "b": "3"}}, LABELS, False),
    "label-absent": ({"matchLabels": {"c": ""}}, LABELS, False),
    "no-labels-at-all": ({"matchLabels": {"a": "1"}}, None, False),
    "in": ({"matchExpressions": [requirement("In", "0", "1")]}, LABELS, True),
    "in-other": ({"matchExpressions": [requirement("In", "0")]}, LABELS, False),
    "in-absent": ({"matchExpressions": [requirement("In", "1", key="c")]}, LABELS, False),
    "not-in": ({"matchExpressions": [requirement("NotIn", "0")]}, LABELS, True),
    "not-in-same": ({"matchExpressions": [requirement("NotIn", "1")]}, LABELS, False),
    "not-in-absent": ({"matchExpressions": [requirement("NotIn", "1", key="c")]}, LABELS, True),
    "exists": ({"matchExpressions": [requirement("Exists")]}, LABELS, True),
    "exists-absent": ({"matchExpressions": [requirement("Exists", key="c")]}, LABELS, False),
    "absent": ({"matchExpressions": [requirement("DoesNotExist", key="c")]}, LABELS, True),
    "absent-there": ({"matchExpressions": [requirement("DoesNotExist")]}, LABELS, False),
    "all-must-hold": (
        {"matchExpressions": [requirement("Exists"), requirement("Exists", key="c")]},
        LABELS,
        False,
    ),
    "labels-and-expressions": (
        {"matchLabels": {"a": "1"}, "matchExpressions": [requirement("In", "3", key="b")]},
        LABELS,
        False,
    ),
    "unknown-operator": ({"matchExpressions": [requirement("Gt", "0")]}, LABELS, False),
}


@pytest.mark.parametrize(("selector", "labels", "selected"), CASES.values(), ids=CASES.keys())
def test_a_selector_selects_what_meets_all_its_requirements(
    selector: Any, labels: dict[str, str] | None, selected: bool
) -> None:
    assert selects(selector, labels) is selected


def test_unknown_operators_are_all_named() -> None:
    requirements = [requirement("Gt"), requirement("In", "1"), {"key": "b"}]
    assert unknown_operators({"matchExpressions": requirements}) == ["Gt", ""]
    assert unknown_operators(None) == []
