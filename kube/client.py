"""Kubernetes API over HTTPS: one asyncio client for a process.

Invariant: every failure leaves as a `KubeError`; deletes carry preconditions, never a grace period.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import httpx

from kube import requests
from kube.body import BodyBuffer
from kube.clock import Clock, SystemClock
from kube.credentials import Credentials
from kube.decode import LineSplitter, ListPage, decode_object, decode_page
from kube.errors import TooManyRequests, Unreachable, api_error
from kube.pool import Pool
from kube.requests import Call
from kube.transport import Connections, TransportFactory

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    # A call without `type` yields a plain dict.
    T = TypeVarWithDefault("T", default=dict[str, Any])
else:
    T = TypeVar("T")

_ANY_OBJECT: Any = dict[str, Any]
# A page of many MiB from a busy server takes longer than a single object.
_LIST_TIMEOUT_S = 60.0
_RETRY_AFTER_DEFAULT_S = 1.0


class ApiClient:
    """Also `async with`. `timeout_s` bounds a whole call, retries and body included."""

    def __init__(
        self,
        credentials: Credentials,
        *,
        timeout_s: float = 10.0,
        clock: Clock | None = None,
        transport: TransportFactory = Pool,
    ) -> None:
        """ConfigError: a file that the credentials name cannot be used."""
        self.credentials = credentials
        self._timeout_s = timeout_s
        self._clock = clock or SystemClock()
        self._connections = Connections(credentials, self._clock, transport)

    async def __aenter__(self) -> "ApiClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def get(
        self,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        type: type[T] = _ANY_OBJECT,
        timeout_s: float | None = None,
    ) -> T:
        """GET `path`, decoded as `type`."""
        return decode_object(await self._call(requests.get(path, params), timeout_s), type)

    async def get_raw(
        self,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> bytes:
        """GET `path`, the body as it came."""
        return bytes(await self._call(requests.get(path, params), timeout_s))

    async def list_pages(
        self,
        path: str,
        *,
        type: type[T],
        label_selector: str = "",
        field_selector: str = "",
        page_size: int = 500,
    ) -> AsyncGenerator[ListPage[T], None]:
        """Pages of one consistent list (resourceVersion unset). Gone: it expired, begin again."""
        token = ""
        # One for all pages: fresh memory for each costs as much as decoding it.
        buffer = BodyBuffer()
        while True:
            call = requests.list_page(
                path,
                label_selector=label_selector,
                field_selector=field_selector,
                page_size=page_size,
                token=token,
            )
            body = await self._call(call, max(self._timeout_s, _LIST_TIMEOUT_S), buffer)
            page = decode_page(body, type)
            del body
            yield page
            token = page.next_token
            if not token:
                return

    async def create(
        self,
        path: str,
        body: Any,
        *,
        params: Mapping[str, str] | None = None,
        type: type[T] = _ANY_OBJECT,
        timeout_s: float | None = None,
    ) -> T:
        """POST `body` (dict or msgspec struct) to a collection. AlreadyExists: name taken."""
        call = requests.write("POST", path, body, params)
        return decode_object(await self._call(call, timeout_s), type)

    async def replace(
        self,
        path: str,
        body: Any,
        *,
        params: Mapping[str, str] | None = None,
        type: type[T] = _ANY_OBJECT,
        timeout_s: float | None = None,
    ) -> T:
        """PUT `body`. Conflict: its resourceVersion is not the stored one."""
        call = requests.write("PUT", path, body, params)
        return decode_object(await self._call(call, timeout_s), type)

    async def patch(
        self,
        path: str,
        body: Any,
        *,
        content_type: str = "application/merge-patch+json",
        params: Mapping[str, str] | None = None,
        type: type[T] = _ANY_OBJECT,
        timeout_s: float | None = None,
    ) -> T:
        """PATCH with `body` of that content type."""
        call = requests.write("PATCH", path, body, params, content_type)
        return decode_object(await self._call(call, timeout_s), type)

    async def delete(
        self,
        path: str,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        dry_run: bool = False,
        timeout_s: float | None = None,
    ) -> None:
        """DELETE with preconditions in the body. NotFound: done. Conflict: decide again."""
        call = requests.delete(path, uid=uid, resource_version=resource_version, dry_run=dry_run)
        await self._call(call, timeout_s)

    async def watch(
        self,
        path: str,
        *,
        resource_version: str,
        label_selector: str = "",
        field_selector: str = "",
        timeout_s: float,
        read_timeout_s: float,
    ) -> AsyncGenerator[bytes, None]:
        """Lines of a watch from `resource_version`, as they come, without the newline.

        Ends when the server ends it; a last line without a newline is yielded as it is.
        Unreachable: broken off, or silent for `read_timeout_s`. Close it with `aclosing`.
        """
        call = requests.watch(
            path,
            resource_version=resource_version,
            label_selector=label_selector,
            field_selector=field_selector,
            timeout_s=timeout_s,
        )
        timeout = httpx.Timeout(self._timeout_s, read=read_timeout_s)
        async with contextlib.AsyncExitStack() as stack:
            async with self._limit(call, self._timeout_s):
                exchange = self._connections.exchange(call, timeout)
                response = await stack.enter_async_context(exchange)
                if response.status_code != 200:
                    raise _error(call, response, await response.aread())
            splitter = LineSplitter()
            async for chunk in response.aiter_bytes():
                for line in splitter.feed(chunk):
                    yield line
            if rest := splitter.rest():
                yield rest

    async def aclose(self) -> None:
        """Close every connection."""
        await self._connections.aclose()

    async def _call(
        self, call: Call, timeout_s: float | None, buffer: BodyBuffer | None = None
    ) -> memoryview:
        """The body of the answer; it is valid until `buffer` is used again."""
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        give_up_at = self._clock.monotonic() + limit_s
        buffer = buffer or BodyBuffer()
        async with self._limit(call, limit_s):
            while True:
                try:
                    return await self._exchange(call, limit_s, buffer)
                except TooManyRequests as error:
                    wait_s = error.retry_after_s or _RETRY_AFTER_DEFAULT_S
                    if self._clock.monotonic() + wait_s >= give_up_at:
                        raise
                await self._clock.sleep(wait_s)

    async def _exchange(self, call: Call, limit_s: float, buffer: BodyBuffer) -> memoryview:
        async with self._connections.exchange(call, httpx.Timeout(limit_s)) as response:
            body = await buffer.fill(response)
        if not response.is_success:
            raise _error(call, response, bytes(body))
        return body

    @contextlib.asynccontextmanager
    async def _limit(self, call: Call, limit_s: float) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(limit_s):
                yield
        except TimeoutError as error:
            raise Unreachable(
                f"{call} on {self.credentials.server}: no answer within {limit_s:g} s"
            ) from error


def _error(call: Call, response: httpx.Response, body: bytes) -> Exception:
    retry_after = response.headers.get("retry-after", "")
    return api_error(
        response.status_code,
        body,
        call=str(call),
        # The API sends whole seconds, never a date.
        retry_after_s=float(retry_after) if retry_after.isdecimal() else None,
    )
