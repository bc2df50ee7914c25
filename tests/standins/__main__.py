"""`python -m tests.standins NAME`: one stand-in as a process of its own, until SIGTERM.

Prints one line when it is ready: `ready`, and the URL of one that serves.
"""

import argparse
import asyncio
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from kube.console import print_error, run_command
from kube.errors import ConfigError
from tests.standins.engine import Engine
from tests.standins.hosting import StandIn
from tests.standins.kubelet import Kubelet
from tests.standins.routers.base import RouterStandIn
from tests.standins.routers.production_stack import ProductionStackRouter, RejectedError
from tests.standins.routers.sglang import SglangRouter
from tests.standins.routers.smg import SmgRouter
from tests.standins.routers.vllm import VllmRouter
from tests.standins.set_controller import SetController


def _kubelet(options: argparse.Namespace) -> StandIn:
    return Kubelet(options.kubeconfig, node=options.node, stop_delay_s=options.stop_delay)


def _set_controller(options: argparse.Namespace) -> StandIn:
    return SetController(options.kubeconfig)


def _engine(options: argparse.Namespace) -> StandIn:
    return Engine(
        options.name,
        host=options.host,
        port=options.port,
        model=options.model,
        adapters=options.adapter,
    )


def _router(options: argparse.Namespace) -> StandIn:
    settings = {
        "host": options.host,
        "port": options.port,
        "api_key": options.api_key,
        "check_interval_s": options.check_interval,
    }
    match options.dialect:
        case "vllm":
            return VllmRouter(**settings)
        case "sglang":
            return SglangRouter(**settings)
        case "smg":
            return SmgRouter(discovery_file=options.file, **settings)
        case _:
            if options.file is None:
                raise ConfigError("--file: production-stack needs its dynamic configuration")
            try:
                return ProductionStackRouter(options.file, **settings)
            except RejectedError as error:
                raise ConfigError(f"{options.file}: {error}") from error


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.standins", allow_abbrev=False)
    commands = parser.add_subparsers(required=True, metavar="NAME")

    def command(
        name: str, make: Callable[[argparse.Namespace], StandIn], text: str
    ) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=text, allow_abbrev=False)
        added.set_defaults(make=make)
        return added

    kubelet = command("kubelet", _kubelet, "runs pods on a node of its own")
    kubelet.add_argument("--node", default="node-1", help="name of its node")
    kubelet.add_argument("--stop-delay", type=float, default=0, help="seconds that a pod stops")
    sets = command("set-controller", _set_controller, "fills PodSets as AIBrix does")
    for cluster in (kubelet, sets):
        cluster.add_argument("--kubeconfig", type=Path, required=True)
    engine = command("engine", _engine, "answers as an LLM engine")
    engine.add_argument("--name", default="engine", help="what its completions say")
    engine.add_argument("--model", default="base", help="the model that it serves")
    engine.add_argument("--adapter", action="append", default=[], help="a loaded LoRA adapter")
    router = command("router", _router, "answers as an LLM router")
    router.add_argument("dialect", choices=["vllm", "sglang", "smg", "production-stack"])
    router.add_argument("--api-key", default="", help="guards the worker API")
    router.add_argument("--check-interval", type=float, default=60, help="seconds between probes")
    router.add_argument(
        "--file", type=Path, help="smg's discovery file, production-stack's configuration"
    )
    for server in (engine, router):
        server.add_argument("--host", default="127.0.0.1")
        server.add_argument("--port", type=int, default=0, help="0: a free one")
    return parser.parse_args(argv)


async def _run(options: argparse.Namespace) -> int:
    stand_in: StandIn = options.make(options)
    work = asyncio.ensure_future(stand_in.run())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, work.cancel)
    ready = asyncio.ensure_future(stand_in.ready.wait())
    await asyncio.wait({work, ready}, return_when=asyncio.FIRST_COMPLETED)
    ready.cancel()
    if not work.done():
        url = stand_in.url if isinstance(stand_in, Engine | RouterStandIn) else ""
        print(f"ready {url}".rstrip(), flush=True)
    try:
        await work
    except asyncio.CancelledError:
        return 0
    except OSError as error:
        print_error(error)
        return 1
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code; KubeError for what the cluster or its kubeconfig refuses."""
    return asyncio.run(_run(_arguments(argv)))


if __name__ == "__main__":
    run_command(lambda: main(sys.argv[1:]))
