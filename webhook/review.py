"""The AdmissionReview as far as it is read: structs that skip everything else, and its decoding.

Invariant: whatever the bytes, `decode_review` returns a request, or says by which of the two
errors the caller answers; a field that is read has the type that it is declared with.
"""

from __future__ import annotations

from typing import Final

import msgspec

from webhook import stamps

API_VERSION: Final = "admission.k8s.io/v1"
KIND: Final = "AdmissionReview"

CREATE: Final = "CREATE"
UPDATE: Final = "UPDATE"
DELETE: Final = "DELETE"


class NotAReview(Exception):
    """The body is no AdmissionReview v1; nothing but HTTP 400 can answer it."""


class Malformed(Exception):
    """A field of the pod or the request has a wrong type; the review is answered with its uid."""

    def __init__(self, uid: str, message: str) -> None:
        super().__init__(message)
        self.uid = uid


class Labels(msgspec.Struct, frozen=True, gc=False):
    """The labels that admission reads; None is absent."""

    managed: str | None = msgspec.field(default=None, name=stamps.MANAGED)
    enabled: str | None = msgspec.field(default=None, name=stamps.ENABLED)
    podset: str | None = msgspec.field(default=None, name=stamps.PODSET)
    podset_index: str | None = msgspec.field(default=None, name=stamps.PODSET_INDEX)
    aibrix_index: str | None = msgspec.field(default=None, name=stamps.AIBRIX_INDEX)
    aibrix_podset: str | None = msgspec.field(
        default=None, name="stormservice.orchestration.aibrix.ai/podset-name"
    )
    apps_index: str | None = msgspec.field(default=None, name="apps.kubernetes.io/pod-index")


class Annotations(msgspec.Struct, frozen=True, gc=False):
    """The annotations that admission reads; None is absent, an empty string is present."""

    incarnation: str | None = msgspec.field(default=None, name=stamps.INCARNATION)
    if_incarnation: str | None = msgspec.field(default=None, name=stamps.IF_INCARNATION)
    adapters: str | None = msgspec.field(default=None, name=stamps.ADAPTERS)
    adapters_digest: str | None = msgspec.field(default=None, name=stamps.ADAPTERS_DIGEST)
    lora_modified: str | None = msgspec.field(default=None, name=stamps.LORA_MODIFIED)
    retired: str | None = msgspec.field(default=None, name=stamps.RETIRED)
    retired_at: str | None = msgspec.field(default=None, name=stamps.RETIRED_AT)
    restore: str | None = msgspec.field(default=None, name=stamps.RESTORE)


class OwnerReference(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """One entry of `metadata.ownerReferences`."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class Metadata(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """`metadata`; absent and null are the same."""

    name: str | None = None
    generate_name: str | None = None
    uid: str | None = None
    deletion_timestamp: str | None = None
    labels: Labels | None = None
    annotations: Annotations | None = None
    owner_references: list[OwnerReference] | None = None


class Container(msgspec.Struct, frozen=True, gc=False):
    """What a container runs."""

    command: tuple[str, ...] | None = None
    args: tuple[str, ...] | None = None


class Spec(msgspec.Struct, frozen=True, gc=False):
    """`spec`."""

    containers: list[Container] | None = None


class Pod(msgspec.Struct, frozen=True, gc=False):
    """A pod as admission sees it."""

    metadata: Metadata | None = None
    spec: Spec | None = None


class Kind(msgspec.Struct, frozen=True, gc=False):
    """`request.kind`."""

    group: str = ""
    kind: str = ""


class UserInfo(msgspec.Struct, frozen=True, gc=False):
    """Who asks."""

    username: str | None = None
    groups: list[str] | None = None


class Preconditions(msgspec.Struct, frozen=True, gc=False):
    """`options.preconditions` of a DELETE."""

    uid: str | None = None


class Options(msgspec.Struct, frozen=True, gc=False):
    """`options` of the call."""

    preconditions: Preconditions | None = None


class Request(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """`request`: one operation on one object."""

    uid: str = ""
    operation: str = ""
    kind: Kind = Kind()
    sub_resource: str | None = None
    name: str | None = None
    namespace: str | None = None
    user_info: UserInfo | None = None
    options: Options | None = None
    object: Pod | None = None
    old_object: Pod | None = None

    @property
    def is_pod(self) -> bool:
        """A pod itself; not a subresource, nor anything that a wider rule sends."""
        kind = self.kind
        return kind.kind == "Pod" and not kind.group and not self.sub_resource


class Review(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """The whole body."""

    api_version: str = ""
    kind: str = ""
    request: Request | None = None


class _Stub(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A request whose objects could not be read."""

    uid: str = ""
    operation: str = ""
    kind: Kind = Kind()
    sub_resource: str | None = None


class _Envelope(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    api_version: str = ""
    kind: str = ""
    request: _Stub | None = None


class _BareRequest(msgspec.Struct, frozen=True, gc=False):
    uid: str = ""


class _BareEnvelope(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    api_version: str = ""
    kind: str = ""
    request: _BareRequest | None = None


_REVIEW = msgspec.json.Decoder(Review)
_ENVELOPE = msgspec.json.Decoder(_Envelope)
_BARE = msgspec.json.Decoder(_BareEnvelope)
# UnicodeDecodeError is a ValueError; a body that nests too deep is a RecursionError.
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def decode_review(body: bytes) -> Request:
    """The request of a review, of which at least the uid is there. Raises the two errors above."""
    try:
        review = _REVIEW.decode(body)
    except _UNREADABLE as error:
        return _from_envelope(body, error)
    request = review.request
    if (
        review.api_version != API_VERSION
        or review.kind != KIND
        or request is None
        or not request.uid
    ):
        raise NotAReview(_not_a_review(review.api_version, review.kind))
    return request


def _from_envelope(body: bytes, error: Exception) -> Request:
    try:
        bare = _BARE.decode(body)
    except _UNREADABLE as unreadable:
        raise NotAReview(f"the body is no {API_VERSION} {KIND}: {unreadable}") from error
    if bare.api_version != API_VERSION or bare.kind != KIND or not (bare.request or _Stub()).uid:
        raise NotAReview(_not_a_review(bare.api_version, bare.kind)) from error
    uid = bare.request.uid if bare.request else ""
    try:
        stub = _ENVELOPE.decode(body).request or _Stub()
    except _UNREADABLE:
        raise Malformed(uid, f"the review cannot be read: {error}") from error
    request = Request(stub.uid, stub.operation, stub.kind, stub.sub_resource)
    if request.is_pod:
        raise Malformed(uid, f"the review cannot be read: {error}") from error
    return request


def _not_a_review(api_version: str, kind: str) -> str:
    return (
        f"the body is no {API_VERSION} {KIND} with a request and its uid "
        f"(apiVersion {api_version[:40]!r}, kind {kind[:40]!r})"
    )
