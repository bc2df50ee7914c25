"""Watches: from a version on, selected, with bookmarks, and what ends them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.contract.api import Api, Object, ok, pod, refused, take, told

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


@pytest.fixture
def version(api: Api, pods: str) -> str:
    """The version of the (empty) list, to watch from."""
    found: str = api.read(pods)["metadata"]["resourceVersion"]
    return found


def test_a_watch_tells_every_change_since_its_version(api: Api, pods: str, version: str) -> None:
    api.create(pods, pod("a"))
    api.create(pods, pod("b", node="node-1"))
    api.change(f"{pods}/a", {"metadata": {"labels": {"x": "1"}}})
    ok(api.delete(f"{pods}/b"))
    ok(api.delete(f"{pods}/b", gracePeriodSeconds=0))
    with api.watch(pods, resourceVersion=version) as events:
        seen = take(events, 6)
    assert told(seen) == [
        ("ADDED", "a"),
        ("ADDED", "b"),
        ("MODIFIED", "a"),
        ("MODIFIED", "b"),  # marked
        ("MODIFIED", "b"),  # its grace period is over
        ("DELETED", "b"),
    ]
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in seen]
    assert versions == sorted(set(versions))


def test_an_object_of_a_watch_is_whole(api: Api, pods: str, version: str) -> None:
    made = api.create(pods, pod("a"))
    with api.watch(pods, resourceVersion=version) as events:
        assert take(events, 1)[0]["object"] == made
    assert made["kind"] == "Pod"


def test_a_terminal_pod_is_marked_before_it_goes(api: Api, pods: str) -> None:
    api.create(pods, pod("a", node="node-1"))
    done = api.change(f"{pods}/a/status", {"status": {"phase": "Failed"}})
    ok(api.delete(f"{pods}/a"))
    with api.watch(pods, resourceVersion=done["metadata"]["resourceVersion"]) as events:
        marked, gone = take(events, 2)
    assert told([marked, gone]) == [("MODIFIED", "a"), ("DELETED", "a")]
    assert marked["object"]["metadata"]["deletionGracePeriodSeconds"] == 0


def test_a_watch_without_a_version_begins_with_what_is_there(api: Api, pods: str) -> None:
    for name in ("a", "b"):
        api.create(pods, pod(name))
    for query in ({}, {"resourceVersion": "0"}):
        with api.watch(pods, **query) as events:
            assert sorted(told(take(events, 2))) == [("ADDED", "a"), ("ADDED", "b")]


def test_a_change_made_while_watching_arrives(api: Api, pods: str, version: str) -> None:
    with api.watch(pods, resourceVersion=version) as events:
        api.create(pods, pod("a"))
        assert told(take(events, 1)) == [("ADDED", "a")]
        api.create(pods, pod("b"))
        assert told(take(events, 1)) == [("ADDED", "b")]


def test_a_label_that_changes_enters_and_leaves_a_selection(
    api: Api, pods: str, version: str
) -> None:
    api.create(pods, pod("a", labels={"app": "other"}))
    api.create(pods, pod("b", labels={"app": "web"}))
    for app in ("web", "web2", "web"):
        api.change(f"{pods}/a", {"metadata": {"labels": {"app": app}}})
    api.change(f"{pods}/a", {"metadata": {"labels": {"more": "1"}}})
    ok(api.delete(f"{pods}/b"))
    with api.watch(pods, resourceVersion=version, labelSelector="app=web") as events:
        seen = take(events, 7)
    assert told(seen) == [
        ("ADDED", "b"),
        ("ADDED", "a"),
        ("DELETED", "a"),
        ("ADDED", "a"),
        ("MODIFIED", "a"),
        ("MODIFIED", "b"),
        ("DELETED", "b"),
    ]
    left = seen[2]["object"]["metadata"]
    assert left["labels"]["app"] == "web"
    assert int(left["resourceVersion"]) > int(seen[1]["object"]["metadata"]["resourceVersion"])


def test_fields_select_too(api: Api, pods: str, version: str) -> None:
    api.create(pods, pod("a"))
    api.create(pods, pod("b"))
    api.change(f"{pods}/b/status", {"status": {"phase": "Failed"}})
    with api.watch(pods, resourceVersion=version, fieldSelector="status.phase=Failed") as events:
        assert told(take(events, 1)) == [("ADDED", "b")]
    with api.watch(pods, resourceVersion=version, fieldSelector="metadata.name=b") as events:
        assert told(take(events, 2)) == [("ADDED", "b"), ("MODIFIED", "b")]


def test_the_path_of_one_object_is_not_watched(api: Api, pods: str) -> None:
    made = api.create(pods, pod("a"))
    assert api.read(f"{pods}/a", watch="true") == made


def test_other_namespaces_are_not_told_of(api: Api, pods: str, version: str) -> None:
    api.create("/api/v1/namespaces/default/configmaps",
               {"metadata": {"generateName": "contract-"}})  # fmt: skip
    api.create(pods, pod("a"))
    with api.watch(pods, resourceVersion=version) as events:
        assert told(take(events, 1)) == [("ADDED", "a")]


def test_a_watch_ends_in_good_order_when_its_time_is_over(
    api: Api, pods: str, version: str
) -> None:
    with api.watch(pods, resourceVersion=version, timeoutSeconds=3) as events:
        assert list(events) == []  # no bookmark either: none was asked for


def test_a_bookmark_comes_before_the_end(api: Api, pods: str, version: str) -> None:
    api.create(pods, pod("a"))
    query = {"resourceVersion": version, "timeoutSeconds": 3, "allowWatchBookmarks": "true"}
    with api.watch(pods, **query) as events:
        seen = list(events)
    assert seen[0]["type"] == "ADDED"
    marks = [event["object"] for event in seen if event["type"] == "BOOKMARK"]
    assert marks
    assert (marks[-1]["kind"], marks[-1]["apiVersion"]) == ("Pod", "v1")
    assert int(marks[-1]["metadata"]["resourceVersion"]) >= int(version)


def test_initial_events_end_with_a_bookmark(api: Api, pods: str) -> None:
    for name in ("a", "b"):
        api.create(pods, pod(name))
    query = {
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "allowWatchBookmarks": "true",
    }
    with api.watch(pods, **query) as events:
        seen: list[Object] = []
        for event in events:
            seen.append(event)
            if event["type"] == "BOOKMARK":
                break
    assert told(seen[:2]) == [("ADDED", "a"), ("ADDED", "b")]
    annotations = seen[2]["object"]["metadata"]["annotations"]
    assert annotations == {"k8s.io/initial-events-end": "true"}


@pytest.mark.parametrize(
    "query",
    [
        pytest.param({"sendInitialEvents": "true"}, id="without a match"),
        pytest.param({"resourceVersionMatch": "NotOlderThan"}, id="match alone"),
    ],
)
def test_options_that_contradict_are_invalid(api: Api, pods: str, query: Any) -> None:
    refused(api.get(pods, watch="true", timeoutSeconds=1, **query), 422, "Invalid")


def test_a_watch_can_be_a_table(api: Api, pods: str, version: str) -> None:
    api.create(pods, pod("a"))
    api.create(pods, pod("b"))
    headers = {"Accept": TABLE}
    params = {"watch": "true", "resourceVersion": version, "timeoutSeconds": "1"}
    answer = api.client.get(pods, params=params, headers=headers)
    events = [msgspec.json.decode(line) for line in answer.content.split(b"\n") if line]
    assert [event["object"]["kind"] for event in events] == ["Table", "Table"]
    assert [len(event["object"]["columnDefinitions"] or ()) > 0 for event in events] == [
        True,
        False,
    ]
    assert [event["object"]["rows"][0]["cells"][0] for event in events] == ["a", "b"]
