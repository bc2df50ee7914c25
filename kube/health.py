"""Plain HTTP for probes and metrics: /healthz, /readyz, /metrics and further JSON routes.

Invariant: answers from memory; no handler waits for the network.
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
import uvicorn
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from kube.errors import ConfigError

_STOP_S = 2


class HealthServer:
    """`live` and `ready` say None for yes, or why not (then the answer is 503 with that text)."""

    def __init__(
        self,
        port: int,
        live: Callable[[], str | None],
        ready: Callable[[], str | None],
        routes: Mapping[str, Callable[[], Any]],
        registry: CollectorRegistry,
        *,
        host: str = "0.0.0.0",
        notice: Callable[[], str | None] = lambda: None,
    ) -> None:
        """`routes`: path to what it answers as JSON (dict or msgspec struct); port 0: any free.

        `notice` is a warning that readiness shows beside its yes.
        """
        self._wanted = (host, port)
        self._socket: socket.socket | None = None
        app = Starlette(
            routes=[
                Route("/healthz", _probe(live, lambda: None)),
                Route("/readyz", _probe(ready, notice)),
                Route("/metrics", _metrics(registry)),
                *(Route(path, _json(answer)) for path, answer in routes.items()),
            ]
        )
        self._server = _Server(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                lifespan="off",
                ws="none",
                server_header=False,
                timeout_graceful_shutdown=_STOP_S,
            )
        )

    @property
    def port(self) -> int:
        """The bound port; valid once `start` returned."""
        if self._socket is None:
            raise RuntimeError("not started")
        port: int = self._socket.getsockname()[1]
        return port

    async def start(self) -> None:
        """Bind and listen. ConfigError: the port is in use or not allowed."""
        host, port = self._wanted
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        bound = socket.socket(family, socket.SOCK_STREAM)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind((host, port))
            bound.listen()
        except OSError as error:
            bound.close()
            reason = (error.strerror or str(error)).lower()
            raise ConfigError(
                f"--health-port {port}: cannot listen on {host}: {reason}; choose another port"
            ) from error
        self._socket = bound

    async def run(self) -> None:
        """Serve until cancelled; starts first if need be."""
        if self._socket is None:
            await self.start()
        assert self._socket is not None
        serving = asyncio.ensure_future(self._server.serve(sockets=[self._socket]))
        try:
            await asyncio.shield(serving)
        except asyncio.CancelledError:
            self._server.should_exit = True
            await serving
            raise
        finally:
            self._socket.close()


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals belong to the process that embeds this server."""
        yield


def _probe(
    check: Callable[[], str | None], notice: Callable[[], str | None]
) -> Callable[[Request], Any]:
    async def answer(_: Request) -> Response:
        problem = check()
        if problem is not None:
            return Response(f"{problem}\n", status_code=503, media_type="text/plain")
        warning = notice()
        text = "ok\n" if warning is None else f"ok\nwarning: {warning}\n"
        return Response(text, media_type="text/plain")

    return answer


def _metrics(registry: CollectorRegistry) -> Callable[[Request], Any]:
    async def answer(_: Request) -> Response:
        return Response(generate_latest(registry), headers={"content-type": CONTENT_TYPE_LATEST})

    return answer


def _json(build: Callable[[], Any]) -> Callable[[Request], Any]:
    async def answer(_: Request) -> Response:
        return Response(msgspec.json.encode(build()), media_type="application/json")

    return answer
