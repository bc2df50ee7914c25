"""RFC 6902 as the real server applies it.

Two leniencies are the real server's library's: `replace` of an absent map key adds it, and
`test` of null holds where nothing is. The document given is never changed.
"""

from __future__ import annotations

from typing import Any

from tests.apiserver import errors
from tests.apiserver.schema import copy

_ABSENT = object()


class Misfit(Exception):
    """An operation that does not fit the document."""


def apply(document: Any, operations: Any) -> Any:
    """The patched document. A body that is no patch is 400; one that does not fit is 422."""
    if not isinstance(operations, list):
        raise errors.bad_request(
            "json: cannot unmarshal object into Go value of type jsonpatch.Patch"
        )
    document = copy(document)
    for operation in operations:
        if not isinstance(operation, dict) or not isinstance(operation.get("path"), str):
            raise errors.bad_request(f"error decoding patch: {operation!r} is no operation")
        try:
            document = _one(document, operation)
        except Misfit as error:
            text = "the server rejected our request due to an error in our request"
            raise errors.StatusError(422, "Invalid", text, {}) from error
    return document


def _one(document: Any, operation: dict[str, Any]) -> Any:
    path = _steps(operation["path"])
    match operation.get("op"):
        case "add":
            return _add(document, path, copy(operation.get("value")))
        case "remove":
            _take(document, path)
            return document
        case "replace":
            if not path:
                return copy(operation.get("value"))
            container, key = _parent(document, path)
            container[_index(container, key)] = copy(operation.get("value"))
            return document
        case "move":
            value = _take(document, _steps(operation.get("from", "")))
            return _add(document, path, value)
        case "copy":
            value = _find(document, _steps(operation.get("from", "")))
            if value is _ABSENT:
                raise Misfit(f"copy operation does not apply: {operation.get('from')} is missing")
            return _add(document, path, copy(value))
        case "test":
            found = _find(document, path)
            if (None if found is _ABSENT else found) != operation.get("value"):
                raise Misfit(f"testing value {operation['path']} failed")
            return document
        case unknown:
            raise errors.bad_request(f"Unexpected kind: {unknown}")


def _steps(path: str) -> list[str]:
    if path == "":
        return []
    if not path.startswith("/"):
        raise Misfit(f"{path!r} is no JSON pointer")
    return [step.replace("~1", "/").replace("~0", "~") for step in path[1:].split("/")]


def _find(document: Any, path: list[str]) -> Any:
    found = document
    for step in path:
        if isinstance(found, dict):
            found = found.get(step, _ABSENT)
        elif isinstance(found, list) and step.isdigit() and int(step) < len(found):
            found = found[int(step)]
        else:
            return _ABSENT
    return found


def _parent(document: Any, path: list[str]) -> tuple[Any, str]:
    container = _find(document, path[:-1])
    if not isinstance(container, (dict, list)):
        raise Misfit(f"doc is missing path: /{'/'.join(path)}: missing value")
    return container, path[-1]


def _index(container: Any, key: str, *, end: bool = False) -> Any:
    """The key of a map, or the index in a list; `end` lets it be one past the last."""
    if isinstance(container, dict):
        return key
    if end and key == "-":
        return len(container)
    if not key.isdigit() or int(key) >= len(container) + end:
        raise Misfit(f"invalid array index {key}")
    return int(key)


def _add(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    container, key = _parent(document, path)
    index = _index(container, key, end=True)
    if isinstance(container, dict):
        container[index] = value
    else:
        container.insert(index, value)
    return document


def _take(document: Any, path: list[str]) -> Any:
    if not path:
        raise Misfit("remove operation does not apply to the whole document")
    container, key = _parent(document, path)
    if isinstance(container, dict) and key not in container:
        raise Misfit(f"remove operation does not apply: unable to remove nonexistent key: {key}")
    return container.pop(_index(container, key))
