"""Kubernetes API over HTTPS: one asyncio client for a process.

Invariant: every failure leaves as a `KubeError`; deletes carry preconditions, never a grace period.
"""

from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from kube.clock import Clock, SystemClock
from kube.credentials import Credentials

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    # A call without `type` yields a plain dict.
    T = TypeVarWithDefault("T", default=dict[str, Any])
else:
    T = TypeVar("T")

_ANY_OBJECT: Any = dict[str, Any]


class ListPage(msgspec.Struct, Generic[T], frozen=True):
    """One page of a consistent list.

    `unreadable` are UIDs of objects that did not fit `T` and were left out of `items`.
    """

    resource_version: str
    items: list[T]
    next_token: str = ""
    unreadable: tuple[str, ...] = ()


class ApiClient:
    """Also `async with`. `timeout_s` bounds a whole call, retries and body included."""

    def __init__(
        self, credentials: Credentials, *, timeout_s: float = 10.0, clock: Clock | None = None
    ) -> None:
        self.credentials = credentials
        self._timeout_s = timeout_s
        self._clock = clock or SystemClock()

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
        raise NotImplementedError

    async def get_raw(
        self,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> bytes:
        """GET `path`, the body as it came."""
        raise NotImplementedError

    def list_pages(
        self,
        path: str,
        *,
        type: type[T],
        label_selector: str = "",
        field_selector: str = "",
        page_size: int = 500,
    ) -> AsyncIterator[ListPage[T]]:
        """Pages of one consistent list (resourceVersion unset). Gone: it expired, begin again."""
        raise NotImplementedError

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
        raise NotImplementedError

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
        raise NotImplementedError

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
        raise NotImplementedError

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
        raise NotImplementedError

    def watch(
        self,
        path: str,
        *,
        resource_version: str,
        label_selector: str = "",
        field_selector: str = "",
        timeout_s: float,
        read_timeout_s: float,
    ) -> AsyncIterator[bytes]:
        """Lines of a watch from `resource_version`, as they come, without the newline.

        Ends when the server ends it; Unreachable: broken off, or silent for `read_timeout_s`.
        """
        raise NotImplementedError

    async def aclose(self) -> None:
        """Close every connection."""
        raise NotImplementedError
