"""Webhooks over HTTPS: who is called, with what, and what an answer or its lack means."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.apiserver.admission import AdmissionChain
from tests.apiserver.errors import StatusError
from tests.apiserver_unit.admission.hook import (
    Hook,
    Json,
    allow,
    deny,
    encoded,
    patching,
    reviewed,
)
from tests.apiserver_unit.admission.store import MemorySource, entry, pod, pods

pytestmark = pytest.mark.anyio

LABEL = {"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}


@asynccontextmanager
async def running(source: MemorySource, second_s: float = 1) -> AsyncIterator[AdmissionChain]:
    """A chain whose time-outs count seconds of that length."""
    chain = AdmissionChain(source, timeout=lambda seconds: asyncio.timeout(seconds * second_s))
    try:
        yield chain
    finally:
        await chain.aclose()


@pytest.fixture
def source() -> MemorySource:
    return MemorySource(ns={"team": "llm"})


async def refused(call: Any) -> Json:
    with pytest.raises(StatusError) as caught:
        await call
    return caught.value.status


async def test_without_configurations_the_object_passes_as_it_is(source: MemorySource) -> None:
    obj = pod()
    async with running(source) as chain:
        assert await chain.mutate(pods(), obj, None) is obj
        await chain.validate(pods(), obj, None)


async def test_a_patch_makes_a_new_object_and_leaves_the_old_one_alone(
    source: MemorySource,
) -> None:
    obj = pod()
    async with Hook(patching(LABEL)) as hook, running(source) as chain:
        source.hooks("m", entry(hook.client_config()))
        changed = await chain.mutate(pods(), obj, None)
    assert changed == pod(labels={"a": "b"})
    assert obj == pod()


async def test_a_review_tells_everything_of_the_request(source: MemorySource) -> None:
    attributes = pods(
        "UPDATE",
        user_uid="u1",
        extra={"scopes": ["x"]},
        options={"kind": "UpdateOptions", "apiVersion": "meta.k8s.io/v1"},
        subresource="status",
    )
    async with Hook() as hook, running(source) as chain:
        rules = [{**entry({})["rules"][0], "resources": ["pods/status"]}]
        source.hooks("m", entry(hook.client_config(), rules=rules, timeoutSeconds=7))
        await chain.mutate(attributes, pod(labels={"n": "1"}), pod())
    [review] = hook.reviews
    assert review["kind"] == "AdmissionReview"
    assert review["apiVersion"] == "admission.k8s.io/v1"
    request = review["request"]
    assert len(request.pop("uid")) == 36
    kind = {"group": "", "version": "v1", "kind": "Pod"}
    resource = {"group": "", "version": "v1", "resource": "pods"}
    assert request == {
        "kind": kind,
        "resource": resource,
        "subResource": "status",
        "requestKind": kind,
        "requestResource": resource,
        "requestSubResource": "status",
        "name": "p",
        "namespace": "ns",
        "operation": "UPDATE",
        "userInfo": {
            "username": "ann",
            "uid": "u1",
            "groups": ["people"],
            "extra": {"scopes": ["x"]},
        },
        "object": pod(labels={"n": "1"}),
        "oldObject": pod(),
        "dryRun": False,
        "options": {"kind": "UpdateOptions", "apiVersion": "meta.k8s.io/v1"},
    }
    assert hook.targets == ["/mutate?timeout=7s"]


async def test_each_call_has_a_uid_of_its_own_and_connections_are_kept(
    source: MemorySource,
) -> None:
    async with Hook() as hook, running(source) as chain:
        source.hooks("m", entry(hook.client_config()))
        source.hooks("v", entry(hook.client_config("/validate")), mutating=False)
        for _ in range(3):
            await chain.mutate(pods(), pod(), None)
            await chain.validate(pods(), pod(), None)
    assert len({request["uid"] for request in hook.requests}) == 6
    assert hook.connections == 1


async def test_delete_has_no_object_and_no_patch(source: MemorySource) -> None:
    async with Hook() as hook, running(source) as chain:
        source.hooks("m", entry(hook.client_config()))
        assert await chain.mutate(pods("DELETE"), None, pod()) is None
        assert hook.requests[0]["object"] is None
        assert hook.requests[0]["oldObject"] == pod()
        hook.respond = patching(LABEL)
        status = await refused(chain.mutate(pods("DELETE"), None, pod()))
    assert status["code"] == 500
    assert "attempted to modify the object" in status["message"]


async def test_mutating_webhooks_see_what_the_one_before_left_in_order_of_names(
    source: MemorySource,
) -> None:
    second = {"op": "add", "path": "/metadata/labels/c", "value": "d"}
    async with Hook(patching(LABEL)) as first, Hook(patching(second)) as last:
        async with running(source) as chain:
            source.hooks("z", entry(last.client_config()))
            source.hooks("a", entry(first.client_config()))
            changed = await chain.mutate(pods(), pod(), None)
    assert last.requests[0]["object"] == pod(labels={"a": "b"})
    assert changed == pod(labels={"a": "b", "c": "d"})


@pytest.mark.parametrize(
    ("policy", "calls"), [("IfNeeded", 2), ("Never", 1)], ids=["if-needed", "never"]
)
async def test_a_webhook_is_asked_again_after_a_later_change_only_if_it_wants(
    source: MemorySource, policy: str, calls: int
) -> None:
    async with Hook() as first, Hook(patching(LABEL)) as last, running(source) as chain:
        source.hooks(
            "m",
            entry(first.client_config(), "first.example.dev", reinvocationPolicy=policy),
            entry(last.client_config(), "last.example.dev", reinvocationPolicy=policy),
        )
        await chain.mutate(pods(), pod(), None)
    assert len(first.reviews) == calls
    assert len(last.reviews) == 1
    assert first.requests[-1]["object"] == (pod(labels={"a": "b"}) if calls == 2 else pod())


async def test_nobody_is_asked_again_when_nothing_changed_after(source: MemorySource) -> None:
    async with Hook(patching(LABEL)) as first, Hook() as last, running(source) as chain:
        source.hooks(
            "m",
            entry(first.client_config(), "first.example.dev", reinvocationPolicy="IfNeeded"),
            entry(last.client_config(), "last.example.dev", reinvocationPolicy="IfNeeded"),
        )
        await chain.mutate(pods(), pod(), None)
    assert (len(first.reviews), len(last.reviews)) == (1, 1)


async def test_a_patch_without_effect_asks_nobody_again(source: MemorySource) -> None:
    same = {"op": "replace", "path": "/metadata/name", "value": "p"}
    async with Hook() as first, Hook(patching(same)) as last, running(source) as chain:
        source.hooks(
            "m",
            entry(first.client_config(), "first.example.dev", reinvocationPolicy="IfNeeded"),
            entry(last.client_config(), "last.example.dev"),
        )
        assert await chain.mutate(pods(), pod(), None) == pod()
    assert len(first.reviews) == 1


DENIALS: dict[str, tuple[Json, int, str | None, str]] = {
    "code-and-reason": (
        {"code": 409, "reason": "Conflict", "message": "index 3 is held"},
        409,
        "Conflict",
        'admission webhook "a.example.dev" denied the request: index 3 is held',
    ),
    "reason-alone": (
        {"reason": "Forbidden"},
        400,
        "Forbidden",
        'admission webhook "a.example.dev" denied the request: Forbidden',
    ),
    "nothing": ({}, 400, None, 'admission webhook "a.example.dev" denied the request without'),
    "a-code-of-success": ({"code": 200, "message": "no"}, 400, None, "denied the request: no"),
}


@pytest.mark.parametrize("mutating", [True, False], ids=["mutating", "validating"])
@pytest.mark.parametrize(
    ("answer", "code", "reason", "message"), DENIALS.values(), ids=DENIALS.keys()
)
async def test_a_denial_reaches_the_client_with_its_code_and_reason(
    source: MemorySource,
    mutating: bool,
    answer: Json,
    code: int,
    reason: str | None,
    message: str,
) -> None:
    async with Hook(deny(**answer)) as hook, running(source) as chain:
        source.hooks("c", entry(hook.client_config()), mutating=mutating)
        call = chain.mutate if mutating else chain.validate
        status = await refused(call(pods(), pod(), None))
    assert status["code"] == code
    assert status.get("reason") == reason
    assert message in status["message"]


async def test_a_denial_is_final_also_when_failures_are_ignored(source: MemorySource) -> None:
    async with Hook(deny(code=422, reason="Invalid")) as hook, running(source) as chain:
        source.hooks("c", entry(hook.client_config(), failurePolicy="Ignore"), mutating=False)
        assert (await refused(chain.validate(pods(), pod(), None)))["code"] == 422


async def test_validating_webhooks_run_side_by_side_and_the_first_in_order_answers(
    source: MemorySource,
) -> None:
    async with Hook(deny(message="first")) as slow, Hook(deny(message="last")) as quick:
        slow.waits_for = quick.asked
        async with running(source) as chain:
            source.hooks("a", entry(slow.client_config(), "a.example.dev"), mutating=False)
            source.hooks("b", entry(quick.client_config(), "b.example.dev"), mutating=False)
            status = await refused(chain.validate(pods(), pod(), None))
    assert status["message"].endswith("first")


def broken_uid(review: Json) -> Json:
    answer = reviewed(review, allowed=True)
    answer["response"]["uid"] = "other"
    return answer


def without(key: str) -> Any:
    def respond(review: Json) -> Json:
        answer = reviewed(review, allowed=True)
        del answer[key]
        return answer

    return respond


DEADLINE = "context deadline exceeded"
FAILURES: dict[str, tuple[Any, str]] = {
    "status-500": (lambda _: 500, "failed to call webhook: an error on the server"),
    "status-404": (lambda _: 404, "could not find the requested resource"),
    "not-json": (lambda _: b"<html>", "json parse error"),
    "silence": (lambda _: None, DEADLINE),
    "other-uid": (broken_uid, 'expected response.uid="'),
    "no-response": (without("response"), "webhook response was absent"),
    "no-kind": (without("kind"), "expected webhook response of admission.k8s.io/v1"),
    "allowed-missing": (lambda review: reviewed(review), "response.allowed"),
    "patch-without-type": (
        allow(patch=encoded([LABEL])),
        "webhook returned response.patch but not response.patchType",
    ),
    "type-without-patch": (
        allow(patchType="JSONPatch"),
        "webhook returned response.patchType but not response.patch",
    ),
    "type-empty": (
        allow(patch=encoded([LABEL]), patchType=""),
        'invalid response.patchType of ""',
    ),
    "type-unknown": (
        allow(patch=encoded([LABEL]), patchType="Merge"),
        'unsupported patch type "Merge"',
    ),
    "patch-no-base64": (allow(patch="%", patchType="JSONPatch"), "undecodable patch"),
    "patch-no-list": (allow(patch=encoded({"a": 1}), patchType="JSONPatch"), "undecodable patch"),
}


@pytest.mark.parametrize(("respond", "why"), FAILURES.values(), ids=FAILURES.keys())
async def test_what_is_no_valid_answer_is_a_failed_call_for_the_failure_policy(
    source: MemorySource, respond: Any, why: str
) -> None:
    second_s = 0.01 if why == DEADLINE else 1
    async with Hook(respond) as hook, running(source, second_s) as chain:
        config = entry(hook.client_config(), timeoutSeconds=3)
        source.hooks("c", config)
        status = await refused(chain.mutate(pods(), pod(), None))
        assert status["code"] == 500
        assert status["reason"] == "InternalError"
        prefix = 'Internal error occurred: failed calling webhook "a.example.dev": '
        assert status["message"].startswith(prefix)
        assert why in status["message"]
        config["failurePolicy"] = "Ignore"
        assert await chain.mutate(pods(), pod(), None) == pod()


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (allow(patch=encoded([LABEL])), "validating webhook may not return response.patch"),
        (allow(patchType="JSONPatch"), "validating webhook may not return response.patchType"),
    ],
    ids=["patch", "type"],
)
async def test_a_validating_webhook_may_not_patch(
    source: MemorySource, answer: Any, why: str
) -> None:
    async with Hook(answer) as hook, running(source) as chain:
        source.hooks("c", entry(hook.client_config()), mutating=False)
        assert why in (await refused(chain.validate(pods(), pod(), None)))["message"]


PATCHES = {
    "absent-parent": [{"op": "add", "path": "/metadata/annotations/x", "value": "y"}],
    "absent-member": [{"op": "remove", "path": "/spec/nothing"}],
    "failed-test": [{"op": "test", "path": "/metadata/name", "value": "q"}],
    "metadata-gone": [{"op": "remove", "path": "/metadata"}],
}


@pytest.mark.parametrize("patch", PATCHES.values(), ids=PATCHES.keys())
async def test_a_patch_that_does_not_apply_is_an_error_whatever_the_failure_policy(
    source: MemorySource, patch: list[Json]
) -> None:
    async with Hook(patching(*patch)) as hook, running(source) as chain:
        source.hooks("c", entry(hook.client_config(), failurePolicy="Ignore"))
        status = await refused(chain.mutate(pods(), pod(), None))
    assert (status["code"], status["reason"]) == (500, "InternalError")
    assert status["message"].startswith("Internal error occurred: ")


async def test_an_empty_patch_changes_nothing(source: MemorySource) -> None:
    async with Hook(patching()) as hook, running(source) as chain:
        source.hooks("c", entry(hook.client_config()))
        assert await chain.mutate(pods(), pod(), None) == pod()


async def test_warnings_of_allowing_and_denying_answers_are_kept(source: MemorySource) -> None:
    attributes = pods()
    async with Hook(allow(warnings=["one"])) as hook, running(source) as chain:
        source.hooks("m", entry(hook.client_config()))
        source.hooks("v", entry(hook.client_config()), mutating=False)
        await chain.mutate(attributes, pod(), None)
        hook.respond = lambda review: reviewed(review, allowed=False, warnings=["two"])
        await refused(chain.validate(attributes, pod(), None))
    assert attributes.warnings == ["one", "two"]


@pytest.mark.parametrize("effects", ["Some", "Unknown"])
async def test_dry_run_refuses_a_webhook_with_side_effects_even_if_failures_are_ignored(
    source: MemorySource, effects: str
) -> None:
    async with Hook() as hook, running(source) as chain:
        config = entry(hook.client_config(), sideEffects=effects, failurePolicy="Ignore")
        source.hooks("c", config)
        status = await refused(chain.mutate(pods(dry_run=True), pod(), None))
        assert status["code"] == 400
        message = 'admission webhook "a.example.dev" does not support dry run'
        assert status["message"] == message
        await chain.mutate(pods(), pod(), None)
        config["sideEffects"] = "NoneOnDryRun"
        await chain.mutate(pods(dry_run=True), pod(), None)
    assert [request["dryRun"] for request in hook.requests] == [False, True]


async def test_a_webhook_that_speaks_no_v1_is_a_failed_call(source: MemorySource) -> None:
    async with Hook() as hook, running(source) as chain:
        source.hooks("c", entry(hook.client_config(), admissionReviewVersions=["v1beta1"]))
        status = await refused(chain.mutate(pods(), pod(), None))
    assert "does not accept known AdmissionReview versions" in status["message"]
    assert hook.reviews == []


async def test_configurations_are_read_again_only_after_they_changed(
    source: MemorySource,
) -> None:
    async with Hook() as hook, running(source) as chain:
        source.hooks("a", entry(hook.client_config()))
        for _ in range(3):
            await chain.mutate(pods(), pod(), None)
        assert source.lists == 1
        source.hooks("b", entry(hook.client_config()))
        await chain.mutate(pods(), pod(), None)
    assert len(hook.reviews) == 5


EXEMPT: dict[str, tuple[str, str, bool]] = {
    "webhooks": ("admissionregistration.k8s.io", "mutatingwebhookconfigurations", True),
    "policies": ("admissionregistration.k8s.io", "validatingadmissionpolicies", False),
    "bindings": ("admissionregistration.k8s.io", "validatingadmissionpolicybindings", False),
    "authentication": ("authentication.k8s.io", "tokenreviews", False),
    "authorization": ("authorization.k8s.io", "subjectaccessreviews", False),
}


@pytest.mark.parametrize(("group", "resource", "by_policies"), EXEMPT.values(), ids=EXEMPT.keys())
async def test_admission_of_admission_itself_is_never_left_to_webhooks(
    source: MemorySource, group: str, resource: str, by_policies: bool
) -> None:
    everything = {**entry({})["rules"][0], "resources": ["*"]}
    async with Hook(deny()) as hook, running(source) as chain:
        for mutating in (True, False):
            source.hooks("c", entry(hook.client_config(), rules=[everything]), mutating=mutating)
        source.policy(
            "p",
            {
                "matchConstraints": {"resourceRules": [everything]},
                "validations": [{"expression": "false"}],
            },
        )
        attributes = pods(group=group, resource=resource, kind="Thing", namespace="")
        await chain.mutate(attributes, {"metadata": {}}, None)
        if by_policies:
            status = await refused(chain.validate(attributes, {"metadata": {}}, None))
            assert "ValidatingAdmissionPolicy 'p'" in status["message"]
        else:
            await chain.validate(attributes, {"metadata": {}}, None)
    assert hook.reviews == []


async def test_a_generated_name_is_told_to_validating_webhooks(source: MemorySource) -> None:
    attributes = pods(name="")
    async with Hook(allow(warnings=["w"])) as hook, running(source) as chain:
        source.hooks("m", entry(hook.client_config()))
        source.hooks("v", entry(hook.client_config()), mutating=False)
        await chain.mutate(attributes, pod("", generateName="p-"), None)
        await chain.validate(attributes, pod("p-1", generateName="p-"), None)
    assert [request.get("name") for request in hook.requests] == [None, "p-1"]
    assert attributes.warnings == ["w", "w"]


CONDITIONS: dict[str, tuple[list[str], str, bool | str]] = {
    "true": (["object.metadata.name == 'p'", "request.operation == 'CREATE'"], "Fail", True),
    "false": (["true", "request.userInfo.username != 'ann'"], "Fail", False),
    "error-and-false": (["object.nothing == 1", "oldObject != null"], "Fail", False),
    "error-fail": (["object.nothing == 1"], "Fail", "no such key: nothing"),
    "error-ignore": (["object.nothing == 1"], "Ignore", False),
    "two-errors": (["object.x", "object.y"], "Fail", "[expression 'object.x' resulted in error"),
    "not-bool": (["object.metadata.name"], "Fail", "must evaluate to bool"),
    "no-namespace": (["has(namespaceObject.metadata)"], "Fail", "no such overload"),
}


@pytest.mark.parametrize(
    ("expressions", "policy", "outcome"), CONDITIONS.values(), ids=CONDITIONS.keys()
)
async def test_match_conditions_call_skip_or_refuse(
    source: MemorySource, expressions: list[str], policy: str, outcome: bool | str
) -> None:
    conditions = [{"name": "c", "expression": each} for each in expressions]
    async with Hook() as hook, running(source) as chain:
        source.hooks(
            "c", entry(hook.client_config(), matchConditions=conditions, failurePolicy=policy)
        )
        if isinstance(outcome, str):
            status = await refused(chain.mutate(pods(), pod(), None))
            assert (status["code"], status["reason"]) == (403, "Forbidden")
            assert status["message"].startswith('pods "p" is forbidden: ')
            assert outcome in status["message"]
        else:
            await chain.mutate(pods(), pod(), None)
    assert len(hook.reviews) == (outcome is True)


async def test_conditions_of_webhooks_do_not_see_what_a_policy_saw(source: MemorySource) -> None:
    condition = {"name": "c", "expression": "namespaceObject == null"}
    async with Hook() as hook, running(source) as chain:
        source.policy("p", {"validations": [{"expression": "namespaceObject != null"}]})
        config = entry(hook.client_config(), matchConditions=[condition])
        source.hooks("c", config, mutating=False)
        await chain.validate(pods(), pod(), None)
    assert len(hook.reviews) == 1


async def test_a_broken_configuration_is_refused_when_it_is_written(source: MemorySource) -> None:
    attributes = pods(
        group="admissionregistration.k8s.io",
        resource="validatingadmissionpolicies",
        kind="ValidatingAdmissionPolicy",
        namespace="",
    )
    broken = {"metadata": {"name": "p"}, "spec": {"validations": [{"expression": "a b"}]}}
    async with running(source) as chain:
        status = await refused(chain.validate(attributes, broken, None))
    assert (status["code"], status["reason"]) == (422, "Invalid")


async def test_conditions_of_a_later_webhook_see_the_changed_object(source: MemorySource) -> None:
    condition = {"name": "c", "expression": "has(object.metadata.labels)"}
    async with Hook(patching(LABEL)) as first, Hook() as last, running(source) as chain:
        source.hooks("a", entry(first.client_config(), matchConditions=[{**condition}]))
        source.hooks("b", entry(first.client_config()))
        source.hooks("c", entry(last.client_config(), matchConditions=[condition]))
        await chain.mutate(pods(), pod(), None)
    assert len(first.reviews) == 1
    assert len(last.reviews) == 1
