"""The production-stack router with `--dynamic-config-json`: backends come from a polled file.

Its traps: any key that it does not know rejects the whole file, in silence; an empty set cannot
be said, so stale backends stay; a bad routing logic still switches the backends; with health
checks on, each reload takes longer. A request that meets a ghost is a 500.
"""

import asyncio
import re
from pathlib import Path
from typing import Any

import msgspec

from tests.standins.http_server import Request, Response, segments
from tests.standins.routers.base import Json, RouterStandIn, Worker

_REQUIRED = ("service_discovery", "routing_logic")
_OPTIONAL = {
    *("static_backends", "static_models", "static_aliases", "static_model_labels"),
    *("static_model_types", "static_backend_health_checks"),
    *("static_backend_health_check_interval", "static_backend_health_check_timeout_seconds"),
    *("prefill_model_labels", "decode_model_labels", "session_key", "callbacks"),
    *("k8s_port", "k8s_namespace", "k8s_label_selector"),
}
_LOGICS = {"roundrobin", "session", "kvaware", "prefixaware", "disaggregated_prefill"}
_HOST = r"(([\w-]+\.)+[a-zA-Z]{2,}|localhost|\d{1,3}(\.\d{1,3}){3})"
_URL = re.compile(rf"https?://{_HOST}(:\d+)?(/.*)?")


class RejectedError(Exception):
    """The file is not taken over; the message is what the router would log."""


class ProductionStackRouter(RouterStandIn):
    """`config` is in force, `rejected` are the reasons of files that were not taken over.

    `path` is read every `poll_s`; a reload takes `close_s` longer while health checks are on.
    """

    poll_s: float = 10.0
    close_s: float = 15.0

    def __init__(self, path: Path, **settings: Any) -> None:
        """RejectedError: the router does not start with this file, or without one."""
        self.rejected: list[str] = []
        self._path = path
        super().__init__(**settings)

    def forget(self) -> None:
        super().forget()
        self._seen = _read(self._path)
        self.config = _parse(self._seen)
        self.workers = _workers(self.config)
        if self.config["routing_logic"] not in _LOGICS:
            raise RejectedError(f"unknown routing logic {self.config['routing_logic']}")

    def start_loops(self, group: asyncio.TaskGroup) -> None:
        group.create_task(self._follow())

    async def control(self, request: Request) -> Response | None:
        match request.method, segments(request.path):
            case "GET", ["health"]:
                body = {"status": "healthy", "dynamic_config": self.config}
                return Response(content=body)
            case "GET", ["v1", "models"]:
                models = dict.fromkeys(worker.model for worker in self.workers)
                cards = [{"id": model, "object": "model"} for model in models]
                return Response(content={"object": "list", "data": cards})
            case _:
                return None

    def choose(self, request: Request) -> list[Worker]:
        body = request.json()
        wanted = body.get("model") if isinstance(body, dict) else None
        return [worker for worker in self.workers if worker.model == wanted]

    def unroutable(self, request: Request) -> Response:
        return Response(404, {"error": "there is no backend with this model"})

    def unreached(self, error: str) -> Response:
        return Response(500, {"error": error})

    async def _follow(self) -> None:
        while True:
            await self.clock.sleep(self.poll_s)
            content = _read(self._path)
            if content == self._seen:
                continue
            self._seen = content
            try:
                await self._take_over(_parse(content))
            except RejectedError as error:
                self.rejected.append(str(error))

    async def _take_over(self, config: Json) -> None:
        workers = _workers(config)
        if self.config.get("static_backend_health_checks"):
            await self.clock.sleep(self.close_s)
        self.workers = workers
        # Backends are switched before the rest is looked at.
        if config["routing_logic"] not in _LOGICS:
            raise RejectedError(f"unknown routing logic {config['routing_logic']}")
        self.config = config


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def _parse(content: bytes) -> Json:
    try:
        config = msgspec.json.decode(content, type=Json)
    except msgspec.DecodeError as error:
        raise RejectedError(f"no JSON object: {error}") from error
    unknown = config.keys() - _OPTIONAL - set(_REQUIRED)
    if unknown:
        raise RejectedError(f"unknown key {min(unknown)}")
    missing = [key for key in _REQUIRED if key not in config]
    if missing:
        raise RejectedError(f"{missing[0]} is missing")
    return config


def _workers(config: Json) -> list[Worker]:
    if config["service_discovery"] != "static":
        raise RejectedError("this stand-in knows static backends alone")
    backends, models = config.get("static_backends"), config.get("static_models")
    if not isinstance(backends, str) or not isinstance(models, str) or not backends or not models:
        raise RejectedError("static_backends and static_models must name something")
    urls = backends.split(",")
    names = models.split(",")
    for url in urls:
        if not _URL.fullmatch(url):
            raise RejectedError(f"invalid URL {url}")
    for key in ("static_models", "static_model_labels", "static_model_types"):
        values = config.get(key)
        if values is not None and len(values.split(",")) != len(urls):
            raise RejectedError(f"{key} and static_backends differ in length")
    return [Worker(url, model=name) for url, name in zip(urls, names, strict=True)]
