"""The application around handlers, without a network."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.apiserver.call import SYSTEM, User
from tests.apiserver.errors import StatusError
from tests.apiserver.faults import Faults
from tests.apiserver.http import (
    Application,
    ClientGone,
    Message,
    Request,
    Response,
    Scope,
    parse_object,
)

pytestmark = pytest.mark.anyio


class _Server:
    """What Faults wants of a server."""

    def cut_watches(self, clean: bool) -> int:
        return 0

    def compact(self) -> object:
        return None

    def block(self) -> None:
        return None

    def unblock(self) -> object:
        return None


class _Handler:
    def __init__(self, handle: Callable[[Request], Response]) -> None:
        self._handle = handle

    def verb(self, request: Request) -> str:
        return "get"

    def authenticate(self, request: Request) -> User:
        return SYSTEM

    async def handle(self, request: Request) -> Response:
        return self._handle(request)


async def _ask(handle: Callable[[Request], Response]) -> list[Message]:
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    scope: Scope = {"method": "GET", "path": "/x", "headers": [], "query_string": b""}
    faults = Faults(lambda function: function(), _Server())
    await Application(_Handler(handle), faults, 2.0)(scope, receive, send)
    return sent


def _raise(error: Exception) -> Callable[[Request], Response]:
    def handle(request: Request) -> Response:
        raise error

    return handle


async def test_what_is_unforeseen_is_a_500_and_a_logged_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.ERROR):
        start, body = await _ask(_raise(ZeroDivisionError("oops")))
    assert start["status"] == 500
    assert msgspec.json.decode(body["body"])["reason"] == "InternalError"
    assert "ZeroDivisionError" in caplog.text


async def test_a_refusal_is_its_status_object() -> None:
    error = StatusError(429, "TooManyRequests", "later", {"retryAfterSeconds": 3})
    start, body = await _ask(_raise(error))
    assert start["status"] == 429
    assert (b"retry-after", b"3") in start["headers"]
    assert msgspec.json.decode(body["body"]) == error.status


async def test_who_is_gone_is_not_answered() -> None:
    assert await _ask(_raise(ClientGone())) == []


@pytest.mark.parametrize(
    ("body", "kind", "code"),
    [
        pytest.param(b"[]", "application/json", 400, id="no object"),
        pytest.param(b"{", "application/json", 400, id="broken json"),
        pytest.param(b"a: [", "application/yaml", 400, id="broken yaml"),
        pytest.param(b"- a", "application/yaml", 400, id="a list in yaml"),
        pytest.param(b"{}", "application/cbor", 415, id="unknown type"),
    ],
)
def test_bodies_that_cannot_be_read(body: bytes, kind: str, code: int) -> None:
    with pytest.raises(StatusError) as caught:
        parse_object(body, kind)
    assert caught.value.code == code


@pytest.mark.parametrize("kind", ["", "application/json", "application/yaml"])
def test_bodies_that_can_be_read(kind: str) -> None:
    found: Any = parse_object(b'{"a": {"b": [1, 2]}}', kind)
    assert found == {"a": {"b": [1, 2]}}
