"""`python -m tests.apiserver serve`: the embedded API server alone, until SIGTERM.

The kubeconfig is written, in one step, when the server is ready.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

from tests.apiserver.server import EmbeddedCluster


class ServeError(Exception):
    """One line for a person."""


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.apiserver")
    commands = parser.add_subparsers(dest="command", required=True)
    serve = commands.add_parser("serve", help="serve until SIGTERM or SIGINT")
    serve.add_argument("--port", type=int, default=0, help="port on 127.0.0.1; 0: a free one")
    serve.add_argument(
        "--kubeconfig", type=Path, required=True, help="file to write when the server is ready"
    )
    arguments = parser.parse_args(argv)
    if not 0 <= arguments.port <= 65535:
        parser.error(f"--port {arguments.port}: give a number from 0 to 65535")
    return arguments


def _write(path: Path, text: str) -> None:
    """Replace `path` in one step, readable by its owner alone."""
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
        with os.fdopen(handle, "w") as file:
            file.write(text)
        Path(name).replace(path)
    except OSError as error:
        raise ServeError(
            f"--kubeconfig {path}: {error.strerror}; name a file in a folder that can be written"
        ) from error


def _serve(port: int, kubeconfig: Path) -> None:
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        cluster = EmbeddedCluster(port=port)
    except OSError as error:
        raise ServeError(
            f"--port {port}: {error.strerror}; choose another, or 0 for a free one"
        ) from error
    with cluster:
        _write(kubeconfig, cluster.kubeconfig.read_text())
        print(f"serving {cluster.url}; export KUBECONFIG={kubeconfig}", flush=True)
        stop.wait()


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code: 0 after SIGTERM, 1 for an error, 2 for wrong usage."""
    arguments = _arguments(argv)
    try:
        _serve(arguments.port, arguments.kubeconfig)
    except ServeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
