"""Which requests a webhook's and a policy's rules and selectors concern."""

from typing import Any

import pytest

from tests.apiserver.admission.attributes import Attributes
from tests.apiserver.admission.matching import hook_matches, resources_match, rule_matches
from tests.apiserver.admission.subject import Subject
from tests.apiserver.errors import StatusError
from tests.apiserver_unit.admission.store import Json, MemorySource, pod, pods, rule

NAMESPACE = pods(resource="namespaces", kind="Namespace", namespace="ns", name="ns")
NODE = pods(resource="nodes", kind="Node", namespace="")
STATUS = pods("UPDATE", subresource="status")

RULES: dict[str, tuple[Json, Attributes, bool]] = {
    "any": (rule(("*/*",)), pods(), True),
    "operation": (rule(operations=["UPDATE", "CREATE"]), pods(), True),
    "other-operation": (rule(operations=["UPDATE"]), pods(), False),
    "no-operation": (rule(operations=[]), pods(), False),
    "group": (rule(apiGroups=[""]), pods(), True),
    "other-group": (rule(apiGroups=["apps"]), pods(), False),
    "version": (rule(apiVersions=["v1"]), pods(), True),
    "other-version": (rule(apiVersions=["v2"]), pods(), False),
    "resource": (rule(("services", "pods")), pods(), True),
    "other-resource": (rule(("services",)), pods(), False),
    "resource-is-not-its-subresources": (rule(("pods",)), STATUS, False),
    "subresource": (rule(("pods/status",)), STATUS, True),
    "subresource-is-not-the-resource": (rule(("pods/status",)), pods(), False),
    "all-resources-but-no-subresources": (rule(("*",)), STATUS, False),
    "all-resources": (rule(("*",)), pods(), True),
    "all-subresources-of-pods": (rule(("pods/*",)), STATUS, True),
    "all-subresources-are-also-the-resource": (rule(("pods/*",)), pods(), True),
    "a-subresource-of-all": (rule(("*/status",)), STATUS, True),
    "namespaced": (rule(scope="Namespaced"), pods(), True),
    "cluster": (rule(scope="Cluster"), pods(), False),
    "cluster-node": (rule(("*",), scope="Cluster"), NODE, True),
    "namespaced-node": (rule(("*",), scope="Namespaced"), NODE, False),
    "a-namespace-is-cluster-scoped": (rule(("*",), scope="Cluster"), NAMESPACE, True),
    "a-namespace-is-not-namespaced": (rule(("*",), scope="Namespaced"), NAMESPACE, False),
    "any-scope": (rule(("*",), scope="*"), NODE, True),
    "name": (rule(resourceNames=["q", "p"]), pods(), True),
    "other-name": (rule(resourceNames=["q"]), pods(), False),
}


@pytest.mark.parametrize(("each", "attributes", "expected"), RULES.values(), ids=RULES.keys())
def test_a_rule_matches(each: Json, attributes: Attributes, expected: bool) -> None:
    assert rule_matches(each, attributes) is expected


def subject(
    attributes: Attributes, obj: Json | None = None, old: Json | None = None, **labels: str
) -> Subject:
    source = MemorySource(ns=labels)
    return Subject(attributes, obj, old, source)


TEAM = {"matchLabels": {"team": "llm"}}


def hook(**fields: Any) -> Json:
    return {"rules": [rule(("*",))], **fields}


def test_one_matching_rule_of_several_is_enough() -> None:
    rules = [rule(("services",)), rule(("pods",))]
    assert hook_matches({"rules": rules}, subject(pods(), pod()))
    assert not hook_matches({"rules": rules[:1]}, subject(pods(), pod()))
    assert not hook_matches({}, subject(pods(), pod()))


@pytest.mark.parametrize(
    ("obj", "old", "expected"),
    [
        (pod(labels={"team": "llm"}), None, True),
        (pod(), None, False),
        (pod(labels={"team": "llm"}), pod(), True),
        (pod(), pod(labels={"team": "llm"}), True),
        (pod(), pod(), False),
        (None, pod(labels={"team": "llm"}), True),
        (None, pod(), False),
    ],
    ids=[
        "create",
        "create-other",
        "label-added",
        "label-removed",
        "neither",
        "delete",
        "delete-other",
    ],
)
def test_an_object_selector_holds_if_the_old_or_the_new_object_is_selected(
    obj: Json | None, old: Json | None, expected: bool
) -> None:
    assert hook_matches(hook(objectSelector=TEAM), subject(pods(), obj, old)) is expected


def test_a_namespace_selector_asks_the_stored_namespace() -> None:
    criteria = hook(namespaceSelector=TEAM)
    assert hook_matches(criteria, subject(pods(), pod(), team="llm"))
    assert not hook_matches(criteria, subject(pods(), pod(), team="other"))


def test_a_namespace_selector_lets_cluster_scoped_objects_pass() -> None:
    assert hook_matches(hook(namespaceSelector=TEAM), subject(NODE, {"metadata": {}}))


def test_a_written_namespace_is_selected_by_its_new_labels_and_a_deleted_by_its_stored() -> None:
    criteria = hook(namespaceSelector=TEAM)
    written = {"metadata": {"name": "ns", "labels": {"team": "llm"}}}
    assert hook_matches(criteria, subject(NAMESPACE, written, team="other"))
    gone = pods("DELETE", resource="namespaces", kind="Namespace", name="ns")
    assert hook_matches(criteria, subject(gone, None, written, team="llm"))
    assert not hook_matches(criteria, subject(gone, None, written, team="other"))


def test_a_missing_namespace_is_an_error_only_for_a_hook_that_has_to_ask_it() -> None:
    lost = pods(namespace="lost")
    assert hook_matches(hook(), subject(lost, pod()))
    assert not hook_matches(
        {"rules": [rule(("services",))], "namespaceSelector": TEAM}, subject(lost, pod())
    )
    with pytest.raises(StatusError, match='namespaces "lost" not found'):
        hook_matches(hook(namespaceSelector=TEAM), subject(lost, pod()))


def test_match_resources_without_rules_match_all_but_what_is_excluded() -> None:
    assert resources_match({}, subject(STATUS, pod()))
    excluded = {"excludeResourceRules": [rule(("pods/status",))]}
    assert not resources_match(excluded, subject(STATUS, pod()))
    assert resources_match(excluded, subject(pods(), pod()))
    both = {"resourceRules": [rule()], **excluded}
    assert resources_match(both, subject(pods(), pod()))
    assert not resources_match({**both, "resourceRules": [rule(("x",))]}, subject(pods(), pod()))
