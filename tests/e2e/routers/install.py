"""python -m tests.e2e.routers.install: the real routers, each in an environment of its own.

Their module names clash, so they cannot share one. An environment is named after the hash of its
lock file, so a changed lock makes a new one, and what is there is never installed again.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).parents[3]
LOCKS = Path(__file__).parent / "locks"
CACHE = ROOT / ".cache" / "routers"
ROUTERS = ("vllm-router", "sglang-router", "smg")


def environment_of(router: str) -> Path:
    """Where the environment of this router is, or will be."""
    digest = hashlib.sha256((LOCKS / f"{router}.txt").read_bytes()).hexdigest()[:16]
    return CACHE / f"{router}-{digest}"


def install(router: str) -> Path:
    """The router's command. Installs it first if need be; CalledProcessError: pip failed."""
    home = environment_of(router)
    command = home / "bin" / router
    if (home / ".complete").exists():
        return command
    CACHE.mkdir(parents=True, exist_ok=True)
    # Scripts hold the path of their environment, so it is made in place and marked at the end.
    shutil.rmtree(home, ignore_errors=True)
    venv.create(home, with_pip=True)
    subprocess.run(
        [
            *(home / "bin" / "python", "-m", "pip", "install", "--quiet", "--no-input"),
            *("--disable-pip-version-check", "--require-hashes", "--only-binary", ":all:"),
            *("-r", LOCKS / f"{router}.txt"),
        ],
        check=True,
        env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
    )
    (home / ".complete").touch()
    return command


def main() -> int:
    for router in ROUTERS:
        print(f"{router}: {install(router)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
