"""A Kubernetes API in memory, behind the client's own methods: as much as certificates need.

It lets a test decide in which order concurrent calls are served, and kill a caller just before or
just after a write took effect; the embedded server is there for everything else.
"""

import asyncio
import copy
from collections.abc import Callable
from random import Random
from typing import Any, Literal

import jsonpatch
import msgspec

from kube.client import ApiClient
from kube.errors import Status, status_error

Death = Literal["before", "after"]

MUTATING = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/podstamp"
VALIDATING = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/podstamp"
SECRET = "/api/v1/namespaces/podstamp-system/secrets/podstamp-webhook-cert"
REPLICAS = "/api/v1/namespaces/podstamp-system/configmaps/podstamp-webhook-replicas"


class Killed(Exception):
    """The process of the caller dies here: it is no KubeError, so nobody handles it."""


class MemoryApi:
    """Objects by path.

    `written` is called after each write, with the path; `death` before each, with the user.
    """

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.written: Callable[[str], None] = lambda path: None
        self.refuse: Callable[[str, str], int | None] = lambda method, path: None
        self.death: Callable[[str], Death | None] = lambda user: None
        self.calls: list[tuple[str, str, str]] = []
        self._version = 0
        self.frozen: dict[str, asyncio.Event] = {}
        self._held = False
        self._waiting: list[asyncio.Future[None]] = []

    def put(self, path: str, content: dict[str, Any]) -> dict[str, Any]:
        """Store an object as some other writer does."""
        old = self.objects.get(path)
        self._version += 1
        new = copy.deepcopy(content)
        metadata = new.setdefault("metadata", {})
        metadata["name"] = path.rsplit("/", 1)[1]
        metadata["uid"] = old["metadata"]["uid"] if old else f"uid-{self._version}"
        metadata["resourceVersion"] = str(self._version)
        generation = old["metadata"]["generation"] if old else 0
        changed = old is None or old.get("webhooks") != new.get("webhooks")
        metadata["generation"] = generation + changed
        self.objects[path] = new
        self.written(path)
        return new

    async def serve(self, random: Random, calls: int = 1_000_000) -> None:
        """Serve at most so many of the calls that wait, in an order that `random` decides.

        For calls that were begun after `hold`; those of frozen users stay where they are.
        """
        while calls:
            for _ in range(3):
                await asyncio.sleep(0)
            if not self._waiting:
                return
            self._waiting.pop(random.randrange(len(self._waiting))).set_result(None)
            calls -= 1

    def hold(self, hold: bool = True) -> None:
        """Calls wait for `serve` from now on, or no longer."""
        self._held = hold

    def freeze(self, user: str) -> None:
        """The next call of `user` is served only after `thaw`."""
        self.frozen[user] = asyncio.Event()

    def thaw(self, user: str) -> None:
        self.frozen.pop(user).set()

    async def call(self, user: str, method: str, path: str, body: Any = None) -> dict[str, Any]:
        """One call by `user`, as the server handles it."""
        if user in self.frozen:
            await self.frozen[user].wait()
        if self._held:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            await turn
        self.calls.append((user, method, path))
        death = self.death(user) if method != "GET" else None
        if death == "before":
            raise Killed(user)
        refused = self.refuse(method, path)
        if refused:
            code, answer = _status(refused, "Refused", f"{method} {path} is refused")
        else:
            code, answer = self._answer(method, path, body)
        if death == "after":
            raise Killed(user)
        if code >= 400:
            raise status_error(code, msgspec.convert(answer, Status))
        return answer

    def _answer(self, method: str, path: str, body: Any) -> tuple[int, dict[str, Any]]:
        if method == "POST":
            path = f"{path}/{body['metadata']['name']}"
            if path in self.objects:
                return _status(409, "AlreadyExists", f"{path} already exists")
            return 201, self.put(path, body)
        stored = self.objects.get(path)
        if stored is None:
            return _status(404, "NotFound", f"{path} not found")
        if method == "GET":
            return 200, stored
        if method == "DELETE":
            if any(stored["metadata"][key] != value for key, value in body.items()):
                return _status(409, "Conflict", "precondition failed")
            return 200, self.objects.pop(path)
        assert method == "PATCH", method
        if isinstance(body, list):
            try:
                return 200, self.put(path, jsonpatch.apply_patch(stored, body))
            except jsonpatch.JsonPatchTestFailed as error:
                return _status(422, "Invalid", str(error))
        if stored.get("immutable") and "data" in body:
            return _status(422, "Invalid", "field is immutable when `immutable` is set")
        version = (body.get("metadata") or {}).get("resourceVersion")
        if version is not None and version != stored["metadata"]["resourceVersion"]:
            return _status(409, "Conflict", "the object has been modified")
        return 200, self.put(path, _merge(stored, body))


class MemoryClient(ApiClient):
    """A client of `api` for `user`, whose writes `api.death` may make the last."""

    def __init__(self, api: MemoryApi, user: str) -> None:
        self._api = api
        self._user = user

    async def get(self, path: str, *, type: Any = dict, **_: Any) -> Any:
        return msgspec.convert(await self._api.call(self._user, "GET", path), type)

    async def create(self, path: str, body: Any, *, type: Any = dict, **_: Any) -> Any:
        return msgspec.convert(await self._api.call(self._user, "POST", path, body), type)

    async def patch(self, path: str, body: Any, *, type: Any = dict, **_: Any) -> Any:
        return msgspec.convert(await self._api.call(self._user, "PATCH", path, body), type)

    async def delete(
        self, path: str, *, uid: str | None = None, resource_version: str | None = None, **_: Any
    ) -> None:
        given = {"uid": uid, "resourceVersion": resource_version}
        wanted = {key: value for key, value in given.items() if value is not None}
        await self._api.call(self._user, "DELETE", path, wanted)


def _merge(old: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    merged = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merge(merged.get(key), value)
    return merged


def _status(code: int, reason: str, message: str) -> tuple[int, dict[str, Any]]:
    return code, {"kind": "Status", "code": code, "reason": reason, "message": message}
