"""The server as a whole: what it takes and gives back, and what it does when something breaks."""

from __future__ import annotations

import socket
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.apiserver import EmbeddedCluster
from tests.contract.api import Api, configmap, names, ok, pod, refused, take, told, until
from tests.kubectl import Kubectl

PODS = "/api/v1/namespaces/default/pods"


def test_a_closed_server_leaves_nothing_behind() -> None:
    before = threading.active_count()
    with EmbeddedCluster() as cluster:
        folder = cluster.kubeconfig.parent
        port = int(cluster.url.rpartition(":")[2])
        assert folder.exists()
    assert threading.active_count() == before
    assert not folder.exists()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)
    cluster.close()  # a second time is no error


def test_a_port_can_be_chosen_and_taken_again() -> None:
    with EmbeddedCluster() as cluster:
        port = int(cluster.url.rpartition(":")[2])
        with pytest.raises(OSError, match="in use"):
            EmbeddedCluster(port=port)
    with EmbeddedCluster(port=port) as cluster:
        assert cluster.url.endswith(f":{port}")


def test_two_servers_share_nothing() -> None:
    with EmbeddedCluster() as first, EmbeddedCluster() as second:
        assert first.url != second.url
        assert first.token != second.token


def test_an_open_watch_does_not_hold_a_close_up(embedded: EmbeddedCluster, api: Api) -> None:
    with api.client.stream("GET", PODS, params={"watch": "1"}):
        embedded.close()
    assert embedded.watches == 0


def test_a_watch_that_its_client_leaves_is_forgotten(embedded: EmbeddedCluster, api: Api) -> None:
    with api.watch(PODS):
        assert embedded.watches == 1
    until(lambda: embedded.watches == 0 or not api.read("/api"))


def test_bookmarks_come_as_often_as_asked() -> None:
    with EmbeddedCluster(bookmark_every_s=0.01) as cluster:
        headers = {"Authorization": f"Bearer {cluster.token}"}
        context = ssl.create_default_context(cadata=cluster.ca_pem)
        with httpx.Client(base_url=cluster.url, verify=context, headers=headers) as client:
            with Api(client).watch(PODS, allowWatchBookmarks="true") as events:
                seen = [next(events) for _ in range(3)]
    assert [event["type"] for event in seen] == ["BOOKMARK"] * 3


def test_the_manifests_can_be_applied_twice(
    embedded: EmbeddedCluster, api: Api, tmp_path: Path
) -> None:
    kubectl = Kubectl(embedded.kubeconfig, tmp_path)
    manifests = Path(__file__).parents[2] / "manifests" / "install.yaml"
    first = kubectl.run("apply", "-f", str(manifests))
    assert (first.code, first.err) == (0, "")
    assert all(line.endswith(" created") for line in first.out.splitlines())
    again = kubectl.run("apply", "-f", str(manifests))
    assert (again.code, again.err) == (0, "")
    assert all(line.endswith(" unchanged") for line in again.out.splitlines())
    gone = kubectl.run("delete", "--wait=false", "-f", str(manifests))
    assert (gone.code, gone.err) == (0, "")


def test_apply_by_the_server_is_refused(embedded: EmbeddedCluster, api: Api) -> None:
    answer = api.patch(f"{PODS}/a", pod("a"), kind="application/apply-patch+yaml", fieldManager="m")
    refused(answer, 415, "UnsupportedMediaType")


def test_a_dependent_of_another_living_owner_stays(embedded: EmbeddedCluster, api: Api) -> None:
    maps = "/api/v1/namespaces/default/configmaps"
    owners = []
    for name in ("one", "two"):
        uid = api.create(maps, configmap(name))["metadata"]["uid"]
        owners.append({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid})
    api.create(PODS, pod("both", ownerReferences=owners))
    api.create(PODS, pod("first", ownerReferences=owners[:1]))
    ok(api.delete(f"{maps}/one"))
    until(lambda: names(api.read(PODS)) == ["both"])
    ok(api.delete(f"{maps}/two"))
    until(lambda: names(api.read(PODS)) == [])


def test_an_owner_that_never_was_condemns_nobody(embedded: EmbeddedCluster, api: Api) -> None:
    owner = {"apiVersion": "example.dev/v1", "kind": "Set", "name": "s", "uid": "u-1"}
    api.create(PODS, pod("a", ownerReferences=[owner]))
    api.create(PODS, pod("b"))
    ok(api.delete(f"{PODS}/b"))
    assert names(api.read(PODS)) == ["a"]


def test_a_patch_that_races_is_applied_to_what_is_stored(
    embedded: EmbeddedCluster, api: Api
) -> None:
    api.create(PODS, pod("a"))
    patches = [{"metadata": {"labels": {f"l{number}": "x"}}} for number in range(20)]
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda body: api.patch(f"{PODS}/a", body), patches))
    assert {answer.status_code for answer in answers} == {200}
    assert len(api.read(f"{PODS}/a")["metadata"]["labels"]) == 20


def test_updates_of_one_version_have_one_winner(embedded: EmbeddedCluster, api: Api) -> None:
    read = api.create(PODS, pod("a"))

    def write(number: int) -> int:
        metadata = {**read["metadata"], "labels": {"by": str(number)}}
        return api.put(f"{PODS}/a", {**read, "metadata": metadata}).status_code

    with ThreadPoolExecutor(8) as threads:
        codes = sorted(threads.map(write, range(8)))
    assert codes == [200] + [409] * 7


def test_a_watch_of_many_namespaces_and_of_one(embedded: EmbeddedCluster, api: Api) -> None:
    version = api.read(PODS)["metadata"]["resourceVersion"]
    api.create("/api/v1/namespaces/kube-public/pods", pod("elsewhere"))
    api.create(PODS, pod("here"))
    with api.watch(PODS, resourceVersion=version) as events:
        assert told(take(events, 1)) == [("ADDED", "here")]
    with api.watch("/api/v1/pods", resourceVersion=version) as events:
        assert told(take(events, 2)) == [("ADDED", "elsewhere"), ("ADDED", "here")]


def test_types_are_told_in_the_older_form_too(embedded: EmbeddedCluster, api: Api) -> None:
    definitions = api.read("/openapi/v2")["definitions"]
    spec = definitions["io.k8s.api.v1.PodSpec"]["properties"]
    assert spec["containers"]["items"] == {"$ref": "#/definitions/io.k8s.api.v1.Container"}
    headers = {"Accept": "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"}
    refused(api.client.get("/openapi/v2", headers=headers), 406, "NotAcceptable")
