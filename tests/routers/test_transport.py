"""HTTP to engines and routers, tokens, and waiting."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import httpx
import pytest
from pytest_httpx import HTTPXMock

from controller.routers.config import ReplicaPods, Replicas
from controller.routers.document import FileDocument
from controller.routers.replicas import replicas_of
from controller.routers.transport import (
    Connector,
    RefusedError,
    RouterError,
    TokenFile,
    UnreachableError,
)
from controller.routers.wake import Wake, backoff_s, jittered_s
from kube.clock import SystemClock
from kube.errors import ConfigError
from kube.pod import Pod
from kube.store import Store
from tests.clock import FakeClock
from tests.routers.fleet import pod

PEERS = Connector(https=False, ca_file="", timeout_s=1)
URL = "http://router:8000/workers"


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("error", "words"),
    [
        (httpx.ConnectError("connection refused"), "connection refused"),
        (httpx.ReadTimeout(""), "no answer in time"),
        (httpx.RemoteProtocolError("peer closed\nthe connection"), "peer closed the connection"),
        (httpx.ConnectError(""), "ConnectError"),
    ],
)
async def test_what_does_not_answer_is_unreachable_in_one_line(
    httpx_mock: HTTPXMock, error: Exception, words: str
) -> None:
    httpx_mock.add_exception(error)
    async with PEERS.peer() as peer:
        with pytest.raises(UnreachableError) as caught:
            await peer.call("GET", URL)
    assert str(caught.value) == f"GET {URL}: {words}"


@pytest.mark.anyio
async def test_an_url_that_is_none_is_unreachable_too() -> None:
    async with PEERS.peer() as peer:
        with pytest.raises(UnreachableError):
            await peer.call("GET", "http://[fd00::1")


@pytest.mark.anyio
async def test_an_answer_without_end_is_refused(httpx_mock: HTTPXMock) -> None:
    httpx_mock.add_response(content=b"x" * 1001)
    async with PEERS.peer() as peer:
        with pytest.raises(RefusedError, match="over 1000 bytes"):
            await peer.call("GET", URL, limit_bytes=1000)


def test_a_token_is_read_again_when_its_file_changes(tmp_path: Path) -> None:
    file = tmp_path / "token"
    token = TokenFile(str(file))
    with pytest.raises(ConfigError, match=r"token: cannot be read .* mount the Secret"):
        token.headers()
    file.write_text("one\n")
    assert token.headers() == {"authorization": "Bearer one"}
    other = tmp_path / "other"
    other.write_text("two\n")
    other.replace(file)
    assert token.headers() == {"authorization": "Bearer two"}
    file.write_text("")
    assert token.headers() == {}
    assert TokenFile("").headers() == {}


@pytest.mark.parametrize("content", [b"\xd0\xff", b"one\ntwo", b"a\x00b", "schlüssel".encode()])
def test_what_no_header_can_hold_is_no_token_and_is_not_shown(
    tmp_path: Path, content: bytes
) -> None:
    file = tmp_path / "token"
    file.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        TokenFile(str(file)).headers()
    assert str(caught.value) == f"{file}: is no token: one line of printable ASCII is"
    assert TokenFile(str(file)).value() == content


def test_a_ca_file_that_is_none_is_the_users_mistake(tmp_path: Path) -> None:
    file = tmp_path / "ca"
    file.write_text("no certificate")
    for path in (file, tmp_path / "absent"):
        with pytest.raises(ConfigError, match="no readable CA bundle"):
            Connector(https=True, ca_file=str(path), timeout_s=1)


def test_delays_double_with_jitter_up_to_a_limit() -> None:
    chance = random.Random(1)
    for failures, whole in ((1, 1.0), (2, 2.0), (3, 4.0), (10, 8.0), (1000, 8.0)):
        for _ in range(20):
            delay = backoff_s(failures, first_s=1.0, limit_s=8.0, random=chance)
            assert whole / 2 <= delay <= whole
            assert 9.0 <= jittered_s(10.0, chance) <= 11.0


@pytest.mark.anyio
async def test_news_ends_a_wait_and_is_not_lost_while_nobody_waits(clock: FakeClock) -> None:
    wake = Wake(clock)
    wake.set()
    wake.set()
    assert await wake.wait(10)
    wake.clear()
    waiting = asyncio.ensure_future(wake.wait(10))
    await clock.advance(9.9)
    assert not waiting.done()
    await clock.advance(0.2)
    assert await waiting is False
    waiting = asyncio.ensure_future(wake.wait(10))
    await clock.settle()
    wake.set()
    assert await waiting is True
    assert clock.sleepers == 0


@pytest.mark.anyio
async def test_a_file_is_replaced_and_never_written_in_place(tmp_path: Path) -> None:
    file = tmp_path / "doc"
    document = FileDocument(str(file))
    assert await document.read() is None
    await document.write(b"one")
    before = file.stat()
    await document.write(b"two")
    assert await document.read() == b"two"
    assert file.stat().st_ino != before.st_ino
    assert file.stat().st_mode & 0o777 == 0o644
    assert names_in(tmp_path) == ["doc"]


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


@pytest.mark.anyio
async def test_a_file_that_cannot_be_replaced_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "doc").mkdir()
    document = FileDocument(str(tmp_path / "doc"))
    for attempt in (document.read(), document.write(b"x")):
        with pytest.raises(RouterError, match="cannot be"):
            await attempt
    assert names_in(tmp_path) == ["doc"]


def test_replicas_are_urls_and_the_pods_that_live() -> None:
    store: Store[Pod] = Store(SystemClock())
    store.replace(
        [
            pod("r1", "10.0.1.1", ready=False),
            pod("r2", "fd00::2"),
            pod("gone", "10.0.1.3", terminating=True),
            pod("over", "10.0.1.4", phase="Failed"),
            pod("new", ""),
            pod("odd", "10.0.1.5", ports=(("other", 1),)),
        ]
    )
    config = Replicas(
        urls=("http://router:1/",),
        pods=ReplicaPods(namespace="models", selector={"app": "r"}, port="http"),
    )
    found = replicas_of(config, store)
    assert [(r.key, r.label, r.url) for r in found] == [
        ("http://router:1/", "http://router:1/", "http://router:1"),
        ("uid-r1", "models/r1", "http://10.0.1.1:8000"),
        ("uid-r2", "models/r2", "http://[fd00::2]:8000"),
    ]
    assert [r.regarding.name for r in found if r.regarding] == ["r1", "r2"]
