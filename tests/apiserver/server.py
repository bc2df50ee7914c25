"""The embedded API server: its own thread, loop and TLS port.

Invariant: once the constructor returns the server answers; after `close` its thread, its port
and its files are gone.
"""

from __future__ import annotations

import asyncio
import base64
import shutil
import socket
import ssl
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import uvicorn
import uvloop
import yaml
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from tests.apiserver.admission import AdmissionChain
from tests.apiserver.authentication import Authentication
from tests.apiserver.collector import NAMESPACE_GRACE_S, Collector
from tests.apiserver.custom import CustomResources
from tests.apiserver.deletion import IMMORTAL_NAMESPACES, Deletion
from tests.apiserver.discovery import Discovery
from tests.apiserver.faults import Faults
from tests.apiserver.gate import Objects
from tests.apiserver.http import Application
from tests.apiserver.kinds import Kinds, Object, builtin_resources
from tests.apiserver.metadata import new_uid, now_text
from tests.apiserver.openapi import OpenAPI
from tests.apiserver.registry import Registry
from tests.apiserver.routes import Routes
from tests.apiserver.scheduling import Scheduling
from tests.apiserver.storage import Storage
from tests.apiserver.tls import serving_pair
from tests.apiserver.watch import BOOKMARK_BEFORE_END_S, BOOKMARK_EVERY_S

T = TypeVar("T")

VERSION: Object = {
    "major": "1",
    "minor": "37",
    "gitVersion": "v1.37.0-embedded",
    "gitCommit": "0000000000000000000000000000000000000000",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "none",
    "compiler": "none",
    "platform": "python",
}
ADMINISTRATOR = "admin"


