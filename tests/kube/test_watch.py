import random
from typing import Any

import msgspec
import pytest

from kube.backoff import Backoff
from kube.decode import Broken
from kube.errors import (
    ApiError,
    Forbidden,
    Gone,
    KubeError,
    NotFound,
    ServerError,
    TooManyRequests,
    Unauthorized,
    Unreachable,
    Unreadable,
)
from kube.meta import Identity
from kube.pod import Pod
from kube.watch import (
    Bookmark,
    Failed,
    Removal,
    Unfit,
    Upsert,
    must_relist,
    pause_s,
    read_event,
)

META = {"name": "a", "namespace": "ns", "uid": "A", "resourceVersion": "7"}
STATUS = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}


def read(event: Any) -> Any:
    line = event if isinstance(event, bytes) else msgspec.json.encode(event)
    return read_event(line, Pod)


@pytest.mark.parametrize("type", ["ADDED", "MODIFIED"])
def test_an_object_that_exists_is_an_upsert(type: str) -> None:
    event = read({"type": type, "object": {"metadata": META, "status": {"phase": "Failed"}}})
    assert isinstance(event, Upsert)
    assert (event.item.metadata.uid, event.item.status.phase) == ("A", "Failed")


def test_a_deleted_object_is_a_removal_by_uid() -> None:
    assert read({"type": "DELETED", "object": {"metadata": META}}) == Removal("A", "7")


@pytest.mark.parametrize(
    "object",
    [
        {"metadata": {"resourceVersion": "9"}},
        {"kind": "Pod", "metadata": {"resourceVersion": "9", "creationTimestamp": None}},
        {"metadata": {"resourceVersion": "9"}, "spec": {"containers": None}, "status": {}},
        {"metadata": {"resourceVersion": "9"}, "spec": 7},
    ],
    ids=["bare", "null time", "null list", "wrong type"],
)
def test_a_bookmark_needs_nothing_but_its_version(object: Any) -> None:
    assert read({"type": "BOOKMARK", "object": object}) == Bookmark("9")


def test_an_object_that_cannot_be_read_is_unfit_and_keeps_its_identity() -> None:
    event = read({"type": "MODIFIED", "object": {"metadata": META, "spec": 7}})
    assert isinstance(event, Unfit)
    assert event.broken.identity == Identity("a", "ns", "A", "7")


def test_an_unreadable_object_that_is_deleted_still_leaves_by_uid() -> None:
    assert read({"type": "DELETED", "object": {"metadata": META, "spec": 7}}) == Removal("A", "7")


def test_a_deletion_of_nobody_knows_what_is_a_gap() -> None:
    event = read({"type": "DELETED", "object": {"metadata": {"uid": 7}}})
    assert isinstance(event, Failed)
    assert isinstance(event.error, Unreadable)


@pytest.mark.parametrize("type", ["ADDED", "MODIFIED"])
def test_an_object_without_a_uid_is_never_stored(type: str) -> None:
    assert read({"type": type, "object": {}}) == Unfit(Broken(Identity(), "it has no uid"))


def test_an_unknown_type_of_event_changes_nothing() -> None:
    event = read({"type": "PAUSED", "object": {"metadata": META}})
    assert isinstance(event, Unfit)
    assert "PAUSED" in event.broken.error


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        ({"type": "ERROR", "object": STATUS}, Gone),
        ({"type": "ERROR", "object": STATUS | {"code": 500}}, ServerError),
        ({"type": "ERROR", "object": STATUS | {"code": 0}}, ApiError),
        ({"type": "ERROR", "object": STATUS | {"code": 429}}, TooManyRequests),
        ({"type": "ERROR", "object": None}, KubeError),
        ({"type": "ERROR", "object": {"metadata": 7}}, KubeError),
        ({"type": "ERROR"}, KubeError),
        (STATUS, Gone),
        ({"kind": "PodList", "items": []}, Unreadable),
        ({}, Unreadable),
        ([], Unreadable),
        ({"type": 7}, Unreadable),
        (b'{"type":"ADDED","object":{"metadata":{"uid":"A"', Unreachable),
        (b"<html>", Unreachable),
        (b"\xff", Unreachable),
    ],
    ids=[
        "410 as an event",
        "500 as an event",
        "no code",
        "429 as an event",
        "error without status",
        "error with something",
        "error with nothing",
        "a Status for a body",
        "a list for a body",
        "an empty object",
        "no object",
        "type of a wrong type",
        "cut off",
        "html",
        "no text",
    ],
)
def test_what_leaves_a_gap_fails(event: Any, kind: type[KubeError]) -> None:
    found = read(event)
    assert isinstance(found, Failed)
    assert isinstance(found.error, kind)


@pytest.mark.parametrize(
    ("error", "relist"),
    [
        (Gone(410), True),
        (Unreachable("cut"), True),
        (Unreadable("odd"), True),
        (Forbidden(403), True),
        (ApiError(400), True),
        (TooManyRequests(429), False),
        (ServerError(503), False),
    ],
)
def test_only_a_watch_refused_for_load_resumes_after_an_error(
    error: KubeError, relist: bool
) -> None:
    assert must_relist(error) == relist


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (Unreachable("cut"), 1.5),
        (Gone(410), 1.5),
        (ServerError(500), 1.5),
        (ServerError(503, retry_after_s=20), 1.5),
        (TooManyRequests(429), 1.5),
        (TooManyRequests(429, retry_after_s=20), 20),
        (TooManyRequests(429, retry_after_s=1), 1.5),
        (TooManyRequests(429, retry_after_s=9999), 60),
        (Forbidden(403), 2),
        (Unauthorized(401), 2),
        (NotFound(404), 30),
    ],
)
def test_the_pause_fits_the_error(error: KubeError, expected: float) -> None:
    assert pause_s(error, backoff_s=1.5) == expected


def test_waits_double_up_to_the_cap_and_begin_anew() -> None:
    backoff = Backoff(random.Random(1), base_s=0.1, cap_s=2.0)
    for step_s in (0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0, 2.0):
        assert step_s / 2 <= backoff.next_s() <= step_s
    backoff.reset()
    assert 0.05 <= backoff.next_s() <= 0.1


def test_two_clients_do_not_wait_in_step() -> None:
    one, two = Backoff(random.Random(1)), Backoff(random.Random(2))
    assert [one.next_s() for _ in range(5)] != [two.next_s() for _ in range(5)]
