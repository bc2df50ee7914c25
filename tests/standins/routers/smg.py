"""smg: adds and removals are queued, workers drain, and requests are routed by model.

Its traps: a removal does not stop an add that still waits for health; a second removal skips
the drain; PUT makes a draining worker `ready`, and then it vanishes all the same; `aliases`
rewrites the model of a request. A discovery file may name workers too (`smg_file`).
"""

import asyncio
import uuid
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from tests.standins.http_server import Request, Response, segments
from tests.standins.routers.base import Json, RouterStandIn, Worker, listing
from tests.standins.routers.smg_file import DiscoveryFile

PENDING, READY, FAILED, DRAINING = "pending", "ready", "failed", "draining"


class SmgRouter(RouterStandIn):
    """Waits, in seconds: `retry_s` between probes of a pending worker, `drain_s` of a removal.

    `discovery_file` is what `--discovery-file` names; `file` is its reader then.
    """

    retry_s: float = 30.0
    drain_s: float = 5.0
    remove_unhealthy: bool = False

    def __init__(self, *, discovery_file: Path | None = None, **settings: Any) -> None:
        super().__init__(**settings)
        self.file = DiscoveryFile(discovery_file, self.clock) if discovery_file else None

    def start_loops(self, group: asyncio.TaskGroup) -> None:
        if self.file is not None:
            group.create_task(self.file.follow(self._add_found, self._drop_found, self._lists))

    def forget(self) -> None:
        super().forget()
        self._status: dict[str, str] = {}  # by worker id

    def status(self, url: str) -> str | None:
        """The status of the worker at `url`; None if it is not listed."""
        worker = self.worker(lambda worker: worker.url == url)
        return self._status[worker.id] if worker else None

    async def control(self, request: Request) -> Response | None:
        match request.method, segments(request.path):
            case "GET", ["workers"]:
                return listing([self._info(worker) for worker in self.workers])
            case "POST", ["workers"]:
                return self._queue_add(request.json())
            case method, ["workers", id]:
                worker = self.worker(lambda worker: worker.id == id)
                if worker is None:
                    return _error(404, f"there is no worker {id}", "WORKER_NOT_FOUND")
                return self._one(method, worker, request.json())
            case "GET", ["health" | "liveness" | "readiness"]:
                return Response(content="")
            case "GET", ["v1", "models"]:
                models = dict.fromkeys(worker.model for worker in self.workers)
                cards = [{"id": model, "object": "model"} for model in models if model]
                return Response(content={"object": "list", "data": cards})
            case _:
                return None

    def choose(self, request: Request) -> Iterable[Worker]:
        ready = [worker for worker in self.workers if self._status[worker.id] == READY]
        wanted = _model(request)
        if not wanted:
            return ready
        return [each for each in ready if wanted == each.model or wanted in _aliases(each)]

    def unroutable(self, request: Request) -> Response:
        model = _model(request)
        if model:
            return _error(404, f"no worker serves the model {model}", "model_not_found")
        return super().unroutable(request)

    async def forward(self, worker: Worker, request: Request) -> Response:
        if _model(request) in _aliases(worker):
            body = msgspec.json.encode({**request.json(), "model": worker.model})
            request = replace(request, body=body)
        return await super().forward(worker, request)

    def checked_bad(self, worker: Worker) -> None:
        if worker.healthy or self._status.get(worker.id) != READY:
            return
        self._status[worker.id] = FAILED
        if self.remove_unhealthy:
            self._drop(worker)

    def checked_good(self, worker: Worker) -> None:
        if self._status.get(worker.id) == FAILED:
            self._status[worker.id] = READY

    def _queue_add(self, body: Json | None) -> Response:
        url = (body or {}).get("url")
        if not isinstance(url, str) or "://" not in url:
            return _error(400, "url must have a scheme", "BAD_REQUEST")
        known = self.status(url)
        if known is not None:
            code = "WORKER_CREATE_IN_PROGRESS" if known == PENDING else "WORKER_ALREADY_EXISTS"
            return _error(409, f"worker {url} exists", code)
        models = (body or {}).get("models") or [{}]
        worker = Worker(url, str(uuid.uuid4()), str(models[0].get("id", "")), body or {})
        self._enlist(worker)
        self.queue(self._add(worker))
        return _accepted(worker.id)

    def _enlist(self, worker: Worker) -> None:
        self._status[worker.id] = PENDING
        self.workers.append(worker)

    async def _add(self, worker: Worker) -> None:
        await self._await_health(worker)
        if self.status(worker.url) is None:
            self.workers.append(worker)  # a removal does not stop an add that had begun

    async def _await_health(self, worker: Worker) -> None:
        while not await self.is_up(worker.address):
            await self.clock.sleep(self.retry_s)
        if not worker.model:
            worker.model = await self._first_model(worker.address)
        self._status[worker.id] = READY

    async def _first_model(self, url: str) -> str:
        answer = (await self.http.get(f"{url}/v1/models")).json()
        return str(answer["data"][0]["id"])

    def _one(self, method: str, worker: Worker, body: Json | None) -> Response:
        match method:
            case "GET":
                return Response(content=self._info(worker))
            case "DELETE":
                return self._remove(worker)
            case "PUT":
                # Also one that drains; its end is already decided.
                self._status[worker.id] = READY
                return _accepted(worker.id)
            case "PATCH":
                worker.spec = {**worker.spec, **(body or {})}
                return _accepted(worker.id)
            case _:
                return Response(405, {"error": "no such method"})

    def _remove(self, worker: Worker) -> Response:
        if self._status[worker.id] == READY:
            self._status[worker.id] = DRAINING
            self.queue(self._drain(worker))
        else:
            self._drop(worker)
        return _accepted(worker.id)

    async def _drain(self, worker: Worker) -> None:
        await self.clock.sleep(self.drain_s)
        self._drop(worker)

    def _drop(self, worker: Worker) -> None:
        self.workers = [each for each in self.workers if each is not worker]

    def _add_found(self, id: str, url: str, model: str) -> None:
        worker = Worker(url, id, model)
        self._enlist(worker)
        self.queue(self._await_health(worker))

    def _drop_found(self, id: str) -> None:
        self.workers = [worker for worker in self.workers if worker.id != id]

    def _lists(self, id: str) -> bool:
        return any(worker.id == id for worker in self.workers)

    def _info(self, worker: Worker) -> Json:
        status = self._status[worker.id]
        return {
            "id": worker.id,
            "model_id": worker.model or None,
            "url": worker.url,
            "models": [{"id": worker.model}] if worker.model else [],
            "priority": worker.spec.get("priority", 50),
            "worker_type": "regular",
            "is_healthy": status == READY,
            "status": status,
            "load": 0,
            "job_status": None,
        }


def _model(request: Request) -> str:
    body = request.json()
    return str(body.get("model", "")) if isinstance(body, dict) else ""


def _aliases(worker: Worker) -> list[str]:
    models = worker.spec.get("models") or [{}]
    return list(models[0].get("aliases") or ())


def _accepted(id: str) -> Response:
    return Response(202, {"status": "accepted", "worker_id": id, "location": f"/workers/{id}"})


def _error(status: int, message: str, code: str) -> Response:
    return Response(status, {"error": message, "code": code})
