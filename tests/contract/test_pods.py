"""What only pods have: binding, eviction, ephemeral containers, resize."""

from __future__ import annotations

import pytest

from tests.contract.api import STRATEGIC, Api, Object, ok, pod, refused


def _binding(name: str, node: str = "node-1", **metadata: object) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, **metadata},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }


def _eviction(name: str, **options: object) -> Object:
    return {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name},
        "deleteOptions": options,
    }


@pytest.fixture
def web(api: Api, pods: str) -> str:
    api.create(pods, pod("web", labels={"app": "web"}))
    return f"{pods}/web"


def _bind(api: Api, pods: str, endpoint: str, binding: Object) -> Object:
    path = f"{pods}/web/binding" if endpoint == "pods/binding" else pods.replace("pods", endpoint)
    return ok(api.post(path, binding), 201)


@pytest.mark.parametrize("endpoint", ["pods/binding", "bindings"])
def test_a_binding_schedules_and_merges_its_annotations(
    api: Api, pods: str, web: str, endpoint: str
) -> None:
    api.change(web, {"metadata": {"annotations": {"a": "1"}}})
    done = _bind(api, pods, endpoint, _binding("web", annotations={"b": "2"}))
    assert (done["kind"], done["status"]) == ("Status", "Success")
    bound = api.read(web)
    assert bound["spec"]["nodeName"] == "node-1"
    assert bound["metadata"]["annotations"] == {"a": "1", "b": "2"}
    conditions = {c["type"]: c["status"] for c in bound["status"]["conditions"]}
    assert conditions["PodScheduled"] == "True"


def test_a_binding_copies_its_labels(api: Api, pods: str, web: str) -> None:
    _bind(api, pods, "pods/binding", _binding("web", labels={"x": "y"}))
    assert api.read(web)["metadata"]["labels"] == {"app": "web", "x": "y"}


def test_a_bound_pod_cannot_be_bound_again(api: Api, pods: str, web: str) -> None:
    _bind(api, pods, "pods/binding", _binding("web"))
    answer = api.post(f"{web}/binding", _binding("web", node="node-2"))
    status = refused(answer, 409, "Conflict")
    assert 'is already assigned to node "node-1"' in status["message"]


def test_a_binding_of_nothing_is_not_found(api: Api, pods: str) -> None:
    refused(api.post(f"{pods}/web/binding", _binding("web")), 404, "NotFound")


def test_an_eviction_deletes(api: Api, web: str) -> None:
    done = ok(api.post(f"{web}/eviction", _eviction("web")), 201)
    assert done["status"] == "Success"
    assert api.is_gone(web)


def test_an_eviction_of_a_scheduled_pod_is_graceful(api: Api, pods: str) -> None:
    api.create(pods, pod("web", node="node-1"))
    ok(api.post(f"{pods}/web/eviction", _eviction("web", gracePeriodSeconds=7)), 201)
    going = api.read(f"{pods}/web")["metadata"]
    assert going["deletionGracePeriodSeconds"] == 7
    conditions = {c["type"]: c["reason"] for c in api.read(f"{pods}/web")["status"]["conditions"]}
    assert conditions == {"DisruptionTarget": "EvictionByEvictionAPI"}
    ok(api.delete(f"{pods}/web", gracePeriodSeconds=0))


def test_a_dry_run_of_an_eviction_deletes_nothing(api: Api, web: str) -> None:
    ok(api.post(f"{web}/eviction", _eviction("web", dryRun=["All"])), 201)
    assert not api.is_gone(web)


def test_a_budget_holds_an_eviction_back(api: Api, pods: str, namespace: str) -> None:
    api.create(pods, pod("web", node="node-1", labels={"app": "web"}))
    api.change(f"{pods}/web/status", {"status": {"phase": "Running"}})
    budgets = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
    budget = {"selector": {"matchLabels": {"app": "web"}}, "minAvailable": 1}
    api.create(budgets, {"metadata": {"name": "b"}, "spec": budget})
    answer = api.post(f"{pods}/web/eviction", _eviction("web"))
    status = refused(answer, 429, "TooManyRequests")
    assert status["message"] == "Cannot evict pod as it would violate the pod's disruption budget."
    assert status["details"]["causes"][0]["reason"] == "DisruptionBudget"
    ok(api.delete(f"{pods}/web", gracePeriodSeconds=0))


@pytest.mark.parametrize("phase", ["Pending", "Succeeded", "Failed"])
def test_a_budget_protects_running_pods_alone(
    api: Api, pods: str, namespace: str, phase: str
) -> None:
    api.create(pods, pod("web", labels={"app": "web"}))
    api.change(f"{pods}/web/status", {"status": {"phase": phase}})
    budgets = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
    budget = {"selector": {"matchLabels": {"app": "web"}}, "minAvailable": 1}
    api.create(budgets, {"metadata": {"name": "b"}, "spec": budget})
    ok(api.post(f"{pods}/web/eviction", _eviction("web")), 201)
    assert api.is_gone(f"{pods}/web")


def _with_debugger(read: Object, name: str = "debugger") -> Object:
    debugger = {"name": name, "image": "busybox:1"}
    spec = read["spec"]
    spec["ephemeralContainers"] = [*spec.get("ephemeralContainers", []), debugger]
    return read


def test_an_ephemeral_container_is_added_and_metadata_stays(api: Api, web: str) -> None:
    read = _with_debugger(api.read(web))
    read["metadata"]["labels"]["app"] = "changed"
    changed = ok(api.put(f"{web}/ephemeralcontainers", read))
    assert [c["name"] for c in changed["spec"]["ephemeralContainers"]] == ["debugger"]
    assert changed["metadata"]["labels"] == {"app": "web"}
    patch = {"spec": {"ephemeralContainers": [{"name": "second", "image": "busybox:1"}]}}
    changed = api.change(f"{web}/ephemeralcontainers", patch, STRATEGIC)
    assert sorted(c["name"] for c in changed["spec"]["ephemeralContainers"]) == [
        "debugger",
        "second",
    ]


def test_an_ephemeral_container_cannot_be_taken_off(api: Api, web: str) -> None:
    changed = ok(api.put(f"{web}/ephemeralcontainers", _with_debugger(api.read(web))))
    changed["spec"]["ephemeralContainers"] = []
    refused(api.put(f"{web}/ephemeralcontainers", changed), 422, "Invalid")


def test_an_update_cannot_add_an_ephemeral_container(api: Api, web: str) -> None:
    refused(api.put(web, _with_debugger(api.read(web))), 422, "Invalid")


def test_a_resize_changes_resources_alone(api: Api, pods: str) -> None:
    sent = pod("web", labels={"app": "web"})
    sent["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}
    api.create(pods, sent)
    patch = {
        "metadata": {"labels": {"app": "changed"}},
        "spec": {"containers": [{"name": "server", "resources": {"requests": {"cpu": "1500m"}}}]},
    }
    changed = api.change(f"{pods}/web/resize", patch, STRATEGIC)
    resources = changed["spec"]["containers"][0]["resources"]
    assert resources == {"requests": {"cpu": "1500m"}, "limits": {"cpu": "2"}}
    assert changed["metadata"]["labels"] == {"app": "web"}


def test_the_quality_of_service_is_told(api: Api, pods: str) -> None:
    for name, resources, quality in (
        ("a", {}, "BestEffort"),
        ("b", {"requests": {"cpu": "1"}}, "Burstable"),
        ("c", {"limits": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed"),
    ):
        sent = pod(name)
        sent["spec"]["containers"][0]["resources"] = resources
        assert api.create(pods, sent)["status"]["qosClass"] == quality
