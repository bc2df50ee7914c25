"""Reads the protobuf bodies that kubectl's typed commands send; answers are always JSON.

Covers what those commands create (namespaces, configmaps, secrets, accounts, roles, reviews,
evictions, bindings) and DeleteOptions; any other message is a 415.
Invariant: a field that is not in the tables is skipped, as protobuf readers do.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

from tests.apiserver import errors

CONTENT_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"

Scalar = Literal["string", "bytes", "int", "bool", "time"]


class _Field(NamedTuple):
    name: str
    type: Scalar | _Message
    repeated: bool = False
    map: bool = False


_Message = dict[int, _Field]


def _text(*names: str) -> _Message:
    """Consecutive string fields from number 1."""
    return {number: _Field(name, "string") for number, name in enumerate(names, 1)}


_OWNER: _Message = {
    1: _Field("kind", "string"),
    3: _Field("name", "string"),
    4: _Field("uid", "string"),
    5: _Field("apiVersion", "string"),
    6: _Field("controller", "bool"),
    7: _Field("blockOwnerDeletion", "bool"),
}
_METADATA: _Message = {
    **_text("name", "generateName", "namespace", "selfLink", "uid", "resourceVersion"),
    7: _Field("generation", "int"),
    8: _Field("creationTimestamp", "time"),
    9: _Field("deletionTimestamp", "time"),
    10: _Field("deletionGracePeriodSeconds", "int"),
    11: _Field("labels", "string", map=True),
    12: _Field("annotations", "string", map=True),
    13: _Field("ownerReferences", _OWNER, repeated=True),
    14: _Field("finalizers", "string", repeated=True),
}
_DELETE_OPTIONS: _Message = {
    1: _Field("gracePeriodSeconds", "int"),
    2: _Field("preconditions", _text("uid", "resourceVersion")),
    3: _Field("orphanDependents", "bool"),
    4: _Field("propagationPolicy", "string"),
    5: _Field("dryRun", "string", repeated=True),
}
_REFERENCE = _text("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
_RULES: _Message = {
    number: _Field(name, "string", repeated=True)
    for number, name in enumerate(
        ("verbs", "apiGroups", "resources", "resourceNames", "nonResourceURLs"), 1
    )
}
_ATTRIBUTES = _text("namespace", "verb", "group", "version", "resource", "subresource", "name")
_TOKEN_SPEC: _Message = {
    1: _Field("audiences", "string", repeated=True),
    3: _Field("boundObjectRef", _text("kind", "apiVersion", "name", "uid")),
    4: _Field("expirationSeconds", "int"),
}


def _object(fields: _Message) -> _Message:
    return {1: _Field("metadata", _METADATA), **fields}


_ROLE = _object({2: _Field("rules", _RULES, repeated=True)})
_ROLE_BINDING = _object(
    {
        2: _Field("subjects", _text("kind", "apiGroup", "name", "namespace"), repeated=True),
        3: _Field("roleRef", _text("apiGroup", "kind", "name")),
    }
)
_MESSAGES: Mapping[str, _Message] = {
    "Binding": _object({2: _Field("target", _REFERENCE)}),
    "ClusterRole": _ROLE,
    "ClusterRoleBinding": _ROLE_BINDING,
    "ConfigMap": _object(
        {
            2: _Field("data", "string", map=True),
            3: _Field("binaryData", "bytes", map=True),
            4: _Field("immutable", "bool"),
        }
    ),
    "DeleteOptions": _DELETE_OPTIONS,
    "Eviction": _object({2: _Field("deleteOptions", _DELETE_OPTIONS)}),
    "Namespace": _object({2: _Field("spec", {1: _Field("finalizers", "string", repeated=True)})}),
    "Role": _ROLE,
    "RoleBinding": _ROLE_BINDING,
    "Secret": _object(
        {
            2: _Field("data", "bytes", map=True),
            3: _Field("type", "string"),
            4: _Field("stringData", "string", map=True),
            5: _Field("immutable", "bool"),
        }
    ),
    "SelfSubjectAccessReview": _object(
        {
            2: _Field(
                "spec",
                {
                    1: _Field("resourceAttributes", _ATTRIBUTES),
                    2: _Field("nonResourceAttributes", _text("path", "verb")),
                },
            )
        }
    ),
    "SelfSubjectReview": _object({}),
    "ServiceAccount": _object(
        {
            2: _Field("secrets", _REFERENCE, repeated=True),
            3: _Field("imagePullSecrets", _text("name"), repeated=True),
            4: _Field("automountServiceAccountToken", "bool"),
        }
    ),
    "TokenRequest": _object({2: _Field("spec", _TOKEN_SPEC)}),
}

_ENVELOPE: _Message = {
    1: _Field("typeMeta", _text("apiVersion", "kind")),
    2: _Field("raw", "bytes"),
}


def decode(body: bytes) -> dict[str, Any]:
    """The JSON object of a protobuf body; 400 when it is broken, 415 when it is not covered."""
    try:
        if not body.startswith(_MAGIC):
            raise ValueError("no magic number")
        envelope = _message(memoryview(body)[len(_MAGIC) :], _ENVELOPE)
        kind = envelope.get("typeMeta", {}).get("kind", "")
        if kind not in _MESSAGES:
            raise errors.unsupported_media_type(
                f"the embedded server reads no protobuf of a {kind or 'nameless kind'}; send JSON"
            )
        raw = memoryview(base64.b64decode(envelope.get("raw", "")))
        return {**envelope["typeMeta"], **_message(raw, _MESSAGES[kind])}
    except (ValueError, IndexError) as error:
        raise errors.bad_request(f"unable to decode protobuf body: {error}") from error


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _fields(data: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """(number, value) of each field: an int, or the bytes of a length-delimited one."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield number, value
        elif wire == 2:
            length, at = _varint(data, at)
            if at + length > len(data):
                raise ValueError("a field is longer than the message")
            yield number, data[at : at + length]
            at += length
        elif wire in (1, 5):
            at += 8 if wire == 1 else 4
        else:
            raise ValueError(f"wire type {wire}")


def _message(data: memoryview, fields: _Message) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for number, raw in _fields(data):
        field = fields.get(number)
        if field is None:
            continue
        if field.map:
            entry = dict(_fields(_bytes(raw)))
            key = bytes(_bytes(entry.get(1, memoryview(b"")))).decode()
            value = _scalar(entry.get(2, memoryview(b"")), field.type)
            found.setdefault(field.name, {})[key] = value
        elif field.repeated:
            found.setdefault(field.name, []).append(_scalar(raw, field.type))
        else:
            value = _scalar(raw, field.type)
            if value not in ("", None, {}) or field.name == "expirationSeconds":
                found[field.name] = value
    return found


def _bytes(raw: int | memoryview) -> memoryview:
    if isinstance(raw, int):
        raise ValueError("a number where bytes are due")
    return raw


def _scalar(raw: int | memoryview, type_: Scalar | _Message) -> Any:
    match type_:
        case "int":
            if not isinstance(raw, int):
                raise ValueError("bytes where a number is due")
            return raw - (1 << 64) if raw >= 1 << 63 else raw
        case "bool":
            return bool(raw)
        case "string":
            return bytes(_bytes(raw)).decode()
        case "bytes":
            return base64.b64encode(_bytes(raw)).decode()
        case "time":
            seconds = dict(_fields(_bytes(raw))).get(1)
            if not isinstance(seconds, int):
                return None
            return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        case fields:
            return _message(_bytes(raw), fields)
