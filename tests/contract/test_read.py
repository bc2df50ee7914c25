"""Gets and lists: selectors, pages, versions, and the forms of an answer."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.api import Api, Object, configmap, names, ok, pod, refused

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json"


@pytest.fixture
def three(api: Api, pods: str) -> str:
    """Pods a, b and c; a and b bear app=web, a is bound to a node."""
    api.create(pods, pod("b", labels={"app": "web", "tier": "back"}))
    api.create(pods, pod("a", labels={"app": "web", "n": "5"}, node="node-1"))
    api.create(pods, pod("c", labels={"app": "other"}))
    return pods


def test_a_get_is_what_was_created(api: Api, pods: str) -> None:
    made = api.create(pods, pod("web"))
    assert api.read(f"{pods}/web") == made


def test_a_get_of_nothing_is_not_found(api: Api, pods: str) -> None:
    status = refused(api.get(f"{pods}/web"), 404, "NotFound")
    assert status["message"] == 'pods "web" not found'
    assert status["details"] == {"name": "web", "kind": "pods"}


def test_a_list_is_in_order_of_names_and_tells_its_version(api: Api, three: str) -> None:
    listed = api.read(three)
    assert (listed["kind"], listed["apiVersion"]) == ("PodList", "v1")
    assert names(listed) == ["a", "b", "c"]
    newest = max(int(item["metadata"]["resourceVersion"]) for item in listed["items"])
    assert int(listed["metadata"]["resourceVersion"]) >= newest


def test_items_of_a_built_in_list_have_no_kind(api: Api, three: str) -> None:
    assert all("kind" not in item and "apiVersion" not in item for item in api.read(three)["items"])


def test_an_empty_list_is_a_list(api: Api, pods: str) -> None:
    listed = api.read(pods)
    assert listed["items"] == []
    assert int(listed["metadata"]["resourceVersion"]) > 0


def test_a_list_over_all_namespaces_has_those_of_each(api: Api, three: str, namespace: str) -> None:
    listed = api.read("/api/v1/pods", fieldSelector=f"metadata.namespace={namespace}")
    assert names(listed) == ["a", "b", "c"]


LABELS: list[Any] = [
    pytest.param("app=web", ["a", "b"], id="equal"),
    pytest.param("app==web", ["a", "b"], id="equal twice"),
    pytest.param("app!=web", ["c"], id="unequal"),
    pytest.param("tier!=back", ["a", "c"], id="unequal, also without the key"),
    pytest.param("tier", ["b"], id="exists"),
    pytest.param("!tier", ["a", "c"], id="does not exist"),
    pytest.param("app in (web, other)", ["a", "b", "c"], id="in"),
    pytest.param("app notin (web)", ["c"], id="not in"),
    pytest.param("tier notin (back)", ["a", "c"], id="not in, also without the key"),
    pytest.param("app=web,tier=back", ["b"], id="both"),
    pytest.param("n>4", ["a"], id="greater"),
    pytest.param("n<5", [], id="less"),
    pytest.param("", ["a", "b", "c"], id="nothing"),
]


@pytest.mark.parametrize(("selector", "found"), LABELS)
def test_label_selectors(api: Api, three: str, selector: str, found: list[str]) -> None:
    assert names(api.read(three, labelSelector=selector)) == found


FIELDS: list[Any] = [
    pytest.param("metadata.name=a", ["a"], id="name"),
    pytest.param("metadata.name!=a", ["b", "c"], id="not the name"),
    pytest.param("spec.nodeName=node-1", ["a"], id="node"),
    pytest.param("spec.nodeName=", ["b", "c"], id="no node"),
    pytest.param("status.phase=Pending", ["a", "b", "c"], id="phase"),
    pytest.param("status.phase!=Pending", [], id="other phase"),
    pytest.param("metadata.name=b,status.phase=Pending", ["b"], id="both"),
    pytest.param("spec.restartPolicy=Always", ["a", "b", "c"], id="restart policy"),
]


@pytest.mark.parametrize(("selector", "found"), FIELDS)
def test_field_selectors(api: Api, three: str, selector: str, found: list[str]) -> None:
    assert names(api.read(three, fieldSelector=selector)) == found


@pytest.mark.parametrize(
    "query",
    [
        pytest.param({"labelSelector": "a in b"}, id="label syntax"),
        pytest.param({"labelSelector": "a=b=c"}, id="label twice equal"),
        pytest.param({"fieldSelector": "metadata.name"}, id="field syntax"),
        pytest.param({"fieldSelector": "spec.hostname=x"}, id="field that is not selectable"),
        pytest.param({"continue": "nonsense"}, id="continue token"),
        pytest.param({"limit": "many"}, id="limit"),
    ],
)
def test_what_cannot_be_read_is_a_bad_request(api: Api, pods: str, query: Object) -> None:
    refused(api.get(pods, **query), 400, "BadRequest")


def test_pages_show_the_state_of_the_first(api: Api, three: str) -> None:
    first = api.read(three, limit=2)
    assert names(first) == ["a", "b"]
    assert first["metadata"]["remainingItemCount"] == 1
    api.create(three, pod("bb"))
    ok(api.delete(f"{three}/c"))
    second = api.read(three, limit=2, **{"continue": first["metadata"]["continue"]})
    assert names(second) == ["c"]
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    assert "continue" not in second["metadata"]
    assert names(api.read(three)) == ["a", "b", "bb"]


def test_pages_of_a_selection_do_not_count_what_remains(api: Api, three: str) -> None:
    first = api.read(three, limit=1, labelSelector="app=web")
    assert names(first) == ["a"]
    assert "remainingItemCount" not in first["metadata"]
    token = first["metadata"]["continue"]
    second = api.read(three, limit=1, labelSelector="app=web", **{"continue": token})
    assert names(second) == ["b"]


def test_a_list_from_any_version_answers(api: Api, three: str) -> None:
    version = api.read(three)["metadata"]["resourceVersion"]
    assert names(api.read(three, resourceVersion="0")) == ["a", "b", "c"]
    assert names(api.read(three, resourceVersion=version)) == ["a", "b", "c"]


def test_an_exact_list_shows_the_past(api: Api, three: str) -> None:
    version = api.read(three)["metadata"]["resourceVersion"]
    ok(api.delete(f"{three}/b"))
    api.create(three, pod("d"))
    past = api.read(three, resourceVersion=version, resourceVersionMatch="Exact")
    assert names(past) == ["a", "b", "c"]
    assert past["metadata"]["resourceVersion"] == version


def test_a_version_that_has_not_been_is_a_timeout(api: Api, pods: str) -> None:
    answer = api.get(pods, resourceVersion="99999999999")
    status = refused(answer, 504, "Timeout")
    assert "Too large resource version" in status["message"]


@pytest.mark.parametrize(
    "query",
    [
        pytest.param({"resourceVersionMatch": "Exact"}, id="match without a version"),
        pytest.param({"resourceVersion": "1", "resourceVersionMatch": "Some"}, id="unknown match"),
        pytest.param({"resourceVersion": "0", "resourceVersionMatch": "Exact"}, id="exactly 0"),
        pytest.param({"sendInitialEvents": "true"}, id="initial events of a list"),
    ],
)
def test_options_that_contradict_are_invalid(api: Api, pods: str, query: Object) -> None:
    refused(api.get(pods, **query), 422, "Invalid")


def test_a_table_has_the_columns_that_kubectl_prints(api: Api, three: str) -> None:
    table = ok(api.client.get(three, headers={"Accept": TABLE}))
    assert table["kind"] == "Table"
    columns = [c["name"] for c in table["columnDefinitions"] if c["priority"] == 0]
    assert columns == ["Name", "Ready", "Status", "Restarts", "Age"]
    cells = [row["cells"][:4] for row in table["rows"]]
    assert cells[0] == ["a", "0/1", "Pending", "0"]
    assert cells[2] == ["c", "0/1", "Pending", "0"]
    assert table["rows"][1]["object"]["metadata"]["name"] == "b"


def test_metadata_alone_can_be_asked_for(api: Api, three: str) -> None:
    listed = ok(api.client.get(three, headers={"Accept": METADATA_LIST}))
    assert listed["kind"] == "PartialObjectMetadataList"
    assert [sorted(item) for item in listed["items"]] == [["apiVersion", "kind", "metadata"]] * 3


def test_a_form_that_is_not_served_is_not_acceptable(api: Api, pods: str) -> None:
    refused(api.client.get(pods, headers={"Accept": "text/html"}), 406, "NotAcceptable")


@pytest.mark.parametrize(
    "path",
    [
        pytest.param("/api/v1/nonsense", id="resource"),
        pytest.param("/api/v9/pods", id="version"),
        pytest.param("/apis/nonsense.example/v1/things", id="group"),
        pytest.param("/api/v1/namespaces/default/pods/web/nonsense", id="subresource"),
    ],
)
def test_what_is_not_served_is_not_found(api: Api, path: str) -> None:
    assert api.get(path).status_code == 404


def test_a_method_that_a_resource_has_not_is_not_allowed(api: Api, pods: str) -> None:
    refused(api.post(f"{pods}/web", pod("web")), 405, "MethodNotAllowed")
    refused(api.put(pods, pod("web")), 405, "MethodNotAllowed")


def test_media_types_that_are_not_read_are_refused(api: Api, pods: str) -> None:
    answer = api.client.post(pods, content="<pod/>", headers={"Content-Type": "text/xml"})
    refused(answer, 415, "UnsupportedMediaType")
    refused(api.patch(f"{pods}/web", {}, kind="text/xml"), 415, "UnsupportedMediaType")


def test_a_body_in_yaml_is_read(api: Api, namespace: str) -> None:
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {x: hello}\n"
    answer = api.client.post(
        f"/api/v1/namespaces/{namespace}/configmaps",
        content=text,
        headers={"Content-Type": "application/yaml"},
    )
    assert ok(answer, 201)["data"] == {"x": "hello"}


def test_a_body_that_is_no_json_is_a_bad_request(api: Api, pods: str) -> None:
    answer = api.client.post(pods, content=b"{", headers={"Content-Type": "application/json"})
    refused(answer, 400, "BadRequest")


def test_a_body_of_four_megabytes_is_too_large(api: Api, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    answer = api.post(path, configmap("a", x="x" * (4 << 20)))
    refused(answer, 413, "RequestEntityTooLarge")
