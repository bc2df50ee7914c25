"""Custom resources: served after their definition, held to its schema, gone with it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.contract.api import MERGE, STRATEGIC, Api, Object, names, ok, refused, take, told, until

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@dataclass(frozen=True, slots=True)
class Widgets:
    """A custom resource of the test's own."""

    group: str
    path: str
    definition: str


def _definition(group: str) -> Object:
    schema = {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "required": ["size"],
                "properties": {
                    "size": {"type": "integer", "minimum": 1, "maximum": 9},
                    "mode": {"type": "string", "default": "fast", "enum": ["fast", "slow"]},
                    "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                    "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                    "code": {"type": "string", "pattern": "^[a-z]+$"},
                },
            },
            "status": {"type": "object", "properties": {"ready": {"type": "boolean"}}},
        },
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"widgets.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"]},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [
                        {"name": "Size", "type": "integer", "jsonPath": ".spec.size"}
                    ],
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


@pytest.fixture(scope="module")
def group(api: Api) -> Iterator[str]:
    name = f"g{uuid.uuid4().hex[:8]}.example.dev"
    api.create(DEFINITIONS, _definition(name))
    until(lambda: api.get(f"/apis/{name}/v1/widgets").status_code == 200)
    yield name
    api.delete(f"{DEFINITIONS}/widgets.{name}")


@pytest.fixture
def widgets(group: str, namespace: str) -> str:
    return f"/apis/{group}/v1/namespaces/{namespace}/widgets"


def _widget(group: str, name: str = "w", **spec: object) -> Object:
    body = {"apiVersion": f"{group}/v1", "kind": "Widget", "metadata": {"name": name}}
    return {**body, "spec": {"size": 3, **spec}}


def test_a_definition_says_when_it_is_served(api: Api, group: str) -> None:
    def served() -> bool:
        status = api.read(f"{DEFINITIONS}/widgets.{group}")["status"]
        conditions = {c["type"]: c["status"] for c in status["conditions"]}
        return conditions.get("Established") == conditions.get("NamesAccepted") == "True"

    until(served)
    names_taken = api.read(f"{DEFINITIONS}/widgets.{group}")["status"]["acceptedNames"]
    assert names_taken["singular"] == "widget"


def test_a_custom_resource_is_an_object_like_others(api: Api, group: str, widgets: str) -> None:
    made = api.create(widgets, _widget(group))
    assert made["metadata"]["generation"] == 1
    assert made["spec"] == {"size": 3, "mode": "fast"}
    listed = api.read(widgets)
    assert (listed["kind"], listed["apiVersion"]) == ("WidgetList", f"{group}/v1")
    assert listed["items"] == [made]
    with api.watch(widgets, resourceVersion="0") as events:
        assert told(take(events, 1)) == [("ADDED", "w")]
    ok(api.delete(f"{widgets}/w"))
    assert names(api.read(widgets)) == []


def test_what_the_schema_does_not_know_is_dropped(api: Api, group: str, widgets: str) -> None:
    body = _widget(group, bogus=1, free={"any": {"thing": [1]}}, labels={"a": "b"})
    answer = api.post(widgets, body)
    assert ok(answer, 201)["spec"] == {
        "size": 3,
        "mode": "fast",
        "free": {"any": {"thing": [1]}},
        "labels": {"a": "b"},
    }
    assert 'unknown field \\"spec.bogus\\"' in answer.headers["warning"]
    strict = api.post(widgets, {**body, "metadata": {"name": "x"}}, fieldValidation="Strict")
    assert 'unknown field "spec.bogus"' in refused(strict, 400, "BadRequest")["message"]


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        pytest.param({"size": "3"}, "spec.size", id="type"),
        pytest.param({"size": 0}, "spec.size", id="minimum"),
        pytest.param({"size": 10}, "spec.size", id="maximum"),
        pytest.param({"mode": "odd"}, "spec.mode", id="enum"),
        pytest.param({"code": "A1"}, "spec.code", id="pattern"),
        pytest.param({"labels": {"a": 1}}, "spec.labels.a", id="additional property"),
        pytest.param({"size": None}, "spec.size", id="required"),
    ],
)
def test_what_breaks_the_schema_is_invalid(
    api: Api, group: str, widgets: str, spec: Object, field: str
) -> None:
    status = refused(api.post(widgets, _widget(group, **spec)), 422, "Invalid")
    assert [cause["field"] for cause in status["details"]["causes"]] == [field]
    assert status["message"].startswith(f'Widget.{group} "w" is invalid: ')


