"""Discovery and OpenAPI, as far as clients read them."""

from __future__ import annotations

import pytest

from tests.contract.api import Api, Object, ok

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

KNOWN = [
    ("", "v1", "pods"),
    ("", "v1", "namespaces"),
    ("", "v1", "events"),
    ("", "v1", "secrets"),
    ("", "v1", "configmaps"),
    ("", "v1", "services"),
    ("", "v1", "serviceaccounts"),
    ("", "v1", "nodes"),
    ("events.k8s.io", "v1", "events"),
    ("discovery.k8s.io", "v1", "endpointslices"),
    ("coordination.k8s.io", "v1", "leases"),
    ("apps", "v1", "deployments"),
    ("apps", "v1", "statefulsets"),
    ("batch", "v1", "jobs"),
    ("policy", "v1", "poddisruptionbudgets"),
    ("networking.k8s.io", "v1", "networkpolicies"),
    ("scheduling.k8s.io", "v1", "priorityclasses"),
    ("rbac.authorization.k8s.io", "v1", "clusterrolebindings"),
    ("admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations"),
    ("admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations"),
    ("admissionregistration.k8s.io", "v1", "validatingadmissionpolicies"),
    ("admissionregistration.k8s.io", "v1", "validatingadmissionpolicybindings"),
    ("apiextensions.k8s.io", "v1", "customresourcedefinitions"),
]


@pytest.mark.parametrize(("group", "version", "plural"), KNOWN)
def test_each_resource_is_discovered_and_listed(
    api: Api, group: str, version: str, plural: str
) -> None:
    root = f"/apis/{group}/{version}" if group else f"/api/{version}"
    found = api.read(root)
    assert found["kind"] == "APIResourceList"
    resource = next(r for r in found["resources"] if r["name"] == plural)
    assert {"create", "delete", "get", "list", "patch", "update", "watch"} <= set(resource["verbs"])
    listed = api.read(f"{root}/{plural}", limit=1)
    assert listed["kind"] == f"{resource['kind']}List"


def _resources(found: Object) -> dict[tuple[str, str, str], Object]:
    return {
        (group["metadata"].get("name", ""), version["version"], resource["resource"]): resource
        for group in found["items"]
        for version in group["versions"]
        for resource in version["resources"]
    }


def test_aggregated_discovery_tells_all_in_two_answers(api: Api) -> None:
    found: dict[tuple[str, str, str], Object] = {}
    for path in ("/api", "/apis"):
        answer = api.client.get(path, headers={"Accept": AGGREGATED})
        assert "as=APIGroupDiscoveryList" in answer.headers["content-type"]
        found.update(_resources(ok(answer)))
    assert set(KNOWN) <= set(found)
    pods = found[("", "v1", "pods")]
    assert pods["scope"] == "Namespaced"
    assert pods["shortNames"] == ["po"]
    assert pods["responseKind"]["kind"] == "Pod"
    subresources = {entry["subresource"] for entry in pods["subresources"]}
    assert {"status", "binding", "eviction", "ephemeralcontainers", "resize"} <= subresources


def test_groups_are_listed_in_the_older_form_too(api: Api) -> None:
    assert api.read("/api")["versions"] == ["v1"]
    groups = {group["name"]: group for group in api.read("/apis")["groups"]}
    assert groups["apps"]["preferredVersion"]["groupVersion"] == "apps/v1"
    assert api.read("/apis/apps")["name"] == "apps"


def test_openapi_v3_tells_that_fields_are_validated(api: Api) -> None:
    index = api.read("/openapi/v3")["paths"]
    url = index["api/v1"]["serverRelativeURL"]
    document = ok(api.client.get(url))
    operation = document["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"]
    kind = {"group": "", "version": "v1", "kind": "Pod"}
    assert operation["x-kubernetes-group-version-kind"] == kind
    assert "fieldValidation" in {parameter["name"] for parameter in operation["parameters"]}
    assert "application/strategic-merge-patch+json" in operation["requestBody"]["content"]
    schemas = document["components"]["schemas"]
    schema = next(
        schema
        for schema in schemas.values()
        if kind in schema.get("x-kubernetes-group-version-kind", ())
    )
    spec = schemas[schema["properties"]["spec"]["allOf"][0]["$ref"].rpartition("/")[2]]
    containers = spec["properties"]["containers"]
    assert containers["x-kubernetes-patch-merge-key"] == "name"
    assert "List of containers" in containers["description"]
