"""python -m controller run: the reapers and the routers as one process."""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import uvloop
import yaml
from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector

from controller.app import Controller
from controller.config import ControllerConfig, load_config
from controller.term import check_usable
from kube import paths
from kube.client import ApiClient
from kube.clock import SystemClock
from kube.console import ArgumentParser, run_command
from kube.credentials import load_credentials
from kube.errors import ConfigError, KubeError
from kube.logs import configure
from kube.yamltext import load_yaml
from webhook import stamps

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from controller.watchdog import Watchdog

LAST_RESORT_S = 5.0
EXIT_HUNG = 70


def main() -> NoReturn:
    """Console script and `python -m controller`."""
    run_command(lambda: command(sys.argv[1:]))


def command(arguments: Sequence[str]) -> int:
    """Parse and run; 0 after a clean stop."""
    options = _parser().parse_args(arguments)
    file = options.config or os.environ.get("PODSTAMP_CONFIG") or None
    config_file = Path(file) if file else None
    flags = _flags(options)

    def load() -> ControllerConfig:
        config = load_config(config_file, os.environ, flags)
        check_usable(config)
        return config

    config = load()
    configure(level=config.log_level, format=config.log_format)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(config, load, config_file))
    return 0


async def _serve(
    config: ControllerConfig, load: Callable[[], ControllerConfig], config_file: Path | None
) -> None:
    clock = SystemClock()
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    credentials = load_credentials(config.kubeconfig or None, config.context or None)
    async with ApiClient(credentials, clock=clock) as client:
        # A wrong address or role is told at once, with an exit code; later outages are ridden out.
        await client.get(
            paths.pods(), params={"limit": "1", "labelSelector": f"{stamps.MANAGED}=true"}
        )
        controller = Controller(
            client,
            config,
            load,
            identity=_identity(),
            clock=clock,
            random=random.Random(),
            registry=registry,
            config_file=config_file,
        )
        start_last_resort(controller.watchdog)
        try:
            await controller.run(stop)
        except BaseExceptionGroup as group:
            raise _first(group) from group


def _parser() -> argparse.ArgumentParser:
    parser = ArgumentParser(
        prog="podstamp-controller",
        description="Reaps pods that are over and keeps LLM routers equal to the engines alive.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    run = commands.add_parser(
        "run",
        help="run the reapers and the routers",
        description="Runs until SIGTERM. Every option can also be set in the environment"
        " (PODSTAMP_HEALTH_PORT and so on) and, but for --config, in the file; flags win.",
    )
    run.add_argument("--config", metavar="FILE", help="controller.yaml; read again when it changes")
    run.add_argument("--kubeconfig", metavar="FILE")
    run.add_argument("--context", metavar="NAME", help="context of the kubeconfig")
    run.add_argument("--namespace", metavar="NAME", help="podstamp's own (podstamp-system)")
    run.add_argument("--health-port", metavar="PORT", type=int, help="8080; 0 takes a free one")
    run.add_argument("--port-file", metavar="FILE", help="write the bound port there, as JSON")
    run.add_argument("--log-level", metavar="LEVEL", help="debug, info, warning or error")
    run.add_argument("--log-format", metavar="FORMAT", help="text or json")
    run.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="any key of the file, as in --set terminal.dryRun=false; may be repeated",
    )
    return parser


def _flags(options: argparse.Namespace) -> dict[str, Any]:
    flags: dict[str, Any] = {
        name: getattr(options, name)
        for name in (
            "kubeconfig",
            "context",
            "namespace",
            "health_port",
            "port_file",
            "log_level",
            "log_format",
        )
    }
    for text in options.set:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise ConfigError(f"--set {text}: write KEY=VALUE, as in terminal.dryRun=false")
        try:
            flags[_snake(key)] = load_yaml(value)
        except yaml.YAMLError as error:
            raise ConfigError(f"--set {text}: the value is no YAML") from error
    return flags


def _snake(key: str) -> str:
    """terminal.dryRun is the field terminal.dry_run."""
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in key)


def _identity() -> str:
    """Pod name and UID; elsewhere host, process and a random part."""
    name, uid = os.environ.get("POD_NAME"), os.environ.get("POD_UID")
    if name and uid:
        return f"{name}_{uid}"
    return f"{name or socket.gethostname()}_{os.getpid()}-{random.getrandbits(32):08x}"


def start_last_resort(watchdog: Watchdog, period_s: float = LAST_RESORT_S) -> None:
    """End the process from another thread if the event loop itself hangs.

    The loop's own watchdog comes first; this thread ends what that one could not.
    """

    def watch() -> None:
        while True:
            time.sleep(period_s)
            if not watchdog.overdue():
                continue
            time.sleep(2 * period_s)
            hung = watchdog.overdue()
            if hung:
                sys.stderr.write(f"error: {', '.join(hung)} hung: ending\n")
                sys.stderr.flush()
                os._exit(EXIT_HUNG)

    threading.Thread(target=watch, name="last-resort", daemon=True).start()


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first error of the group that says what to do, or the first of all."""
    leaves: list[BaseException] = []
    pending: list[BaseException] = [group]
    while pending:
        error = pending.pop(0)
        if isinstance(error, BaseExceptionGroup):
            pending.extend(error.exceptions)
        else:
            leaves.append(error)
    return next((leaf for leaf in leaves if isinstance(leaf, KubeError)), leaves[0])


if __name__ == "__main__":
    main()
