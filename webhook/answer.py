"""AdmissionReview answers as bytes: allowed, patched, denied, errored.

Invariant: every answer echoes the uid; a patch is there with its type or neither is, and only on
an allowed answer.
"""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from webhook.judge import Verdict
    from webhook.patch import Operation

# Bound methods: this runs for every review.
_encode = msgspec.json.Encoder().encode

_HEAD = b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":'


def allowed(uid: str, warnings: list[str]) -> bytes:
    """Let the object pass as it is."""
    return b"".join((_HEAD, _encode(uid), b',"allowed":true', _warnings(warnings), b"}}"))


def patched(uid: str, operations: list[Operation], warnings: list[str]) -> bytes:
    """Let it pass, changed by `operations`, of which there is at least one."""
    return b"".join(
        (
            _HEAD,
            _encode(uid),
            b',"allowed":true,"patchType":"JSONPatch","patch":"',
            b64encode(_encode(operations)),
            b'"',
            _warnings(warnings),
            b"}}",
        )
    )


def denied(uid: str, code: int, reason: str, message: str, warnings: list[str]) -> bytes:
    """Refuse it; code, reason and message reach the client as they are."""
    status: dict[str, Any] = {
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
    }
    return b"".join(
        (
            _HEAD,
            _encode(uid),
            b',"allowed":false,"status":',
            _encode(status),
            _warnings(warnings),
            b"}}",
        )
    )


def errored(uid: str, message: str) -> bytes:
    """Refuse what cannot be read."""
    return denied(uid, 400, "BadRequest", message, [])


def answer(uid: str, verdict: Verdict) -> bytes:
    """The answer that says `verdict`."""
    if not verdict.allowed:
        return denied(uid, verdict.code, verdict.reason, verdict.message, verdict.warnings)
    if verdict.operations:
        return patched(uid, verdict.operations, verdict.warnings)
    return allowed(uid, verdict.warnings)


def _warnings(warnings: list[str]) -> bytes:
    return b',"warnings":' + _encode(warnings) if warnings else b""
