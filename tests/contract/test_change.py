"""Updates and patches: conflicts, immutable fields, the three patch forms, subresources."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.api import (
    JSON_PATCH,
    MERGE,
    STRATEGIC,
    Api,
    Object,
    configmap,
    ok,
    pod,
    refused,
)

MODIFIED = (
    "the object has been modified; please apply your changes to the latest version and try again"
)


@pytest.fixture
def web(api: Api, pods: str) -> str:
    """The path of a pod with two containers, a label, two annotations and two finalizers."""
    sent = pod(
        "web",
        labels={"app": "web"},
        annotations={"a": "1", "b": "2"},
        finalizers=["example.dev/one", "example.dev/two"],
    )
    sent["spec"]["containers"].append({"name": "side", "image": "side:1"})
    api.create(pods, sent)
    return f"{pods}/web"


@pytest.fixture(autouse=True)
def _free(api: Api, pods: str) -> Any:
    """No finalizer of a test holds its namespace."""
    yield
    for item in api.read(pods)["items"]:
        if item["metadata"].get("finalizers"):
            api.change(f"{pods}/{item['metadata']['name']}", {"metadata": {"finalizers": None}})


# updates


def test_an_update_with_the_version_it_read_is_stored(api: Api, web: str) -> None:
    read = api.read(web)
    read["metadata"]["labels"]["app"] = "other"
    changed = ok(api.put(web, read))
    assert changed["metadata"]["labels"] == {"app": "other"}
    assert int(changed["metadata"]["resourceVersion"]) > int(read["metadata"]["resourceVersion"])
    assert api.read(web) == changed


def test_an_update_with_an_older_version_is_a_conflict(api: Api, web: str) -> None:
    read = api.read(web)
    api.change(web, {"metadata": {"labels": {"x": "y"}}})
    status = refused(api.put(web, read), 409, "Conflict")
    assert status["message"] == f'Operation cannot be fulfilled on pods "web": {MODIFIED}'
    assert status["details"] == {"name": "web", "kind": "pods"}
    assert api.read(web)["metadata"]["labels"] == {"app": "web", "x": "y"}


def test_an_update_without_a_version_is_stored(api: Api, web: str) -> None:
    read = api.read(web)
    del read["metadata"]["resourceVersion"]
    read["metadata"]["labels"] = {"n": "1"}
    assert ok(api.put(web, read))["metadata"]["labels"] == {"n": "1"}


def test_an_update_of_another_incarnation_is_a_conflict(api: Api, web: str) -> None:
    read = api.read(web)
    read["metadata"]["uid"] = "11111111-1111-4111-8111-111111111111"
    status = refused(api.put(web, read), 409, "Conflict")
    assert "Precondition failed: UID in precondition" in status["message"]


def test_an_update_that_changes_nothing_keeps_the_version(api: Api, web: str) -> None:
    read = api.read(web)
    assert (
        ok(api.put(web, read))["metadata"]["resourceVersion"]
        == (read["metadata"]["resourceVersion"])
    )


def test_an_update_of_nothing_is_not_found(api: Api, pods: str) -> None:
    refused(api.put(f"{pods}/nope", pod("nope")), 404, "NotFound")


def test_an_update_under_another_name_is_a_bad_request(api: Api, web: str) -> None:
    read = api.read(web)
    read["metadata"]["name"] = "other"
    refused(api.put(web, read), 400, "BadRequest")


def test_system_fields_survive_an_update(api: Api, web: str) -> None:
    read = api.read(web)
    sent = {**read, "metadata": {"name": "web", "labels": {"a": "b"}}}
    changed = ok(api.put(web, sent))["metadata"]
    for field in ("uid", "creationTimestamp", "generation", "namespace"):
        assert changed[field] == read["metadata"][field]
    assert "finalizers" not in changed


def test_the_spec_of_a_pod_is_immutable(api: Api, web: str) -> None:
    read = api.read(web)
    read["spec"]["containers"][0]["name"] = "other"
    status = refused(api.put(web, read), 422, "Invalid")
    assert status["details"]["causes"][0]["field"] == "spec"
    assert "pod updates may not change fields other than" in status["message"]


def test_the_image_of_a_container_may_change_and_counts_a_generation(api: Api, web: str) -> None:
    before = api.read(web)["metadata"]["generation"]
    patch = {"spec": {"containers": [{"name": "side", "image": "side:2"}]}}
    changed = api.change(web, patch, STRATEGIC)
    assert [c["image"] for c in changed["spec"]["containers"]] == [
        "registry.example/server:1",
        "side:2",
    ]
    assert changed["metadata"]["generation"] == before + 1


def test_no_container_may_be_added_or_removed(api: Api, web: str) -> None:
    for patch in (
        {"spec": {"containers": [{"name": "more", "image": "i"}]}},
        {"spec": {"containers": [{"name": "side", "$patch": "delete"}]}},
    ):
        status = refused(api.patch(web, patch, STRATEGIC), 422, "Invalid")
        assert "pod updates may not add or remove containers" in status["message"]


@pytest.mark.parametrize("kind", [MERGE, STRATEGIC])
def test_a_patch_of_a_wrong_type_is_invalid(api: Api, web: str, kind: str) -> None:
    status = refused(api.patch(web, {"metadata": {"labels": {"a": 1}}}, kind), 422, "Invalid")
    assert [cause["field"] for cause in status["details"]["causes"]] == ["patch"]


def test_a_patch_cannot_move_an_object(api: Api, web: str) -> None:
    refused(api.patch(web, {"metadata": {"name": "other"}}), 400, "BadRequest")
    refused(api.patch(web, {"metadata": {"namespace": "other"}}), 400, "BadRequest")


def test_metadata_counts_no_generation(api: Api, web: str) -> None:
    before = api.read(web)["metadata"]["generation"]
    changed = api.change(web, {"metadata": {"labels": {"x": "y"}}})
    assert changed["metadata"]["generation"] == before


def test_an_update_keeps_the_status(api: Api, web: str) -> None:
    changed = api.change(web, {"metadata": {"labels": {"x": "y"}}, "status": {"phase": "Running"}})
    assert changed["status"]["phase"] == "Pending"


def test_a_dry_run_of_an_update_changes_nothing(api: Api, web: str) -> None:
    before = api.read(web)
    changed = api.change(web, {"metadata": {"labels": {"x": "y"}}}, dryRun="All")
    assert changed["metadata"]["labels"]["x"] == "y"
    assert api.read(web) == before


# status


def test_a_status_write_keeps_the_spec(api: Api, web: str) -> None:
    read = api.read(web)
    read["spec"]["containers"][0]["image"] = "other:1"
    read["status"] = {"phase": "Running", "podIP": "10.1.1.1"}
    changed = ok(api.put(f"{web}/status", read))
    assert changed["status"]["phase"] == "Running"
    assert changed["spec"]["containers"][0]["image"] == "registry.example/server:1"
    assert api.read(web)["status"]["podIP"] == "10.1.1.1"


def test_a_status_patch_can_rewrite_annotations(api: Api, web: str) -> None:
    patch = {"metadata": {"annotations": {"a": "9"}}, "status": {"phase": "Running"}}
    changed = api.change(f"{web}/status", patch)
    assert changed["metadata"]["annotations"] == {"a": "9", "b": "2"}
    assert changed["status"]["phase"] == "Running"


def test_a_status_patch_of_another_incarnation_is_invalid(api: Api, web: str) -> None:
    other = {"metadata": {"uid": "11111111-1111-4111-8111-111111111111"}}
    status = refused(api.patch(f"{web}/status", {**other, "status": {"phase": "Failed"}}),
                     422, "Invalid")  # fmt: skip
    assert "metadata.uid" in status["message"]
    assert api.read(web)["status"]["phase"] == "Pending"


def test_conditions_are_merged_by_type(api: Api, web: str) -> None:
    for kind, value in (("Ready", "False"), ("PodScheduled", "True"), ("Ready", "True")):
        patch = {"status": {"conditions": [{"type": kind, "status": value}]}}
        api.change(f"{web}/status", patch, STRATEGIC)
    found = {c["type"]: c["status"] for c in api.read(web)["status"]["conditions"]}
    assert found == {"Ready": "True", "PodScheduled": "True"}


def test_the_status_can_be_read_alone(api: Api, web: str) -> None:
    assert api.read(f"{web}/status")["kind"] == "Pod"


# patches


def test_a_merge_patch_sets_and_removes(api: Api, web: str) -> None:
    changed = api.change(web, {"metadata": {"annotations": {"a": None, "c": "3"}}})
    assert changed["metadata"]["annotations"] == {"b": "2", "c": "3"}


def test_a_merge_patch_replaces_lists(api: Api, web: str) -> None:
    changed = api.change(web, {"metadata": {"finalizers": ["example.dev/two"]}})
    assert changed["metadata"]["finalizers"] == ["example.dev/two"]


def test_a_patch_with_an_older_version_is_a_conflict(api: Api, web: str) -> None:
    old = api.read(web)["metadata"]["resourceVersion"]
    api.change(web, {"metadata": {"labels": {"x": "y"}}})
    patch = {"metadata": {"resourceVersion": old, "labels": {"x": "z"}}}
    refused(api.patch(web, patch), 409, "Conflict")
    assert api.read(web)["metadata"]["labels"]["x"] == "y"


def test_a_patch_of_nothing_is_not_found(api: Api, pods: str) -> None:
    refused(api.patch(f"{pods}/nope", {"metadata": {}}), 404, "NotFound")


def test_a_json_patch_is_applied_in_order(api: Api, web: str) -> None:
    operations = [
        {"op": "test", "path": "/metadata/annotations/a", "value": "1"},
        {"op": "add", "path": "/metadata/annotations/example.dev~1x", "value": "y"},
        {"op": "remove", "path": "/metadata/annotations/b"},
        {"op": "replace", "path": "/metadata/labels/app", "value": "other"},
    ]
    changed = api.change(web, operations, JSON_PATCH)["metadata"]
    assert changed["annotations"] == {"a": "1", "example.dev/x": "y"}
    assert changed["labels"] == {"app": "other"}


def test_a_json_patch_whose_test_fails_is_refused_whole(api: Api, web: str) -> None:
    operations = [
        {"op": "remove", "path": "/metadata/annotations/a"},
        {"op": "test", "path": "/metadata/annotations/b", "value": "nope"},
    ]
    refused(api.patch(web, operations, JSON_PATCH), 422, "Invalid")
    assert api.read(web)["metadata"]["annotations"] == {"a": "1", "b": "2"}


@pytest.mark.parametrize(
    "operation",
    [
        pytest.param({"op": "remove", "path": "/metadata/annotations/zz"}, id="remove"),
        pytest.param({"op": "add", "path": "/metadata/nothing/zz", "value": "1"}, id="add below"),
    ],
)  # fmt: skip
def test_a_json_patch_of_what_is_not_there_is_refused(
    api: Api, web: str, operation: Object
) -> None:
    refused(api.patch(web, [operation], JSON_PATCH), 422, "Invalid")


def test_a_json_patch_has_to_be_a_list(api: Api, web: str) -> None:
    refused(api.patch(web, {"op": "add"}, JSON_PATCH), 400, "BadRequest")


def test_a_strategic_merge_adds_to_finalizers(api: Api, web: str) -> None:
    changed = api.change(web, {"metadata": {"finalizers": ["example.dev/three"]}}, STRATEGIC)
    assert changed["metadata"]["finalizers"] == [
        "example.dev/three",
        "example.dev/one",
        "example.dev/two",
    ]


def test_a_strategic_merge_deletes_from_finalizers(api: Api, web: str) -> None:
    patch = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.dev/one"]}}
    assert api.change(web, patch, STRATEGIC)["metadata"]["finalizers"] == ["example.dev/two"]


def test_a_strategic_merge_joins_owners_by_uid(api: Api, web: str) -> None:
    owners = [
        {"apiVersion": "example.dev/v1", "kind": "Set", "name": name, "uid": uid}
        for name, uid in (("one", "u-1"), ("two", "u-2"))
    ]
    for owner in owners:
        api.change(web, {"metadata": {"ownerReferences": [owner]}}, STRATEGIC)
    found = api.read(web)["metadata"]["ownerReferences"]
    assert sorted(owner["uid"] for owner in found) == ["u-1", "u-2"]
    gone = {"metadata": {"ownerReferences": [{"uid": "u-1", "$patch": "delete"}]}}
    found = api.change(web, gone, STRATEGIC)["metadata"]["ownerReferences"]
    assert [owner["uid"] for owner in found] == ["u-2"]


def test_a_strategic_merge_can_replace_a_map(api: Api, web: str) -> None:
    patch = {"metadata": {"annotations": {"$patch": "replace", "z": "1"}}}
    assert api.change(web, patch, STRATEGIC)["metadata"]["annotations"] == {"z": "1"}


def test_a_strategic_merge_without_its_key_is_a_bad_request(api: Api, web: str) -> None:
    patch = {"spec": {"containers": [{"image": "x"}]}}
    answer = api.patch(web, patch, STRATEGIC)
    assert "does not contain declared merge key: name" in answer.json()["message"]


def test_the_ports_of_a_service_are_merged_by_port(api: Api, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/services"
    ports = [{"name": "a", "port": 80}, {"name": "b", "port": 81}]
    api.create(path, {"metadata": {"name": "s"}, "spec": {"ports": ports}})
    patch = {"spec": {"ports": [{"port": 81, "name": "c"}]}}
    found = api.change(f"{path}/s", patch, STRATEGIC)["spec"]["ports"]
    assert sorted((p["port"], p["name"]) for p in found) == [(80, "a"), (81, "c")]


def test_an_immutable_configmap_stays_as_it_is(api: Api, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    api.create(path, {**configmap("a", x="1"), "immutable": True})
    refused(api.patch(f"{path}/a", {"data": {"x": "2"}}), 422, "Invalid")
    api.change(f"{path}/a", {"metadata": {"labels": {"x": "y"}}})


def test_a_lease_has_to_be_updated_with_its_version(api: Api, namespace: str) -> None:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    made = api.create(path, {"metadata": {"name": "l"}, "spec": {"holderIdentity": "a"}})
    del made["metadata"]["resourceVersion"]
    status = refused(api.put(f"{path}/l", made), 422, "Invalid")
    assert "metadata.resourceVersion" in status["message"]
    assert "must be specified for an update" in status["message"]


def test_a_json_patch_may_replace_an_absent_key_of_a_map(api: Api, web: str) -> None:
    operation = {"op": "replace", "path": "/metadata/annotations/zz", "value": "9"}
    assert api.change(web, [operation], JSON_PATCH)["metadata"]["annotations"]["zz"] == "9"
