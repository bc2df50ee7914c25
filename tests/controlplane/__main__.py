"""`python -m tests.controlplane build|serve`: the real control plane by hand."""

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.controlplane import kubeconfig
from tests.controlplane.build import binaries
from tests.controlplane.errors import ControlPlaneError
from tests.controlplane.plane import ADMIN, ControlPlane
from tests.controlplane.processes import is_free


def parser() -> argparse.ArgumentParser:
    root = argparse.ArgumentParser(prog="python -m tests.controlplane", description=__doc__)
    commands = root.add_subparsers(dest="command", required=True)
    commands.add_parser("build", help="build what serve needs, once, and print where it is")
    serve = commands.add_parser("serve", help="run it until SIGTERM or Ctrl-C")
    serve.add_argument("--kubeconfig", type=Path, required=True, help="written when it is ready")
    serve.add_argument("--port", type=int, default=0, help="of the API server (0: a free one)")
    return root


def serve(path: Path, port: int) -> None:
    if not path.parent.is_dir():
        raise ControlPlaneError(f"--kubeconfig: there is no folder {path.parent}")
    if port and not is_free(port):
        raise ControlPlaneError(f"--port: {port} is in use; leave it out to take a free one")
    # Before anything starts, so that no signal finds children without an owner.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with ControlPlane(port=port) as plane:
        kubeconfig.write(path, url=plane.url, ca_pem=plane.ca_pem, user=ADMIN, token=plane.token)
        print(f"serving {plane.url}: export KUBECONFIG={path.resolve()}", flush=True)
        signal.pause()


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    try:
        if options.command == "build":
            for name, path in sorted(binaries().items()):
                print(f"{name}\t{path}")
        else:
            serve(options.kubeconfig, options.port)
    except KeyboardInterrupt:
        return 0
    except (ControlPlaneError, OSError) as error:
        print(f"python -m tests.controlplane: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