def test_the_status_is_a_thing_of_its_own(api: Api, group: str, widgets: str) -> None:
    api.create(widgets, {**_widget(group), "status": {"ready": True}})
    assert "status" not in api.read(f"{widgets}/w")
    patch = {"spec": {"size": 5}, "status": {"ready": True}}
    changed = api.change(f"{widgets}/w/status", patch)
    assert (changed["spec"]["size"], changed["status"]) == (3, {"ready": True})
    assert changed["metadata"]["generation"] == 1
    changed = api.change(f"{widgets}/w", {"spec": {"size": 5}, "status": {"ready": False}})
    assert (changed["spec"]["size"], changed["status"]) == (5, {"ready": True})
    assert changed["metadata"]["generation"] == 2


def test_custom_resources_know_no_strategic_merge(api: Api, group: str, widgets: str) -> None:
    api.create(widgets, _widget(group))
    answer = api.patch(f"{widgets}/w", {"spec": {"size": 4}}, STRATEGIC)
    refused(answer, 415, "UnsupportedMediaType")
    api.change(f"{widgets}/w", {"spec": {"size": 4}}, MERGE)


def test_an_update_needs_the_version(api: Api, group: str, widgets: str) -> None:
    made = api.create(widgets, _widget(group))
    del made["metadata"]["resourceVersion"]
    status = refused(api.put(f"{widgets}/w", made), 422, "Invalid")
    assert "must be specified for an update" in status["message"]


def test_a_table_has_the_columns_of_the_definition(api: Api, group: str, widgets: str) -> None:
    api.create(widgets, _widget(group))
    accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
    table = ok(api.client.get(widgets, headers={"Accept": accept}))
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Size"]
    assert table["rows"][0]["cells"] == ["w", 3]


def test_openapi_describes_it(api: Api, group: str) -> None:
    name = f"apis/{group}/v1"
    kind = {"group": group, "version": "v1", "kind": "Widget"}

    def documented() -> bool:
        found = api.read("/openapi/v3")["paths"].get(name)
        if found is None:
            return False
        document = ok(api.client.get(found["serverRelativeURL"]))
        schemas = document["components"]["schemas"].values()
        specs = [
            schema["properties"]["spec"]["properties"]
            for schema in schemas
            if kind in schema.get("x-kubernetes-group-version-kind", ())
            and "spec" in schema.get("properties", {})
        ]
        return bool(specs) and {"size", "mode"} <= set(specs[0])

    until(documented)


def test_discovery_knows_it(api: Api, group: str) -> None:
    resources = {r["name"]: r for r in api.read(f"/apis/{group}/v1")["resources"]}
    assert resources["widgets"]["shortNames"] == ["wd"]
    assert resources["widgets/status"]["kind"] == "Widget"


def test_objects_go_with_their_definition(api: Api, namespace: str) -> None:
    group = f"g{uuid.uuid4().hex[:8]}.example.dev"
    path = f"/apis/{group}/v1/namespaces/{namespace}/widgets"
    api.create(DEFINITIONS, _definition(group))
    until(lambda: api.get(path).status_code == 200)
    version = api.create(path, _widget(group))["metadata"]["resourceVersion"]
    with api.watch(path, resourceVersion=version, timeoutSeconds=60) as events:
        ok(api.delete(f"{DEFINITIONS}/widgets.{group}"))
        seen = list(events)
    assert told(seen)[-1] == ("DELETED", "w")
    until(lambda: api.get(path).status_code == 404)
    until(lambda: api.is_gone(f"{DEFINITIONS}/widgets.{group}"))


def test_a_definition_is_named_after_its_plural_and_group(api: Api) -> None:
    body = _definition("g.example.dev")
    body["metadata"]["name"] = "other.g.example.dev"
    status = refused(api.post(DEFINITIONS, body), 422, "Invalid")
    assert "metadata.name" in status["message"]
