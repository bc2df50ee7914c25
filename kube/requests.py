"""What is sent to the API server, as values.

Invariant: pure; a delete names UID and resourceVersion in its body and never a grace period.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

import msgspec

JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Call:
    """One request, without server and credentials."""

    method: str
    path: str
    params: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    content_type: str = JSON

    def url(self, server: str) -> str:
        """The full URL on `server` (scheme, host and any prefix)."""
        query = f"?{urlencode(self.params)}" if self.params else ""
        return f"{server}{self.path}{query}"

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


def get(path: str, params: Mapping[str, str] | None = None) -> Call:
    """Read one object or a short collection."""
    return Call("GET", path, params or {})


def list_page(
    path: str, *, label_selector: str, field_selector: str, page_size: int, token: str
) -> Call:
    """One page; no resourceVersion, so that the first is read from the quorum, not from a cache."""
    params = _selectors(label_selector, field_selector)
    params["limit"] = str(page_size)
    if token:
        params["continue"] = token
    return Call("GET", path, params)


def watch(
    path: str,
    *,
    resource_version: str,
    label_selector: str,
    field_selector: str,
    timeout_s: float,
) -> Call:
    """A watch with bookmarks; the server ends it after `timeout_s`, whole seconds, at least 1."""
    params = _selectors(label_selector, field_selector)
    params |= {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": resource_version,
        "timeoutSeconds": str(max(1, round(timeout_s))),
    }
    return Call("GET", path, params)


def write(
    method: str,
    path: str,
    body: Any,
    params: Mapping[str, str] | None = None,
    content_type: str = JSON,
) -> Call:
    """POST, PUT or PATCH of `body`, a dict or a msgspec struct."""
    return Call(method, path, params or {}, msgspec.json.encode(body), content_type)


def delete(path: str, *, uid: str | None, resource_version: str | None, dry_run: bool) -> Call:
    """DELETE; the server answers 409 if the object is not exactly the one of the preconditions."""
    preconditions = {
        key: value
        for key, value in (("uid", uid), ("resourceVersion", resource_version))
        if value is not None
    }
    options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
    if preconditions:
        options["preconditions"] = preconditions
    if dry_run:
        options["dryRun"] = ["All"]
    return Call("DELETE", path, {}, msgspec.json.encode(options))


def _selectors(label_selector: str, field_selector: str) -> dict[str, str]:
    params = {}
    if label_selector:
        params["labelSelector"] = label_selector
    if field_selector:
        params["fieldSelector"] = field_selector
    return params
