"""vllm-router in its default mode: workers are known by URL, and an add is synchronous.

Its traps: an add waits for `/health` and is undone if the client hangs up; removing what is not
there succeeds; `/health` is 503 if any worker is bad; paths it does not know go to one worker.
"""

from tests.standins.http_server import Request, Response, segments
from tests.standins.routers.base import Json, RouterStandIn, Worker, listing

_RETRY_S = 1.0


class VllmRouter(RouterStandIn):
    """`startup_timeout_s` bounds the wait for a new worker's health.

    With `data_parallel` over 1 an added URL becomes one worker for each rank, `URL@0`, `URL@1`.
    """

    startup_timeout_s: float = 600.0
    data_parallel: int = 1

    async def control(self, request: Request) -> Response | None:
        match request.method, segments(request.path):
            case "GET", ["workers"]:
                return listing([_info(worker) for worker in self.workers])
            case "GET", ["list_workers"]:
                return Response(content={"urls": self.urls})
            case "GET", ["workers", url]:
                found = self.worker(lambda worker: worker.url == url)
                return Response(content=_info(found)) if found else _error(404, "not found", "NOT")
            case "POST", ["workers"]:
                return await self._add(str((request.json() or {}).get("url", "")))
            case "POST", ["add_worker"]:
                return await self._add(request.query.get("url", ""))
            case "DELETE", ["workers", url]:
                return self._remove(url)
            case "POST", ["remove_worker"]:
                return self._remove(request.query.get("url", ""))
            case "GET", ["liveness"]:
                return Response(content="")
            case "GET", ["readiness"]:
                return Response(200 if any(w.healthy for w in self.workers) else 503)
            case "GET", ["health"]:
                return Response(200 if all(w.healthy for w in self.workers) else 503, "")
            case _:
                return None

    async def _add(self, url: str) -> Response:
        waited_from = self.clock.monotonic()
        while not await self.is_up(url):
            if self.clock.monotonic() - waited_from >= self.startup_timeout_s:
                return _error(400, f"worker {url} did not become healthy", "ADD_WORKER_FAILED")
            await self.clock.sleep(_RETRY_S)
        ranks = [url]
        if self.data_parallel > 1:
            ranks = [f"{url}@{rank}" for rank in range(self.data_parallel)]
        if set(ranks) & set(self.urls):
            return _error(400, f"worker {url} already exists", "ADD_WORKER_FAILED")
        self.workers.extend(Worker(rank) for rank in ranks)
        return Response(content={"success": True, "message": f"added {url}"})

    def _remove(self, url: str) -> Response:
        self.workers = [w for w in self.workers if not _is_of(w.url, url)]
        return Response(content={"success": True, "message": f"Successfully removed {url}"})


def _is_of(listed: str, url: str) -> bool:
    """Whether a listed worker is the URL itself or one of its ranks."""
    return listed == url or listed.rpartition("@")[0] == url


def _info(worker: Worker) -> Json:
    return {
        "url": worker.url,
        "model_id": "unknown",
        "worker_type": "regular",
        "is_healthy": worker.healthy,
        "load": 0,
        "connection_mode": "Http",
        "priority": 50,
        "cost": 1.0,
    }


def _error(status: int, message: str, code: str) -> Response:
    return Response(status, {"error": message, "code": code})
