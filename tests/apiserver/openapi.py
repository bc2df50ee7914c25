"""OpenAPI: enough of v2 and v3 for `kubectl apply`, `create` and `explain`.

Schemas come from the official client's models (see schema.py) or, for custom resources, from
their definitions; documents are made when they are first asked for.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from tests.apiserver import errors
from tests.apiserver.http import Request, Response, json_response
from tests.apiserver.kinds import Kinds, Object, Resource
from tests.apiserver.patch import PRIMITIVE_SETS, RETAINED_KEYS, merge_key
from tests.apiserver.schema import model

_SCALARS: dict[str, Object] = {
    "str": {"type": "string"},
    "int": {"type": "integer", "format": "int32"},
    "float": {"type": "number", "format": "double"},
    "bool": {"type": "boolean"},
    "datetime": {"type": "string", "format": "date-time"},
    "bytearray": {"type": "string", "format": "byte"},
    "bytes": {"type": "string", "format": "byte"},
    "object": {},
}
_LISTS_OF_SCALARS = frozenset(f"List[{scalar}]" for scalar in _SCALARS)
_PATCHES = (
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
)
_VERSIONED = re.compile(r"([A-Z][a-z0-9]+)??(V\d+(?:(?:alpha|beta)\d+)?)([A-Z]\w*)")
_CLIENT_TYPE = re.compile(r"[A-Z]\w+")
_FIELD_VALIDATION = {
    "name": "fieldValidation",
    "in": "query",
    "schema": {"type": "string", "uniqueItems": True},
}


def _schema_name(type_text: str) -> str:
    """The last part is the kind alone, since `kubectl explain` prints it."""
    match = _VERSIONED.fullmatch(type_text)
    if match is None:
        return f"io.k8s.api.{type_text}"
    return f"io.k8s.api.{((match[1] or '') + match[2]).lower()}.{match[3]}"


def _property(type_text: str, description: str) -> Object:
    schema = _type(type_text)
    if "$ref" in schema:
        schema = {"allOf": [schema], "default": {}}
    return {"description": description, **schema}


def _patch_strategy(field: str, type_text: str) -> Object:
    """How a strategic merge treats the field; kubectl makes its patches by it."""
    if field in PRIMITIVE_SETS:
        return {"x-kubernetes-patch-strategy": "merge"}
    parent = {"List[V1ContainerPort]": "containers", "List[V1ServicePort]": "spec"}
    key = merge_key(field, parent.get(type_text, ""))
    retains = field in RETAINED_KEYS
    if key is None or not type_text.startswith("List[") or type_text in _LISTS_OF_SCALARS:
        return {"x-kubernetes-patch-strategy": "retainKeys"} if retains else {}
    strategy = "merge,retainKeys" if retains else "merge"
    return {"x-kubernetes-patch-strategy": strategy, "x-kubernetes-patch-merge-key": key}


def _type(type_text: str) -> Object:
    if type_text in _SCALARS:
        return dict(_SCALARS[type_text])
    if match := re.fullmatch(r"List\[(.*)\]", type_text):
        return {"type": "array", "items": _type(match[1])}
    if match := re.fullmatch(r"Dict\[str, (.*)\]", type_text):
        return {"type": "object", "additionalProperties": _type(match[1])}
    return {"$ref": f"#/components/schemas/{_schema_name(type_text)}"}


class OpenAPI:
    def __init__(self, kinds: Kinds, version: Object) -> None:
        self._kinds = kinds
        self._info = {"title": "Kubernetes", "version": version["gitVersion"]}
        self._documents: dict[str, tuple[int, bytes]] = {}

    def answer(self, path: str, request: Request) -> Response:
        if request.method != "GET":
            raise errors.method_not_allowed()
        if path == "/openapi/v2":
            return self._version_2(request)
        if path in ("/openapi/v3", "/openapi/v3/"):
            return json_response({"paths": self._index()})
        name = path.removeprefix("/openapi/v3/")
        if name == path or name not in self._index():
            raise errors.no_such_path()
        made, document = self._documents.get(name, (0, b""))
        if made != self._kinds.revision:
            document = msgspec.json.encode(self._document(name))
            self._documents[name] = (self._kinds.revision, document)
        return Response(document)

    def _version_2(self, request: Request) -> Response:
        """Types only; a client that wants protobuf alone is refused, and falls back to v3."""
        accept = request.headers.get("accept", "")
        if accept and "json" not in accept and "*/*" not in accept:
            raise errors.not_acceptable("application/json")
        definitions: Object = {}
        for resource in self._kinds.all():
            if resource.model:
                _collect(resource.model, definitions)
        text = msgspec.json.encode(definitions).replace(b"#/components/schemas/", b"#/definitions/")
        document = {
            "swagger": "2.0",
            "info": self._info,
            "paths": {},
            "definitions": msgspec.Raw(text),
        }
        return json_response(document)

    def _index(self) -> Object:
        paths: Object = {}
        for resource in self._kinds.all():
            root = f"apis/{resource.group}" if resource.group else "api"
            name = f"{root}/{resource.version}"
            paths[name] = {
                "serverRelativeURL": f"/openapi/v3/{name}?hash={self._kinds.revision:08X}"
            }
        return paths

    def _document(self, name: str) -> Object:
        root, _, rest = name.partition("/")
        group, version = ("", rest) if root == "api" else tuple(rest.rsplit("/", 1))
        schemas: Object = {}
        paths: Object = {}
        for resource in self._kinds.all():
            if (resource.group, resource.version) != (group, version):
                continue
            kind = {"group": group, "version": version, "kind": resource.kind}
            schema_name = self._add(resource, schemas)
            schemas[schema_name] = {
                **schemas[schema_name],
                "x-kubernetes-group-version-kind": [kind],
            }
            paths.update(_paths(name, resource, kind, schema_name))
        return {
            "openapi": "3.0.0",
            "info": self._info,
            "paths": paths,
            "components": {"schemas": schemas},
        }

    def _add(self, resource: Resource, schemas: Object) -> str:
        if resource.definition is None:
            _collect(resource.model, schemas)
            return _schema_name(resource.model)
        name = ".".join([*reversed(resource.group.split(".")), resource.version, resource.kind])
        given = (resource.definition.get("schema") or {}).get("openAPIV3Schema") or {}
        _collect("V1ObjectMeta", schemas)
        properties = {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            **(given.get("properties") or {}),
            "metadata": _property("V1ObjectMeta", "Standard object's metadata."),
        }
        schemas[name] = {**given, "type": "object", "properties": properties}
        return name


def _collect(type_text: str, schemas: Object) -> None:
    """Add the schema of a client type and of everything that it refers to."""
    name = _schema_name(type_text)
    if name in schemas:
        return
    found = model(type_text)
    schema: dict[str, Any] = {"type": "object", "description": found.description}
    schemas[name] = schema
    schema["properties"] = {
        key: _property(field.type, field.description) | _patch_strategy(key, field.type)
        for key, field in found.fields.items()
    }
    required = [key for key, field in found.fields.items() if field.required]
    if required:
        schema["required"] = required
    for field in found.fields.values():
        for inner in _CLIENT_TYPE.findall(field.type):
            if inner not in ("List", "Dict"):
                _collect(inner, schemas)


def _paths(root: str, resource: Resource, kind: Object, schema_name: str) -> Object:
    """The paths of one resource; kubectl reads from them whether fields are validated."""
    place = f"/{root}/namespaces/{{namespace}}" if resource.namespaced else f"/{root}"
    body = {"schema": {"$ref": f"#/components/schemas/{schema_name}"}}
    patches = _PATCHES if resource.custom else (*_PATCHES, "application/strategic-merge-patch+json")

    def operation(action: str, media: tuple[str, ...] = ()) -> Object:
        found: Object = {
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": kind,
            "responses": {"200": {"description": "OK", "content": {"application/json": body}}},
        }
        if media:
            found["parameters"] = [_FIELD_VALIDATION]
            found["requestBody"] = {"content": dict.fromkeys(media, body), "required": True}
        return found

    everything = ("*/*",)
    return {
        f"{place}/{resource.plural}": {
            "get": operation("list"),
            "post": operation("post", everything),
        },
        f"{place}/{resource.plural}/{{name}}": {
            "get": operation("get"),
            "put": operation("put", everything),
            "patch": operation("patch", patches),
            "delete": operation("delete"),
        },
    }
