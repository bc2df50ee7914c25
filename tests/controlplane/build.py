"""Builds kube-apiserver, kube-controller-manager and etcd once, into the cache.

The key is what decides the result: go.mod, go.sum, sources, ldflags and the version of Go.
A folder in the cache is whole, or it is not there: it is built beside and renamed.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.controlplane.errors import ControlPlaneError
from tests.controlplane.toolchain import Go, environment, find_go

HERE = Path(__file__).parent
CACHE = HERE.parent.parent / ".cache" / "controlplane"
# Set by envtest's setup tool and by people who bring their own binaries.
ASSETS_VARIABLE = "KUBEBUILDER_ASSETS"
PROGRESS_PERIOD_S = 15.0


@dataclass(frozen=True, slots=True)
class Module:
    """A Go module of this folder and the commands that are built from it, by package."""

    folder: Path
    commands: Mapping[str, str]
    ldflags: tuple[str, ...]

    @property
    def go_mod(self) -> Path:
        return self.folder / "go.mod"


def kubernetes_version(go_mod: str) -> str:
    """The version that go.mod pins, such as `v1.37.2`."""
    found = re.search(r"k8s\.io/kubernetes (v\S+)", go_mod)
    if not found:
        raise ControlPlaneError("go.mod pins no k8s.io/kubernetes")
    return found[1]


def version_flags(version: str) -> tuple[str, ...]:
    """Linker flags that let the binaries, and so `kubectl version`, say which release they are."""
    major, minor, _ = version.removeprefix("v").split(".", 2)
    facts = {
        "gitVersion": version,
        "gitMajor": major,
        "gitMinor": minor,
        "gitTreeState": "clean",
        "gitCommit": "",
    }
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    return tuple(f"-X={p}.{name}={value}" for p in packages for name, value in facts.items())


def modules() -> tuple[Module, ...]:
    kubernetes = HERE / "kubernetes"
    version = kubernetes_version((kubernetes / "go.mod").read_text())
    return (
        # etcd is a module of its own: in one graph it would lift Kubernetes' etcd client.
        Module(HERE / "etcd", {"etcd": "."}, ("-s", "-w")),
        Module(
            kubernetes,
            {
                name: f"k8s.io/kubernetes/cmd/{name}"
                for name in ("kube-apiserver", "kube-controller-manager")
            },
            ("-s", "-w", *version_flags(version)),
        ),
    )


def cache_key(go_version: str, built: tuple[Module, ...]) -> str:
    """Names the result of a build."""
    digest = hashlib.sha256(go_version.encode())
    for module in built:
        for path in sorted(module.folder.iterdir()):
            if path.suffix in {".mod", ".sum", ".go"}:
                digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
        digest.update("\0".join(module.ldflags).encode())
    return digest.hexdigest()[:16]


def binaries() -> dict[str, Path]:
    """Paths of the three commands, by name; builds what neither the user nor the cache has."""
    found: dict[str, Path] = {}
    if folder := os.environ.get(ASSETS_VARIABLE):
        found = _given(Path(folder))
    missing = tuple(m for m in modules() if not m.commands.keys() <= found.keys())
    if not missing:
        return found
    CACHE.mkdir(parents=True, exist_ok=True)
    with _locked(CACHE / "lock"):
        go = find_go(CACHE, [module.go_mod for module in missing])
        target = CACHE / cache_key(go.version, missing)
        if not target.exists():
            scratch = Path(tempfile.mkdtemp(dir=CACHE, prefix="build-"))
            try:
                for module in missing:
                    _build(go, module, scratch)
                scratch.rename(target)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
    return {name: target / name for m in missing for name in m.commands} | found


def _given(folder: Path) -> dict[str, Path]:
    if not folder.is_dir():
        raise ControlPlaneError(f"{ASSETS_VARIABLE}: {folder} is no folder")
    names = [name for module in modules() for name in module.commands]
    return {name: folder / name for name in names if (folder / name).is_file()}


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build(go: Go, module: Module, target: Path) -> None:
    names = ", ".join(module.commands)
    env = environment() | {"GOFLAGS": "-mod=readonly"}
    print(f"building {names} with {go.version}", file=sys.stderr, flush=True)
    started = time.monotonic()
    listed = subprocess.run(
        [go.command, "list", "-deps", *module.commands.values()],
        cwd=module.folder,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode != 0:
        raise ControlPlaneError(f"building {names}: {_last_line(listed.stderr)}")
    total = len(listed.stdout.splitlines())
    options = ["-v", "-p", str(os.cpu_count() or 1), "-trimpath", "-buildvcs=false"]
    options += ["-ldflags", " ".join(module.ldflags), "-o", f"{target}{os.sep}"]
    with subprocess.Popen(
        [str(go.command), "build", *options, *module.commands.values()],
        cwd=module.folder,
        env=env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as build:
        try:
            line = _follow(build, total, names, started)
        except BaseException:
            build.kill()
            raise
    if build.returncode != 0:
        raise ControlPlaneError(f"building {names}: {line}")
    print(f"built {names} in {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)


def _follow(build: subprocess.Popen[str], total: int, names: str, started: float) -> str:
    """Tells how far the build is, now and then; returns the last line that it wrote."""
    assert build.stderr is not None
    compiled, told, last = 0, started, ""
    for line in build.stderr:
        compiled, last = compiled + 1, line
        now = time.monotonic()
        if now - told >= PROGRESS_PERIOD_S:
            told = now
            print(
                f"  {names}: {compiled} of at most {total} packages, {now - started:.0f} s",
                file=sys.stderr,
                flush=True,
            )
    build.wait()
    return last.strip()


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["go failed"])[-1]
