"""Configurations of admission are checked when they are written."""

from typing import Any

import pytest

from tests.apiserver.admission.attributes import Attributes
from tests.apiserver.admission.checking import refuse_broken
from tests.apiserver.errors import StatusError

BAD = {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}
CONDITION = {"name": "c", "expression": "a b"}
GOOD = {"name": "c", "expression": "object == null"}

BROKEN: dict[str, tuple[str, dict[str, Any], list[str]]] = {
    "webhooks": (
        "MutatingWebhookConfiguration",
        {
            "webhooks": [
                {"matchConditions": [GOOD, CONDITION]},
                {"objectSelector": BAD, "namespaceSelector": BAD},
            ]
        },
        [
            "webhooks[0].matchConditions[1].expression",
            "webhooks[1].namespaceSelector.matchExpressions",
            "webhooks[1].objectSelector.matchExpressions",
        ],
    ),
    "validating-webhooks": (
        "ValidatingWebhookConfiguration",
        {"webhooks": [{"matchConditions": [CONDITION]}]},
        ["webhooks[0].matchConditions[0].expression"],
    ),
    "policy": (
        "ValidatingAdmissionPolicy",
        {
            "spec": {
                "matchConstraints": {"objectSelector": BAD},
                "variables": [
                    {"name": "a", "expression": "variables.b"},
                    {"name": "b", "expression": "variables.a"},
                ],
                "matchConditions": [CONDITION, {"name": "d", "expression": "variables.b"}],
                "validations": [
                    {"expression": "variables.b", "reason": "Forbidden"},
                    {
                        "expression": "variables.c",
                        "messageExpression": "foo",
                        "reason": "Unauthorized",
                    },
                ],
            }
        },
        [
            "spec.matchConstraints.objectSelector.matchExpressions",
            "spec.variables[0].expression",
            "spec.matchConditions[0].expression",
            "spec.matchConditions[1].expression",
            "spec.validations[1].expression",
            "spec.validations[1].reason",
            "spec.validations[1].messageExpression",
        ],
    ),
    "binding": (
        "ValidatingAdmissionPolicyBinding",
        {"spec": {"matchResources": {"namespaceSelector": BAD}}},
        ["spec.matchResources.namespaceSelector.matchExpressions"],
    ),
}


def attributes(kind: str, group: str = "admissionregistration.k8s.io") -> Attributes:
    return Attributes(operation="CREATE", group=group, resource="x", kind=kind, name="n")


@pytest.mark.parametrize(("kind", "obj", "fields"), BROKEN.values(), ids=BROKEN.keys())
def test_each_broken_field_is_named(kind: str, obj: dict[str, Any], fields: list[str]) -> None:
    with pytest.raises(StatusError) as caught:
        refuse_broken(attributes(kind), {"metadata": {"name": "n"}, **obj})
    status = caught.value.status
    assert (status["code"], status["reason"]) == (422, "Invalid")
    assert status["message"].startswith(f'{kind}.admissionregistration.k8s.io "n" is invalid: ')
    assert [cause["field"] for cause in status["details"]["causes"]] == fields


@pytest.mark.parametrize("kind", [kind for kind, *_ in BROKEN.values()])
def test_an_empty_configuration_is_not_broken(kind: str) -> None:
    refuse_broken(attributes(kind), {"metadata": {"name": "n"}})
    refuse_broken(attributes(kind), None)


def test_a_resource_of_another_group_is_not_looked_at() -> None:
    kind, obj, _ = BROKEN["policy"]
    refuse_broken(attributes(kind, "example.dev"), obj)
