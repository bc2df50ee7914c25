"""sglang-router in its default mode: adds and removals are queued, and answered before.

Its traps: a removal does not stop an add that still waits for health; a second add of a URL is
accepted and fails later; the id changes with each add; without a scheme, http:// is put before
the URL and the worker gets another id than the one that was answered.
"""

import uuid

from tests.standins.http_server import Request, Response, segments
from tests.standins.routers.base import Json, RouterStandIn, Worker, listing


class SglangRouter(RouterStandIn):
    """Waits, in seconds: `startup_timeout_s` in all for the health of a new worker, asked every
    `retry_s`; `removal_s` until a queued removal is done."""

    startup_timeout_s: float = 1800.0
    retry_s: float = 1.0
    removal_s: float = 0.1

    async def control(self, request: Request) -> Response | None:
        match request.method, segments(request.path):
            case "GET", ["workers"]:
                return listing([_info(worker) for worker in self.workers])
            case "POST", ["workers"]:
                return self._queue_add(request.json())
            case "GET", ["workers", id]:
                return self._show(id)
            case "PUT", ["workers", id]:
                return self._accepted(id) if self._url_of(id) else _unknown(id)
            case "DELETE", ["workers", id]:
                return self._queue_removal(id)
            case "GET", ["health" | "liveness" | "readiness"]:
                return Response(content="")
            case "GET", ["v1", "models"]:
                models = dict.fromkeys(worker.model for worker in self.workers)
                cards = [{"id": model, "object": "model"} for model in models]
                return Response(content={"object": "list", "data": cards})
            case _:
                return None

    def forget(self) -> None:
        super().forget()
        self._ids: dict[str, str] = {}  # by URL as it was sent
        self._outcomes: dict[str, Json] = {}  # of adds, by URL as it was sent

    def _queue_add(self, body: Json | None) -> Response:
        url = (body or {}).get("url")
        if not isinstance(url, str) or not url:
            return Response(400, {"error": "url is missing", "code": "BAD_REQUEST"})
        id = self._ids.setdefault(url, str(uuid.uuid4()))
        self._outcomes[url] = _job("AddWorker", url, "pending")
        self.queue(self._add(url, body or {}))
        return self._accepted(id)

    async def _add(self, sent: str, spec: Json) -> None:
        url = sent if "://" in sent else f"http://{sent}"
        begun = self.clock.monotonic()
        while not (self._lists(url) or await self.is_up(url)):
            if self.clock.monotonic() - begun >= self.startup_timeout_s:
                self._outcomes[sent] = _job("AddWorker", sent, "failed", "not healthy in time")
                return
            await self.clock.sleep(self.retry_s)
        if self._lists(url):
            self._outcomes[sent] = _job("AddWorker", sent, "failed", f"worker {url} already exists")
            return
        self._outcomes.pop(sent, None)
        id = self._ids.setdefault(url, str(uuid.uuid4()))
        model = str(spec.get("model_id") or "unknown")
        self.workers.append(Worker(url, id, model, spec))

    def _queue_removal(self, id: str) -> Response:
        url = self._url_of(id)
        if url is None:
            return _unknown(id)
        self.queue(self._remove(url))
        return self._accepted(id)

    async def _remove(self, url: str) -> None:
        await self.clock.sleep(self.removal_s)
        self.workers = [worker for worker in self.workers if worker.url != url]
        self._ids.pop(url, None)
        self._outcomes.pop(url, None)

    def _show(self, id: str) -> Response:
        url = self._url_of(id)
        if url is None:
            return _unknown(id)
        worker = self.worker(lambda worker: worker.url == url)
        info = _info(worker) if worker else {"id": id, "url": url, "is_healthy": False}
        return Response(content={**info, "job_status": self._outcomes.get(url)})

    def _lists(self, url: str) -> bool:
        return url in self.urls

    def _url_of(self, id: str) -> str | None:
        return next((url for url, known in self._ids.items() if known == id), None)

    def _accepted(self, id: str) -> Response:
        location = f"/workers/{id}"
        body = {"status": "accepted", "worker_id": id, "location": location}
        return Response(202, body, {"location": location})


def _info(worker: Worker) -> Json:
    return {
        "id": worker.id,
        "url": worker.url,
        "model_id": worker.model,
        "priority": worker.spec.get("priority", 50),
        "worker_type": "regular",
        "is_healthy": worker.healthy,
        "load": 0,
        "connection_mode": "http",
        "job_status": None,
    }


def _job(kind: str, url: str, status: str, message: str | None = None) -> Json:
    return {"job_type": kind, "worker_url": url, "status": status, "message": message}


def _unknown(id: str) -> Response:
    return Response(404, {"error": f"there is no worker {id}", "code": "WORKER_NOT_FOUND"})
