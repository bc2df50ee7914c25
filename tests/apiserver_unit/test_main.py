"""`python -m tests.apiserver serve`: one line for a person's mistake, and a clean end."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.apiserver.__main__ import main


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that somebody listens on."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        yield sock.getsockname()[1]


def test_it_serves_until_sigterm(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    command = [sys.executable, "-m", "tests.apiserver", "serve", "--kubeconfig", str(kubeconfig)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        written = yaml.safe_load(kubeconfig.read_text())
        server = written["clusters"][0]["cluster"]["server"]
        assert server in said
        assert kubeconfig.stat().st_mode & 0o777 == 0o600
        port = int(server.rpartition(":")[2])
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)
    assert list(tmp_path.iterdir()) == [kubeconfig]


def test_a_port_in_use_is_one_line(
    tmp_path: Path, taken: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--port", str(taken), "--kubeconfig", str(tmp_path / "k")]) == 1
    err = capsys.readouterr().err
    assert err == (
        f"error: --port {taken}: Address already in use; choose another, or 0 for a free one\n"
    )


def test_a_path_that_cannot_be_written_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "nowhere" / "kubeconfig"
    assert main(["serve", "--kubeconfig", str(path)]) == 1
    assert capsys.readouterr().err == (
        f"error: --kubeconfig {path}: No such file or directory; "
        "name a file in a folder that can be written\n"
    )


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param([], id="no command"),
        pytest.param(["serve"], id="no kubeconfig"),
        pytest.param(["serve", "--port", "70000", "--kubeconfig", "k"], id="port too great"),
        pytest.param(["serve", "--port", "x", "--kubeconfig", "k"], id="port no number"),
    ],
)
def test_wrong_usage_exits_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "error: " in capsys.readouterr().err
