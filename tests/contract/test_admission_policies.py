"""ValidatingAdmissionPolicies: what they deny, and how the client hears of it."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.contract.api import Api, Object, ok, pod, refused, turns
from tests.contract.hooks import GROUP, POD_RULE, Admitted


@pytest.fixture
def admitted(api: Api, namespace: str) -> Iterator[Admitted]:
    admitted = Admitted(api, namespace)
    yield admitted
    admitted.close()


def denied(api: Api, path: str, body: Object, **query: str) -> httpx.Response:
    """The answer to a create once the server goes by the policy; a dry run leaves nothing."""
    for _ in turns():
        response = api.post(path, body, dryRun="All", **query)
        if response.status_code != 201:
            return response
    raise AssertionError("the policy never denied")


def test_a_denial_names_policy_binding_and_message(api: Api, pods: str, admitted: Admitted) -> None:
    validations = [{"expression": "true"}, {"expression": "false", "message": "  no stamp "}]
    name = admitted.policy({"validations": validations})
    status = refused(denied(api, pods, pod("web")), 422, "Invalid")
    said = f"ValidatingAdmissionPolicy '{name}' with binding '{name}' denied request: no stamp"
    assert status["message"] == f'pods "web" is forbidden: {said}'
    assert status["details"] == {"name": "web", "kind": "pods", "causes": [{"message": said}]}


@pytest.mark.parametrize(
    ("reason", "code"),
    [("Invalid", 422), ("Forbidden", 403), ("RequestEntityTooLarge", 413)],
)
def test_the_reason_chooses_the_code(
    api: Api, pods: str, admitted: Admitted, reason: str, code: int
) -> None:
    admitted.policy({"validations": [{"expression": "false", "reason": reason}]})
    refused(denied(api, pods, pod("web")), code, reason)


MESSAGES: dict[str, tuple[Object, str]] = {
    "computed": (
        {"messageExpression": "'pod ' + object.metadata.name", "message": "fixed"},
        "pod web",
    ),
    "computed-fails": (
        {"messageExpression": "'' + object.metadata.labels.x", "message": "fixed"},
        "fixed",
    ),
    "computed-empty": ({"messageExpression": "'  '", "message": "fixed"}, "fixed"),
    "neither": ({}, "failed expression: object.metadata.name == 'other'"),
}


@pytest.mark.parametrize("case", MESSAGES.values(), ids=MESSAGES.keys())
def test_the_message_is_computed_fixed_or_the_expression(
    api: Api, pods: str, admitted: Admitted, case: tuple[Object, str]
) -> None:
    fields, message = case
    validation = {"expression": "object.metadata.name == 'other'", **fields}
    admitted.policy({"validations": [validation]})
    status = refused(denied(api, pods, pod("web")), 422, "Invalid")
    assert status["message"].endswith(f"denied request: {message}")


ERRORS: dict[str, tuple[str, str]] = {
    "no-key": ("object.metadata.labels.x == '1'", "no such key: labels"),
    "types": ("object.metadata.name + 1 == 2", "no such overload"),
    "division": ("1 / (object.spec.containers.size() - 1) == 1", "division by zero"),
}


@pytest.mark.parametrize("case", ERRORS.values(), ids=ERRORS.keys())
def test_a_failed_expression_denies_in_these_words(
    api: Api, pods: str, admitted: Admitted, case: tuple[str, str]
) -> None:
    expression, why = case
    admitted.policy({"validations": [{"expression": expression}]})
    status = refused(denied(api, pods, pod("web")), 422, "Invalid")
    said = f"denied request: expression '{expression}' resulted in error: {why}"
    assert status["message"].endswith(said)


def test_a_failed_variable_is_named(api: Api, pods: str, admitted: Admitted) -> None:
    variables = [{"name": "x", "expression": "object.metadata.labels.x"}]
    validations = [{"expression": "variables.x == '1'"}]
    admitted.policy({"variables": variables, "validations": validations})
    message = refused(denied(api, pods, pod("web")), 422, "Invalid")["message"]
    assert 'composited variable "x" fails to evaluate: ' in message
    assert "no such key: labels" in message


VALUES = [
    "has(object.metadata.labels) && object.metadata.labels['a'] == 'b'",
    "!has(object.metadata.labels.zzz) && !('zzz' in object.metadata.labels)",
    "oldObject == null && request.operation in ['CREATE', 'UPDATE']",
    "object.spec.containers.exists(c, c.name == 'server')",
    "object.spec.containers.map(c, c.name).join(',') == 'server'",
    "object.metadata.labels.all(key, key in ['a', 'lora'])",
    "object.metadata.labels.zzz == '1' || true",
    "'x/y'.split('/')[1].upperAscii() == 'Y' && 'abc'.matches('^[a-c]+$')",
    "timestamp('2026-01-01T09:00:00.000000001+09:00') > timestamp('2026-01-01T00:00:00Z')",
    "timestamp('2026-01-01T00:10:00Z') - timestamp('2026-01-01T00:00:00Z') == duration('10m')",
    "string(true) == 'true' && int('12') == 12 && 'a-12'.find('[0-9]+') == '12'",
    "sets.contains(['a', 'b'], ['a']) && [1, 2].isSorted() && dyn(1) == 1",
    "namespaceObject.metadata.name == object.metadata.namespace",
    "variables.twice == 4 && (true || variables.broken)",
    "request.resource.resource == 'pods' && request.userInfo.username != ''",
    "request.dryRun && request.name == 'web' && !has(request.subResource)",
    "type(object.metadata.name) == string && size(object.metadata.labels) == 2",
]


def test_these_expressions_hold_on_both_servers(api: Api, pods: str, admitted: Admitted) -> None:
    variables = [
        {"name": "two", "expression": "2"},
        {"name": "twice", "expression": "variables.two * 2"},
        {"name": "broken", "expression": "object.metadata.labels.zzz == '1'"},
    ]
    last = {"expression": "object.metadata.labels['lora'] == 'x'", "message": "the last"}
    validations = [{"expression": each} for each in VALUES]
    admitted.policy({"variables": variables, "validations": [*validations, last]})
    status = refused(denied(api, pods, pod("web", labels={"a": "b", "lora": "y"})), 422, "Invalid")
    assert status["message"].endswith("denied request: the last")


def test_match_conditions_leave_requests_out(api: Api, pods: str, admitted: Admitted) -> None:
    admitted.policy(
        {
            "matchConditions": [{"name": "c", "expression": "has(object.metadata.labels)"}],
            "validations": [{"expression": "false"}],
        }
    )
    refused(denied(api, pods, pod("web", labels={"a": "b"})), 422, "Invalid")
    api.create(pods, pod("web"), dryRun="All")


def test_an_error_is_ignored_under_ignore_but_no_denial_is(
    api: Api, pods: str, admitted: Admitted
) -> None:
    admitted.policy(
        {
            "failurePolicy": "Ignore",
            "validations": [
                {"expression": "object.metadata.annotations.x == '1'"},
                {"expression": "!has(object.metadata.labels)", "message": "labels"},
            ],
        }
    )
    status = refused(denied(api, pods, pod("web", labels={"a": "b"})), 422, "Invalid")
    assert status["message"].endswith("denied request: labels")
    api.create(pods, pod("web"), dryRun="All")


def test_a_warning_says_which_policy_would_deny(api: Api, pods: str, admitted: Admitted) -> None:
    name = admitted.policy(
        {"validations": [{"expression": "false", "message": "no stamp"}]},
        validationActions=["Warn"],
    )
    warning = (
        f"299 - \"Validation failed for ValidatingAdmissionPolicy '{name}' "
        f"with binding '{name}': no stamp\""
    )
    for _ in turns():
        response = api.post(pods, pod("web"), dryRun="All")
        ok(response, 201)
        if "warning" in response.headers:
            break
    assert response.headers.get_list("warning") == [warning]


def test_a_status_write_is_judged_by_rules_for_status(
    api: Api, pods: str, admitted: Admitted
) -> None:
    api.create(pods, pod("web", labels={"m": "1"}))
    rule = {**POD_RULE, "resources": ["pods/status"], "operations": ["UPDATE"]}
    constraints = {
        "resourceRules": [rule],
        "namespaceSelector": admitted.selector(),
        "objectSelector": {"matchLabels": {"m": "1"}},
    }
    same = "object.metadata.labels == oldObject.metadata.labels"
    admitted.policy(
        {
            "matchConstraints": constraints,
            "validations": [{"expression": same, "message": "labels"}],
        }
    )
    forged = {"metadata": {"labels": {"m": "2"}}}
    for _ in turns():
        response = api.patch(f"{pods}/web/status", forged, dryRun="All")
        if response.status_code != 200:
            break
    assert refused(response, 422, "Invalid")["message"].endswith("denied request: labels")
    ok(api.patch(f"{pods}/web/status", {"status": {"message": "hello"}}))
    ok(api.patch(f"{pods}/web", forged))


@pytest.mark.parametrize("by_pod", [True, False], ids=["pods/binding", "bindings"])
def test_a_binding_is_judged_at_both_endpoints(
    api: Api, pods: str, namespace: str, admitted: Admitted, by_pod: bool
) -> None:
    api.create(pods, pod("web"))
    rule = {**POD_RULE, "resources": ["pods/binding", "bindings"], "operations": ["CREATE"]}
    constraints = {"resourceRules": [rule], "namespaceSelector": admitted.selector()}
    expression = "!has(object.metadata.annotations) || !('forged' in object.metadata.annotations)"
    admitted.policy(
        {
            "matchConstraints": constraints,
            "validations": [{"expression": expression, "message": "forged"}],
        }
    )
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "web", "annotations": {"forged": "1"}},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "node-1"},
    }
    path = f"{pods}/web/binding" if by_pod else f"/api/v1/namespaces/{namespace}/bindings"
    status = refused(denied(api, path, binding), 422, "Invalid")
    assert status["message"].endswith("denied request: forged")
    kind = "pods" if by_pod else "bindings"
    assert status["message"].startswith(f'{kind} "web" is forbidden: ')
    binding["metadata"] = {"name": "web"}
    api.create(path, binding)


@pytest.mark.parametrize("field", ["validations", "variables", "matchConditions"])
@pytest.mark.parametrize("expression", ["object.", "foo == 1"], ids=["syntax", "unknown-name"])
def test_an_expression_that_does_not_compile_is_refused(
    api: Api, namespace: str, field: str, expression: str
) -> None:
    named = {} if field == "validations" else {"name": "x"}
    spec: Object = {
        "matchConstraints": {"resourceRules": [POD_RULE]},
        "validations": [{"expression": "true"}],
    }
    spec[field] = [{**named, "expression": expression}]
    body = {"metadata": {"name": f"{namespace}-broken"}, "spec": spec}
    status = refused(api.post(f"{GROUP}/validatingadmissionpolicies", body), 422, "Invalid")
    assert [cause["field"] for cause in status["details"]["causes"]] == [
        f"spec.{field}[0].expression"
    ]
    assert "compilation failed" in status["message"]


def test_policies_judge_webhook_configurations_but_no_policies(
    api: Api, namespace: str, admitted: Admitted
) -> None:
    rule = {"operations": ["CREATE"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}
    own = f"request.name == '{namespace}'"
    admitted.policy(
        {
            "matchConstraints": {"resourceRules": [rule]},
            "matchConditions": [{"name": "own", "expression": own}],
            "validations": [{"expression": "false"}],
        }
    )
    body = {"metadata": {"name": namespace}}
    path = f"{GROUP}/validatingwebhookconfigurations"
    refused(denied(api, path, body), 422, "Invalid")
    spec = {
        "matchConstraints": {"resourceRules": [POD_RULE]},
        "validations": [{"expression": "true"}],
    }
    api.create(f"{GROUP}/validatingadmissionpolicies", {**body, "spec": spec}, dryRun="All")


def test_a_condition_that_reads_variables_is_refused(api: Api, namespace: str) -> None:
    spec = {
        "matchConstraints": {"resourceRules": [POD_RULE]},
        "variables": [{"name": "x", "expression": "true"}],
        "matchConditions": [{"name": "c", "expression": "variables.x"}],
        "validations": [{"expression": "variables.x"}],
    }
    body = {"metadata": {"name": f"{namespace}-broken"}, "spec": spec}
    status = refused(api.post(f"{GROUP}/validatingadmissionpolicies", body), 422, "Invalid")
    fields = [cause["field"] for cause in status["details"]["causes"]]
    assert fields == ["spec.matchConditions[0].expression"]


def test_a_reason_that_no_code_belongs_to_is_refused(api: Api, namespace: str) -> None:
    spec = {
        "matchConstraints": {"resourceRules": [POD_RULE]},
        "validations": [{"expression": "true", "reason": "Conflict"}],
    }
    body = {"metadata": {"name": f"{namespace}-broken"}, "spec": spec}
    status = refused(api.post(f"{GROUP}/validatingadmissionpolicies", body), 422, "Invalid")
    assert status["message"].endswith(
        'spec.validations[0].reason: Unsupported value: "Conflict": '
        'supported values: "Forbidden", "Invalid", "RequestEntityTooLarge"'
    )
