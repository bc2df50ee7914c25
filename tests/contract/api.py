"""Raw calls for contract tests: one method a verb, and checks of what every answer must be."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import msgspec

POLL_S = 0.01

Object = dict[str, Any]

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"


class Api:
    """Paths begin with /api or /apis; keyword arguments are query parameters."""

    def __init__(self, client: httpx.Client) -> None:
        self.client = client

    def get(self, path: str, **query: Any) -> httpx.Response:
        return self.client.get(path, params=query)

    def post(self, path: str, body: object, **query: Any) -> httpx.Response:
        return self.client.post(path, json=body, params=query)

    def put(self, path: str, body: object, **query: Any) -> httpx.Response:
        return self.client.put(path, json=body, params=query)

    def patch(self, path: str, body: object, kind: str = MERGE, **query: Any) -> httpx.Response:
        content = msgspec.json.encode(body)
        headers = {"Content-Type": kind}
        return self.client.patch(path, content=content, headers=headers, params=query)

    def delete(self, path: str, body: object = None, **query: Any) -> httpx.Response:
        content = None if body is None else msgspec.json.encode(body)
        headers = {"Content-Type": "application/json"}
        return self.client.request("DELETE", path, content=content, headers=headers, params=query)

    def create(self, path: str, body: Object, **query: Any) -> Object:
        """POST that has to succeed."""
        return ok(self.post(path, body, **query), 201)

    def read(self, path: str, **query: Any) -> Object:
        """GET that has to succeed."""
        return ok(self.get(path, **query))

    def change(self, path: str, body: object, kind: str = MERGE, **query: Any) -> Object:
        """PATCH that has to succeed."""
        return ok(self.patch(path, body, kind, **query))

    def is_gone(self, path: str) -> bool:
        return self.get(path).status_code == 404

    @contextmanager
    def watch(self, path: str, **query: Any) -> Iterator[Iterator[Object]]:
        """The events of a watch, which ends by itself after 10 s at the latest."""
        params = {"watch": "true", "timeoutSeconds": 10, **query}
        with self.client.stream("GET", path, params=params, timeout=90) as response:
            assert response.status_code == 200, response.read()
            yield (msgspec.json.decode(line) for line in _lines(response))


def _lines(response: httpx.Response) -> Iterator[bytes]:
    rest = b""
    for chunk in response.iter_raw():
        *lines, rest = (rest + chunk).split(b"\n")
        yield from lines
    assert rest == b"", "the stream ended in the middle of a line"


def ok(response: httpx.Response, status: int = 200) -> Object:
    """The answer's object."""
    assert response.status_code == status, response.text
    found: Object = response.json()
    return found


def refused(response: httpx.Response, code: int, reason: str) -> Object:
    """The Status object of a refusal, whose shape is checked as well."""
    assert response.status_code == code, response.text
    status: Object = response.json()
    assert status["kind"] == "Status"
    assert status["apiVersion"] == "v1"
    assert status["status"] == "Failure"
    assert status["code"] == code
    assert status.get("reason", "") == reason, status
    return status


def take(events: Iterator[Object], count: int) -> list[Object]:
    """The next events, bookmarks left out."""
    found: list[Object] = []
    for event in events:
        if event["type"] != "BOOKMARK":
            found.append(event)
        if len(found) == count:
            return found
    raise AssertionError(f"the watch ended after {found}")


def told(events: list[Object]) -> list[tuple[str, str]]:
    """(type, name) of each event."""
    return [(event["type"], event["object"]["metadata"]["name"]) for event in events]


def pod(name: str = "", *, node: str = "", **metadata: Any) -> Object:
    """A small pod; with a node it counts as scheduled."""
    spec: Object = {"containers": [{"name": "server", "image": "registry.example/server:1"}]}
    if node:
        spec["nodeName"] = node
    if name:
        metadata["name"] = name
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def configmap(name: str, **data: str) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def names(listed: Object) -> list[str]:
    return [item["metadata"]["name"] for item in listed["items"]]


def turns(timeout_s: float = 30.0) -> Iterator[None]:
    """Turns of a wait on the server, in real time: it goes by what it was told within seconds."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        yield
        time.sleep(POLL_S)


def until(check: Callable[[], bool]) -> None:
    """Ask until it is so."""
    for _ in turns():
        if check():
            return
    raise AssertionError("the server never came to it")
