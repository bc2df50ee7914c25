"""A webhook over TLS that answers as a test tells it to, and records what it was asked."""

import asyncio
import base64
import json
import ssl
import tempfile
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from certs.issue import issue_ca, issue_leaf
from tests.standins.http_server import HttpServer, Request, Response

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
    """`respond` gives the JSON of a 200, raw bytes of one, another status, or None for silence.

    In a test's own loop it is an async context manager, elsewhere a stand-in that a thread hosts.
    """

    def __init__(
        self,
        respond: Respond | None = None,
        names: tuple[str, ...] = ("127.0.0.1",),
        who: Identity | None = None,
    ) -> None:
        self.respond = respond or allow()
        self.identity = who or identity(*names)
        self.reviews: list[Json] = []
        self.targets: list[str] = []
        self.hosts: list[str] = []
        self.asked = asyncio.Event()
        self.waits_for: asyncio.Event | None = None  # answers only after that
        self._server = HttpServer(self._answer, tls=_serving(self.identity))
        self.ready = self._server.ready
        self.run = self._server.run

    @property
    def requests(self) -> list[Json]:
        return [review["request"] for review in self.reviews]

    @property
    def connections(self) -> int:
        return self._server.accepted

    @property
    def base(self) -> str:
        return self._server.url

    @property
    def port(self) -> int:
        return self._server.port

    def client_config(self, path: str = "/mutate") -> Json:
        return {"url": f"{self.base}{path}", "caBundle": self.identity.bundle}

    async def __aenter__(self) -> "Hook":
        await self._server.bind()
        self._task = asyncio.ensure_future(self._server.run())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.sleep(0)  # a task that never began could not clean up
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    async def _answer(self, request: Request) -> Response:
        review = request.json()
        query = "&".join(f"{name}={value}" for name, value in request.query.items())
        self.targets.append(f"{request.path}?{query}")
        self.hosts.append(request.headers["host"])
        self.reviews.append(review)
        self.asked.set()
        if self.waits_for is not None:
            await self.waits_for.wait()
        answer = self.respond(review)
        if answer is None:
            await asyncio.Event().wait()
        return Response(answer, "") if isinstance(answer, int) else Response(content=answer)
