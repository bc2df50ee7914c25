import msgspec
import pytest

from kube import requests


def test_the_url_keeps_the_prefix_of_the_server_and_encodes_parameters() -> None:
    call = requests.get("/api/v1/pods", {"fieldManager": "a b", "x": "1=2&3"})
    assert call.url("https://host:6443/prefix") == (
        "https://host:6443/prefix/api/v1/pods?fieldManager=a+b&x=1%3D2%263"
    )
    assert requests.get("/api").url("https://host") == "https://host/api"
    assert str(call) == "GET /api/v1/pods"


def test_a_list_asks_for_pages_and_never_for_a_version() -> None:
    first = requests.list_page(
        "/p", label_selector="a=b", field_selector="c=d", page_size=500, token=""
    )
    assert first.params == {"labelSelector": "a=b", "fieldSelector": "c=d", "limit": "500"}
    second = requests.list_page("/p", label_selector="", field_selector="", page_size=7, token="t")
    assert second.params == {"limit": "7", "continue": "t"}


@pytest.mark.parametrize(
    ("timeout_s", "sent"), [(300.0, "300"), (0.2, "1"), (1.6, "2"), (287.4, "287")]
)
def test_a_watch_asks_for_bookmarks_and_an_end(timeout_s: float, sent: str) -> None:
    call = requests.watch(
        "/p",
        resource_version="90",
        label_selector="a=b",
        field_selector="",
        timeout_s=timeout_s,
    )
    assert call.params == {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": "90",
        "timeoutSeconds": sent,
        "labelSelector": "a=b",
    }


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize("version", [None, "7"])
@pytest.mark.parametrize("uid", [None, "U"])
def test_a_delete_sends_its_preconditions_and_never_a_grace_period(
    uid: str | None, version: str | None, dry_run: bool
) -> None:
    call = requests.delete("/p", uid=uid, resource_version=version, dry_run=dry_run)
    assert call.method == "DELETE"
    assert call.params == {}
    assert call.body is not None
    body = msgspec.json.decode(call.body)
    expected = {"apiVersion": "v1", "kind": "DeleteOptions"}
    preconditions = {}
    if uid:
        preconditions["uid"] = "U"
    if version:
        preconditions["resourceVersion"] = "7"
    assert body == {
        **expected,
        **({"preconditions": preconditions} if preconditions else {}),
        **({"dryRun": ["All"]} if dry_run else {}),
    }


def test_an_empty_precondition_is_sent_and_not_taken_for_none() -> None:
    call = requests.delete("/p", uid="", resource_version=None, dry_run=False)
    assert call.body is not None
    assert msgspec.json.decode(call.body)["preconditions"] == {"uid": ""}


def test_a_write_carries_its_content_type() -> None:
    call = requests.write("PATCH", "/p", {"a": 1}, {"dryRun": "All"}, "application/json-patch+json")
    assert (call.body, call.content_type) == (b'{"a":1}', "application/json-patch+json")
    assert call.params == {"dryRun": "All"}