class EmbeddedCluster:
    """A cluster of one API server, as tests.cluster.Cluster describes it."""

    def __init__(
        self,
        *,
        port: int = 0,
        bookmark_every_s: float = BOOKMARK_EVERY_S,
        bookmark_before_end_s: float = BOOKMARK_BEFORE_END_S,
        namespace_grace_s: float = NAMESPACE_GRACE_S,
    ) -> None:
        """OSError when the port (0: a free one) cannot be had."""
        self._sock = _listening(port)
        self._host, self._port = self._sock.getsockname()
        self.url = f"https://{self._host}:{self._port}"
        self.ca_pem = serving_pair().ca
        self._directory = Path(tempfile.mkdtemp(prefix="embedded-apiserver-"))
        self._storage = Storage()
        self._kinds = Kinds(builtin_resources())
        self._authentication = Authentication(self._storage)
        self._admission = AdmissionChain(Objects(self._storage))
        self._registry = Registry(self._storage, self._kinds, self._admission)
        deletion = Deletion(self._storage, self._admission)
        scheduling = Scheduling(self._storage, self._admission, deletion)
        self._custom = CustomResources(self._storage, self._kinds)
        self._collector = Collector(self._registry, deletion, namespace_grace_s)
        self._storage.listeners += [self._custom.follow, self._collector.follow]
        self.faults = Faults(self._call, self)
        self._storage.lose = self.faults.loses
        routes = Routes(
            self._registry,
            deletion,
            scheduling,
            self._authentication,
            Discovery(self._kinds),
            OpenAPI(self._kinds, VERSION),
            VERSION,
            bookmark_every_s,
        )
        self._application = Application(routes, self.faults, bookmark_before_end_s)
        self.token = self._authentication.issue(ADMINISTRATOR, ("system:masters",))
        self.kubeconfig = self._write_kubeconfig(ADMINISTRATOR, self.token)
        self._tls = self._tls_context()
        self._state = ServerState()
        self._config = uvicorn.Config(
            self._application,
            http=HttpToolsProtocol,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=3600,
        )
        self._listener: asyncio.AbstractServer | None = None
        self._closed = False
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="apiserver", daemon=True)
        self._thread.start()
        self._call(self._start)

    # for tests

    @property
    def services(self) -> dict[tuple[str, str], str]:
        """Where webhooks' Services are reached: (namespace, name) to a base URL."""
        return self._admission.services

    def kubeconfig_for(self, user: str, groups: Sequence[str] = ()) -> Path:
        """A kubeconfig with a token of this user's own."""
        return self._write_kubeconfig(user, self._authentication.issue(user, groups))

    def token_for(self, user: str, groups: Sequence[str] = ()) -> str:
        return self._authentication.issue(user, groups)

    def requests(self) -> list[tuple[str, str, str]]:
        """(verb, path, user) of every request so far."""
        return list(self._application.seen)

    @property
    def watches(self) -> int:
        """How many watches are open."""
        return len(self._application.open_streams)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self.faults.clear()
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(timeout=10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=10)
        self._loop.close()
        self._sock.close()
        shutil.rmtree(self._directory, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # for faults, on the loop

    def cut_watches(self, clean: bool) -> int:
        count = len(self._application.open_streams)
        if clean:
            self._storage.close_subscriptions()
        else:
            self._application.cut_streams()
        return count

    def compact(self) -> int:
        return self._storage.compact()

    def block(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
            self._sock.close()
        for connection in list(self._state.connections):
            transport = getattr(connection, "transport", None)
            if transport is not None:
                transport.abort()

    async def unblock(self) -> None:
        if self._listener is None:
            self._sock = _listening(self._port)
            await self._listen()

    # thread, loop, TLS

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def _call(self, function: Callable[[], Any]) -> Any:
        """Run on the loop, wait for it (and for what it awaits)."""

        async def run() -> Any:
            result = function()
            return await result if asyncio.iscoroutine(result) else result

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(timeout=30)

    async def _start(self) -> None:
        for name in (*IMMORTAL_NAMESPACES, "kube-node-lease"):
            self._storage.put("namespaces", "", name, _first_namespace(name))
        self._collector.start()
        await self._listen()

    async def _listen(self) -> None:
        config = self._config
        if not config.loaded:
            config.load()

        def protocol() -> asyncio.Protocol:
            return HttpToolsProtocol(config=config, server_state=self._state, app_state={})

        self._listener = await self._loop.create_server(
            protocol, sock=self._sock, ssl=self._tls, backlog=512
        )

    async def _stop(self) -> None:
        await self._collector.stop()
        self.block()
        self._application.cut_streams()
        pending = list(self._state.tasks)
        if pending:
            _, late = await asyncio.wait(pending, timeout=2)
            for task in late:
                task.cancel()
        await self._admission.aclose()

    def _tls_context(self) -> ssl.SSLContext:
        pair = serving_pair()
        certificate, key = self._directory / "tls.crt", self._directory / "tls.key"
        certificate.write_text(pair.certificate)
        key.touch(mode=0o600)
        key.write_text(pair.key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        context.set_alpn_protocols(["http/1.1"])
        return context

    def _write_kubeconfig(self, user: str, token: str) -> Path:
        path = self._directory / f"{len(list(self._directory.iterdir()))}.kubeconfig"
        path.touch(mode=0o600)
        path.write_text(kubeconfig_text(self.url, self.ca_pem, user, token))
        return path


def kubeconfig_text(url: str, ca_pem: str, user: str, token: str) -> str:
    ca = base64.b64encode(ca_pem.encode()).decode()
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": "embedded", "cluster": {"server": url, "certificate-authority-data": ca}}
            ],
            "users": [{"name": user, "user": {"token": token}}],
            "contexts": [{"name": "embedded", "context": {"cluster": "embedded", "user": user}}],
            "current-context": "embedded",
        },
        sort_keys=False,
    )


def _listening(port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("127.0.0.1", port))
        sock.listen(512)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock


def _first_namespace(name: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": name,
            "uid": new_uid(),
            "creationTimestamp": now_text(),
            "labels": {"kubernetes.io/metadata.name": name},
        },
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Active"},
    }
