"""Connections to the API server, with the TLS material and the token that hold now.

Invariant: new material is for new connections; requests on the way finish on the old ones. Every
failure of the network leaves as `Unreachable`.
"""

import contextlib
import os
import ssl
from collections.abc import AsyncIterator, Callable

import httpx

from kube.clock import Clock
from kube.credentials import Credentials
from kube.errors import ConfigError, Unreachable
from kube.logs import get_logger
from kube.pool import Pool
from kube.requests import JSON, Call
from kube.tls import TlsMaterial, build_context, plain_context, read_material
from kube.tokens import REREAD_AFTER_S, TokenSource

log = get_logger(__name__)

TransportFactory = Callable[[ssl.SSLContext], httpx.AsyncBaseTransport]

_USER_AGENT = "podstamp"


class _Generation:
    """A client with one state of the TLS material, and how many requests it is serving."""

    def __init__(self, material: TlsMaterial, transport: httpx.AsyncBaseTransport) -> None:
        self.material = material
        self.http = httpx.AsyncClient(transport=transport, trust_env=False)
        self.users = 0
        self.retired = False


class Connections:
    """The pool in use, and old ones until their last request is over."""

    def __init__(
        self, credentials: Credentials, clock: Clock, transport: TransportFactory = Pool
    ) -> None:
        """ConfigError: material or token cannot be used."""
        self._credentials = credentials
        self._clock = clock
        self._transport = transport
        self._tokens = TokenSource(credentials, clock)
        url = _server_url(credentials.server)
        self._is_tls = url.scheme == "https"
        self._pool = self._open(read_material(credentials))
        self._retired: list[_Generation] = []
        self._checked_at = clock.monotonic()

    @contextlib.asynccontextmanager
    async def exchange(self, call: Call, timeout: httpx.Timeout) -> AsyncIterator[httpx.Response]:
        """Send `call`; the response's body is still to be read. A 401 is retried once."""
        token = self._tokens.current()
        async with self._send(call, timeout, token) as response:
            renewed = False
            if response.status_code == 401:
                await response.aread()
                renewed = await self._tokens.refused(token)
            if not renewed:
                yield response
                return
        async with self._send(call, timeout, self._tokens.current()) as response:
            yield response

    async def aclose(self) -> None:
        """Close every connection, also those in use."""
        for pool in (self._pool, *self._retired):
            await pool.http.aclose()
        self._retired.clear()

    @contextlib.asynccontextmanager
    async def _send(
        self, call: Call, timeout: httpx.Timeout, token: str | None
    ) -> AsyncIterator[httpx.Response]:
        await self._check_material(REREAD_AFTER_S)
        pool = self._pool
        pool.users += 1
        try:
            request = self._request(pool, call, timeout, token)
            response = await pool.http.send(request, stream=True)
            try:
                yield response
            finally:
                await response.aclose()
        except httpx.RequestError as error:
            if _is_untrusted(error):
                await self._check_material(0.0)
            raise Unreachable(f"{call} on {self._credentials.server}: {explain(error)}") from error
        finally:
            pool.users -= 1
            if pool.retired and pool.users == 0:
                self._retired.remove(pool)
                await pool.http.aclose()

    def _request(
        self, pool: _Generation, call: Call, timeout: httpx.Timeout, token: str | None
    ) -> httpx.Request:
        headers = {"accept": JSON, "accept-encoding": "identity", "user-agent": _USER_AGENT}
        if call.body is not None:
            headers["content-type"] = call.content_type
        if token is not None:
            headers["authorization"] = f"Bearer {token}"
        name = self._credentials.tls_server_name
        return pool.http.build_request(
            call.method,
            call.url(self._credentials.server),
            content=call.body,
            headers=headers,
            timeout=timeout,
            extensions={"sni_hostname": name} if name else None,
        )

    async def _check_material(self, after_s: float) -> None:
        now = self._clock.monotonic()
        if now - self._checked_at < after_s:
            return
        self._checked_at = now
        old = self._pool
        try:
            material = read_material(self._credentials)
            if material == old.material:
                return
            self._pool = self._open(material)
        except ConfigError as error:
            log.warning("the old CA and client certificate stay in use", error=error)
            return
        log.info("new connections use the new CA and client certificate")
        if old.users:
            old.retired = True
            self._retired.append(old)
        else:
            await old.http.aclose()

    def _open(self, material: TlsMaterial) -> _Generation:
        if self._is_tls:
            context = build_context(material, insecure=self._credentials.insecure)
        else:
            context = plain_context()
        return _Generation(material, self._transport(context))


def _server_url(server: str) -> httpx.URL:
    try:
        url = httpx.URL(server)
    except httpx.InvalidURL as error:
        raise ConfigError(f"server {server!r} is no http or https URL: {error}") from error
    if url.scheme not in ("http", "https") or not url.host:
        raise ConfigError(f"server {server!r} is no http or https URL")
    return url


def explain(error: BaseException) -> str:
    """Why the network failed, in a few words: httpx keeps the reason in the chain of causes."""
    if isinstance(error, httpx.ConnectTimeout):
        return "connecting timed out"
    if isinstance(error, httpx.ReadTimeout):
        return "no answer in time"
    link: BaseException | None = error
    while link is not None:
        if isinstance(link, ssl.SSLCertVerificationError):
            return f"its certificate is not trusted: {link.verify_message}"
        if isinstance(link, ssl.SSLError):
            return f"TLS failed: {link.reason or link}"
        if isinstance(link, OSError) and link.errno is not None and link.errno > 0:
            return os.strerror(link.errno).lower()
        if isinstance(link, OSError) and link.strerror:
            return link.strerror.lower()
        link = link.__cause__ or link.__context__
    return str(error) or type(error).__name__


def _is_untrusted(error: BaseException) -> bool:
    link: BaseException | None = error
    while link is not None:
        if isinstance(link, ssl.SSLCertVerificationError):
            return True
        link = link.__cause__ or link.__context__
    return False
