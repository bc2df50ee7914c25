"""Stand-ins as processes of their own."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.apiserver import EmbeddedCluster
from tests.standins_tests.conftest import PLAIN

ROOT = Path(__file__).parent.parent.parent
COMMAND = [sys.executable, "-m", "tests.standins"]


@contextmanager
def started(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process and its first line; it has to end well on SIGTERM."""
    process = subprocess.Popen(
        [*COMMAND, *arguments], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=20)
        assert (process.returncode, errors) == (0, "")
    finally:
        process.kill()
        process.communicate()


def failed(*arguments: str) -> tuple[int, str]:
    ended = subprocess.run(
        [*COMMAND, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=20, check=False
    )
    return ended.returncode, ended.stderr


def test_an_engine_says_where_it_serves_and_what() -> None:
    with started("engine", "--model", "llama", "--adapter", "x", "--adapter", "y") as (_, line):
        said, url = line.split()
        assert said == "ready"
        cards = httpx.get(f"{url}/v1/models", verify=PLAIN).json()["data"]
        assert [card["id"] for card in cards] == ["llama", "x", "y"]
        _, errors = failed("engine", "--port", url.rpartition(":")[2])
        assert errors.startswith("error: ")
        assert errors.count("\n") == 1


def test_a_kubelet_registers_its_node(embedded: EmbeddedCluster) -> None:
    with started("kubelet", "--kubeconfig", str(embedded.kubeconfig), "--node", "n1") as (_, line):
        assert line == "ready"
    assert ("create", "/api/v1/nodes", "admin") in embedded.requests()


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("kubelet", "--kubeconfig", "/nowhere"), 2, "/nowhere"),
        (("router", "production-stack"), 2, "--file"),
        (("router", "production-stack", "--file", "/nowhere"), 2, "/nowhere"),
    ],
    ids=["no-kubeconfig", "no-file", "no-such-file"],
)
def test_a_mistake_is_one_line(arguments: tuple[str, ...], code: int, says: str) -> None:
    ended, errors = failed(*arguments)
    assert ended == code
    assert errors.startswith("error: ")
    assert says in errors
    assert errors.count("\n") == 1
