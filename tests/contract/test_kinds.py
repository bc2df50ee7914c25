"""Kinds beside pods: their defaults, and what each refuses."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from tests.contract.api import STRATEGIC, Api, Object, ok, pod, refused

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def _webhook(**fields: Any) -> Object:
    return {
        "name": "one.example.dev",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "rules": [],
        **fields,
    }


def _configuration(*webhooks: Object) -> Object:
    return {"metadata": {"name": f"contract-{uuid.uuid4().hex[:10]}"}, "webhooks": list(webhooks)}


WEBHOOKS: list[Any] = [
    pytest.param([_webhook(name="short.dev")], "webhooks[0].name", id="name"),
    pytest.param([_webhook(), _webhook()], "webhooks[1].name", id="name twice"),
    pytest.param(
        [_webhook(admissionReviewVersions=[])], "webhooks[0].admissionReviewVersions", id="versions"
    ),
    pytest.param([_webhook(sideEffects="Some")], "webhooks[0].sideEffects", id="side effects"),
    pytest.param([_webhook(timeoutSeconds=31)], "webhooks[0].timeoutSeconds", id="timeout"),
    pytest.param([_webhook(clientConfig={})], "webhooks[0].clientConfig", id="no client"),
    pytest.param(
        [_webhook(clientConfig={"url": "http://127.0.0.1/"})],
        "webhooks[0].clientConfig.url",
        id="no https",
    ),
]


@pytest.mark.parametrize("plural", ["mutating", "validating"])
@pytest.mark.parametrize(("webhooks", "field"), WEBHOOKS)
def test_webhooks_that_are_invalid(
    api: Api, plural: str, webhooks: list[Object], field: str
) -> None:
    path = f"{ADMISSION}/{plural}webhookconfigurations"
    status = refused(api.post(path, _configuration(*webhooks), dryRun="All"), 422, "Invalid")
    assert field in [cause["field"] for cause in status["details"]["causes"]]


def test_webhooks_are_defaulted(api: Api) -> None:
    service = {"namespace": "a", "name": "b"}
    rule = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"],
            "resources": ["pods"]}  # fmt: skip
    body = _configuration(_webhook(clientConfig={"service": service}, rules=[rule]))
    path = f"{ADMISSION}/mutatingwebhookconfigurations"
    (made,) = api.create(path, body, dryRun="All")["webhooks"]
    assert made["failurePolicy"] == "Fail"
    assert made["matchPolicy"] == "Equivalent"
    assert made["namespaceSelector"] == made["objectSelector"] == {}
    assert made["timeoutSeconds"] == 10
    assert made["reinvocationPolicy"] == "Never"
    assert made["clientConfig"]["service"]["port"] == 443
    assert made["rules"][0]["scope"] == "*"


def test_webhooks_are_merged_by_name(api: Api) -> None:
    path = f"{ADMISSION}/validatingwebhookconfigurations"
    body = _configuration(_webhook(), _webhook(name="two.example.dev"))
    name = api.create(path, body)["metadata"]["name"]
    try:
        patch = {"webhooks": [{"name": "two.example.dev", "timeoutSeconds": 3}]}
        changed = api.change(f"{path}/{name}", patch, STRATEGIC)
        found = {hook["name"]: hook["timeoutSeconds"] for hook in changed["webhooks"]}
        assert found == {"one.example.dev": 10, "two.example.dev": 3}
        assert changed["metadata"]["generation"] == 2
    finally:
        ok(api.delete(f"{path}/{name}"))


def test_a_binding_of_a_policy_says_what_it_does(api: Api) -> None:
    body = {"metadata": {"name": "contract"}, "spec": {"policyName": "p"}}
    path = f"{ADMISSION}/validatingadmissionpolicybindings"
    status = refused(api.post(path, body, dryRun="All"), 422, "Invalid")
    assert [cause["field"] for cause in status["details"]["causes"]] == ["spec.validationActions"]


def _definition(**spec: Any) -> Object:
    version = {"name": "v1", "served": True, "storage": True,
               "schema": {"openAPIV3Schema": {"type": "object"}}}  # fmt: skip
    base = {
        "group": "g.example.dev",
        "scope": "Namespaced",
        "names": {"plural": "ws", "kind": "W"},
        "versions": [version],
    }
    return {"metadata": {"name": "ws.g.example.dev"}, "spec": {**base, **spec}}


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        pytest.param({"names": {"plural": "ws"}}, "spec.names.kind", id="no kind"),
        pytest.param(
            {
                "versions": [
                    {"name": n, "served": True, "storage": True,
                     "schema": {"openAPIV3Schema": {"type": "object"}}}
                    for n in ("v1", "v2")
                ]
            },
            "spec.versions",
            id="two storage versions",
        ),
        pytest.param(
            {"versions": [{"name": "v1", "served": True, "storage": True}]},
            "spec.versions[0].schema.openAPIV3Schema",
            id="no schema",
        ),
    ],
)  # fmt: skip
def test_definitions_that_are_invalid(api: Api, spec: Object, field: str) -> None:
    status = refused(api.post(DEFINITIONS, _definition(**spec), dryRun="All"), 422, "Invalid")
    assert field in [cause["field"] for cause in status["details"]["causes"]]


def _template(**spec: Any) -> Object:
    container = {"name": "c", "image": "i", "readinessProbe": {"httpGet": {"port": 80}}}
    return {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container], **spec}}


def test_a_deployment_is_defaulted(api: Api, namespace: str) -> None:
    body = {
        "metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": _template()},
    }
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    spec = api.create(path, body, dryRun="All")["spec"]
    assert spec["replicas"] == 1
    assert spec["strategy"]["rollingUpdate"] == {"maxUnavailable": "25%", "maxSurge": "25%"}
    probe = spec["template"]["spec"]["containers"][0]["readinessProbe"]
    assert probe == {
        "httpGet": {"path": "/", "port": 80, "scheme": "HTTP"},
        "timeoutSeconds": 1,
        "periodSeconds": 10,
        "successThreshold": 1,
        "failureThreshold": 3,
    }


@pytest.mark.parametrize("plural", ["deployments", "statefulsets"])
def test_a_selector_has_to_select_its_own(api: Api, namespace: str, plural: str) -> None:
    spec = {"selector": {"matchLabels": {"a": "other"}}, "template": _template()}
    path = f"/apis/apps/v1/namespaces/{namespace}/{plural}"
    status = refused(api.post(path, {"metadata": {"name": "d"}, "spec": spec}), 422, "Invalid")
    assert "`selector` does not match template `labels`" in status["message"]


def test_a_workload_counts_generations_and_keeps_its_selector(api: Api, namespace: str) -> None:
    path = f"/apis/apps/v1/namespaces/{namespace}/statefulsets"
    spec = {
        "replicas": 0,
        "serviceName": "s",
        "selector": {"matchLabels": {"a": "b"}},
        "template": _template(),
    }
    api.create(path, {"metadata": {"name": "s"}, "spec": spec})
    changed = api.change(f"{path}/s", {"spec": {"revisionHistoryLimit": 3}})
    assert changed["metadata"]["generation"] == 2
    other = {"spec": {"selector": {"matchLabels": {"a": "c"}}}}
    refused(api.patch(f"{path}/s", other), 422, "Invalid")


def test_a_service_is_defaulted_and_needs_ports(api: Api, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/services"
    made = api.create(path, {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}})["spec"]
    assert made["type"] == "ClusterIP"
    assert made["clusterIPs"] == [made["clusterIP"]]
    assert made["ports"] == [{"protocol": "TCP", "port": 80, "targetPort": 80}]
    kept = api.read(f"{path}/s")
    del kept["spec"]["clusterIP"], kept["spec"]["clusterIPs"]
    assert ok(api.put(f"{path}/s", kept))["spec"]["clusterIP"] == made["clusterIP"]
    refused(api.post(path, {"metadata": {"name": "t"}, "spec": {}}), 422, "Invalid")
    headless = {"metadata": {"name": "h"}, "spec": {"clusterIP": "None", "selector": {"a": "b"}}}
    assert api.create(path, headless)["spec"]["clusterIP"] == "None"
    external = {"metadata": {"name": "e"}, "spec": {"type": "ExternalName", "externalName": "x.y"}}
    assert "clusterIP" not in api.create(path, external)["spec"]


def test_a_tls_secret_needs_its_pair(api: Api, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/secrets"
    body = {"metadata": {"name": "t"}, "type": "kubernetes.io/tls", "data": {"tls.crt": ""}}
    status = refused(api.post(path, body), 422, "Invalid")
    assert [cause["field"] for cause in status["details"]["causes"]] == ["data[tls.key]"]


def test_the_type_of_a_secret_stays(api: Api, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/secrets"
    api.create(path, {"metadata": {"name": "s"}, "data": {}})
    status = refused(api.patch(f"{path}/s", {"type": "other"}), 422, "Invalid")
    assert "field is immutable" in status["message"]


def test_a_lease_lasts_some_time(api: Api, namespace: str) -> None:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    for field, value in (("leaseDurationSeconds", 0), ("leaseTransitions", -1)):
        body = {"metadata": {"name": "l"}, "spec": {field: value}}
        status = refused(api.post(path, body), 422, "Invalid")
        assert f"spec.{field}" in status["message"]


def test_a_namespace_keeps_its_finalizer_and_names_itself(api: Api, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}"
    made = api.read(path)
    assert made["spec"] == {"finalizers": ["kubernetes"]}
    assert made["status"] == {"phase": "Active"}
    assert made["metadata"]["labels"] == {"kubernetes.io/metadata.name": namespace}
    changed = api.change(path, {"spec": {"finalizers": None}, "metadata": {"labels": {"a": "b"}}})
    assert changed["spec"] == made["spec"]
    assert changed["metadata"]["labels"]["a"] == "b"


def test_the_status_of_a_budget_decides_on_an_eviction(api: Api, pods: str, namespace: str) -> None:
    for name in ("a", "b"):
        api.create(pods, pod(name, node="node-1", labels={"app": "web"}))
        api.change(f"{pods}/{name}/status", {"status": {"phase": "Running"}})
    budgets = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
    other = {"minAvailable": 9, "selector": {"matchLabels": {"app": "other"}}}
    api.create(budgets, {"metadata": {"name": "other"}, "spec": other})
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}}
    ok(api.post(f"{pods}/a/eviction", eviction), 201)
    for name in ("a", "b"):
        ok(api.delete(f"{pods}/{name}", gracePeriodSeconds=0))


def test_a_gated_pod_is_not_bound(api: Api, pods: str) -> None:
    gated = pod("web")
    gated["spec"]["schedulingGates"] = [{"name": "example.dev/one"}, {"name": "example.dev/two"}]
    made = api.create(pods, gated)
    (condition,) = made["status"]["conditions"]
    assert (condition["type"], condition["reason"]) == ("PodScheduled", "SchedulingGated")
    binding = {"metadata": {"name": "web"}, "target": {"kind": "Node", "name": "node-1"}}
    status = refused(api.post(f"{pods}/web/binding", binding), 409, "Conflict")
    assert "has non-empty .spec.schedulingGates" in status["message"]
    left = {"spec": {"schedulingGates": [{"name": "example.dev/one", "$patch": "delete"}]}}
    changed = api.change(f"{pods}/web", left, STRATEGIC)
    assert changed["spec"]["schedulingGates"] == [{"name": "example.dev/two"}]
    refused(
        api.patch(f"{pods}/web", {"spec": {"schedulingGates": [{"name": "x.dev/three"}]}}),
        422,
        "Invalid",
    )


def test_a_binding_names_a_node(api: Api, pods: str) -> None:
    api.create(pods, pod("web"))
    binding = {"metadata": {"name": "web"}, "target": {"kind": "Node"}}
    status = refused(api.post(f"{pods}/web/binding", binding), 500, "")
    assert status["message"] == "target.name: Required value"


@pytest.mark.parametrize(
    ("query", "body"),
    [
        pytest.param({"gracePeriodSeconds": "x"}, None, id="grace that is no number"),
        pytest.param({}, {"kind": "Pod", "apiVersion": "v1"}, id="another kind"),
    ],
)
def test_delete_options_that_cannot_be_read(
    api: Api, pods: str, query: Object, body: Object | None
) -> None:
    api.create(pods, pod("web"))
    refused(api.delete(f"{pods}/web", body, **query), 400, "BadRequest")


def test_delete_options_that_are_invalid(api: Api, pods: str) -> None:
    api.create(pods, pod("web"))
    body = {"kind": "DeleteOptions", "apiVersion": "v1", "dryRun": ["Some"]}
    refused(api.delete(f"{pods}/web", body), 422, "Invalid")
    refused(api.patch(f"{pods}/web", {}, fieldValidation="Some"), 422, "Invalid")
    assert not api.is_gone(f"{pods}/web")


def test_methods_that_a_subresource_has_not(api: Api, pods: str) -> None:
    api.create(pods, pod("web"))
    for answer in (
        api.get(f"{pods}/web/binding"),
        api.put(f"{pods}/web/eviction", {}),
        api.delete(f"{pods}/web/status"),
    ):
        refused(answer, 405, "MethodNotAllowed")
