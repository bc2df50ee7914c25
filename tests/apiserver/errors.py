"""Errors of the embedded API server, each a metav1.Status with the real server's code and reason.

Invariant: whatever a handler refuses leaves it as one StatusError; nothing else reaches a client.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple


class Cause(NamedTuple):
    """One StatusCause: `reason` as in field errors (FieldValueInvalid and the like)."""

    reason: str
    message: str
    field: str = ""


class StatusError(Exception):
    """A refusal; `.status` is the whole Status object that the client gets."""

    def __init__(
        self, code: int, reason: str, message: str, details: dict[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.metadata: dict[str, Any] = {}

    @property
    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.metadata,
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            status["reason"] = self.reason
        if self.details is not None:
            status["details"] = self.details
        status["code"] = self.code
        return status


def _details(name: str, group: str, kind: str) -> dict[str, Any]:
    details: dict[str, Any] = {}
    if name:
        details["name"] = name
    if group:
        details["group"] = group
    if kind:
        details["kind"] = kind
    return details


def qualified(group: str, resource: str) -> str:
    """`deployments.apps`, as messages name a resource."""
    return f"{resource}.{group}" if group else resource


def _with_causes(details: dict[str, Any], causes: Iterable[Cause]) -> dict[str, Any]:
    listed: list[dict[str, str]] = []
    for cause in causes:
        entry = {"reason": cause.reason, "message": cause.message}
        if cause.field:
            entry["field"] = cause.field
        listed.append(entry)
    if listed:
        details["causes"] = listed
    return details


def bad_request(message: str) -> StatusError:
    return StatusError(400, "BadRequest", message)


def unauthorized() -> StatusError:
    return StatusError(401, "Unauthorized", "Unauthorized")


def forbidden(
    group: str, resource: str, name: str, why: str, causes: Iterable[Cause] = ()
) -> StatusError:
    return StatusError(
        403,
        "Forbidden",
        f'{qualified(group, resource)} "{name}" is forbidden: {why}',
        _with_causes(_details(name, group, resource), causes),
    )


def not_found(group: str, resource: str, name: str) -> StatusError:
    return StatusError(
        404,
        "NotFound",
        f'{qualified(group, resource)} "{name}" not found',
        _details(name, group, resource),
    )


def no_such_path() -> StatusError:
    return StatusError(404, "NotFound", "the server could not find the requested resource", {})


def method_not_allowed() -> StatusError:
    return StatusError(
        405,
        "MethodNotAllowed",
        "the server does not allow this method on the requested resource",
        {},
    )


def not_acceptable(accepted: str) -> StatusError:
    return StatusError(
        406, "NotAcceptable", f"only the following media types are accepted: {accepted}"
    )


def already_exists(group: str, resource: str, name: str, going: bool = False) -> StatusError:
    """`going`: the holder of the name is being deleted."""
    prefix = "object is being deleted: " if going else ""
    return StatusError(
        409,
        "AlreadyExists",
        f'{prefix}{qualified(group, resource)} "{name}" already exists',
        _details(name, group, resource),
    )


def conflict(group: str, resource: str, name: str, why: str) -> StatusError:
    return StatusError(
        409,
        "Conflict",
        f'Operation cannot be fulfilled on {qualified(group, resource)} "{name}": {why}',
        _details(name, group, resource),
    )


MODIFIED = (
    "the object has been modified; please apply your changes to the latest version and try again"
)


def expired(message: str) -> StatusError:
    return StatusError(410, "Expired", message)


def too_large(limit: int) -> StatusError:
    return StatusError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {limit}")


def unsupported_media_type(message: str) -> StatusError:
    return StatusError(415, "UnsupportedMediaType", message)


def invalid(group: str, kind: str, name: str, causes: Sequence[Cause]) -> StatusError:
    """422; one cause is put in line, several in brackets, as the real one prints them."""
    lines = [
        f"{cause.field}: {cause.message}" if cause.field else cause.message for cause in causes
    ]
    text = lines[0] if len(lines) == 1 else "[" + ", ".join(lines) + "]"
    return StatusError(
        422,
        "Invalid",
        f'{qualified(group, kind)} "{name}" is invalid: {text}'.lstrip(),
        _with_causes(_details(name, group, kind), causes),
    )


def too_many_requests(
    message: str, retry_after_s: int, causes: Iterable[Cause] = ()
) -> StatusError:
    details: dict[str, Any] = {}
    if retry_after_s:
        details["retryAfterSeconds"] = retry_after_s
    return StatusError(429, "TooManyRequests", message, _with_causes(details, causes))


def internal(message: str) -> StatusError:
    return StatusError(500, "InternalError", f"Internal error occurred: {message}", {})
