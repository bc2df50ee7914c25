"""ValidatingAdmissionPolicies: who is judged, what is denied, and how the client hears of it."""

from typing import Any

import pytest

from tests.apiserver.admission import AdmissionChain, Attributes
from tests.apiserver.errors import StatusError
from tests.apiserver_unit.admission.hook import Hook, deny
from tests.apiserver_unit.admission.store import Json, MemorySource, entry, pod, pods, rule

pytestmark = pytest.mark.anyio


async def judged(
    source: MemorySource,
    attributes: Attributes | None = None,
    obj: Json | None = None,
    old: Json | None = None,
) -> Json | None:
    """The status of the refusal, None if the policies let the request pass."""
    chain = AdmissionChain(source)
    try:
        await chain.validate(attributes or pods(), obj or pod(), old)
    except StatusError as error:
        return error.status
    return None


def validation(expression: str = "false", **fields: Any) -> Json:
    return {"expression": expression, **fields}


def policy(*validations: Json, **spec: Any) -> Json:
    return {"validations": list(validations), **spec}


@pytest.fixture
def source() -> MemorySource:
    return MemorySource(ns={"team": "llm"})


async def test_a_denial_reads_as_kubernetes_writes_it(source: MemorySource) -> None:
    source.policy("stamps", policy(validation("true"), validation(message=" no stamp ")))
    assert await judged(source) == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": (
            "pods \"p\" is forbidden: ValidatingAdmissionPolicy 'stamps' with binding 'b0' "
            "denied request: no stamp"
        ),
        "reason": "Invalid",
        "details": {
            "name": "p",
            "kind": "pods",
            "causes": [
                {
                    "message": (
                        "ValidatingAdmissionPolicy 'stamps' with binding 'b0' "
                        "denied request: no stamp"
                    )
                }
            ],
        },
        "code": 422,
    }


REASONS = [("Invalid", 422), ("Forbidden", 403), ("RequestEntityTooLarge", 413)]


@pytest.mark.parametrize(("reason", "code"), REASONS)
async def test_the_reason_chooses_the_code(source: MemorySource, reason: str, code: int) -> None:
    source.policy("s", policy(validation(reason=reason)))
    status = await judged(source)
    assert status is not None
    assert (status["code"], status["reason"]) == (code, reason)


MESSAGES: dict[str, tuple[Json, str]] = {
    "computed": (
        validation(messageExpression="'pod ' + object.metadata.name", message="fixed"),
        "pod p",
    ),
    "computed-fails": (validation(messageExpression="object.nothing", message="fixed"), "fixed"),
    "computed-empty": (validation(messageExpression="'  '", message="fixed"), "fixed"),
    "computed-lines": (validation(messageExpression="'a\\nb'", message="fixed"), "fixed"),
    "computed-number": (validation(messageExpression="1", message="fixed"), "fixed"),
    "neither": (validation(" 1 == 2 "), "failed expression: 1 == 2"),
}


@pytest.mark.parametrize(("each", "message"), MESSAGES.values(), ids=MESSAGES.keys())
async def test_the_message_is_the_computed_or_the_fixed_or_the_expression(
    source: MemorySource, each: Json, message: str
) -> None:
    source.policy("s", policy(each))
    status = await judged(source)
    assert status is not None
    assert status["message"].endswith(f"denied request: {message}")


async def test_a_policy_without_a_binding_judges_nothing(source: MemorySource) -> None:
    source.policy("s", policy(validation()), {"policyName": "other"})
    assert await judged(source) is None


async def test_a_binding_narrows_its_policy(source: MemorySource) -> None:
    selector = {"namespaceSelector": {"matchLabels": {"team": "other"}}}
    source.policy("s", policy(validation()), {"matchResources": selector}, {})
    status = await judged(source)
    assert status is not None
    assert "with binding 'b1'" in status["message"]


async def test_a_policy_judges_what_its_constraints_match(source: MemorySource) -> None:
    constraints = {
        "resourceRules": [rule(("pods/status",))],
        "objectSelector": {"matchLabels": {"m": "true"}},
    }
    source.policy("s", policy(validation(), matchConstraints=constraints))
    managed = pod(labels={"m": "true"})
    status = pods("UPDATE", subresource="status")
    assert await judged(source, pods("UPDATE"), managed, managed) is None
    assert await judged(source, status, pod(), pod()) is None
    assert await judged(source, status, pod(), managed) is not None
    assert await judged(source, status, managed, pod()) is not None


