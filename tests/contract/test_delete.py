"""Deletes: preconditions, finalizers, grace, owners, collections and namespaces."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.api import Api, Object, configmap, names, ok, pod, refused, until

OTHER = "11111111-1111-4111-8111-111111111111"


def _delete_options(**fields: Any) -> Object:
    return {"kind": "DeleteOptions", "apiVersion": "v1", **fields}


def test_an_unscheduled_pod_goes_at_once(api: Api, pods: str) -> None:
    api.create(pods, pod("web"))
    assert ok(api.delete(f"{pods}/web"))["metadata"]["name"] == "web"
    assert api.is_gone(f"{pods}/web")


def test_the_delete_of_other_kinds_answers_with_a_status(api: Api, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    uid = api.create(path, configmap("a"))["metadata"]["uid"]
    status = ok(api.delete(f"{path}/a"))
    assert (status["kind"], status["status"]) == ("Status", "Success")
    assert status["details"] == {"name": "a", "kind": "configmaps", "uid": uid}


def test_a_delete_of_nothing_is_not_found(api: Api, pods: str) -> None:
    refused(api.delete(f"{pods}/web"), 404, "NotFound")


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_a_terminal_pod_goes_at_once(api: Api, pods: str, phase: str) -> None:
    api.create(pods, pod("web", node="node-1"))
    api.change(f"{pods}/web/status", {"status": {"phase": phase}})
    ok(api.delete(f"{pods}/web"))
    assert api.is_gone(f"{pods}/web")


def test_a_scheduled_pod_stays_until_its_kubelet_confirms(api: Api, pods: str) -> None:
    api.create(pods, pod("web", node="node-1"))
    going = ok(api.delete(f"{pods}/web"))["metadata"]
    assert going["deletionGracePeriodSeconds"] == 30
    assert going["deletionTimestamp"] > going["creationTimestamp"]
    assert api.read(f"{pods}/web")["metadata"]["deletionTimestamp"] == going["deletionTimestamp"]
    ok(api.delete(f"{pods}/web", _delete_options(gracePeriodSeconds=0)))
    assert api.is_gone(f"{pods}/web")


def test_the_grace_period_can_be_asked_for_and_only_shortened(api: Api, pods: str) -> None:
    api.create(pods, pod("web", node="node-1"))
    going = ok(api.delete(f"{pods}/web", _delete_options(gracePeriodSeconds=20)))["metadata"]
    assert going["deletionGracePeriodSeconds"] == 20
    longer = ok(api.delete(f"{pods}/web", _delete_options(gracePeriodSeconds=25)))["metadata"]
    assert longer["deletionGracePeriodSeconds"] == 20
    shorter = ok(api.delete(f"{pods}/web", _delete_options(gracePeriodSeconds=5)))["metadata"]
    assert shorter["deletionGracePeriodSeconds"] == 5
    assert shorter["deletionTimestamp"] < going["deletionTimestamp"]
    ok(api.delete(f"{pods}/web", gracePeriodSeconds=0))
    assert api.is_gone(f"{pods}/web")


def test_an_update_cannot_take_the_deletion_back(api: Api, pods: str) -> None:
    api.create(pods, pod("web", node="node-1"))
    ok(api.delete(f"{pods}/web"))
    read = api.read(f"{pods}/web")
    del read["metadata"]["deletionTimestamp"]
    changed = ok(api.put(f"{pods}/web", read))
    assert "deletionTimestamp" in changed["metadata"]
    ok(api.delete(f"{pods}/web", _delete_options(gracePeriodSeconds=0)))


def test_a_finalizer_holds_until_the_last_is_taken_off(api: Api, pods: str) -> None:
    api.create(pods, pod("web", finalizers=["example.dev/one", "example.dev/two"]))
    going = ok(api.delete(f"{pods}/web"))["metadata"]
    assert going["deletionGracePeriodSeconds"] == 0
    ok(api.delete(f"{pods}/web"))
    api.change(f"{pods}/web", {"metadata": {"finalizers": ["example.dev/two"]}})
    assert not api.is_gone(f"{pods}/web")
    api.change(f"{pods}/web", {"metadata": {"finalizers": None}})
    assert api.is_gone(f"{pods}/web")


def test_no_finalizer_can_be_added_to_what_is_going(api: Api, pods: str) -> None:
    api.create(pods, pod("web", finalizers=["example.dev/one"]))
    ok(api.delete(f"{pods}/web"))
    more = {"metadata": {"finalizers": ["example.dev/one", "example.dev/two"]}}
    status = refused(api.patch(f"{pods}/web", more), 422, "Invalid")
    assert "no new finalizers can be added if the object is being deleted" in status["message"]
    api.change(f"{pods}/web", {"metadata": {"finalizers": None}})


def test_a_held_name_is_not_free(api: Api, pods: str) -> None:
    api.create(pods, pod("web", finalizers=["example.dev/one"]))
    ok(api.delete(f"{pods}/web"))
    status = refused(api.post(pods, pod("web")), 409, "AlreadyExists")
    assert status["message"] == 'object is being deleted: pods "web" already exists'
    api.change(f"{pods}/web", {"metadata": {"finalizers": None}})
    api.create(pods, pod("web"))


PRECONDITIONS: list[Any] = [
    pytest.param({"uid": OTHER}, "the UID in the precondition", id="uid"),
    pytest.param({"resourceVersion": "1"}, "the ResourceVersion in the precondition", id="version"),
]


@pytest.mark.parametrize(("preconditions", "said"), PRECONDITIONS)
def test_a_precondition_that_does_not_hold_is_a_conflict(
    api: Api, pods: str, preconditions: Object, said: str
) -> None:
    api.create(pods, pod("web"))
    answer = api.delete(f"{pods}/web", _delete_options(preconditions=preconditions))
    assert said in refused(answer, 409, "Conflict")["message"]
    assert not api.is_gone(f"{pods}/web")


def test_preconditions_that_hold_let_it_go(api: Api, pods: str) -> None:
    made = api.create(pods, pod("web", node="node-1"))["metadata"]
    done = api.change(f"{pods}/web/status", {"status": {"phase": "Failed"}})["metadata"]
    stale = {"uid": made["uid"], "resourceVersion": made["resourceVersion"]}
    refused(api.delete(f"{pods}/web", _delete_options(preconditions=stale)), 409, "Conflict")
    fresh = {"uid": made["uid"], "resourceVersion": done["resourceVersion"]}
    ok(api.delete(f"{pods}/web", _delete_options(preconditions=fresh)))
    assert api.is_gone(f"{pods}/web")


def test_a_dry_run_deletes_nothing(api: Api, pods: str) -> None:
    before = api.create(pods, pod("web"))
    ok(api.delete(f"{pods}/web", dryRun="All"))
    ok(api.delete(f"{pods}/web", _delete_options(dryRun=["All"])))
    assert api.read(f"{pods}/web") == before


def test_with_a_body_the_query_does_not_count(api: Api, pods: str) -> None:
    api.create(pods, pod("web", node="node-1"))
    going = ok(api.delete(f"{pods}/web", _delete_options(gracePeriodSeconds=9), dryRun="All"))
    assert going["metadata"]["deletionGracePeriodSeconds"] == 9
    assert "deletionTimestamp" in api.read(f"{pods}/web")["metadata"]
    ok(api.delete(f"{pods}/web", gracePeriodSeconds=0))


def test_a_collection_is_deleted_by_selector(api: Api, pods: str) -> None:
    for name, app in (("a", "web"), ("b", "web"), ("c", "other")):
        api.create(pods, pod(name, labels={"app": app}))
    ok(api.delete(pods, labelSelector="app=web"))
    assert names(api.read(pods)) == ["c"]


def test_dependents_follow_their_owner(api: Api, pods: str, namespace: str) -> None:
    owners = f"/api/v1/namespaces/{namespace}/configmaps"
    uid = api.create(owners, configmap("owner"))["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid}
    for name in ("a", "b"):
        api.create(pods, pod(name, ownerReferences=[owner]))
    api.create(pods, pod("c"))
    ok(api.delete(f"{owners}/owner", propagationPolicy="Background"))
    until(lambda: names(api.read(pods)) == ["c"])


def test_orphans_stay_and_forget_their_owner(api: Api, pods: str, namespace: str) -> None:
    owners = f"/api/v1/namespaces/{namespace}/configmaps"
    uid = api.create(owners, configmap("owner"))["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid}
    for name in ("a", "b"):
        api.create(pods, pod(name, ownerReferences=[owner]))
    ok(api.delete(f"{owners}/owner", propagationPolicy="Orphan"))
    until(lambda: api.is_gone(f"{owners}/owner"))
    assert all("ownerReferences" not in item["metadata"] for item in api.read(pods)["items"])
    assert names(api.read(pods)) == ["a", "b"]


def test_in_the_foreground_the_owner_waits(api: Api, pods: str, namespace: str) -> None:
    owners = f"/api/v1/namespaces/{namespace}/configmaps"
    uid = api.create(owners, configmap("owner"))["metadata"]["uid"]
    owner = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "owner",
        "uid": uid,
        "blockOwnerDeletion": True,
    }
    api.create(pods, pod("a", ownerReferences=[owner], finalizers=["example.dev/one"]))
    going = ok(api.delete(f"{owners}/owner", propagationPolicy="Foreground"))
    assert going["metadata"]["finalizers"] == ["foregroundDeletion"]
    until(lambda: "deletionTimestamp" in api.read(f"{pods}/a")["metadata"])
    assert not api.is_gone(f"{owners}/owner")
    api.change(f"{pods}/a", {"metadata": {"finalizers": None}})
    until(lambda: api.is_gone(f"{owners}/owner"))


def test_a_namespace_goes_with_what_is_in_it(api: Api, namespace: str, pods: str) -> None:
    path = f"/api/v1/namespaces/{namespace}"
    held = pod("a", finalizers=["example.dev/one"])
    held["spec"]["terminationGracePeriodSeconds"] = 1
    api.create(pods, held)
    api.create(f"{path}/configmaps", configmap("b"))
    going = ok(api.delete(path))
    assert going["metadata"]["deletionTimestamp"]
    assert going["status"]["phase"] == "Terminating"
    status = refused(api.post(f"{path}/configmaps", configmap("c")), 403, "Forbidden")
    assert "because it is being terminated" in status["message"]
    assert status["details"]["causes"][0]["reason"] == "NamespaceTerminating"
    with api.watch(pods, timeoutSeconds=60) as events:
        assert any("deletionTimestamp" in event["object"]["metadata"] for event in events)
    assert api.read(path)["status"]["phase"] == "Terminating"
    version = api.read(path)["metadata"]["resourceVersion"]
    api.change(f"{pods}/a", {"metadata": {"finalizers": None}})
    one = {
        "fieldSelector": f"metadata.name={namespace}",
        "resourceVersion": version,
        "timeoutSeconds": 60,
    }
    with api.watch("/api/v1/namespaces", **one) as events:
        assert any(event["type"] == "DELETED" for event in events)


def test_the_default_namespace_cannot_be_deleted(api: Api) -> None:
    status = refused(api.delete("/api/v1/namespaces/default"), 403, "Forbidden")
    assert "this namespace may not be deleted" in status["message"]
