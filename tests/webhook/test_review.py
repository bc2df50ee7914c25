"""Decoding of reviews, and what becomes of those that cannot be decoded."""

from __future__ import annotations

from typing import Any

import pytest

from tests.webhook.builders import Object, encode, pod, review
from webhook.review import Malformed, NotAReview, decode_review

UID = "705ab4f5-6393-11e8-b7cc-42010a800002"
REVIEW = review("CREATE", pod())


def test_a_review_is_read() -> None:
    obj = pod(labels={"podstamp.dev/managed": "true", "app": "x"}, args=["-v"])
    request = decode_review(encode(review("CREATE", obj, user="jane", groups=("a",))))
    assert (request.uid, request.operation, request.namespace) == (UID, "CREATE", "models")
    assert request.is_pod
    assert request.object is not None
    assert request.object.metadata is not None
    assert request.object.metadata.labels is not None
    assert request.object.metadata.labels.managed == "true"
    assert request.object.metadata.annotations is None
    assert request.old_object is None
    assert request.user_info is not None
    assert (request.user_info.username, request.user_info.groups) == ("jane", ["a"])


@pytest.mark.parametrize(
    "change",
    [
        {"kind": {"group": "", "version": "v1", "kind": "Binding"}},
        {"kind": {"group": "policy", "version": "v1", "kind": "Eviction"}},
        {"kind": {"group": "metrics.k8s.io", "version": "v1", "kind": "Pod"}},
        {"subResource": "status"},
        {"subResource": "ephemeralcontainers"},
    ],
    ids=["binding", "eviction", "other-group", "status", "ephemeralcontainers"],
)
def test_a_subresource_or_another_kind_is_no_pod(change: Object) -> None:
    assert not decode_review(encode(review("CREATE", pod(), **change))).is_pod


def test_an_object_of_another_kind_may_have_any_shape() -> None:
    kind = {"group": "example.org", "version": "v1", "kind": "Thing"}
    body = review("CREATE", {"metadata": {"name": 5}, "spec": {"containers": "none"}}, kind=kind)
    request = decode_review(encode(body))
    assert (request.uid, request.is_pod) == (UID, False)


@pytest.mark.parametrize(
    "obj",
    [
        "pod",
        {"metadata": []},
        {"metadata": {"generateName": 5}},
        {"metadata": {"labels": {"podstamp.dev/managed": True}}},
        {"metadata": {"annotations": "none"}},
        {"metadata": {"ownerReferences": {}}},
        {"metadata": {"deletionTimestamp": 5}},
        {"spec": {"containers": [{"args": "serve"}]}},
        {"spec": {"containers": [{"args": [1]}]}},
    ],
)
def test_a_wrongly_typed_field_is_answered_with_the_uid(obj: Any) -> None:
    with pytest.raises(Malformed) as caught:
        decode_review(encode(review("CREATE", obj)))
    assert caught.value.uid == UID
    assert "$.request.object" in str(caught.value)


@pytest.mark.parametrize("field", ["operation", "namespace", "userInfo", "kind", "options"])
def test_a_wrongly_typed_request_is_answered_with_the_uid(field: str) -> None:
    with pytest.raises(Malformed) as caught:
        decode_review(encode(REVIEW | {"request": REVIEW["request"] | {field: 5}}))
    assert caught.value.uid == UID


def test_fields_that_nobody_reads_may_have_any_type() -> None:
    obj = pod() | {"status": 5}
    obj["metadata"] |= {"creationTimestamp": None, "managedFields": "?", "generation": {}}
    obj["metadata"]["labels"] = {"app": 5}
    assert decode_review(encode(review("CREATE", obj))).object is not None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe{}",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        encode({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"}),
        encode(REVIEW | {"request": None}),
        encode(REVIEW | {"request": {}}),
        encode(REVIEW | {"request": {"uid": ""}}),
        encode(REVIEW | {"request": {"uid": 5}}),
        encode(REVIEW | {"request": []}),
        encode(REVIEW | {"apiVersion": "admission.k8s.io/v1beta1"}),
        encode(REVIEW | {"kind": "Pod"}),
        encode(REVIEW | {"kind": 5}),
        encode(REVIEW | {"apiVersion": "v1", "request": {"uid": "u", "object": 5}}),
        encode(pod()),
        encode(REVIEW) + b"x",
    ],
    ids=range(19),
)  # fmt: skip
def test_what_is_no_review_of_v1_is_told_apart(body: bytes) -> None:
    with pytest.raises(NotAReview, match=r"admission.k8s.io/v1"):
        decode_review(body)


def test_a_deeply_nested_object_is_answered_with_its_uid_or_not_at_all() -> None:
    text = encode(REVIEW).decode()
    deep = text.replace('"engine:1"', "[" * 100_000 + "]" * 100_000)
    with pytest.raises((NotAReview, Malformed)):
        decode_review(deep.encode())


def test_the_last_of_two_equal_keys_counts_as_it_does_for_the_api_server() -> None:
    text = (
        encode(REVIEW)
        .decode()
        .replace('"operation":"CREATE"', '"operation":"X","operation":"UPDATE"')
    )
    assert decode_review(text.encode()).operation == "UPDATE"
