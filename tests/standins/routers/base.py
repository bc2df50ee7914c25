"""What all router stand-ins share: workers, their health, and requests passed on in turn.

A request is tried once, at one worker; nothing is retried, so that a ghost shows at once.
State is in memory: `restart` loses it, as a real router's restart does.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any

import httpx

from kube.clock import Clock, SystemClock
from tests.standins.http_server import HttpServer, Request, Response

Json = dict[str, Any]

_PROBE_S = 5.0
_RANK = re.compile(r"@\d+$")
_DOTTED = re.compile(r"/[^/]+/\.\.$")


@dataclass(slots=True, eq=False)
class Worker:
    """One worker that a router lists; `spec` is what it was added with."""

    url: str
    id: str = ""
    model: str = ""
    spec: Json = field(default_factory=dict)
    healthy: bool = True
    failures: int = 0

    @property
    def address(self) -> str:
        """Where it is reached: without the rank of a data-parallel engine, and with the dots in
        its path resolved, as the URL parsers of the real routers do (RFC 3986, 5.2.4)."""
        return _DOTTED.sub("", _RANK.sub("", self.url)).rstrip("/")


class RouterStandIn:
    """Subclasses answer `control`; what that leaves goes to a worker.

    `requests` counts by method and path, `forwarded` by worker URL. `api_key` guards `/workers`.
    Health is probed every `check_interval_s`; a worker is unhealthy after `check_failures`.
    """

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        api_key: str = "",
        check_interval_s: float = 60.0,
        check_failures: int = 3,
        clock: Clock | None = None,
    ) -> None:
        self.api_key = api_key
        self.requests: Counter[str] = Counter()
        self.forwarded: Counter[str] = Counter()
        self.check_interval_s = check_interval_s
        self.check_failures = check_failures
        self.clock = clock or SystemClock()
        self._server = HttpServer(self._handle, host, port)
        self.ready = self._server.ready
        self._jobs: set[asyncio.Task[None]] = set()
        self.forget()

    @property
    def url(self) -> str:
        return self._server.url

    @property
    def port(self) -> int:
        return self._server.port

    @property
    def urls(self) -> list[str]:
        """The URLs of the workers, in the order of their addition."""
        return [worker.url for worker in self.workers]

    def restart(self) -> None:
        """What a restart of the process does: workers are forgotten, and queued work too."""
        for job in self._jobs:
            job.cancel()
        self.forget()

    def forget(self) -> None:
        """Set all that is only in memory to how it is at the start."""
        self.workers: list[Worker] = []
        self._turn = 0

    def queue(self, work: Coroutine[Any, Any, None]) -> None:
        """Do work that the answer does not wait for."""
        job = self._group.create_task(work)
        self._jobs.add(job)
        job.add_done_callback(self._jobs.discard)

    async def run(self) -> None:
        """Until cancelled; OSError if the port cannot be had."""
        await self._server.bind()
        # Engines speak plain HTTP, and reading the system's CAs is slow.
        self.http = httpx.AsyncClient(
            verify=False,
            trust_env=False,
            timeout=None,
            limits=httpx.Limits(max_connections=None),
        )
        async with self.http:
            async with asyncio.TaskGroup() as self._group:
                self._group.create_task(self._check_all())
                self.start_loops(self._group)
                await self._server.run()

    def start_loops(self, group: asyncio.TaskGroup) -> None:
        """Start a subclass's own loops in `group`."""

    async def control(self, request: Request) -> Response | None:
        """The answer of the router's own API; None: the request is for a worker."""
        raise NotImplementedError

    def choose(self, request: Request) -> Iterable[Worker]:
        """The workers that may get this request."""
        return [worker for worker in self.workers if worker.healthy]

    def unroutable(self, request: Request) -> Response:
        """The answer when no worker may get it."""
        return Response(503, {"error": "no workers are available"})

    def unreached(self, error: str) -> Response:
        """The answer when the chosen worker could not be reached."""
        return Response(502, {"error": error})

    def worker(self, matches: Callable[[Worker], bool]) -> Worker | None:
        return next(filter(matches, self.workers), None)

    async def is_up(self, url: str) -> bool:
        """Whether `/health` of a worker answers 200 in time."""
        try:
            async with asyncio.timeout(_PROBE_S):
                response = await self.http.get(f"{url.rstrip('/')}/health")
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError):
            return False
        return response.status_code == 200

    async def forward(self, worker: Worker, request: Request) -> Response:
        """Pass a request on to one worker."""
        self.forwarded[worker.url] += 1
        query = "&".join(f"{name}={value}" for name, value in request.query.items())
        url = f"{worker.address}{request.path}" + (f"?{query}" if query else "")
        try:
            answer = await self.http.request(
                request.method,
                url,
                content=request.body,
                headers={"content-type": request.headers.get("content-type", "application/json")},
            )
        except httpx.HTTPError as error:
            return self.unreached(f"{worker.url}: {error}")
        kept = {name: value for name, value in answer.headers.items() if name.startswith("x-")}
        kept["content-type"] = answer.headers.get("content-type", "application/json")
        return Response(answer.status_code, answer.content, kept)

    async def _handle(self, request: Request) -> Response | None:
        self.requests[f"{request.method} {request.path}"] += 1
        wanted = f"Bearer {self.api_key}"
        guarded = request.path.startswith("/workers")
        if self.api_key and guarded and request.headers.get("authorization") != wanted:
            return Response(401, {"error": "Unauthorized"})
        answer = await self.control(request)
        if answer is not None:
            return answer
        workers = list(self.choose(request))
        if not workers:
            return self.unroutable(request)
        self._turn += 1
        return await self.forward(workers[self._turn % len(workers)], request)

    async def _check_all(self) -> None:
        while True:
            await self.clock.sleep(self.check_interval_s)
            for worker in list(self.workers):
                if await self.is_up(worker.address):
                    worker.failures, worker.healthy = 0, True
                    self.checked_good(worker)
                else:
                    worker.failures += 1
                    worker.healthy = worker.failures < self.check_failures
                    self.checked_bad(worker)

    def checked_good(self, worker: Worker) -> None:
        """A probe succeeded."""

    def checked_bad(self, worker: Worker) -> None:
        """A probe failed; `healthy` says whether it still counts as well."""


def listing(infos: list[Json]) -> Response:
    """The answer to GET /workers, in the shape that the family of sglang routers shares."""
    stats = {"prefill_count": 0, "decode_count": 0, "regular_count": len(infos)}
    return Response(content={"workers": infos, "total": len(infos), "stats": stats})
