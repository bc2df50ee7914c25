import asyncio
import threading
from pathlib import Path

import pytest

from kube.credentials import Credentials
from kube.errors import ConfigError
from kube.tokens import TokenSource
from tests.clock import FakeClock

pytestmark = pytest.mark.anyio


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text("one\n")
    return path


def put(file: Path, content: bytes | None) -> None:
    """What the kubelet does to the file; None: it is gone."""
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content)


def source(clock: FakeClock, file: Path) -> TokenSource:
    return TokenSource(Credentials("https://api", token_file=file), clock)


async def test_a_token_file_is_read_again_each_minute(clock: FakeClock, file: Path) -> None:
    tokens = source(clock, file)
    put(file, b"two")
    clock.set_forward(59)
    assert tokens.current() == "one"
    clock.set_forward(1)
    assert tokens.current() == "two"
    put(file, b"three")
    assert tokens.current() == "two"
    clock.set_forward(60)
    assert tokens.current() == "three"


@pytest.mark.parametrize("content", [None, b"", b" \n", b"\xff"])
async def test_a_token_file_that_went_bad_leaves_the_last_good_token(
    clock: FakeClock, file: Path, content: bytes | None
) -> None:
    tokens = source(clock, file)
    put(file, content)
    clock.set_forward(60)
    assert tokens.current() == "one"
    assert not await tokens.refused("one")
    put(file, b"two")
    assert await tokens.refused("one")
    assert tokens.current() == "two"


@pytest.mark.parametrize("content", [None, b"", b"\xff"])
async def test_a_token_file_that_is_bad_from_the_start_is_the_users_mistake(
    clock: FakeClock, file: Path, content: bytes | None
) -> None:
    put(file, content)
    with pytest.raises(ConfigError, match=str(file)):
        source(clock, file)


async def test_a_late_refusal_of_the_former_token_reads_nothing(
    clock: FakeClock, file: Path
) -> None:
    tokens = source(clock, file)
    put(file, b"two")
    assert await tokens.refused("one")
    put(file, b"three")
    assert await tokens.refused("one"), "there is another one already"
    assert tokens.current() == "two"


async def test_a_fixed_token_has_no_successor(clock: FakeClock) -> None:
    tokens = TokenSource(Credentials("https://api", token="fixed"), clock)
    assert tokens.current() == "fixed"
    assert not await tokens.refused("fixed")
    assert TokenSource(Credentials("https://api"), clock).current() is None


async def test_a_plugin_is_asked_once_for_many_refusals_and_off_the_loop(
    clock: FakeClock,
) -> None:
    threads: list[int] = []

    def fetch() -> str:
        threads.append(threading.get_ident())
        return f"issued {len(threads)}"

    tokens = TokenSource(Credentials("https://api", token="old", fetch_token=fetch), clock)
    assert await asyncio.gather(*(tokens.refused("old") for _ in range(5))) == [True] * 5
    assert tokens.current() == "issued 1"
    assert len(threads) == 1
    assert threads[0] != threading.get_ident()


async def test_a_plugin_that_fails_leaves_the_last_token(clock: FakeClock) -> None:
    def fetch() -> str:
        raise ConfigError("gone")

    tokens = TokenSource(Credentials("https://api", token="old", fetch_token=fetch), clock)
    assert not await tokens.refused("old")
    assert tokens.current() == "old"
