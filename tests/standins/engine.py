"""A stand-in for an LLM engine with an OpenAI-style API, as vLLM answers it.

It keeps count of what it was asked. Its knobs may be changed at any time: `hang` and `fail` name
paths, `delay_s` holds for all; a restart of the process loses the adapters, as a real one does.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable

from kube.clock import Clock, SystemClock
from tests.standins.http_server import HttpServer, Request, Response

ALL = "*"


class Engine:
    """`requests` counts by path; `completions` counts by model."""

    def __init__(
        self,
        name: str,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        model: str = "base",
        adapters: Iterable[str] = (),
        token: str = "",
        clock: Clock | None = None,
    ) -> None:
        self.name = name
        self.model = model
        self.adapters = dict.fromkeys(adapters)
        self.token = token
        self.sleeping = False
        self.delay_s = 0.0
        self.hang: set[str] = set()
        self.fail: set[str] = set()
        self.requests: Counter[str] = Counter()
        self.completions: Counter[str] = Counter()
        self._clock = clock or SystemClock()
        self._server = HttpServer(self._handle, host, port)
        self.ready = self._server.ready

    @property
    def url(self) -> str:
        return self._server.url

    @property
    def port(self) -> int:
        return self._server.port

    @property
    def host(self) -> str:
        return self._server.host

    async def run(self) -> None:
        """Until cancelled."""
        await self._server.run()

    def restart_process(self) -> None:
        """What a container restart does to an engine: its adapters are gone."""
        self.adapters.clear()
        self.sleeping = False

    async def _handle(self, request: Request) -> Response | None:
        self.requests[request.path] += 1
        if self.hang & {request.path, ALL}:
            await asyncio.Event().wait()
        if self.delay_s:
            await self._clock.sleep(self.delay_s)
        if self.fail & {request.path, ALL}:
            return Response(500, {"error": {"message": "the engine was told to fail"}})
        if request.path == "/health":
            return Response(content="")
        if self.token and request.headers.get("authorization") != f"Bearer {self.token}":
            return Response(401, {"error": "Unauthorized"})
        match request.method, request.path:
            case "GET", "/v1/models":
                return Response(content=self._models())
            case "GET", "/is_sleeping":
                return Response(content={"is_sleeping": self.sleeping})
            case "POST", "/v1/load_lora_adapter":
                return self._load(request)
            case "POST", "/v1/unload_lora_adapter":
                return self._unload(request)
            case "POST", "/v1/completions":
                return self._complete(request)
            case _:
                return Response(404, {"detail": "Not Found"})

    def _models(self) -> dict[str, object]:
        cards = [{"id": self.model, "object": "model", "root": self.model, "parent": None}]
        cards += [
            {"id": name, "object": "model", "root": f"/adapters/{name}", "parent": self.model}
            for name in self.adapters
        ]
        return {"object": "list", "data": cards}

    def _load(self, request: Request) -> Response:
        name = (request.json() or {}).get("lora_name")
        if not name:
            return Response(400, {"message": "lora_name is missing"})
        if name in self.adapters:
            return Response(400, {"message": f"adapter {name} is already loaded"})
        self.adapters[name] = None
        return Response(content=f"loaded {name}")

    def _unload(self, request: Request) -> Response:
        name = (request.json() or {}).get("lora_name")
        if name not in self.adapters:
            return Response(404, {"message": f"adapter {name} is not loaded"})
        del self.adapters[name]
        return Response(content=f"unloaded {name}")

    def _complete(self, request: Request) -> Response:
        model = (request.json() or {}).get("model")
        if model != self.model and model not in self.adapters:
            return Response(404, {"error": {"message": f"there is no model {model}"}})
        self.completions[str(model)] += 1
        choice = {"index": 0, "text": self.name, "finish_reason": "stop"}
        return Response(
            content={"object": "text_completion", "model": model, "choices": [choice]},
            headers={"x-engine": self.name},
        )
