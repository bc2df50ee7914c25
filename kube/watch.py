"""Lines of a watch to what they mean, and what follows from an error: the watch without its I/O.

Invariant: pure; resourceVersions are opaque; whatever is not understood changes nothing, and what
leaves a gap in the stream says so.
"""

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from kube.decode import Broken, decode_object, identify
from kube.errors import (
    Forbidden,
    KubeError,
    NotFound,
    ServerError,
    Status,
    TooManyRequests,
    Unauthorized,
    Unreachable,
    Unreadable,
    status_error,
)
from kube.meta import KubeObject, identity_of

T = TypeVar("T", bound=KubeObject)
ObjectT = TypeVar("ObjectT")

# Missing roles last, but an API server that has just started also refuses, until it has read them.
_REFUSED = (Forbidden, Unauthorized)
REFUSED_PAUSE_S = 2.0
# Nobody answers this any sooner for being asked more often: a CRD must come first.
MISSING_PAUSE_S = 30.0
NO_UID = "it has no uid"
RETRY_AFTER_CAP_S = 60.0


@dataclass(frozen=True, slots=True)
class Upsert(Generic[T]):
    """The object exists like this."""

    item: T


@dataclass(frozen=True, slots=True)
class Removal:
    """The object is gone, or no longer matches the selector."""

    uid: str
    resource_version: str


@dataclass(frozen=True, slots=True)
class Bookmark:
    """Nothing up to this version was missed."""

    resource_version: str


@dataclass(frozen=True, slots=True)
class Unfit:
    """An object that exists but cannot be read; the stream goes on."""

    broken: Broken


@dataclass(frozen=True, slots=True)
class Failed:
    """The stream cannot be followed any further: list again."""

    error: KubeError


Event = Upsert[T] | Removal | Bookmark | Unfit | Failed


class _Event(msgspec.Struct, Generic[ObjectT]):
    type: str = ""
    object: ObjectT | None = None


class _RawEvent(msgspec.Struct):
    type: str = ""
    object: msgspec.Raw = msgspec.Raw(b"{}")


def read_event(line: bytes, kind: type[T]) -> Event[T]:
    """What one line of a watch of `kind` says."""
    try:
        event: _Event[T] = decode_object(line, _event_of(kind))
    except Unreadable:
        return _read_raw(line, kind)
    except Unreachable as error:
        return Failed(error)
    item = event.object
    if item is None or event.type in ("ERROR", ""):
        return _read_raw(line, kind)
    meta = item.metadata
    if event.type == "BOOKMARK":
        return Bookmark(meta.resource_version)
    if not meta.uid:
        return _read_raw(line, kind)
    if event.type in ("ADDED", "MODIFIED"):
        return Upsert(item)
    if event.type == "DELETED":
        return Removal(meta.uid, meta.resource_version)
    return Unfit(Broken(identity_of(meta), f"unknown event type {event.type!r}"))


def _event_of(kind: Any) -> Any:
    return _Event[kind]


def must_relist(error: KubeError) -> bool:
    """Whether a watch that ended in `error` leaves a gap that only a full list closes.

    Refused for load or by a failing server before it began, it missed nothing.
    """
    return not isinstance(error, TooManyRequests | ServerError)


def pause_s(error: KubeError, backoff_s: float) -> float:
    """Seconds to wait after `error`, given what the backoff asks for."""
    if isinstance(error, _REFUSED):
        return REFUSED_PAUSE_S
    if isinstance(error, NotFound):
        return MISSING_PAUSE_S
    if isinstance(error, TooManyRequests) and error.retry_after_s is not None:
        return max(backoff_s, min(error.retry_after_s, RETRY_AFTER_CAP_S))
    return backoff_s


def _read_raw(line: bytes, kind: type[T]) -> Event[T]:
    """The slow way, for what is no plain event of a readable object."""
    try:
        event = decode_object(line, _RawEvent)
    except KubeError as error:
        return Failed(error)
    if not event.type:
        return _refused(line)
    if event.type == "ERROR":
        return _refused(event.object)
    identity = identify(event.object)
    if event.type == "BOOKMARK":
        return Bookmark(identity.resource_version)
    if event.type == "DELETED":
        if identity.uid:
            return Removal(identity.uid, identity.resource_version)
        return Failed(Unreadable("an object was deleted, but its event does not say which"))
    try:
        decode_object(event.object, kind)
        reason = NO_UID
    except KubeError as error:
        reason = str(error)
    return Unfit(Broken(identity, reason))


def _refused(body: bytes | msgspec.Raw) -> Failed:
    try:
        status = decode_object(body, Status)
    except KubeError as error:
        return Failed(error)
    if status.kind != "Status":
        return Failed(Unreadable("a line of the watch is no event"))
    return Failed(status_error(status.code, status, fallback="the watch was ended by the server"))
