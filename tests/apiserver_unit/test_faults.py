"""Faults: each does what it says, to whom it says, as often as it says."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.apiserver import EmbeddedCluster
from tests.contract.api import Api, names, ok, pod, refused, take, told, until

PODS = "/api/v1/namespaces/default/pods"


def test_a_failure_hits_as_often_as_asked(embedded: EmbeddedCluster, api: Api) -> None:
    rule = embedded.faults.fail(503, times=2)
    refused(api.get(PODS), 503, "ServiceUnavailable")
    refused(api.post(PODS, pod("a")), 503, "ServiceUnavailable")
    assert names(api.read(PODS)) == []
    assert rule.hits == 2


def test_a_failure_without_a_count_holds_until_it_is_cleared(
    embedded: EmbeddedCluster, api: Api
) -> None:
    embedded.faults.fail(500, times=None)
    for _ in range(3):
        refused(api.get(PODS), 500, "InternalError")
    embedded.faults.clear()
    api.read(PODS)


def test_one_rule_can_be_removed(embedded: EmbeddedCluster, api: Api) -> None:
    rule = embedded.faults.fail(500, verb="list", times=None)
    embedded.faults.fail(404, verb="get", times=None)
    embedded.faults.remove(rule)
    api.read(PODS)
    refused(api.get(f"{PODS}/a"), 404, "NotFound")


@pytest.mark.parametrize(
    ("match", "hit"),
    [
        pytest.param({"verb": "list"}, {"list"}, id="verb"),
        pytest.param({"path": r"/pods/a$"}, {"get", "patch", "delete"}, id="path"),
        pytest.param({"verb": "delete", "path": "pods"}, {"delete"}, id="verb and path"),
        pytest.param({"user": "admin", "verb": "create"}, {"create"}, id="user"),
        pytest.param({"user": "bob"}, set(), id="another user"),
        pytest.param({"verb": "deletecollection"}, {"deletecollection"}, id="collection"),
    ],
)
def test_a_match_says_which_requests(
    embedded: EmbeddedCluster, api: Api, match: dict[str, str], hit: set[str]
) -> None:
    embedded.faults.fail(418, reason="Teapot", times=None, **match)
    calls = {
        "list": api.get(PODS),
        "create": api.post(PODS, pod("a")),
        "get": api.get(f"{PODS}/a"),
        "patch": api.patch(f"{PODS}/a", {"metadata": {}}),
        "delete": api.delete(f"{PODS}/a"),
        "deletecollection": api.delete(PODS),
    }
    assert {verb for verb, answer in calls.items() if answer.status_code == 418} == hit


def test_too_many_says_when_to_come_back(embedded: EmbeddedCluster, api: Api) -> None:
    embedded.faults.too_many(retry_after_s=7)
    answer = api.get(PODS)
    status = refused(answer, 429, "TooManyRequests")
    assert answer.headers["retry-after"] == "7"
    assert status["details"]["retryAfterSeconds"] == 7
    assert "retry-after" not in api.get(PODS).headers


def test_gone_can_be_a_status(embedded: EmbeddedCluster, api: Api) -> None:
    embedded.faults.gone(verb="watch")
    refused(api.get(PODS, watch="1", resourceVersion="1"), 410, "Expired")


def test_gone_can_be_an_event(embedded: EmbeddedCluster, api: Api) -> None:
    embedded.faults.gone(as_event=True)
    with api.watch(PODS, resourceVersion="1") as events:
        seen = list(events)
    assert [event["type"] for event in seen] == ["ERROR"]
    assert seen[0]["object"]["code"] == 410
    assert seen[0]["object"]["reason"] == "Expired"


def test_what_hangs_goes_on_when_it_is_released(embedded: EmbeddedCluster, api: Api) -> None:
    rule = embedded.faults.hang(verb="create", times=2)
    with ThreadPoolExecutor(2) as threads:
        hanging = [threads.submit(api.post, PODS, pod(name)) for name in "ab"]
        until(lambda: rule.hits == 2 or not api.read(PODS))
        assert names(api.read(PODS)) == []
        assert not any(call.done() for call in hanging)
        embedded.faults.release(rule)
        assert [call.result(10).status_code for call in hanging] == [201, 201]
    assert names(api.read(PODS)) == ["a", "b"]


def test_clear_releases_what_hangs(embedded: EmbeddedCluster, api: Api) -> None:
    rule = embedded.faults.hang(verb="list")
    with ThreadPoolExecutor(1) as threads:
        hanging = threads.submit(api.get, PODS)
        until(lambda: rule.hits == 1 or not api.read("/api"))
        embedded.faults.clear()
        assert hanging.result(10).status_code == 200


def test_a_body_can_end_in_the_middle(embedded: EmbeddedCluster, api: Api) -> None:
    api.create(PODS, pod("a"))
    embedded.faults.truncate_body(keep_bytes=30)
    with pytest.raises(httpx.RemoteProtocolError):
        api.get(PODS)
    assert names(api.read(PODS)) == ["a"]


def test_a_watch_can_end_in_the_middle_of_a_line(embedded: EmbeddedCluster, api: Api) -> None:
    embedded.faults.truncate_body(verb="watch", keep_bytes=15)
    version = api.read(PODS)["metadata"]["resourceVersion"]
    api.create(PODS, pod("a"))
    params = {"watch": "1", "resourceVersion": version}
    with api.client.stream("GET", PODS, params=params) as response:
        chunks = response.iter_raw()
        assert next(chunks) == b'{"type":"ADDED"'
        with pytest.raises(httpx.RemoteProtocolError):
            next(chunks)


@pytest.mark.parametrize("clean", [False, True])
def test_every_watch_can_be_cut(embedded: EmbeddedCluster, api: Api, clean: bool) -> None:
    params = {"watch": "1", "resourceVersion": "1"}
    with (
        api.client.stream("GET", PODS, params=params) as first,
        api.client.stream("GET", "/api/v1/nodes", params=params) as second,
    ):
        assert embedded.watches == 2
        assert embedded.faults.cut_watches(clean=clean) == 2
        for response in (first, second):
            if clean:
                assert response.read() == b""
            else:
                with pytest.raises(httpx.RemoteProtocolError):
                    response.read()
    until(lambda: embedded.watches == 0 or not api.read("/api"))


def test_swallowed_events_are_never_told_of(embedded: EmbeddedCluster, api: Api) -> None:
    for name in "abc":
        api.create(PODS, pod(name))
    version = api.read(PODS)["metadata"]["resourceVersion"]
    embedded.faults.swallow_events(2, type="DELETED")
    with api.watch(PODS, resourceVersion=version) as events:
        for name in "ab":
            ok(api.delete(f"{PODS}/{name}"))
        ok(api.delete(f"{PODS}/c"))
        marks = [("MODIFIED", name) for name in "abc"]
        assert told(take(events, 4)) == [*marks, ("DELETED", "c")]
    with api.watch(PODS, resourceVersion=version) as events:
        assert told(take(events, 4)) == [*marks, ("DELETED", "c")]
    assert names(api.read(PODS)) == []


def test_only_the_named_resource_is_swallowed(embedded: EmbeddedCluster, api: Api) -> None:
    embedded.faults.swallow_events(1)
    node = {"metadata": {"name": "n"}}
    version = api.create("/api/v1/nodes", node)["metadata"]["resourceVersion"]
    before = str(int(version) - 1)
    with api.watch("/api/v1/nodes", resourceVersion=before) as events:
        assert told(take(events, 1)) == [("ADDED", "n")]


def test_after_compaction_older_versions_are_gone(embedded: EmbeddedCluster, api: Api) -> None:
    for name in "abc":
        api.create(PODS, pod(name))
    page = api.read(PODS, limit=1)
    version = page["metadata"]["resourceVersion"]
    api.create(PODS, pod("d"))
    embedded.faults.compact()
    with api.watch(PODS, resourceVersion=version) as events:
        seen = list(events)
    assert [event["object"]["code"] for event in seen] == [410]
    exact = {"resourceVersion": version, "resourceVersionMatch": "Exact"}
    refused(api.get(PODS, **exact), 410, "Expired")
    token = page["metadata"]["continue"]
    status = refused(api.get(PODS, **{"continue": token}), 410, "Expired")
    rest = api.read(PODS, **{"continue": status["metadata"]["continue"]})
    assert names(rest) == ["b", "c", "d"]
    newest = api.read(PODS)["metadata"]["resourceVersion"]
    with api.watch(PODS, resourceVersion=newest) as events:
        api.create(PODS, pod("e"))
        assert told(take(events, 1)) == [("ADDED", "e")]


def test_a_blocked_port_refuses_until_it_is_cleared(embedded: EmbeddedCluster, api: Api) -> None:
    api.create(PODS, pod("a"))
    with api.client.stream("GET", PODS, params={"watch": "1"}) as response:
        embedded.faults.block()
        with pytest.raises(httpx.HTTPError):
            for _ in response.iter_raw():
                pass
    with pytest.raises(httpx.ConnectError):
        api.get(PODS)
    embedded.faults.clear()
    assert names(api.read(PODS)) == ["a"]


def test_requests_are_remembered(embedded: EmbeddedCluster, api: Api) -> None:
    api.get(PODS)
    api.post(PODS, pod("a"))
    api.get(PODS, watch="1", timeoutSeconds="1")
    assert embedded.requests() == [
        ("list", PODS, "admin"),
        ("create", PODS, "admin"),
        ("watch", PODS, "admin"),
    ]
