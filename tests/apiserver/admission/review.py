"""AdmissionReview: what is asked of a webhook, and what its answer means.

Pure. An answer is judged by the rules of kube-apiserver (admission.k8s.io/v1): what breaks
them is a failed call, on which the failure policy decides, and never a refusal.
"""

import base64
import binascii
from dataclasses import dataclass
from typing import Any

import jsonpatch

from tests.apiserver.admission.attributes import Json
from tests.apiserver.admission.subject import Subject
from tests.apiserver.errors import StatusError, internal

_API_VERSION = "admission.k8s.io/v1"


class CallError(Exception):
    """The webhook could not be asked, or its answer is no answer; the message says why."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A webhook's valid answer; `patch` is JSON Patch, decoded, empty if it changes nothing."""

    allowed: bool
    patch: list[Json]
    warnings: list[str]
    status: Json


def ask(uid: str, subject: Subject) -> Json:
    """The AdmissionReview to send."""
    request = subject.attributes.request()
    request["uid"] = uid
    request["object"] = subject.obj
    request["oldObject"] = subject.old
    return {"kind": "AdmissionReview", "apiVersion": _API_VERSION, "request": request}


def read(uid: str, review: Any, *, mutating: bool) -> Answer:
    """The answer in a review that a webhook returned; CallError if it breaks a rule."""
    if not isinstance(review, dict) or not isinstance(review.get("response"), dict):
        raise CallError("received invalid webhook response: webhook response was absent")
    response = review["response"]
    if response.get("uid") != uid:
        got = response.get("uid") or ""
        raise CallError(
            f'received invalid webhook response: expected response.uid="{uid}", got "{got}"'
        )
    kind = (review.get("apiVersion"), review.get("kind"))
    if kind != (_API_VERSION, "AdmissionReview"):
        raise CallError(
            "received invalid webhook response: expected webhook response of "
            f"{_API_VERSION}, Kind=AdmissionReview, got {kind[0]}, Kind={kind[1]}"
        )
    status = response.get("status") or {}
    warnings = response.get("warnings") or []
    if not isinstance(response.get("allowed"), bool) or not isinstance(status, dict):
        raise CallError("received invalid webhook response: response.allowed or .status is broken")
    if not isinstance(warnings, list) or not all(isinstance(each, str) for each in warnings):
        raise CallError("received invalid webhook response: response.warnings is broken")
    patch = _patch(response, mutating=mutating)
    return Answer(response["allowed"], patch, warnings, status)


def _patch(response: Json, *, mutating: bool) -> list[Json]:
    patch, patch_type = response.get("patch"), response.get("patchType")
    broken = None
    if not mutating and patch:
        broken = "validating webhook may not return response.patch"
    elif not mutating and patch_type is not None:
        broken = "validating webhook may not return response.patchType"
    elif patch and patch_type is None:
        broken = "webhook returned response.patch but not response.patchType"
    elif patch_type is not None and not patch:
        broken = "webhook returned response.patchType but not response.patch"
    elif patch_type == "":
        broken = 'webhook returned invalid response.patchType of ""'
    if broken:
        raise CallError(f"received invalid webhook response: {broken}")
    if not patch:
        return []
    if patch_type != "JSONPatch":
        raise CallError(f'unsupported patch type "{patch_type}"')
    try:
        operations = jsonpatch.JsonPatch.from_string(base64.b64decode(patch, validate=True)).patch
    except (binascii.Error, TypeError, ValueError, jsonpatch.JsonPatchException) as error:
        raise CallError(f"received undecodable patch in webhook response: {error}") from error
    return list(operations)


def refusal(webhook: str, status: Json) -> StatusError:
    """The error that a client gets for `allowed: false`."""
    reason = status.get("reason") or ""
    message = status.get("message") or reason
    denied = f'admission webhook "{webhook}" denied the request'
    return StatusError(
        max(status.get("code") or 0, 400),
        reason,
        f"{denied}: {message}" if message else f"{denied} without explanation",
        status.get("details"),
    )


def apply(webhook: str, patch: list[Json], obj: Json | None) -> Json:
    """The patched object, a new one; 500 if there is none to patch or the patch does not apply."""
    if obj is None:
        raise internal(
            f'admission webhook "{webhook}" attempted to modify the object, '
            "which is not supported for this operation"
        )
    try:
        patched = jsonpatch.apply_patch(obj, patch)
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException, TypeError) as error:
        raise internal(str(error)) from error
    if not isinstance(patched, dict) or not isinstance(patched.get("metadata"), dict):
        raise internal("the patch leaves no object")
    return patched
