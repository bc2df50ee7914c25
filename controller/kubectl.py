"""kubectl podstamp: the commands for people. On the PATH as kubectl-podstamp, it is a plugin."""

from __future__ import annotations

import argparse
import asyncio
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NoReturn

from controller.kubectl_cluster import ask_leader, credentials_of
from controller.kubectl_output import FORMATS
from controller.kubectl_plan import run_plan, run_status
from controller.kubectl_writes import run_adopt, run_retire
from kube.client import ApiClient
from kube.console import ArgumentParser, run_command

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PROG = "kubectl podstamp"


def main() -> NoReturn:
    """Console script."""
    run_command(lambda: command(sys.argv[1:]))


def command(arguments: Sequence[str]) -> int:
    """Parse and run one command; its exit code."""
    args = _parser().parse_args(arguments)
    run: Callable[[argparse.Namespace], int] = args.run
    return run(args)


def _parser() -> argparse.ArgumentParser:
    parser = ArgumentParser(
        prog=PROG,
        description="See and steer what podstamp does with pods.",
        epilog=f"{PROG} COMMAND --help shows the options of a command."
        " Exit codes: 0 done or nothing to report, 1 error, 2 usage.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    plan = _command(
        commands,
        "plan",
        run_plan,
        "what would be reaped now, and why",
        "Looks at the cluster once, read-only, and prints each pod that the reapers would delete,"
        " and when. Works without a running controller: hold times count from now.",
    )
    plan.add_argument("--all", action="store_true", help="also the pods that are kept, and why")
    plan.add_argument(
        "--config",
        metavar="FILE",
        help="controller.yaml to plan with; else the one of the cluster, else the defaults",
    )
    status = _command(
        commands,
        "status",
        run_status,
        "managed pods with set, index, incarnation, verdict and hold time left",
        "Lists the managed pods. Verdict and hold time are the leader's own; they are unknown"
        " while it does not answer.",
    )
    status.add_argument("-l", "--selector", metavar="SELECTOR", help="label selector")
    _add_controller(status)
    retire = _command(
        commands,
        "retire",
        run_retire,
        "say that a pod's execution is over",
        "Marks the incarnation that holds the name now as retired, fenced, so that the mark cannot"
        " reach its successor. A pod that is retired already keeps its first state.",
    )
    _add_targets(retire)
    retire.add_argument(
        "--state",
        metavar="WORD",
        default="retired",
        help="state word, such as suspended or replaced (default: retired)",
    )
    adopt = _command(
        commands,
        "adopt",
        run_adopt,
        "stamp pods that are older than podstamp",
        "Has the webhook stamp pods that were created before podstamp was installed.",
    )
    _add_targets(adopt)
    routers = _command(
        commands,
        "routers",
        _run_routers,
        "each router with its engines",
        "Shows the routers that the leader drives, with the engines it wants and has there.",
    )
    _add_controller(routers)
    return parser


def _command(
    commands: Any, name: str, run: Callable[[argparse.Namespace], int], help: str, description: str
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=help, description=description)
    parser.set_defaults(run=run)
    parser.add_argument("-n", "--namespace", metavar="NAME", help="only this namespace")
    parser.add_argument("-A", "--all-namespaces", action="store_true")
    parser.add_argument("--kubeconfig", metavar="FILE")
    parser.add_argument("--context", metavar="NAME", help="context of the kubeconfig")
    parser.add_argument("-o", "--output", choices=FORMATS, default="table")
    parser.add_argument(
        "--podstamp-namespace",
        metavar="NAME",
        default="podstamp-system",
        help="where podstamp itself runs (default: podstamp-system)",
    )
    return parser


def _add_controller(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--controller",
        metavar="URL",
        help="ask the controller there, as in http://127.0.0.1:8080; else the leader is asked"
        " through the API server",
    )


def _add_targets(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pods", nargs="*", metavar="POD", help="name, or pod/NAME")
    parser.add_argument("-l", "--selector", metavar="SELECTOR", help="all pods of these labels")
    parser.add_argument(
        "--all", dest="every", action="store_true", help="all pods of the namespace"
    )


def _run_routers(args: argparse.Namespace) -> int:
    # The router code is large; the other commands start without it.
    from controller.routers.view import render

    async def ask() -> dict[str, Any]:
        async with ApiClient(credentials_of(args)) as client:
            return await ask_leader(client, args.controller, args.podstamp_namespace, "/routers")

    answer = asyncio.run(ask())
    namespace = "" if args.all_namespaces else args.namespace or ""
    text = render(
        answer.get("routers", []), output=args.output, now=datetime.now(UTC), namespace=namespace
    )
    print(text, end="" if text.endswith("\n") else "\n")
    return 0


if __name__ == "__main__":
    main()
