"""The TLS listener of admission: binds, serves, drains.

Invariant: a stop loses no review: unready first, serving on with `Connection: close` while the
address leaves the Service, then a bounded wait for what is in flight; a second stop ends it all.
"""

from __future__ import annotations

import asyncio
import errno
import signal
import socket
from typing import TYPE_CHECKING, Any, Final

from kube.errors import ConfigError
from kube.logs import get_logger
from webhook.protocol import AdmissionProtocol

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Coroutine

    from webhook.app import AdmissionApp
    from webhook.config import WebhookConfig

log = get_logger(__name__)


_BACKLOG: Final = 1024
_HANDSHAKE_S: Final = 10.0
_GOODBYE_S: Final = 1.0
"""For a client's own end of TLS: an idle one may never send it, and a stop must not wait for it."""


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

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds`, or at once when the stop is forced."""
        await self.within(asyncio.sleep(seconds), seconds)

    async def within(self, work: Coroutine[Any, Any, Any], seconds: float) -> None:
        """Return when `work` is done, after `seconds`, or when the stop is forced."""
        working: asyncio.Future[Any] = asyncio.ensure_future(work)
        forced: asyncio.Future[Any] = asyncio.ensure_future(self.forced.wait())
        try:
            await asyncio.wait(
                {working, forced}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            working.cancel()
            forced.cancel()


class AdmissionServer:
    """`app` behind TLS on a port of its own; calls `on_started` when connections are taken."""

    def __init__(
        self, app: AdmissionApp, context: ssl.SSLContext, config: WebhookConfig, stop: Stop
    ) -> None:
        self.on_started: Callable[[], None] = lambda: None
        self._app = app
        self._context = context
        self._config = config
        self._stop = stop
        self._socket: socket.socket | None = None
        self._connections: set[AdmissionProtocol] = set()
        self._lost = asyncio.Event()
        self._started = False

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
            if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
                raise ConfigError(
                    f"--host {host}: cannot listen there: {reason}; choose an address of this host"
                ) from error
            raise ConfigError(
                f"--port {port}: cannot listen on {host}: {reason}; choose another port"
            ) from error
        self._socket = bound
        taken: int = bound.getsockname()[1]
        return taken

    def ready(self) -> str | None:
        """None once connections are taken."""
        return None if self._started else "starting"

    def close(self) -> None:
        """Give the port back."""
        if self._socket is not None:
            self._socket.close()

    async def run(self) -> None:
        """Serve until the stop is requested, drain, and end."""
        if self._socket is None:
            self.bind()
        assert self._socket is not None
        server = await asyncio.get_running_loop().create_server(
            self._connect,
            sock=self._socket,
            ssl=self._context,
            backlog=_BACKLOG,
            ssl_handshake_timeout=_HANDSHAKE_S,
            ssl_shutdown_timeout=_GOODBYE_S,
        )
        try:
            self._started = True
            self.on_started()
            await self._stop.requested.wait()
            self._app.draining = True
            log.info("stopping", drain_s=self._config.drain_seconds)
            await self._stop.sleep(self._config.drain_seconds)
            server.close()
            for connection in tuple(self._connections):
                connection.shutdown()
            await self._stop.within(self._all_closed(), self._config.stop_seconds)
        finally:
            server.close()
            for connection in tuple(self._connections):
                connection.abort()

    def _connect(self) -> AdmissionProtocol:
        return AdmissionProtocol(
            self._app,
            self._connections,
            idle_s=self._config.keep_alive_seconds,
            lost=self._lost.set,
        )

    async def _all_closed(self) -> None:
        while self._connections:
            self._lost.clear()
            await self._lost.wait()
