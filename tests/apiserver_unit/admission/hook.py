"""A webhook over TLS that answers as a test tells it to, and records what it was asked."""

import asyncio
import base64
import json
import ssl
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from certs.issue import issue_ca, issue_leaf

Json = dict[str, Any]
Respond = Callable[[Json], Json | bytes | int | None]


class Identity(NamedTuple):
    """A serving certificate, and what a caBundle must hold to trust it."""

    bundle: str
    chain_pem: bytes


@cache
def identity(*names: str) -> Identity:
    """A CA of its own and a leaf for `names`; made once for all tests."""
    day = timedelta(days=1)
    ca = issue_ca(datetime.now(UTC), 30 * day)
    certificate = x509.load_pem_x509_certificate(ca.cert_pem)
    key: Any = load_pem_private_key(ca.key_pem, None)
    leaf = issue_leaf(certificate, key, names, datetime.now(UTC), day)
    return Identity(base64.b64encode(ca.cert_pem).decode(), leaf.cert_pem + leaf.key_pem)


def _serving(who: Identity) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as folder:
        chain = Path(folder, "chain.pem")
        chain.write_bytes(who.chain_pem)
        context.load_cert_chain(chain)
    return context


def allow(**response: Any) -> Respond:
    """Answers that allow, with more fields of the response."""
    return lambda review: reviewed(review, allowed=True, **response)


def deny(**status: Any) -> Respond:
    """Answers that refuse with this status."""
    return lambda review: reviewed(review, allowed=False, status=status)


def patching(*operations: Json) -> Respond:
    """Answers that allow with a JSON patch."""
    return allow(patch=encoded(list(operations)), patchType="JSONPatch")


def encoded(patch: Any) -> str:
    return base64.b64encode(json.dumps(patch).encode()).decode()


def reviewed(review: Json, **response: Any) -> Json:
    return {
        "kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1",
        "response": {"uid": review["request"]["uid"], **response},
    }


class Hook:
    """`respond` gives the JSON of a 200, raw bytes of one, another status, or None for silence."""

    def __init__(self, respond: Respond | None = None, names: tuple[str, ...] = ("127.0.0.1",)):
        self.respond = respond or allow()
        self.identity = identity(*names)
        self.reviews: list[Json] = []
        self.targets: list[str] = []
        self.hosts: list[str] = []
        self.connections = 0
        self.asked = asyncio.Event()
        self.waits_for: asyncio.Event | None = None  # answers only after that
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def requests(self) -> list[Json]:
        return [review["request"] for review in self.reviews]

    @property
    def base(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def client_config(self, path: str = "/mutate") -> Json:
        return {"url": f"{self.base}{path}", "caBundle": self.identity.bundle}

    async def __aenter__(self) -> "Hook":
        context = _serving(self.identity)
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=context)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._serve(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            return  # the client has gone, or the test is over
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            fields = dict(line.lower().split(": ", 1) for line in head[1:] if ": " in line)
            review = json.loads(await reader.readexactly(int(fields["content-length"])))
            self.targets.append(head[0].split(" ")[1])
            self.hosts.append(fields["host"])
            self.reviews.append(review)
            self.asked.set()
            if self.waits_for is not None:
                await self.waits_for.wait()
            answer = self.respond(review)
            if answer is None:
                await asyncio.Event().wait()
            status = answer if isinstance(answer, int) else 200
            body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n\r\n".encode())
            writer.write(body)
            await writer.drain()
