"""A directory as the source: content counts, whatever happened to the files."""

from collections.abc import Callable
from pathlib import Path

import pytest

from certs.files import write_directory
from certs.serving import read_directory, watch_directory
from kube.errors import ConfigError
from tests.certs.tasks import running
from tests.clock import FakeClock

pytestmark = pytest.mark.anyio

Pair = tuple[bytes, bytes]


class Taker:
    """Takes every pair but those that `refuses`."""

    def __init__(self) -> None:
        self.offered: list[Pair] = []
        self.refuses: set[bytes] = set()

    def __call__(self, cert_pem: bytes, key_pem: bytes) -> str | None:
        self.offered.append((cert_pem, key_pem))
        return "bad" if cert_pem in self.refuses else None


def swap(folder: Path, number: int) -> Pair:
    """A new version of the volume, as a kubelet makes it."""
    pair = (f"cert {number}".encode(), f"key {number}".encode())
    version = folder / f"..v{number}"
    version.mkdir()
    (version / "tls.crt").write_bytes(pair[0])
    (version / "tls.key").write_bytes(pair[1])
    (folder / "..data_tmp").symlink_to(version.name)
    (folder / "..data_tmp").replace(folder / "..data")
    return pair


def overwrite(folder: Path, number: int) -> Pair:
    pair = (f"cert {number}".encode(), f"key {number}".encode())
    write_directory(folder, {"tls.crt": pair[0], "tls.key": pair[1], "ca.crt": b"ca"})
    return pair


@pytest.mark.parametrize("change", [swap, overwrite], ids=["volume swap", "plain files"])
async def test_new_content_is_offered_once(
    tmp_path: Path, change: Callable[[Path, int], Pair]
) -> None:
    clock, taker = FakeClock(), Taker()
    first = change(tmp_path, 1)
    async with running(watch_directory(tmp_path, taker, clock=clock)):
        await clock.advance(10)
        assert taker.offered == [first]
        second = change(tmp_path, 2)
        await clock.advance(2)
        assert taker.offered == [first, second]
        await clock.advance(10)
        assert taker.offered == [first, second]


async def test_a_refused_pair_is_offered_again_until_it_is_taken(tmp_path: Path) -> None:
    clock, taker = FakeClock(), Taker()
    pair = overwrite(tmp_path, 1)
    taker.refuses = {pair[0]}
    async with running(watch_directory(tmp_path, taker, clock=clock)):
        await clock.advance(4)
        assert len(taker.offered) == 3
        taker.refuses = set()
        await clock.advance(10)
        assert len(taker.offered) == 4


async def test_missing_files_are_told_once_and_read_when_they_are_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock, taker = FakeClock(), Taker()
    async with running(watch_directory(tmp_path, taker, clock=clock)):
        await clock.advance(10)
        assert len(caplog.records) == 1
        pair = overwrite(tmp_path, 1)
        await clock.advance(2)
    assert taker.offered == [pair]


@pytest.mark.parametrize("missing", ["tls.crt", "tls.key"])
def test_a_missing_file_is_told_in_one_line_with_what_to_do(tmp_path: Path, missing: str) -> None:
    overwrite(tmp_path, 1)
    (tmp_path / missing).unlink()
    with pytest.raises(ConfigError) as caught:
        read_directory(tmp_path)
    assert str(tmp_path / missing) in str(caught.value)
    assert "python -m certs issue --cert-dir" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_written_keys_are_for_their_owner_alone_and_unchanged_files_stay(tmp_path: Path) -> None:
    data = {"tls.crt": b"1", "tls.key": b"2", "ca.crt": b"3", "ca.key": b"4"}
    assert write_directory(tmp_path / "new" / "folder", data) is True
    files = {path.name: path for path in (tmp_path / "new" / "folder").iterdir()}
    assert set(files) == {"tls.crt", "tls.key", "ca.crt"}, "the CA's key stays in the cluster"
    assert files["tls.key"].stat().st_mode & 0o777 == 0o600
    before = {name: path.stat().st_ino for name, path in files.items()}
    assert write_directory(tmp_path / "new" / "folder", data) is False
    assert {name: path.stat().st_ino for name, path in files.items()} == before


def test_a_directory_that_cannot_be_written_is_a_users_mistake(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    data = {"tls.crt": b"1", "tls.key": b"2", "ca.crt": b"3"}
    with pytest.raises(ConfigError, match=str(tmp_path / "file")):
        write_directory(tmp_path / "file", data)
