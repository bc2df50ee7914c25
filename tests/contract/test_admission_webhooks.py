"""Admission webhooks: who is asked what, what an answer means, and how a client hears of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.apiserver_unit.admission.hook import (
    Hook,
    allow,
    deny,
    encoded,
    identity,
    patching,
    reviewed,
)
from tests.contract.api import Api, Object, ok, pod, refused
from tests.contract.hooks import GROUP, POD_RULE, Admitted, asked, hosted_hook
from tests.standins.hosting import Hosted

LABEL = {"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}
KINDS = ["mutating", "validating"]


@pytest.fixture
def hook() -> Iterator[Hosted[Hook]]:
    with hosted_hook() as hosted:
        yield hosted


@pytest.fixture
def admitted(api: Api, namespace: str) -> Iterator[Admitted]:
    admitted = Admitted(api, namespace)
    yield admitted
    admitted.close()


def test_a_mutating_review_of_a_create(
    api: Api, pods: str, namespace: str, admitted: Admitted, hook: Hosted[Hook]
) -> None:
    admitted.hook(hook, {"timeoutSeconds": 7})
    api.create(pods, pod("web"), fieldManager="me")
    [request] = asked(hook)
    obj = request.pop("object")
    assert "uid" not in obj["metadata"]
    assert (obj["kind"], obj["metadata"]["name"]) == ("Pod", "web")
    assert obj["metadata"]["namespace"] == namespace
    assert request.pop("uid")
    assert "username" in request.pop("userInfo")
    options = request.pop("options")
    assert (options["kind"], options["apiVersion"]) == ("CreateOptions", "meta.k8s.io/v1")
    assert options["fieldManager"] == "me"
    kind = {"group": "", "version": "v1", "kind": "Pod"}
    resource = {"group": "", "version": "v1", "resource": "pods"}
    assert request == {
        "kind": kind,
        "resource": resource,
        "requestKind": kind,
        "requestResource": resource,
        "name": "web",
        "namespace": namespace,
        "operation": "CREATE",
        "oldObject": None,
        "dryRun": False,
    }
    assert "/?timeout=7s" in hook.it.targets


def test_a_validating_review_of_a_create_knows_the_final_uid(
    api: Api, pods: str, admitted: Admitted, hook: Hosted[Hook]
) -> None:
    admitted.hook(hook, {}, kind="validating")
    made = api.create(pods, pod("web"))
    [request] = asked(hook)
    assert request["object"]["metadata"]["uid"] == made["metadata"]["uid"]
    assert (
        request["object"]["metadata"]["creationTimestamp"]
        == (made["metadata"]["creationTimestamp"])
    )


def test_a_generated_name_is_there_only_when_validating(
    api: Api, pods: str, admitted: Admitted, hook: Hosted[Hook]
) -> None:
    admitted.hook(hook, {})
    admitted.hook(hook, {}, kind="validating")
    made = api.create(pods, pod(generateName="web-"))["metadata"]["name"]
    mutating, validating = asked(hook)
    assert "name" not in mutating["object"]["metadata"]
    assert "name" not in mutating
    assert validating["object"]["metadata"]["name"] == made
    assert validating["name"] == made


def test_a_review_of_a_delete_has_the_old_object_and_the_preconditions(
    api: Api, pods: str, admitted: Admitted, hook: Hosted[Hook]
) -> None:
    uid = api.create(pods, pod("web"))["metadata"]["uid"]
    for kind in KINDS:
        admitted.hook(hook, {}, kind=kind)
    ok(api.delete(f"{pods}/web", {"preconditions": {"uid": uid}}))
    reviews = asked(hook)
    assert len(reviews) >= 2  # the real server asks anew when it tries again
    for request in reviews:
        assert request["operation"] == "DELETE"
        assert request["object"] is None
        assert request["oldObject"]["metadata"]["uid"] == uid
        assert request["options"]["preconditions"] == {"uid": uid}


def test_a_review_of_an_update_has_both_objects(
    api: Api, pods: str, admitted: Admitted, hook: Hosted[Hook]
) -> None:
    api.create(pods, pod("web"))
    admitted.hook(hook, {})
    api.change(f"{pods}/web", {"metadata": {"labels": {"a": "b"}}})
    [request] = asked(hook)
    assert request["operation"] == "UPDATE"
    assert request["options"]["kind"] == "UpdateOptions"
    assert request["object"]["metadata"]["labels"] == {"a": "b"}
    assert "labels" not in request["oldObject"]["metadata"]


def test_a_patch_is_stored_and_seen_by_the_next(
    api: Api, pods: str, admitted: Admitted, hook: Hosted[Hook]
) -> None:
    hook.it.respond = lambda review: (
        patching(LABEL) if len(asked(hook)) == 1 and is_pod(review) else allow()
    )(review)
    admitted.hook(hook, {}, {})
    assert api.create(pods, pod("web"))["metadata"]["labels"] == {"a": "b"}
    first, second = asked(hook)
    assert "labels" not in first["object"]["metadata"]
    assert second["object"]["metadata"]["labels"] == {"a": "b"}


def is_pod(review: Object) -> bool:
    return bool(review["request"]["resource"]["resource"] == "pods")


@pytest.mark.parametrize(("policy", "calls"), [("IfNeeded", 2), ("Never", 1)])
def test_a_webhook_is_asked_again_after_a_later_change_only_if_it_wants(
    api: Api, pods: str, admitted: Admitted, hook: Hosted[Hook], policy: str, calls: int
) -> None:
    with hosted_hook(respond=patching(LABEL)) as later:
        config = later.it.client_config("/")
        admitted.hook(hook, {"reinvocationPolicy": policy}, {"clientConfig": config})
        api.create(pods, pod("web"))
        assert len(asked(hook)) == calls
        assert len(asked(later)) == 1


def test_webhooks_are_asked_before_the_name_is_checked(
    api: Api, pods: str, admitted: Admitted, hook: Hosted[Hook]
) -> None:
    api.create(pods, pod("web"))
    for kind in KINDS:
        admitted.hook(hook, {}, kind=kind)
    refused(api.post(pods, pod("web")), 409, "AlreadyExists")
    assert len(asked(hook)) == 2


DENIALS: dict[str, tuple[Object, int, str, str]] = {
    "code-and-reason": (
        {"code": 409, "reason": "Conflict", "message": "index 3 is held"},
        409,
        "Conflict",
        'admission webhook "h0.contract.example" denied the request: index 3 is held',
    ),
    "reason-alone": (
        {"reason": "Forbidden"},
        400,
        "Forbidden",
        'admission webhook "h0.contract.example" denied the request: Forbidden',
    ),
    "nothing": (
        {},
        400,
        "",
        'admission webhook "h0.contract.example" denied the request without explanation',
    ),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", DENIALS.values(), ids=DENIALS.keys())
def test_a_denial_reaches_the_client_as_it_is(
    api: Api,
    pods: str,
    admitted: Admitted,
    hook: Hosted[Hook],
    kind: str,
    case: tuple[Object, int, str, str],
) -> None:
    answer, code, reason, message = case
    hook.it.respond = lambda review: (deny(**answer) if is_pod(review) else allow())(review)
    admitted.hook(hook, {"failurePolicy": "Ignore"}, kind=kind)
    assert refused(api.post(pods, pod("web")), code, reason)["message"] == message


def test_details_of_a_denial_are_kept(
    api: Api, pods: str, admitted: Admitted, hook: Hosted[Hook]
) -> None:
    details = {"name": "web", "kind": "pods", "causes": [{"field": "a", "message": "b"}]}
    hook.it.respond = lambda review: (
        deny(code=422, reason="Invalid", message="no", details=details)
        if is_pod(review)
        else allow()
    )(review)
    admitted.hook(hook, {})
    assert refused(api.post(pods, pod("web")), 422, "Invalid")["details"] == details


def broken_uid(review: Object) -> Object:
    answer = reviewed(review, allowed=True)
    answer["response"]["uid"] = "other"
    return answer


def without_kind(review: Object) -> Object:
    answer = reviewed(review, allowed=True)
    del answer["response"]
    return answer


FAILURES: dict[str, tuple[str, Any, str]] = {
    "status-500": (
        "mutating",
        lambda _: 500,
        "failed to call webhook: an error on the server",
    ),
    "status-404": (
        "mutating",
        lambda _: 404,
        "failed to call webhook: the server could not find the requested resource",
    ),
    "other-uid": (
        "mutating",
        broken_uid,
        'received invalid webhook response: expected response.uid="',
    ),
    "no-response": (
        "mutating",
        without_kind,
        "received invalid webhook response: webhook response was absent",
    ),
    "patch-without-type": (
        "mutating",
        allow(patch=encoded([LABEL])),
        "received invalid webhook response: "
        "webhook returned response.patch but not response.patchType",
    ),
    "type-without-patch": (
        "mutating",
        allow(patchType="JSONPatch"),
        "received invalid webhook response: "
        "webhook returned response.patchType but not response.patch",
    ),
    "undecodable-patch": (
        "mutating",
        allow(patch=encoded({"a": 1}), patchType="JSONPatch"),
        "received undecodable patch in webhook response: ",
    ),
    "validating-patch": (
        "validating",
        allow(patch=encoded([LABEL])),
        "received invalid webhook response: validating webhook may not return response.patch",
    ),
    "validating-patch-type": (
        "validating",
        allow(patchType="JSONPatch"),
        "received invalid webhook response: validating webhook may not return response.patchType",
    ),
}


@pytest.mark.parametrize("case", FAILURES.values(), ids=FAILURES.keys())
def test_what_is_no_answer_fails_or_is_ignored(
    api: Api,
    pods: str,
    admitted: Admitted,
    hook: Hosted[Hook],
    case: tuple[str, Any, str],
) -> None:
    kind, respond, why = case
    hook.it.respond = lambda review: (respond if is_pod(review) else allow())(review)
    on_label = {"objectSelector": {"matchLabels": {"strict": "true"}}, "failurePolicy": "Fail"}
    admitted.hook(hook, on_label, {"failurePolicy": "Ignore"}, kind=kind)
    status = refused(api.post(pods, pod("web", labels={"strict": "true"})), 500, "InternalError")
    prefix = 'Internal error occurred: failed calling webhook "h0.contract.example": '
    assert status["message"].startswith(prefix + why)
    api.create(pods, pod("web"))


def test_a_patch_that_does_not_apply_is_an_error_whatever_the_policy(
    api: Api, pods: str, admitted: Admitted, hook: Hosted[Hook]
) -> None:
    patch = {"op": "remove", "path": "/spec/nothing"}
    hook.it.respond = lambda review: (patching(patch) if is_pod(review) else allow())(review)
    admitted.hook(hook, {"failurePolicy": "Ignore"})
    status = refused(api.post(pods, pod("web")), 500, "InternalError")
    assert status["message"].startswith("Internal error occurred: ")


def test_an_untrusted_certificate_is_a_failed_call(
    api: Api, pods: str, admitted: Admitted, hook: Hosted[Hook]
) -> None:
    foreign = {**hook.it.client_config("/"), "caBundle": identity("other").bundle}
    admitted.hook(hook, {"clientConfig": foreign})
    message = refused(api.post(pods, pod("web")), 500, "InternalError")["message"]
    url = f"{hook.it.base}/?timeout=10s"
    assert f'failed to call webhook: Post "{url}": tls: failed to verify certificate: ' in message
    assert "x509: certificate signed by unknown authority" in message


def test_a_webhook_that_is_down_blocks_only_with_fail(
    api: Api, pods: str, admitted: Admitted, hook: Hosted[Hook]
) -> None:
    with hosted_hook() as gone:
        config = gone.it.client_config("/")
    on_label = {"objectSelector": {"matchLabels": {"strict": "true"}}, "clientConfig": config}
    admitted.hook(hook, on_label, {"failurePolicy": "Ignore", "clientConfig": config})
    strict = pod("web", labels={"strict": "true"})
    message = refused(api.post(pods, strict), 500, "InternalError")["message"]
    assert "connect: connection refused" in message
    api.create(pods, pod("web"))


def test_object_selectors_hold_for_the_old_or_the_new_object(
    api: Api, pods: str, admitted: Admitted, hook: Hosted[Hook]
) -> None:
    admitted.hook(hook, {"objectSelector": {"matchLabels": {"m": "1"}}})
    api.create(pods, pod("web"))
    api.change(f"{pods}/web", {"metadata": {"labels": {"m": "1"}}})
    api.change(f"{pods}/web", {"metadata": {"labels": {"m": "2"}}})
    api.change(f"{pods}/web", {"metadata": {"labels": {"m": "3"}}})
    labels = [each["object"]["metadata"]["labels"]["m"] for each in asked(hook)]
    assert labels == ["1", "2"]


def test_subresources_have_rules_of_their_own(
    api: Api, pods: str, admitted: Admitted, hook: Hosted[Hook]
) -> None:
    made = api.create(pods, pod("web"))
    admitted.hook(hook, {}, {"rules": [{**POD_RULE, "resources": ["pods/status"]}]})
    api.change(f"{pods}/web/status", {"status": {"message": "hello"}})
    [request] = asked(hook)
    assert (request["subResource"], request["requestSubResource"]) == ("status", "status")
    assert request["name"] == made["metadata"]["name"]


def test_a_binding_is_reviewed_as_what_it_is(
    api: Api, pods: str, admitted: Admitted, hook: Hosted[Hook]
) -> None:
    api.create(pods, pod("web"))
    admitted.hook(hook, {"rules": [{**POD_RULE, "resources": ["pods/binding"]}]})
    target = {"apiVersion": "v1", "kind": "Node", "name": "node-1"}
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "web", "annotations": {"a": "b"}},
        "target": target,
    }
    api.create(f"{pods}/web/binding", binding)
    [request] = asked(hook)
    assert request["operation"] == "CREATE"
    assert request["kind"] == {"group": "", "version": "v1", "kind": "Binding"}
    assert request["resource"] == {"group": "", "version": "v1", "resource": "pods"}
    assert request["subResource"] == "binding"
    assert request["object"]["target"]["name"] == "node-1"
    assert request["object"]["metadata"]["annotations"] == {"a": "b"}
    assert request["oldObject"] is None


CONDITIONS: dict[str, tuple[list[str], str, bool]] = {
    "true": (["object.metadata.name == 'web'", "request.operation == 'CREATE'"], "Fail", True),
    "false": (["true", "oldObject != null"], "Fail", False),
    "error-and-false": (["object.nothing == 1", "false"], "Fail", False),
    "error-ignored": (["object.nothing == 1"], "Ignore", False),
}


@pytest.mark.parametrize("case", CONDITIONS.values(), ids=CONDITIONS.keys())
def test_match_conditions_choose(
    api: Api, pods: str, admitted: Admitted, hook: Hosted[Hook], case: tuple[list[str], str, bool]
) -> None:
    expressions, policy, called = case
    conditions = [{"name": f"c{n}", "expression": each} for n, each in enumerate(expressions)]
    admitted.hook(hook, {"matchConditions": conditions, "failurePolicy": policy})
    api.create(pods, pod("web"))
    assert len(asked(hook)) == called


def test_a_failed_condition_refuses_under_fail(
    api: Api, pods: str, admitted: Admitted, hook: Hosted[Hook]
) -> None:
    condition = {"name": "c", "expression": "object.nothing == 1"}
    admitted.hook(hook, {"matchConditions": [condition]})
    status = refused(api.post(pods, pod("web")), 403, "Forbidden")
    assert status["message"] == (
        "pods \"web\" is forbidden: expression 'object.nothing == 1' "
        "resulted in error: no such key: nothing"
    )
    assert asked(hook) == []


def test_warnings_reach_the_client(
    api: Api, pods: str, admitted: Admitted, hook: Hosted[Hook]
) -> None:
    warnings = ["one", 'say "two" \\ ü', "one"]
    hook.it.respond = lambda review: (allow(warnings=warnings) if is_pod(review) else allow())(
        review
    )
    admitted.hook(hook, {})
    response = api.post(pods, pod("web"))
    assert ok(response, 201)
    raw = [value for name, value in response.headers.raw if name.lower() == b"warning"]
    assert [value.decode() for value in raw] == [
        '299 - "one"',
        '299 - "say \\"two\\" \\\\ ü"',
    ]


def test_a_dry_run_is_reviewed_as_one(
    api: Api, pods: str, admitted: Admitted, hook: Hosted[Hook]
) -> None:
    admitted.hook(hook, {"sideEffects": "NoneOnDryRun"})
    api.create(pods, pod("web"), dryRun="All")
    [request] = asked(hook)
    assert request["dryRun"] is True
    assert request["options"]["dryRun"] == ["All"]


@pytest.mark.parametrize(
    ("field", "expression"),
    [("matchConditions[0].expression", "object."), ("matchConditions[0].expression", "foo == 1")],
    ids=["syntax", "unknown-name"],
)
def test_a_condition_that_does_not_compile_is_refused(
    api: Api, namespace: str, hook: Hosted[Hook], field: str, expression: str
) -> None:
    entry = {
        "name": "a.contract.example",
        "clientConfig": hook.it.client_config("/"),
        "rules": [POD_RULE],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "matchConditions": [{"name": "c", "expression": expression}],
    }
    body = {"metadata": {"name": f"{namespace}-broken"}, "webhooks": [entry]}
    response = api.post(f"{GROUP}/mutatingwebhookconfigurations", body)
    status = refused(response, 422, "Invalid")
    assert [cause["field"] for cause in status["details"]["causes"]] == [f"webhooks[0].{field}"]
    assert "compilation failed" in status["message"]


def test_webhook_configurations_are_never_reviewed(
    api: Api, namespace: str, admitted: Admitted, hook: Hosted[Hook]
) -> None:
    hook.it.respond = lambda review: (allow() if not_admission(review) else deny())(review)
    everything = {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"]}
    rules = [{**everything, "resources": ["*/*"]}]
    admitted.hook(
        hook,
        {
            "rules": rules,
            "namespaceSelector": {},
            "matchConditions": [
                {
                    "name": "own",
                    "expression": "request.resource.group == 'admissionregistration.k8s.io'",
                }
            ],
        },
    )
    path = f"{GROUP}/validatingwebhookconfigurations"
    api.create(path, {"metadata": {"name": namespace}})
    ok(api.delete(f"{path}/{namespace}"))
    assert asked(hook, "validatingwebhookconfigurations") == []


def not_admission(review: Object) -> bool:
    return bool(review["request"]["resource"]["group"] != "admissionregistration.k8s.io")
