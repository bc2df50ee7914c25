"""HTTP to engines and routers: clients, credentials from files, and errors in our own words.

Invariant: nothing of httpx or ssl passes beyond this module; a token is read again whenever its
file has changed, and never appears in an error.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import msgspec

from kube.errors import ConfigError, KubeError

# A list of 1,000 workers is about 500 KiB; what is larger than this is no answer of a router.
MAX_BODY_BYTES = 16 * 1024 * 1024


class RouterError(KubeError):
    """A router or an engine could not be used; one line that says which and why."""


class UnreachableError(RouterError):
    """No connection, or no answer in time: what was asked may have been done or not."""


class RefusedError(RouterError):
    """It answered, and the answer is no, or is not understood."""


class Answer(NamedTuple):
    """Status and body of an answer that was read to its end."""

    status: int
    body: bytes


class TokenFile:
    """A bearer token in a file, such as a mounted Secret; an empty path means none."""

    def __init__(self, path: str) -> None:
        self._path = Path(path) if path else None
        self._read: tuple[int, int] | None = None
        self._value = b""

    def value(self) -> bytes:
        """The content without surrounding blanks. ConfigError: it cannot be read."""
        if self._path is None:
            return b""
        try:
            # A mounted Secret changes by a symlink, so the inode tells more than the time alone.
            stat = self._path.stat()
            version = (stat.st_ino, stat.st_mtime_ns)
            if version != self._read:
                self._value, self._read = self._path.read_bytes().strip(), version
        except OSError as error:
            raise ConfigError(
                f"{self._path}: cannot be read ({error.strerror}); mount the Secret there"
            ) from error
        return self._value

    def headers(self) -> dict[str, str]:
        """`Authorization: Bearer …`, or nothing. ConfigError: no header can hold it."""
        value = self.value()
        if not value:
            return {}
        text = value.decode("latin-1")
        if not (text.isascii() and text.isprintable()):
            raise ConfigError(f"{self._path}: is no token: one line of printable ASCII is")
        return {"authorization": f"Bearer {text}"}


class Connector:
    """Makes peers; what TLS needs is read once, so that each of 1,000 engines can have its own."""

    def __init__(self, *, https: bool, ca_file: str, timeout_s: float) -> None:
        """ConfigError: `ca_file` is no bundle of certificates."""
        self._timeout_s = timeout_s
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if https:
            try:
                self._context = ssl.create_default_context(cafile=ca_file or None)
            except (OSError, ssl.SSLError) as error:
                raise ConfigError(f"{ca_file}: is no readable CA bundle ({error})") from error

    def peer(self, *, connections: int = 1) -> Peer:
        """Connections to one engine or router, to be closed by the caller."""
        return Peer(self._context, self._timeout_s, connections)


class Peer:
    """One engine or router. Follows no redirect and reads no proxy settings.

    It is httpx's transport without its client, which doubles the cost of a request; and one for
    each peer, since a pool looks through all its connections for each request.
    """

    def __init__(self, context: ssl.SSLContext, timeout_s: float, connections: int) -> None:
        limits = httpx.Limits(max_connections=connections)
        self._transport = httpx.AsyncHTTPTransport(verify=context, trust_env=False, limits=limits)
        self._timeouts = httpx.Timeout(timeout_s).as_dict()

    async def __aenter__(self) -> Peer:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close its connections."""
        await self._transport.aclose()

    async def call(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        json: Any = None,
        content: bytes | None = None,
        limit_bytes: int = MAX_BODY_BYTES,
    ) -> Answer:
        """One request. UnreachableError: no whole answer; RefusedError: it is too large."""
        sent = dict(headers or {})
        if json is not None:
            content = msgspec.json.encode(json)
            sent["content-type"] = "application/json"
        try:
            request = httpx.Request(
                method, url, headers=sent, content=content, extensions={"timeout": self._timeouts}
            )
            response = await self._transport.handle_async_request(request)
            try:
                body = bytearray()
                async for chunk in response.aiter_bytes():
                    body += chunk
                    if len(body) > limit_bytes:
                        raise RefusedError(f"{method} {url}: over {limit_bytes} bytes")
                return Answer(response.status_code, bytes(body))
            finally:
                await response.aclose()
        except httpx.TimeoutException as error:
            raise UnreachableError(f"{method} {url}: no answer in time") from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise UnreachableError(f"{method} {url}: {_words(error)}") from error


def short(body: bytes, limit: int = 160) -> str:
    """The start of an answer, in one line, for an error message."""
    return " ".join(body[:limit].decode("utf-8", "replace").split())


def _words(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
