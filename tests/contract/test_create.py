"""Creates: what the server fills in, what it refuses, and in which words."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.contract.api import Api, Object, configmap, ok, pod, refused


def test_system_fields_are_the_servers(api: Api, pods: str, namespace: str) -> None:
    sent = pod("web", uid="mine", creationTimestamp="2001-01-01T00:00:00Z", generation=9)
    made = api.create(pods, sent)["metadata"]
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", made["uid"])
    created = datetime.fromisoformat(made["creationTimestamp"])
    assert abs(datetime.now(UTC) - created) < timedelta(minutes=2)
    assert made["generation"] == 1
    assert made["namespace"] == namespace
    assert int(made["resourceVersion"]) > 0


def test_each_write_gets_a_greater_version(api: Api, pods: str) -> None:
    versions = [int(api.create(pods, pod(name))["metadata"]["resourceVersion"]) for name in "ab"]
    changed = api.change(f"{pods}/a", {"metadata": {"labels": {"x": "1"}}})
    versions.append(int(changed["metadata"]["resourceVersion"]))
    assert versions == sorted(set(versions))


def test_a_status_in_the_body_is_dropped(api: Api, pods: str) -> None:
    made = api.create(pods, {**pod("web"), "status": {"phase": "Running"}})
    assert made["status"]["phase"] == "Pending"


def test_a_generated_name_has_the_prefix_and_five_characters(api: Api, pods: str) -> None:
    first, second = (api.create(pods, pod(generateName="web-"))["metadata"] for _ in range(2))
    assert re.fullmatch(r"web-[a-z0-9]{5}", first["name"])
    assert first["name"] != second["name"]
    assert first["generateName"] == "web-"


def test_a_long_prefix_is_cut_so_that_the_name_fits(api: Api, pods: str) -> None:
    name = api.create(pods, pod(generateName="x" * 80))["metadata"]["name"]
    assert re.fullmatch(r"x{58}[a-z0-9]{5}", name)


def test_an_existing_name_is_already_exists(api: Api, pods: str) -> None:
    api.create(pods, pod("web"))
    status = refused(api.post(pods, pod("web")), 409, "AlreadyExists")
    assert status["message"] == 'pods "web" already exists'
    assert status["details"] == {"name": "web", "kind": "pods"}


def test_pods_are_defaulted(api: Api, pods: str) -> None:
    spec = api.create(pods, pod("web"))["spec"]
    assert spec["restartPolicy"] == "Always"
    assert spec["terminationGracePeriodSeconds"] == 30
    assert spec["serviceAccountName"] == "default"
    assert spec["containers"][0]["imagePullPolicy"] == "IfNotPresent"
    assert spec["containers"][0]["resources"] == {}


def test_a_null_is_as_absent(api: Api, pods: str) -> None:
    sent = pod("web", annotations=None, labels=None)
    sent["spec"]["nodeSelector"] = None
    made = api.create(pods, sent)
    assert "annotations" not in made["metadata"]
    assert "nodeSelector" not in made["spec"]


INVALID: list[Any] = [
    pytest.param(pod("Web"), "metadata.name", id="upper case name"),
    pytest.param(pod("a" * 254), "metadata.name", id="long name"),
    pytest.param(pod("web", labels={"a b": "x"}), "metadata.labels", id="label key"),
    pytest.param(pod("web", labels={"a": "x y"}), "metadata.labels", id="label value"),
    pytest.param(pod("web", labels={"a": "x" * 64}), "metadata.labels", id="long label value"),
    pytest.param(pod("web", annotations={"/a": "x"}), "metadata.annotations", id="annotation key"),
    pytest.param(
        pod("web", annotations={"a": "x" * 262145}), "metadata.annotations", id="annotation size"
    ),
    pytest.param(pod("web", finalizers=["no domain!"]), "metadata.finalizers", id="finalizer"),
    pytest.param(
        pod("web", ownerReferences=[{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": ""}]),
        "metadata.ownerReferences",
        id="owner without uid",
    ),
    pytest.param({"metadata": {"name": "web"}, "spec": {"containers": []}}, "spec.containers",
                 id="no containers"),
    pytest.param({"metadata": {"name": "web"}, "spec": {"containers": [{"name": "a"}]}},
                 "spec.containers[0].image", id="no image"),
    pytest.param(
        {"metadata": {"name": "web"}, "spec": {"containers": [{"name": "a", "image": "i"}] * 2}},
        "spec.containers[1].name",
        id="two containers of one name",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("body", "field"), INVALID)
def test_what_is_invalid_names_its_field(api: Api, pods: str, body: Object, field: str) -> None:
    status = refused(api.post(pods, body), 422, "Invalid")
    assert status["message"].startswith(f'Pod "{body["metadata"]["name"]}" is invalid: ')
    assert any(cause["field"].startswith(field) for cause in status["details"]["causes"])


def test_no_name_at_all_is_invalid(api: Api, pods: str) -> None:
    status = refused(api.post(pods, pod()), 422, "Invalid")
    assert "name or generateName is required" in status["message"]


def test_a_namespace_that_is_not_the_paths_is_a_bad_request(api: Api, pods: str) -> None:
    status = refused(api.post(pods, pod("web", namespace="other")), 400, "BadRequest")
    assert "does not match the namespace" in status["message"]


def test_a_namespace_that_is_not_there_is_not_found(api: Api) -> None:
    answer = api.post("/api/v1/namespaces/contract-nowhere/pods", pod("web"))
    status = refused(answer, 404, "NotFound")
    assert status["message"] == 'namespaces "contract-nowhere" not found'


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"containers": "many"}, id="text for a list"),
        pytest.param({"containers": [{"name": 1, "image": "i"}]}, id="number for text"),
        pytest.param({"containers": [], "nodeName": ["a"]}, id="list for text"),
    ],
)
def test_a_value_of_a_wrong_type_is_a_bad_request(api: Api, pods: str, spec: Object) -> None:
    status = refused(api.post(pods, {"metadata": {"name": "web"}, "spec": spec}), 400, "BadRequest")
    assert "cannot unmarshal" in status["message"]


def test_an_unknown_field_is_dropped_with_a_warning(api: Api, pods: str) -> None:
    answer = api.post(pods, {**pod("web"), "speck": 1})
    assert "speck" not in ok(answer, 201)
    assert answer.headers["warning"] == '299 - "unknown field \\"speck\\""'


def test_an_unknown_field_is_refused_in_strict_validation(api: Api, pods: str) -> None:
    answer = api.post(pods, {**pod("web"), "speck": 1}, fieldValidation="Strict")
    assert (
        'strict decoding error: unknown field "speck"'
        in refused(answer, 400, "BadRequest")["message"]
    )


def test_another_kind_is_a_bad_request(api: Api, pods: str) -> None:
    refused(api.post(pods, configmap("web")), 400, "BadRequest")


def test_a_version_in_the_body_is_refused(api: Api, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    made = api.create(path, configmap("a"))
    answer = api.post(path, {**made, "metadata": {**made["metadata"], "name": "b"}})
    status = refused(answer, 500, "")
    assert status["message"] == "resourceVersion should not be set on objects to be created"


def test_a_secret_keeps_text_as_base64(api: Api, namespace: str) -> None:
    secret = {"metadata": {"name": "s"}, "stringData": {"a": "hello"}}
    made = api.create(f"/api/v1/namespaces/{namespace}/secrets", secret)
    assert made["data"] == {"a": "aGVsbG8="}
    assert made["type"] == "Opaque"
    assert "stringData" not in made


def test_a_secret_that_is_no_base64_is_a_bad_request(api: Api, namespace: str) -> None:
    secret = {"metadata": {"name": "s"}, "data": {"a": "not base64!"}}
    answer = api.post(f"/api/v1/namespaces/{namespace}/secrets", secret)
    assert "illegal base64 data" in refused(answer, 400, "BadRequest")["message"]


def test_a_data_key_is_a_file_name(api: Api, namespace: str) -> None:
    answer = api.post(f"/api/v1/namespaces/{namespace}/configmaps", configmap("a", **{"a b": "x"}))
    assert refused(answer, 422, "Invalid")["details"]["causes"][0]["field"] == "data[a b]"


def test_a_dry_run_answers_and_stores_nothing(api: Api, pods: str) -> None:
    made = api.create(pods, pod("web"), dryRun="All")
    assert made["metadata"]["uid"]
    assert api.is_gone(f"{pods}/web")


def test_a_dry_run_value_that_is_unknown_is_invalid(api: Api, pods: str) -> None:
    refused(api.post(pods, pod("web"), dryRun="Some"), 422, "Invalid")
