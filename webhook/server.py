"""The TLS listener of admission: binds, serves, drains.

Invariant: a stop loses no review: unready first, serving on with `Connection: close` while the
address leaves the Service, then a bounded wait for what is in flight; a second stop ends it all.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from typing import TYPE_CHECKING, Any

import uvicorn

from kube.errors import ConfigError
from kube.logs import get_logger

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Coroutine, Iterator

    from webhook.app import AdmissionApp
    from webhook.config import WebhookConfig

log = get_logger(__name__)


class Stop:
    """What the signals asked for: first to stop gracefully, then to stop now."""

    def __init__(self) -> None:
        self.requested = asyncio.Event()
        self.forced = asyncio.Event()

    def request(self) -> None:
        """Ask once more."""
        (self.forced if self.requested.is_set() else self.requested).set()

    def install(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let SIGTERM and SIGINT ask."""
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.request)


class AdmissionServer:
    """`app` behind TLS on a port of its own; `started` is called when connections are taken."""

    def __init__(
        self,
        app: AdmissionApp,
        context: ssl.SSLContext,
        config: WebhookConfig,
        stop: Stop,
        started: Callable[[], None] = lambda: None,
    ) -> None:
        self._app = app
        self._config = config
        self._stop = stop
        self._socket: socket.socket | None = None
        self._server = _Server(
            uvicorn.Config(
                app,
                http="httptools",
                ws="none",
                lifespan="off",
                interface="asgi3",
                log_config=None,
                log_level="warning",
                access_log=False,
                server_header=False,
                date_header=False,
                backlog=1024,
                timeout_keep_alive=config.keep_alive_seconds,
                timeout_graceful_shutdown=max(1, round(config.stop_seconds)),
                ssl_context_factory=lambda _config, _default: context,
            ),
            started,
        )

    def bind(self) -> int:
        """Take the port, without answering yet; returns it. ConfigError: it is not to be had."""
        host, port = self._config.host, self._config.port
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        bound = socket.socket(family, socket.SOCK_STREAM)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind((host, port))
        except OSError as error:
            bound.close()
            reason = (error.strerror or str(error)).lower()
            raise ConfigError(
                f"--port {port}: cannot listen on {host}: {reason}; choose another port"
            ) from error
        self._socket = bound
        taken: int = bound.getsockname()[1]
        return taken

    async def run(self) -> None:
        """Serve until the stop is requested, drain, and end."""
        if self._socket is None:
            self.bind()
        assert self._socket is not None
        serving: asyncio.Future[Any] = asyncio.ensure_future(
            self._server.serve(sockets=[self._socket])
        )
        try:
            await _first(serving, self._stop.requested.wait())
            if not serving.done():
                await self._drain(serving)
        finally:
            self._server.should_exit = self._server.force_exit = True
            await serving
            self._socket.close()

    @property
    def started(self) -> bool:
        """Whether connections are taken."""
        return self._server.started

    async def _drain(self, serving: asyncio.Future[Any]) -> None:
        self._app.draining = True
        log.info("stopping", drain_s=self._config.drain_seconds)
        forced: asyncio.Future[Any] = asyncio.ensure_future(self._stop.forced.wait())
        try:
            await asyncio.wait(
                {forced, serving},
                timeout=self._config.drain_seconds,
                return_when=asyncio.FIRST_COMPLETED,
            )
            self._server.should_exit = True
            self._server.force_exit = self._stop.forced.is_set()
            await asyncio.wait({forced, serving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            forced.cancel()


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_started = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_started()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals belong to the process, which stops more than this server."""
        yield


async def _first(serving: asyncio.Future[Any], other: Coroutine[Any, Any, Any]) -> None:
    """Return when one of the two is done."""
    waiting: asyncio.Future[Any] = asyncio.ensure_future(other)
    try:
        await asyncio.wait({serving, waiting}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
