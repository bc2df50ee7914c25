"""kubectl from the locked environment, as a person would call it."""

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

KUBECTL = Path(sys.executable).with_name("kubectl")


@dataclass(frozen=True, slots=True)
class Result:
    """What one call printed; `code` is its exit code."""

    code: int
    out: str
    err: str


@dataclass(frozen=True, slots=True)
class Kubectl:
    """Calls kubectl on one kubeconfig; discovery is cached in a folder of its own."""

    kubeconfig: Path
    home: Path
    timeout_s: float = 60.0
    global_args: tuple[str, ...] = field(default=())

    def run(self, *args: str, stdin: str | None = None) -> Result:
        """Any call; the caller judges the exit code."""
        done = subprocess.run(
            [KUBECTL, *self.global_args, *args],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=self.timeout_s,
            env={
                "KUBECONFIG": str(self.kubeconfig),
                "HOME": str(self.home),
                "PATH": f"{KUBECTL.parent}{os.pathsep}{os.environ.get('PATH', '')}",
            },
        )
        return Result(done.returncode, done.stdout, done.stderr)

    def __call__(self, *args: str, stdin: str | None = None) -> str:
        """A call that has to succeed; returns its standard output."""
        result = self.run(*args, stdin=stdin)
        assert result.code == 0, f"kubectl {' '.join(args)}: {result.err or result.out}"
        return result.out

    def json(self, *args: str, stdin: str | None = None) -> Any:
        return msgspec.json.decode(self(*args, "-o", "json", stdin=stdin))
