"""Webhook entries and policies name exactly the keys of webhook.stamps."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.webhook.site import MANIFESTS, base, documents
from webhook import stamps
from webhook.__main__ import run

KEY = re.compile(r"'((?:podstamp\.dev|stormservice[^'/]*)/[^']+|lora-modified)'")
LABELS = {
    stamps.MANAGED,
    stamps.ENABLED,
    stamps.PODSET,
    stamps.PODSET_INDEX,
    stamps.AIBRIX_INDEX,
}
ADAPTERS = set(stamps.ADAPTER_KEYS)
ALL = {
    value
    for name, value in vars(stamps).items()
    if name.isupper() and isinstance(value, str) and not name.startswith("_")
}
STAMPS = ALL - ADAPTERS
MUTATING, VALIDATING = base("webhooks.yaml")
ENTRIES = {entry["name"]: entry for each in (MUTATING, VALIDATING) for entry in each["webhooks"]}


def conditions(entry: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each["expression"] for each in entry["matchConditions"]}


def keys(expression: str) -> set[str]:
    return set(KEY.findall(expression))


def test_all_keys_are_known() -> None:
    assert LABELS < ALL
    assert len(ALL) == 13


def test_the_entries_are_those_that_the_design_names() -> None:
    assert [entry["name"].partition(".podstamp.dev")[0] for entry in MUTATING["webhooks"]] == [
        "create.mutate",
        "update.mutate",
        "adapters.mutate",
    ]
    assert [entry["name"].partition(".podstamp.dev")[0] for entry in VALIDATING["webhooks"]] == [
        "create.validate",
        "update.validate",
        "adapters.validate",
    ]


@pytest.mark.parametrize("name", ENTRIES)
def test_every_entry_keeps_its_blast_radius(name: str) -> None:
    entry = ENTRIES[name]
    kind, verb = name.split(".")[:2]
    assert entry["failurePolicy"] == ("Ignore" if kind == "adapters" else "Fail")
    assert (entry["sideEffects"], entry["timeoutSeconds"]) == ("None", 5)
    assert entry.get("reinvocationPolicy", "Never") == "Never"
    assert entry["clientConfig"] == {
        "service": {
            "namespace": "podstamp-system",
            "name": "podstamp-webhook",
            "path": f"/{verb}",
            "port": 443,
        }
    }
    assert entry["namespaceSelector"]["matchLabels"] == {stamps.ENABLED: "true"}
    (expression,) = entry["namespaceSelector"]["matchExpressions"]
    assert sorted(expression["values"]) == ["kube-system", "podstamp-system"]
    (rule,) = entry["rules"]
    assert rule["resources"] == ["pods"]
    assert rule["operations"] == ["CREATE" if kind == "create" else "UPDATE"]


@pytest.mark.parametrize("verb", ["mutate", "validate"])
def test_the_two_update_entries_share_all_keys_between_them(verb: str) -> None:
    update = conditions(ENTRIES[f"update.{verb}.podstamp.dev"])
    adapters = conditions(ENTRIES[f"adapters.{verb}.podstamp.dev"])
    assert keys(update["stamps-differ"]) == STAMPS
    assert keys(adapters["adapters-differ"]) == ADAPTERS
    assert keys(adapters["nothing-else-differs"]) == STAMPS
    # One is the negation of the other, so that never both are called.
    plain = re.sub(r"\s+", " ", update["stamps-differ"])
    negated = re.sub(r"\s+", " ", adapters["nothing-else-differs"])
    assert negated == "!" + plain.replace(" || [ 'podstamp", " && ![ 'podstamp")


def test_expressions_use_no_optional_syntax() -> None:
    texts = [str(ENTRIES), str(base("policies.yaml"))]
    assert not any(sign in text for text in texts for sign in (".?", "[?", "optional."))


def _policies() -> dict[str, dict[str, Any]]:
    return {
        each["metadata"]["name"]: each["spec"]
        for each in base("policies.yaml")
        if each["kind"] == "ValidatingAdmissionPolicy"
    }


def _variables(spec: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each["expression"] for each in spec["variables"]}


def test_the_policies_name_all_keys() -> None:
    policies = _policies()
    status = _variables(policies["podstamp-status"])
    assert keys(status["changedLabels"]) == LABELS
    assert keys(status["changedAnnotations"]) == ALL - LABELS
    assert keys(_variables(policies["podstamp-bindings"])["keys"]) == ALL


def test_every_policy_has_a_binding_that_denies() -> None:
    bindings = [
        each["spec"]
        for each in base("policies.yaml")
        if each["kind"] == "ValidatingAdmissionPolicyBinding"
    ]
    assert {each["policyName"] for each in bindings} == set(_policies())
    assert all(each["validationActions"] == ["Deny"] for each in bindings)
    assert all(spec["failurePolicy"] == "Fail" for spec in _policies().values())


def test_nothing_carries_a_ca_bundle() -> None:
    folder = MANIFESTS / "overlays" / "fenced-deleters"
    for file in (MANIFESTS / "base" / "webhooks.yaml", *folder.glob("*.yaml")):
        assert all(
            "caBundle:" not in line.partition("#")[0] for line in file.read_text().splitlines()
        )


OVERLAY: Path = MANIFESTS / "overlays" / "fenced-deleters"


def test_the_entry_for_deletes_comes_from_the_one_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fenced-deleters", "--config", str(OVERLAY / "webhook.yaml")]) == 0
    made = capsys.readouterr().out
    assert made == (OVERLAY / "entry.yaml").read_text(), "run the command in its first lines"


def test_the_entry_for_deletes_is_never_in_the_way() -> None:
    (patch,) = documents(OVERLAY / "entry.yaml")
    (entry,) = patch["webhooks"]
    assert entry["name"] == "delete.validate.podstamp.dev"
    assert entry["failurePolicy"] == "Ignore"
    assert entry["rules"][0]["operations"] == ["DELETE"]
    selected = conditions(entry)
    assert "system:serviceaccount:serving:pod-writer" in selected["fenced-deleter"]
    assert "deletionTimestamp" in selected["not-terminating"]
    assert (
        entry["namespaceSelector"] == ENTRIES["create.validate.podstamp.dev"]["namespaceSelector"]
    )
    assert entry["objectSelector"] == ENTRIES["create.validate.podstamp.dev"]["objectSelector"]