async def test_expressions_see_objects_request_namespace_and_variables(
    source: MemorySource,
) -> None:
    expression = (
        "variables.old == '1' && object.metadata.labels.n == '2' && request.operation == 'UPDATE' "
        "&& request.userInfo.username == 'ann' && namespaceObject.metadata.labels.team == 'llm'"
    )
    variable = {"name": "old", "expression": "oldObject.metadata.labels.n"}
    source.policy("s", policy(validation(f"!({expression})"), variables=[variable]))
    status = await judged(source, pods("UPDATE"), pod(labels={"n": "2"}), pod(labels={"n": "1"}))
    assert status is not None
    assert "failed expression: !(variables.old" in status["message"]


async def test_match_conditions_leave_requests_out(source: MemorySource) -> None:
    conditions = [{"name": "c", "expression": "has(object.metadata.labels)"}]
    source.policy("s", policy(validation(), matchConditions=conditions))
    assert await judged(source) is None
    assert await judged(source, obj=pod(labels={"a": "b"})) is not None


ERRORS: dict[str, Json] = {
    "validation": policy(validation("object.nothing")),
    "condition": policy(
        validation(), matchConditions=[{"name": "c", "expression": "object.nothing"}]
    ),
    "uncompilable": policy(validation("true"), variables=[{"name": "v", "expression": "a b"}]),
    "params": policy(validation("true"), paramKind={"apiVersion": "v1", "kind": "ConfigMap"}),
}


@pytest.mark.parametrize("spec", ERRORS.values(), ids=ERRORS.keys())
async def test_what_cannot_be_judged_falls_to_the_failure_policy(
    source: MemorySource, spec: Json
) -> None:
    source.policy("fails", spec)
    status = await judged(source)
    assert status is not None
    assert (status["code"], status["reason"]) == (422, "Invalid")
    ignoring = MemorySource(ns={})
    ignoring.policy("ignores", {**spec, "failurePolicy": "Ignore"})
    assert await judged(ignoring) is None


async def test_an_ignored_error_of_one_validation_does_not_hide_the_denial_of_the_next(
    source: MemorySource,
) -> None:
    source.policy(
        "s",
        policy(validation("object.nothing"), validation(message="second"), failurePolicy="Ignore"),
    )
    status = await judged(source)
    assert status is not None
    assert status["message"].endswith("denied request: second")


@pytest.mark.parametrize(
    ("actions", "refused", "warned"),
    [
        (["Deny"], True, 0),
        (["Warn"], False, 2),
        (["Audit"], False, 0),
        (["Warn", "Audit"], False, 2),
    ],
    ids=["deny", "warn", "audit", "both"],
)
async def test_the_actions_of_the_binding_decide_what_a_denial_does(
    source: MemorySource, actions: list[str], refused: bool, warned: int
) -> None:
    spec = policy(validation(message="one"), validation(message="two"))
    source.policy("s", spec, {"validationActions": actions})
    attributes = pods()
    assert (await judged(source, attributes) is not None) is refused
    assert len(attributes.warnings) == warned
    if warned:
        warning = "Validation failed for ValidatingAdmissionPolicy 's' with binding 'b0': one"
        assert attributes.warnings[0] == warning


async def test_the_first_policy_by_name_answers_and_all_warn(source: MemorySource) -> None:
    source.policy("z", policy(validation(message="z")), {"validationActions": ["Deny", "Warn"]})
    source.policy("a", policy(validation(message="a")))
    attributes = pods()
    status = await judged(source, attributes)
    assert status is not None
    assert status["message"].endswith("denied request: a")
    assert len(attributes.warnings) == 1


async def test_a_generated_name_is_shown_by_its_prefix(source: MemorySource) -> None:
    source.policy("s", policy(validation()))
    obj = pod(name="", generateName="worker-")
    status = await judged(source, pods(name=""), obj)
    assert status is not None
    assert status["message"].startswith('pods "worker-" is forbidden: ')


async def test_policies_are_read_again_only_after_they_changed(source: MemorySource) -> None:
    source.policy("s", policy(validation("true")))
    chain = AdmissionChain(source)
    for _ in range(3):
        await chain.validate(pods(), pod(), None)
    lists = source.lists
    assert lists <= 3  # bindings, policies, webhooks
    source.policy("t", policy(validation()))
    with pytest.raises(StatusError):
        await chain.validate(pods(), pod(), None)
    assert source.lists > lists


async def test_a_policy_refuses_before_any_webhook_is_asked(source: MemorySource) -> None:
    async with Hook(deny(message="the webhook")) as hook:
        source.hooks("c", entry(hook.client_config()), mutating=False)
        source.policy("s", policy(validation(message="the policy")))
        status = await judged(source)
    assert status is not None
    assert status["message"].endswith("the policy")
    assert hook.reviews == []
