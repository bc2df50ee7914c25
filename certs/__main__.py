"""`python -m certs issue|show|rotate`: certificates from the command line.

The commands do the same passes as the webhook replicas, so they work without any of them, and
beside them: whoever is first takes a step.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any, NoReturn

import yaml

from certs.confirmations import Records
from certs.files import write_directory
from certs.settings import NAMESPACE, cluster_settings
from certs.show import describe, to_table
from certs.steps import Keep
from certs.upkeep import Outcome, Upkeep
from certs.validity import fingerprint
from kube.client import ApiClient
from kube.clock import Clock, SystemClock
from kube.console import ArgumentParser, run_command
from kube.credentials import load_credentials
from kube.errors import KubeError, NotFound, Unreachable

Command = Callable[[argparse.Namespace, Upkeep, Clock], Awaitable[Outcome]]

_LOOK_S = 1.0


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """The console script `podstamp-certs`."""
    run_command(lambda: asyncio.run(_run(_parser().parse_args(argv), SystemClock())))


def _parser() -> argparse.ArgumentParser:
    parser = ArgumentParser(prog="python -m certs", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="issue|show|rotate")
    common = ArgumentParser(add_help=False)
    common.add_argument("--kubeconfig", type=Path, metavar="FILE", help="default: the usual order")
    common.add_argument("--context", metavar="NAME", help="context of the kubeconfig")
    common.add_argument(
        "-n",
        "--namespace",
        default=os.environ.get("PODSTAMP_NAMESPACE", NAMESPACE),
        help="where podstamp runs (default: %(default)s)",
    )
    common.add_argument(
        "-o", "--output", choices=("table", "json", "yaml"), default="table", help="format"
    )

    writes = ArgumentParser(add_help=False)
    writes.add_argument(
        "--cert-dir",
        type=Path,
        metavar="DIR",
        help="also write tls.crt, tls.key and ca.crt there, for a webhook outside the cluster",
    )
    writes.add_argument(
        "--extra-san",
        action="append",
        metavar="NAME",
        help="a further DNS name or IP address of the webhook; may be repeated",
    )
    writes.add_argument("--leaf-days", type=int, metavar="N", help="life of serving certificates")
    writes.add_argument("--ca-days", type=int, metavar="N", help="life of CAs")
    writes.add_argument(
        "--settle-seconds",
        type=float,
        metavar="S",
        help="wait between a change of a caBundle and what relies on it",
    )
    writes.add_argument(
        "--timeout", type=float, default=300.0, metavar="S", help="give up after (default: 300)"
    )

    issue = commands.add_parser(
        "issue",
        parents=[common, writes],
        help="make what is missing or broken, and fill every caBundle of podstamp",
    )
    issue.set_defaults(run=_issue)
    show = commands.add_parser("show", parents=[common], help="tell what there is")
    show.set_defaults(run=_show, cert_dir=None)
    rotate = commands.add_parser(
        "rotate", parents=[common, writes], help="ask for new certificates and follow the rotation"
    )
    rotate.add_argument("--ca", action="store_true", help="the CA too, not only the leaf")
    rotate.set_defaults(run=_rotate)
    return parser


async def _run(args: argparse.Namespace, clock: Clock) -> int:
    async with ApiClient(load_credentials(args.kubeconfig, args.context)) as client:
        flags = {
            "extraSans": getattr(args, "extra_san", None),
            "leafDays": getattr(args, "leaf_days", None),
            "caDays": getattr(args, "ca_days", None),
            "settleSeconds": getattr(args, "settle_seconds", None),
        }
        settings = await cluster_settings(client, args.namespace, flags)
        upkeep = Upkeep(
            client, namespace=args.namespace, settings=settings, clock=clock, random=Random()
        )
        run: Command = args.run
        try:
            outcome = await run(args, upkeep, clock)
        except NotFound as error:
            raise KubeError(f"{error}; apply podstamp's manifests first") from None
    if args.cert_dir is not None:
        assert outcome.secret is not None, "whatever writes files has stored a pair before"
        write_directory(args.cert_dir, outcome.secret.data or {})
    told = describe(
        outcome.secret,
        outcome.stored,
        outcome.configurations,
        outcome.records or Records(),
        clock.now(),
    )
    print(_render(told, args.output))
    return 0


def _render(told: dict[str, Any], output: str) -> str:
    if output == "json":
        return json.dumps(told, indent=2)
    if output == "yaml":
        return yaml.safe_dump(told, sort_keys=False).rstrip()
    return to_table(told)


async def _show(_args: argparse.Namespace, upkeep: Upkeep, _clock: Clock) -> Outcome:
    return await upkeep.observe()


async def _issue(args: argparse.Namespace, upkeep: Upkeep, clock: Clock) -> Outcome:
    """Pass until there is nothing broken; a rotation under way is left to the replicas."""

    before = await upkeep.observe()
    _refuse_cert_manager(before)

    def done(outcome: Outcome) -> bool:
        return outcome.stored.leaf is not None and outcome.stored.signer is not None

    outcome = await _pass_until(done, args, upkeep, clock)
    if not outcome.configurations:
        _tell("no webhook configuration of podstamp is installed yet; run this again afterwards")
    return outcome


async def _rotate(args: argparse.Namespace, upkeep: Upkeep, clock: Clock) -> Outcome:
    """Ask, then pass until what was asked for is there and everybody serves it."""
    before = await upkeep.observe()
    _refuse_cert_manager(before)
    if before.secret is None:
        raise KubeError(
            "there is nothing to rotate; make certificates with `python -m certs issue`"
        )
    old_leaf, old_ca = before.stored.leaf, before.stored.signer
    await upkeep.store.ask("ca" if args.ca else "leaf")
    _tell(f"asked for a new {'CA and serving certificate' if args.ca else 'serving certificate'}")

    def done(outcome: Outcome) -> bool:
        stored = outcome.stored
        if stored.leaf is None or stored.signer is None or outcome.observed.asked:
            return False
        leaf_is_new = old_leaf is None or stored.leaf.certificate != old_leaf.certificate
        ca_is_new = old_ca is None or stored.signer.certificate != old_ca.certificate
        if not leaf_is_new or (args.ca and (not ca_is_new or len(stored.cas) > 1)):
            return False
        current = fingerprint(stored.leaf.certificate)
        return all(replica.leaf == current for replica in outcome.observed.replicas or ())

    try:
        outcome = await _pass_until(done, args, upkeep, clock)
    except asyncio.CancelledError:
        _tell("no longer following; the webhook replicas go on with the rotation")
        raise
    _tell("done")
    return outcome


def _refuse_cert_manager(outcome: Outcome) -> None:
    """KubeError: cert-manager writes the Secret or fills the bundles, so we must not."""
    if outcome.secret is not None and outcome.secret.certificate is not None:
        name = outcome.secret.certificate
        raise KubeError(f"cert-manager writes the Secret; to renew it: cmctl renew {name}")
    for configuration in outcome.configurations:
        if configuration.injector is not None:
            raise KubeError(
                f"cert-manager fills the caBundles of {configuration.kind} {configuration.name} "
                f"(annotation {configuration.injector}); look at its Certificates"
            )


async def _pass_until(
    done: Callable[[Outcome], bool], args: argparse.Namespace, upkeep: Upkeep, clock: Clock
) -> Outcome:
    """Do passes, telling each step and each wait once, until `done` and nothing is left to write.

    Unreachable: it took longer than --timeout.
    """
    deadline = clock.monotonic() + args.timeout
    told = ""
    while True:
        outcome = await upkeep.advance()
        step = outcome.step
        text = step.reason if isinstance(step, Keep) else f"{type(step).__name__}: {step.reason}"
        if outcome.problem:
            raise KubeError(outcome.problem)
        if outcome.wait_s > 0 and isinstance(step, Keep) and done(outcome):
            return outcome
        if text != told:
            told = text
            _tell(text)
        if args.cert_dir is not None and outcome.stored.leaf is not None and outcome.secret:
            write_directory(args.cert_dir, outcome.secret.data or {})
        if clock.monotonic() >= deadline:
            raise Unreachable(f"not done within {args.timeout:g} s: {text}")
        await clock.sleep(min(outcome.wait_s, _LOOK_S))


def _tell(text: str) -> None:
    print(text, file=sys.stderr)


if __name__ == "__main__":
    main()
