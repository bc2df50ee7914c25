"""What can go wrong, one exception for each kind; `str()` of each is one line for a person.

Invariant: nothing from httpx, ssl, yaml or msgspec leaves `kube`: it is translated where it enters.
"""

from typing import Any

import msgspec


class KubeError(Exception):
    """Root of every error that podstamp raises on purpose."""


class ConfigError(KubeError):
    """The user's mistake in a file, a flag or the environment: says where, and what is allowed."""


class Unreachable(KubeError):
    """No connection, no answer in time, or a body that broke off: it may or may not be done."""


class Unreadable(KubeError):
    """The server's answer is complete, but a field of it has another type than the API promises."""


class ApiError(KubeError):
    """The server answered with an error, `Status` or not.

    `retry_after_s` is the server's wish in seconds, if it named one.
    """

    def __init__(
        self,
        status: int,
        reason: str = "",
        message: str = "",
        details: dict[str, Any] | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message or reason or f"HTTP {status}")
        self.status = status
        self.reason = reason
        self.message = message
        self.details: dict[str, Any] = details or {}
        self.retry_after_s = retry_after_s

    def __str__(self) -> str:
        return " ".join(str(self.args[0]).split())


class BadRequest(ApiError):
    """400."""


class Unauthorized(ApiError):
    """401: no credentials, or expired ones."""


class Forbidden(ApiError):
    """403: the role lacks a verb on a resource; the message says which."""


class NotFound(ApiError):
    """404."""


class Conflict(ApiError):
    """409: a precondition or a resourceVersion does not hold; read again, decide again."""


class AlreadyExists(Conflict):
    """409, reason AlreadyExists: the name is taken."""


class Gone(ApiError):
    """410: the resourceVersion or continue token is too old; list again."""


class TooLarge(ApiError):
    """413."""


class Invalid(ApiError):
    """422: the object breaks a rule; `details` holds the causes."""


class TooManyRequests(ApiError):
    """429: nothing was done; come back after `retry_after_s`."""


class ServerError(ApiError):
    """5xx: whether it was done is unknown."""


_BY_STATUS: dict[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    413: TooLarge,
    422: Invalid,
    429: TooManyRequests,
}


class Status(msgspec.Struct, frozen=True):
    """The fields of `meta/v1 Status` that are read; every one is optional on the wire."""

    kind: str = ""
    code: int = 0
    reason: str = ""
    message: str = ""
    details: dict[str, Any] | None = None


def api_error(
    status: int, body: bytes, *, call: str = "", retry_after_s: float | None = None
) -> ApiError:
    """The exception for an answer of `status` with `body`, a `Status` or anything else.

    `call` (verb and path) is named where the server does not explain itself.
    A `retryAfterSeconds` in the details counts where the header is absent.
    """
    try:
        answer = msgspec.json.decode(body, type=Status)
    except msgspec.DecodeError:
        answer = Status()
    if answer.kind != "Status":
        text = body[:200].decode("utf-8", "replace").strip()
        answer = Status(message=f"HTTP {status} for {call}" + (f": {text}" if text else ""))
    return status_error(
        status, answer, retry_after_s=retry_after_s, fallback=f"HTTP {status} for {call}"
    )


def status_error(
    status: int, answer: Status, *, retry_after_s: float | None = None, fallback: str = ""
) -> ApiError:
    """The exception for a decoded `Status`; `status` is the HTTP code, or the Status' own code."""
    kind = _BY_STATUS.get(status, ServerError if status >= 500 else ApiError)
    if kind is Conflict and answer.reason == "AlreadyExists":
        kind = AlreadyExists
    details = answer.details or {}
    if retry_after_s is None:
        seconds = details.get("retryAfterSeconds")
        if isinstance(seconds, int | float) and seconds > 0:
            retry_after_s = float(seconds)
    return kind(status, answer.reason, answer.message or fallback, details, retry_after_s)
