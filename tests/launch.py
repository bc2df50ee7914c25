"""podstamp's own commands as the separate processes that they are, on free ports.

A process is ready once it has written its port file; it ends with its parent whatever happens.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from tests.controlplane.processes import Process

ROOT = Path(__file__).parent.parent


class Ports(msgspec.Struct, frozen=True):
    """What a serving process bound; `port` is 0 where it serves no admission."""

    health_port: int
    port: int = 0


class Launched(Process):
    """A serving process with its ports."""

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        folder: Path,
        *,
        env: Mapping[str, str] | None = None,
        timeout_s: float = 20.0,
    ) -> None:
        port_file = folder / f"{name}.ports.json"
        port_file.unlink(missing_ok=True)
        super().__init__(
            name,
            [sys.executable, "-m", *arguments, "--port-file", str(port_file)],
            folder / f"{name}.log",
            env=clean_environment() | dict(env or {}),
            cwd=ROOT,
        )
        try:
            self.wait_until(port_file.exists, timeout_s)
        except BaseException:
            self.kill()
            raise
        self.ports = msgspec.json.decode(port_file.read_bytes(), type=Ports)

    @property
    def health_url(self) -> str:
        return f"http://127.0.0.1:{self.ports.health_port}"


def clean_environment() -> dict[str, str]:
    """This process's environment without settings that a developer's shell may hold."""
    return {
        key: value
        for key, value in os.environ.items()
        if key != "KUBECONFIG" and not key.startswith("PODSTAMP_")
    }


def launch_webhook(
    kubeconfig: Path,
    folder: Path,
    *,
    cert_dir: Path | None = None,
    port: int = 0,
    config: Path | None = None,
    name: str = "webhook",
    env: Mapping[str, str] | None = None,
) -> Launched:
    """`python -m webhook serve`; without `cert_dir` it looks after its own certificates."""
    arguments = ["webhook", "serve", "--kubeconfig", str(kubeconfig)]
    arguments += ["--port", str(port), "--health-port", "0"]
    if cert_dir is not None:
        arguments += ["--cert-dir", str(cert_dir)]
    if config is not None:
        arguments += ["--config", str(config)]
    return Launched(name, arguments, folder, env=env)


def launch_controller(
    kubeconfig: Path,
    folder: Path,
    *,
    config: Path,
    name: str = "controller",
    env: Mapping[str, str] | None = None,
) -> Launched:
    """`python -m controller run`."""
    arguments = ["controller", "run", "--kubeconfig", str(kubeconfig), "--config", str(config)]
    return Launched(name, [*arguments, "--health-port", "0"], folder, env=env)
