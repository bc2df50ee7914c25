"""Answers on the wire."""

from __future__ import annotations

from base64 import b64decode
from typing import Any

import msgspec
import pytest

from webhook import answer
from webhook.judge import Verdict
from webhook.patch import Add, Remove

UIDS = ["u-1", 'quo"ted\\', "ü\u2028\n"]


def response(content: bytes) -> dict[str, Any]:
    review = msgspec.json.decode(content)
    assert review["apiVersion"] == "admission.k8s.io/v1"
    assert review["kind"] == "AdmissionReview"
    assert set(review) == {"apiVersion", "kind", "response"}
    found: dict[str, Any] = review["response"]
    return found


@pytest.mark.parametrize("uid", UIDS)
def test_allowed_says_nothing_more(uid: str) -> None:
    assert response(answer.allowed(uid, [])) == {"uid": uid, "allowed": True}


@pytest.mark.parametrize("uid", UIDS)
def test_patched_carries_a_json_patch(uid: str) -> None:
    found = response(answer.patched(uid, [Add("/a", "ü"), Remove("/b")], ["careful"]))
    operations = msgspec.json.decode(b64decode(found.pop("patch")))
    assert operations == [{"op": "add", "path": "/a", "value": "ü"}, {"op": "remove", "path": "/b"}]
    assert found == {
        "uid": uid,
        "allowed": True,
        "patchType": "JSONPatch",
        "warnings": ["careful"],
    }


@pytest.mark.parametrize("uid", UIDS)
def test_denied_carries_code_reason_and_message(uid: str) -> None:
    found = response(answer.denied(uid, 409, "Conflict", 'no "way"', ["careful"]))
    assert found == {
        "uid": uid,
        "allowed": False,
        "status": {
            "status": "Failure",
            "code": 409,
            "reason": "Conflict",
            "message": 'no "way"',
        },
        "warnings": ["careful"],
    }


def test_errored_is_a_bad_request() -> None:
    found = response(answer.errored("u", "broken"))
    assert found["allowed"] is False
    assert (found["status"]["code"], found["status"]["reason"]) == (400, "BadRequest")


def test_a_verdict_without_operations_has_no_patch() -> None:
    assert response(answer.answer("u", Verdict(True, "create"))) == {"uid": "u", "allowed": True}


def test_a_refusal_never_carries_a_patch() -> None:
    verdict = Verdict(False, "fence", 409, "Conflict", "no", operations=[Add("/a", "b")])
    assert "patch" not in response(answer.answer("u", verdict))
