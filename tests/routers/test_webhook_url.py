"""A signed POST of the desired set."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from controller.routers.webhook_url import SIGNATURE_HEADER, TIMESTAMP_HEADER, payload_of, sign
from kube import paths
from tests.apiserver import EmbeddedCluster
from tests.routers.fleet import backend, desired
from tests.routers.rig import Rig, config_of, rigged
from tests.standins.http_server import HttpServer, Request, Response
from tests.standins_tests.running import running, until


class Receiver:
    """Takes what is signed with `secret`; refuses the next `failures` calls with 503."""

    def __init__(self, secret: bytes) -> None:
        self.secret = secret
        self.failures = 0
        self.bodies: list[dict[str, Any]] = []
        self.refused: list[dict[str, Any]] = []
        self._server = HttpServer(self._handle)
        self.ready = self._server.ready
        self.run = self._server.run

    @property
    def url(self) -> str:
        return f"{self._server.url}/hook"

    @property
    def last(self) -> list[str]:
        return [engine["url"] for engine in self.bodies[-1]["engines"]] if self.bodies else []

    async def _handle(self, request: Request) -> Response:
        signed = request.headers[TIMESTAMP_HEADER].encode() + b"." + request.body
        right = hmac.new(self.secret, signed, hashlib.sha256).hexdigest()
        assert request.path == "/hook"
        if request.headers[SIGNATURE_HEADER] != f"sha256={right}":
            return Response(401, {"error": "signature"})
        if self.failures:
            self.failures -= 1
            self.refused.append(request.json())
            return Response(503, {"error": "later"})
        self.bodies.append(request.json())
        return Response(204, "")


@pytest.fixture
async def rig(embedded: EmbeddedCluster) -> AsyncIterator[Rig]:
    async with rigged(embedded) as made:
        yield made


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "secret"
    file.write_text("hush\n")
    return file


def write(file: Path, text: str | None) -> None:
    """Replace a mounted secret; None takes it away."""
    file.unlink(missing_ok=True)
    if text is not None:
        file.write_text(text)


def test_the_payload_is_sorted_and_names_each_incarnation() -> None:
    payload = payload_of(
        desired(backend("e2", "http://10.0.0.2:8000"), backend("e1", adapters=("a",), uid="A"))
    )
    assert [entry["url"] for entry in payload] == ["http://10.0.0.1:8000", "http://10.0.0.2:8000"]
    assert payload[0] == {
        "url": "http://10.0.0.1:8000",
        "namespace": "models",
        "pod": "e1",
        "uid": "A",
        "incarnation": "incarnation-of-A",
        "model": "",
        "models": ["base"],
        "adapters": ["a"],
    }


def test_a_signature_covers_time_and_body() -> None:
    right = sign(b"k", "1", b"body")
    assert right.startswith("sha256=")
    assert (
        len({right, sign(b"k", "2", b"body"), sign(b"k", "1", b"b"), sign(b"x", "1", b"body")}) == 4
    )


@pytest.mark.anyio
async def test_each_change_is_sent_once_and_numbered_upwards(rig: Rig, secret: Path) -> None:
    first, second = await rig.engine("e1"), await rig.engine("e2")
    await rig.start("p1", first)
    await rig.start("p2", second)
    async with running(Receiver(b"hush")) as receiver:
        config = config_of("webhook-url", url=receiver.url, secretFile=str(secret))
        async with rig.leading(config):
            await until(lambda: set(receiver.last) == {first.url, second.url})
            await rig.delete("p1")
            await until(lambda: receiver.last == [second.url])
        before = [body["sequence"] for body in receiver.bodies]
        # A new leader has asked nobody yet, which is no reason to tell of an empty set.
        second.delay_s = 0.2
        async with rig.leading(config):
            await until(lambda: len(receiver.bodies) > len(before))
            assert receiver.last == [second.url]
        numbers = [body["sequence"] for body in receiver.bodies]
        assert numbers == sorted(set(numbers))
        assert receiver.bodies[-1]["router"] == "chat"


@pytest.mark.anyio
async def test_a_stored_number_that_is_none_starts_again(rig: Rig, secret: Path) -> None:
    record = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "podstamp-router-chat", "namespace": "podstamp-system"},
        "data": {"sequence": "9" * 5000},
    }
    await rig.client.create(paths.configmaps("podstamp-system"), record)
    engine = await rig.engine("e1")
    await rig.start("p1", engine)
    async with running(Receiver(b"hush")) as receiver:
        config = config_of("webhook-url", url=receiver.url, secretFile=str(secret))
        async with rig.leading(config):
            await until(lambda: receiver.last == [engine.url])
        assert receiver.bodies[0]["sequence"] == 1


@pytest.mark.anyio
async def test_a_password_in_the_url_is_not_shown(rig: Rig, secret: Path) -> None:
    async with running(Receiver(b"hush")) as receiver:
        url = receiver.url.replace("http://", "http://user:hunter2@")
        async with rig.leading(config_of("webhook-url", url=url, secretFile=str(secret))) as loop:
            await rig.start("p1", await rig.engine("e1"))
            await until(lambda: bool(receiver.bodies))
            assert "hunter2" not in str(loop.status())


@pytest.mark.anyio
async def test_a_receiver_that_fails_is_asked_again_under_the_same_number(
    rig: Rig, secret: Path
) -> None:
    engine = await rig.engine("e1")
    await rig.start("p1", engine)
    async with running(Receiver(b"hush")) as receiver:
        receiver.failures = 2
        config = config_of("webhook-url", url=receiver.url, secretFile=str(secret))
        async with rig.leading(config):
            await until(lambda: receiver.last == [engine.url])
        tries = [
            body["sequence"]
            for body in (*receiver.refused, *receiver.bodies)
            if body["engines"] == receiver.bodies[-1]["engines"]
        ]
        assert len(set(tries)) == 1


@pytest.mark.anyio
async def test_what_was_accepted_is_sent_again_after_a_while(rig: Rig, secret: Path) -> None:
    engine = await rig.engine("e1")
    await rig.start("p1", engine)
    async with running(Receiver(b"hush")) as receiver:
        config = config_of(
            "webhook-url", url=receiver.url, secretFile=str(secret), repeatSeconds=0.5
        )
        async with rig.leading(config):
            await until(lambda: [engine.url] == receiver.last)
            sent = len(receiver.bodies)
            await until(lambda: len(receiver.bodies) >= sent + 1)
            assert receiver.bodies[-1]["sequence"] > receiver.bodies[-2]["sequence"]


@pytest.mark.anyio
async def test_another_secret_is_used_as_soon_as_its_file_changes(rig: Rig, secret: Path) -> None:
    write(secret, "wrong")
    engine = await rig.engine("e1")
    await rig.start("p1", engine)
    async with running(Receiver(b"hush")) as receiver:
        config = config_of("webhook-url", url=receiver.url, secretFile=str(secret))
        async with rig.leading(config) as loop:
            await until(lambda: "401" in str(loop.status()))
            assert "wrong" not in str(loop.status())
            write(secret, "hush")
            await until(lambda: receiver.last == [engine.url])


@pytest.mark.anyio
@pytest.mark.parametrize("content", [None, ""], ids=["no file", "empty"])
async def test_without_a_secret_nothing_is_sent(
    rig: Rig, secret: Path, content: str | None
) -> None:
    write(secret, content)
    await rig.start("p1", await rig.engine("e1"))
    async with running(Receiver(b"")) as receiver:
        config = config_of("webhook-url", url=receiver.url, secretFile=str(secret))
        async with rig.leading(config) as loop:
            await until(lambda: str(secret) in str(loop.status()))
        assert receiver.bodies == []
