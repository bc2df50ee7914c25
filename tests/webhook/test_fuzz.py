"""Properties of admission for whatever arrives."""

from __future__ import annotations

import copy
from base64 import b64decode
from typing import Any

import jsonpatch
import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.webhook.builders import NOW_NS, RANDOM, Object, encode, review
from tests.webhook.strategies import FUZZ, corrupted, pods, reviews
from webhook import stamps
from webhook.app import AdmissionApp, Reply
from webhook.case import Settings
from webhook.judge import Judge
from webhook.metrics import Tally

JUDGE = Judge(Settings(fenced_users=frozenset({"fenced"})))
OURS = {
    stamps.MANAGED,
    stamps.INCARNATION,
    stamps.PODSET,
    stamps.PODSET_INDEX,
    stamps.AIBRIX_INDEX,
    stamps.ADAPTERS_DIGEST,
    stamps.LORA_MODIFIED,
    stamps.RETIRED,
    stamps.RETIRED_AT,
    stamps.IF_INCARNATION,
}
"""Every key that admission may write or remove."""


def answer(path: bytes, body: bytes) -> Reply:
    app = AdmissionApp(JUDGE, Tally(), now_ns=lambda: NOW_NS, random_bytes=lambda _: RANDOM)
    reply = app.review(path, b"", body)
    assert isinstance(reply, Reply)
    return reply


def patched(body: Object) -> tuple[Any, bool]:
    """The object after the mutating endpoint, and whether it was allowed."""
    reply = answer(b"/mutate", encode(body))
    response = msgspec.json.decode(reply.content)["response"]
    obj = copy.deepcopy(body["request"]["object"])
    if "patch" in response:
        assert response["patchType"] == "JSONPatch"
        operations = msgspec.json.decode(b64decode(response["patch"]))
        assert operations
        obj = jsonpatch.apply_patch(obj, operations)
    return obj, response["allowed"]


def foreign(obj: Any) -> Any:
    """The object without the keys that are ours; maps that hold nothing else count as absent."""
    rest = copy.deepcopy(obj)
    if not isinstance(rest, dict):
        return rest
    metadata = rest.get("metadata") or {}
    for where in ("labels", "annotations"):
        values = metadata.get(where) or {}
        kept = {key: value for key, value in values.items() if key not in OURS}
        metadata.pop(where, None)
        if kept:
            metadata[where] = kept
    rest.pop("metadata", None)
    return (rest, metadata)


@FUZZ
@given(body=reviews() | corrupted())
def test_every_review_is_answered_with_its_uid(body: Object) -> None:
    for path in (b"/mutate", b"/validate"):
        reply = answer(path, encode(body))
        assert reply.status == 200
        found = msgspec.json.decode(reply.content)
        assert (found["apiVersion"], found["kind"]) == (body["apiVersion"], body["kind"])
        _check_response(found["response"], body["request"]["uid"])


def _check_response(response: Object, uid: str) -> None:
    assert response["uid"] == uid
    assert ("patch" in response) == ("patchType" in response)
    if not response["allowed"]:
        assert "patch" not in response
        assert response["status"]["code"] in (400, 409, 422)
        assert response["status"]["message"]
    warnings = response.get("warnings", [])
    assert all(len(warning) <= 255 and warning.isprintable() for warning in warnings)
    assert sum(len(warning) for warning in warnings) <= 2048


@FUZZ
@given(data=st.binary(max_size=200) | st.text(max_size=50).map(str.encode), cut=st.integers(0, 200))
def test_any_bytes_are_answered(data: bytes, cut: int) -> None:
    whole = encode({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {}})
    for path in (b"/mutate", b"/validate"):
        for body in (data, whole[: cut % len(whole)] + data):
            assert answer(path, body).status == 400


@FUZZ
@given(body=reviews(whole=True))
def test_a_write_is_changed_once_and_in_our_keys_alone(body: Object) -> None:
    before, old = body["request"]["object"], body["request"]["oldObject"]
    after, allowed = patched(body)
    assert foreign(after) == foreign(before)
    if not allowed or body["request"]["operation"] == "DELETE":
        assert after == before
        return
    again = copy.deepcopy(body)
    again["request"]["object"] = after
    response = msgspec.json.decode(answer(b"/validate", encode(again)).content)["response"]
    assert response["allowed"], "validation refuses what mutation made"
    if _is_born(old, after) or _sets_a_fence(old, before):
        # An incarnation is always minted afresh; a fence is consumed, so that the retirement that
        # it allowed cannot be repeated without one.
        return
    assert patched(again) == (after, True)


@FUZZ
@given(pod=pods)
def test_creating_twice_differs_in_the_incarnation_alone(pod: Object) -> None:
    first, allowed = patched(review("CREATE", pod))
    if allowed:
        # Time and random bytes are the same, so the incarnation is, too.
        assert patched(review("CREATE", first)) == (first, True)


def _value(obj: Any, where: str, key: str) -> str | None:
    metadata = (obj or {}).get("metadata") or {}
    value: str | None = (metadata.get(where) or {}).get(key)
    return value


def _is_born(old: Any, new: Any) -> bool:
    """This write gave the pod its incarnation."""
    return _value(old, "annotations", stamps.INCARNATION) != _value(
        new, "annotations", stamps.INCARNATION
    )


def _sets_a_fence(old: Any, new: Any) -> bool:
    fence = _value(new, "annotations", stamps.IF_INCARNATION)
    return fence is not None and fence != _value(old, "annotations", stamps.IF_INCARNATION)
