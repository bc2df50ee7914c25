"""Bodies to objects: the right kind, known fields, the right types, in the stored shape."""

from __future__ import annotations

import msgspec

from tests.apiserver import errors
from tests.apiserver.call import Call
from tests.apiserver.kinds import Object, Resource
from tests.apiserver.schema import WrongType


def decode(call: Call, resource: Resource, body: Object) -> Object:
    """An owned copy in the stored shape; 400 for a wrong type, or in strict validation."""
    for wanted, key in ((resource.api_version, "apiVersion"), (resource.kind, "kind")):
        if body.get(key, wanted) != wanted and not (resource.to_storage and body[key] == "v1"):
            raise errors.bad_request(
                f'{body.get("kind")} in version "{body.get("apiVersion")}" cannot be handled '
                f"as a {resource.kind}: the data is of another kind or version than the "
                f"expected {resource.kind} ({resource.api_version})"
            )
    unknown: list[str] = []
    try:
        obj = resource.decode(body, "", unknown)
    except WrongType as error:
        raise errors.bad_request(_cannot(resource, str(error))) from error
    if unknown and call.field_validation == "Strict":
        listed = ", ".join(f'unknown field "{name}"' for name in unknown)
        raise errors.bad_request(_cannot(resource, f"strict decoding error: {listed}"))
    if call.field_validation == "Warn":
        call.warnings += [f'unknown field "{name}"' for name in unknown]
    if not isinstance(obj.get("metadata"), dict):
        if obj.get("metadata") is not None:
            raise errors.bad_request(_cannot(resource, "metadata is no object"))
        obj["metadata"] = {}
    for key in ("apiVersion", "kind"):
        obj.pop(key, None)
    obj = {"apiVersion": resource.api_version, "kind": resource.kind, **obj}
    return obj if resource.to_storage is None else resource.to_storage(obj)


def decode_patched(call: Call, resource: Resource, patched: Object) -> Object:
    """The same for what a patch left, whose faults are the patch's: 422."""
    try:
        return decode(call, resource, patched)
    except errors.StatusError as error:
        if "strict decoding error" in error.message:
            raise
        shown = msgspec.json.encode(msgspec.json.encode(patched).decode()).decode()
        text = f"Invalid value: {shown}: {error.message.partition(': ')[2]}"
        cause = errors.Cause("FieldValueInvalid", text, "patch")
        raise errors.invalid("", "", "", [cause]) from error


def _cannot(resource: Resource, why: str) -> str:
    version = resource.api_version
    return f'{resource.kind} in version "{version}" cannot be handled as a {resource.kind}: {why}'
