"""Bytes from the API server to structs, straight into the projection.

Invariant: one object that does not fit never spoils its neighbours. As in Go, null is absent.
"""

from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from kube.errors import Unreachable, Unreadable
from kube.meta import Identity

T = TypeVar("T")
Body = bytes | memoryview | msgspec.Raw


class Broken(NamedTuple):
    """An object that did not fit its type: who it is, as far as that can be read, and why."""

    identity: Identity
    error: str


class ListPage(msgspec.Struct, Generic[T], frozen=True):
    """One page of a consistent list; `broken` objects are left out of `items`."""

    resource_version: str
    items: list[T]
    next_token: str = ""
    broken: tuple[Broken, ...] = ()


class _PageMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    next_token: str = msgspec.field(default="", name="continue")


class _Page(msgspec.Struct, Generic[T]):
    metadata: _PageMeta = _PageMeta()
    items: list[T] | None = None


class _Bare(msgspec.Struct):
    metadata: Identity = Identity()


# One for each type that is ever asked for: a dozen.
_DECODERS: dict[Any, msgspec.json.Decoder[Any]] = {}


def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    decoder = _DECODERS.get(kind)
    if decoder is None:
        decoder = _DECODERS[kind] = msgspec.json.Decoder(kind)
    return decoder


def decode_object(body: Body, kind: type[T]) -> T:
    """`body` as `kind`. Unreadable: a field of the wrong type. Unreachable: no JSON at all."""
    try:
        result: T = _decoder(kind).decode(body)
    except msgspec.ValidationError:
        return _decode_without_nulls(body, kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unreachable(f"the answer is no JSON: {error}") from error
    return result


def decode_page(body: Body, kind: type[T]) -> ListPage[T]:
    """One list answer. The page is decoded at once, and object by object only if that fails."""
    try:
        page: _Page[T] = _decoder(_page_of(kind)).decode(body)
        return ListPage(page.metadata.resource_version, page.items or [], page.metadata.next_token)
    except msgspec.ValidationError:
        raw = decode_object(body, _Page[msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unreachable(f"the list is no JSON: {error}") from error
    items: list[T] = []
    broken: list[Broken] = []
    for item in raw.items or ():
        try:
            items.append(decode_object(item, kind))
        except Unreadable as error:
            broken.append(Broken(identify(item), str(error)))
    return ListPage(raw.metadata.resource_version, items, raw.metadata.next_token, tuple(broken))


def _page_of(kind: Any) -> Any:
    return _Page[kind]


def identify(body: Body) -> Identity:
    """The identity of an object, all fields empty if not even that can be read."""
    try:
        return decode_object(body, _Bare).metadata
    except Unreadable:
        return Identity()


class LineSplitter:
    """Cuts a stream at newlines, however long the lines and wherever the chunks end.

    Only at b"\\n": U+0085 and U+2028 are legal inside a JSON string.
    """

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that `chunk` completes, without their newline; empty ones are left out."""
        *lines, rest = chunk.split(b"\n")
        if lines and self._parts:
            lines[0] = b"".join((*self._parts, lines[0]))
            self._parts.clear()
        if rest:
            self._parts.append(rest)
        return [line for line in lines if line]

    def rest(self) -> bytes:
        """What came after the last newline."""
        return b"".join(self._parts)


def _decode_without_nulls(body: Body, kind: type[T]) -> T:
    try:
        return msgspec.convert(_without_nulls(msgspec.json.decode(body)), kind)
    except msgspec.ValidationError as error:
        raise Unreadable(f"the answer does not fit: {error}") from error


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value
