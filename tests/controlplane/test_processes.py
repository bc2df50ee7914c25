"""Children end with their parent, and their failures are told with what they wrote."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.controlplane import ControlPlaneError
from tests.controlplane.processes import Process
from tests.e2e.waiting import eventually

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]
PARENT = """
import os, sys, time
from pathlib import Path
from tests.controlplane.processes import Process
child = Process("child", [sys.executable, "-c", "import time; time.sleep(600)"], Path(sys.argv[1]))
print(child.pid, flush=True)
time.sleep(600)
"""


def runs(pid: int) -> bool:
    """Whether the process exists and is more than a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_a_child_does_not_outlive_its_parent(tmp_path: Path, end: signal.Signals) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path / "log")], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout
    with parent.stdout:
        child = int(parent.stdout.readline())
    assert runs(child)
    os.kill(parent.pid, end)
    parent.wait()
    eventually(lambda: not runs(child), "the child is gone")


def test_stop_ends_it_and_kill_ends_one_that_does_not_listen(tmp_path: Path) -> None:
    assert Process("one", SLEEP, tmp_path / "one").stop() == -signal.SIGTERM
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True)"
    other = Process("other", [sys.executable, "-c", f"{deaf}; time.sleep(600)"], tmp_path / "other")
    eventually(lambda: other.log.read_text(), "it does not listen any more")
    assert other.stop(grace_s=0.1) == -signal.SIGKILL


def test_one_that_ends_before_it_is_ready_is_told_with_its_last_words(tmp_path: Path) -> None:
    process = Process("early", [sys.executable, "-c", "exit('no such thing')"], tmp_path / "log")
    with pytest.raises(ControlPlaneError, match=r"early ended with 1: no such thing"):
        process.wait_until(lambda: False, timeout_s=30)


def test_one_that_is_never_ready_is_told(tmp_path: Path) -> None:
    process = Process("late", SLEEP, tmp_path / "log")
    try:
        with pytest.raises(ControlPlaneError, match=r"late was not ready in 0 s"):
            process.wait_until(lambda: False, timeout_s=0.1)
    finally:
        process.kill()
