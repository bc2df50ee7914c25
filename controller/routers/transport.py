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
        """`Authorization: Bearer …`, or nothing."""
        value = self.value()
        return {"authorization": f"Bearer {value.decode('latin-1')}"} if value else {}


def make_client(
    *, https: bool, ca_file: str, timeout_s: float, connections: int
) -> httpx.AsyncClient:
    """A client that follows no redirect and reads no proxy settings.

    ConfigError: `ca_file` is no bundle of certificates.
    """
    verify: ssl.SSLContext | bool = False
    if https:
        try:
            verify = ssl.create_default_context(cafile=ca_file or None)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"{ca_file}: is no readable CA bundle ({error})") from error
    return httpx.AsyncClient(
        verify=verify,
        trust_env=False,
        timeout=timeout_s,
        limits=httpx.Limits(max_connections=connections, max_keepalive_connections=4),
    )


async def call(
    client: httpx.AsyncClient,
    method: str,
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    json: Any = None,
    content: bytes | None = None,
    limit_bytes: int = MAX_BODY_BYTES,
) -> Answer:
    """One request. UnreachableError: no whole answer; RefusedError: the answer is too large."""
    sent = dict(headers or {})
    if json is not None:
        content = msgspec.json.encode(json)
        sent["content-type"] = "application/json"
    try:
        async with client.stream(method, url, headers=sent, content=content) as response:
            body = bytearray()
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > MAX_BODY_BYTES:
                    raise RefusedError(f"{method} {url}: the answer is over {MAX_BODY_BYTES} bytes")
            return Answer(response.status_code, bytes(body))
    except httpx.TimeoutException as error:
        raise UnreachableError(f"{method} {url}: no answer in time") from error
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise UnreachableError(f"{method} {url}: {_words(error)}") from error


def short(body: bytes, limit: int = 160) -> str:
    """The start of an answer, in one line, for an error message."""
    return " ".join(body[:limit].decode("utf-8", "replace").split())


def _words(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
