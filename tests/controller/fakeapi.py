"""A few objects behind the real client, without a network: for tests that move a fake clock.

What needs a real server's behaviour is tested on the embedded one; this one only keeps what the
reapers ask for: reads, lists, and deletes with preconditions.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from typing import Any

import httpx
import msgspec

from kube.client import ApiClient
from kube.credentials import Credentials
from tests.clock import FakeClock
from tests.pki import TestCa
from webhook import stamps

SERVER = "https://api.test"
# Any CA will do, as nothing is sent; loading those of the machine takes long.
CA = TestCa().cert
POLICIES = ("podstamp-pods", "podstamp-status", "podstamp-bindings")
_ADMISSION = "/apis/admissionregistration.k8s.io/v1"


class FakeApi:
    """Objects by path; `on_call` may answer, or change things, before a call is answered.

    Calls that `hang` picks wait for `released`.
    """

    def __init__(self, clock: FakeClock) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.events: list[dict[str, Any]] = []
        self.calls: list[tuple[str, str]] = []
        self.deletes: list[dict[str, Any]] = []
        self.on_call: Callable[[str, str], httpx.Response | None] = lambda verb, path: None
        self.on_request: Callable[[httpx.URL], None] = lambda url: None
        self.released = asyncio.Event()
        self.hang: Callable[[str, str], bool] = lambda verb, path: False
        self.client = ApiClient(
            Credentials(server=SERVER, ca_pem=CA),
            clock=clock,
            transport=lambda context: httpx.MockTransport(self._answer),
        )
        self.add_namespace("llm")
        for name in POLICIES:
            self.add_policy(name)

    def put(self, document: dict[str, Any]) -> None:
        """Store a pod as it is."""
        meta = document["metadata"]
        self.objects[pod_path(meta["namespace"], meta["name"])] = copy.deepcopy(document)

    def add_namespace(self, name: str, *, enabled: bool = True) -> None:
        labels = {stamps.ENABLED: "true"} if enabled else {}
        self.objects[f"/api/v1/namespaces/{name}"] = {"metadata": {"name": name, "labels": labels}}

    def add_node(self, name: str, *, taints: tuple[str, ...] = ()) -> None:
        self.objects[f"/api/v1/nodes/{name}"] = {
            "metadata": {"name": name},
            "spec": {"taints": [{"key": key, "effect": "NoExecute"} for key in taints]},
        }

    def add_policy(self, name: str, *, actions: tuple[str, ...] = ("Deny",)) -> None:
        self.objects[f"{_ADMISSION}/validatingadmissionpolicies/{name}"] = {
            "metadata": {"name": name}
        }
        self.objects[f"{_ADMISSION}/validatingadmissionpolicybindings/{name}"] = {
            "metadata": {"name": name},
            "spec": {"policyName": name, "validationActions": list(actions)},
        }

    def remove_policy(self, name: str) -> None:
        del self.objects[f"{_ADMISSION}/validatingadmissionpolicies/{name}"]

    def pod_names(self) -> set[str]:
        return {path.rpartition("/")[2] for path in self.objects if "/pods/" in path}

    def reasons(self, kind: str = "Pod") -> list[str]:
        """Reasons of the events about objects of this kind."""
        return [event["reason"] for event in self.events if event["regarding"]["kind"] == kind]

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        verb, path = request.method, request.url.path
        self.calls.append((verb, path))
        self.on_request(request.url)
        if self.hang(verb, path):
            await self.released.wait()
        answer = self.on_call(verb, path)
        if answer is not None:
            return answer
        if verb == "POST" and path.endswith("/events"):
            self.events.append(msgspec.json.decode(request.content))
            return httpx.Response(201, content=request.content)
        if verb == "DELETE":
            return self._delete(path, msgspec.json.decode(request.content))
        found = self.objects.get(path)
        if found is not None:
            return httpx.Response(200, json=found)
        items = [value for key, value in self.objects.items() if key.rpartition("/")[0] == path]
        if path.endswith(("policies", "bindings", "namespaces", "pods")):
            return httpx.Response(200, json={"metadata": {"resourceVersion": "1"}, "items": items})
        return status(404, "NotFound")

    def _delete(self, path: str, body: dict[str, Any]) -> httpx.Response:
        self.deletes.append({"path": path, **body})
        found = self.objects.get(path)
        if found is None:
            return status(404, "NotFound")
        wanted = body.get("preconditions") or {}
        meta = found["metadata"]
        if any(meta[key] != value for key, value in wanted.items()):
            return status(409, "Conflict")
        del self.objects[path]
        return httpx.Response(200, json={"kind": "Status", "status": "Success"})


def pod_path(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods/{name}"


def status(code: int, reason: str, **more: Any) -> httpx.Response:
    """An error as the API server words it."""
    body = {"kind": "Status", "code": code, "reason": reason, "message": f"it is {reason}", **more}
    headers = {"Retry-After": str(more["retry_after"])} if "retry_after" in more else {}
    return httpx.Response(code, json=body, headers=headers)
