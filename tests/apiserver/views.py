"""How a stored record is shown: in the version asked for, as a Table, or as metadata only."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tests.apiserver.accept import Accepted
from tests.apiserver.kinds import Object, Resource
from tests.apiserver.storage import Record
from tests.apiserver.table import table

_encode = msgspec.json.encode


def served(resource: Resource, record: Record) -> Object:
    """The object in the resource's own version."""
    obj = record.object
    if resource.from_storage is not None:
        return resource.from_storage(obj)
    if obj["apiVersion"] != resource.api_version:
        return {**obj, "apiVersion": resource.api_version}
    return obj


def render(
    resource: Resource, accepted: Accepted, record: Record, *, with_columns: bool = True
) -> bytes:
    """One object as a whole JSON document."""
    if not accepted.kind:
        obj = served(resource, record)
        return record.raw if obj is record.object else _encode(obj)
    if accepted.kind == "Table":
        version = record.object["metadata"].get("resourceVersion", "")
        return _encode(table(resource, [served(resource, record)], version, with_columns))
    return _encode(_metadata_only(record.object))


def render_list(
    resource: Resource,
    accepted: Accepted,
    records: Sequence[Record],
    metadata: Object,
) -> bytes:
    """A whole list. Items of built-in kinds bear no kind or apiVersion, as on the real server."""
    if accepted.kind == "Table":
        objects = [served(resource, record) for record in records]
        rendered = table(resource, objects, metadata["resourceVersion"], True)
        rendered["metadata"] = metadata
        return _encode(rendered)
    if accepted.kind:
        items = b",".join(_encode(_metadata_only(record.object)) for record in records)
        kind, version = "PartialObjectMetadataList", "meta.k8s.io/v1"
    else:
        items = b",".join(_item(resource, record) for record in records)
        kind, version = f"{resource.kind}List", resource.api_version
    head = _encode({"kind": kind, "apiVersion": version, "metadata": metadata})
    return head[:-1] + b',"items":[' + items + b"]}"


def _item(resource: Resource, record: Record) -> bytes:
    if resource.custom:
        return render(resource, Accepted(), record)
    obj = served(resource, record)
    if obj is not record.object:
        return _encode({k: v for k, v in obj.items() if k not in ("kind", "apiVersion")})
    prefix = f'{{"apiVersion":"{resource.api_version}","kind":"{resource.kind}",'.encode()
    if record.raw.startswith(prefix):
        return b"{" + record.raw[len(prefix) :]
    return record.raw


def _metadata_only(obj: Object) -> Object:
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": obj["metadata"],
    }
