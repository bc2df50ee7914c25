"""Mistakes on the command line are told in one line, before anything is built or started."""

import socket
from pathlib import Path

import pytest

from tests.controlplane.__main__ import main


def test_a_port_in_use_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert main(["serve", "--kubeconfig", str(tmp_path / "k"), "--port", port]) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert f"--port: {port} is in use" in line


def test_a_kubeconfig_in_no_folder_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--kubeconfig", str(tmp_path / "absent" / "k")]) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert "--kubeconfig: there is no folder" in line
