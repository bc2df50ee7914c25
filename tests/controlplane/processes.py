"""Child processes that never outlive their parent.

On Linux the kernel kills them when the parent dies, whatever way it dies; elsewhere `stop` does.
"""

import errno
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.controlplane.errors import ControlPlaneError

# Run between fork and exec, in an interpreter of its own: `preexec_fn` is unsafe beside threads.
# The parent may die before prctl is called, so its id is compared afterwards.
_TIED_TO_PARENT = """
import ctypes, os, signal, sys
parent = int(sys.argv[1])
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""

POLL_S = 0.05


class Process:
    """One child: started at once, its output in a file, ended by its id alone."""

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        log: Path,
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        self.name = name
        self.log = log
        with log.open("ab") as output:
            self._child = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _TIED_TO_PARENT, str(os.getpid()), *argv],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=env,
                cwd=cwd,
            )

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._child.poll()

    def wait_until(self, ready: Callable[[], bool], timeout_s: float) -> None:
        """Returns once `ready()` holds; fails at once when the process ends first."""
        deadline = time.monotonic() + timeout_s
        while not ready():
            if self.exit_code is not None:
                raise ControlPlaneError(f"{self.name} ended with {self.exit_code}: {self.tail()}")
            if time.monotonic() > deadline:
                raise ControlPlaneError(
                    f"{self.name} was not ready in {timeout_s:.0f} s: {self.tail()}"
                )
            time.sleep(POLL_S)

    def tail(self, lines: int = 20) -> str:
        """The end of what it wrote."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def signal(self, number: signal.Signals) -> None:
        self._child.send_signal(number)

    def wait(self, timeout_s: float) -> int:
        """Its exit code; TimeoutExpired if it goes on."""
        return self._child.wait(timeout_s)

    def stop(self, grace_s: float = 5.0) -> int:
        """SIGTERM, then SIGKILL after the grace; returns the exit code."""
        self._child.terminate()
        try:
            return self._child.wait(grace_s)
        except subprocess.TimeoutExpired:
            return self.kill()

    def kill(self) -> int:
        """SIGKILL; returns the exit code."""
        self._child.kill()
        return self._child.wait()


def free_port() -> int:
    """A loopback port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def is_free(port: int) -> bool:
    """Whether nothing on loopback listens on that port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            return False
        return True
