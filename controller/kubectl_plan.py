"""kubectl podstamp plan and status: what would be reaped, and what is known of each pod."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

from controller.kubectl_cluster import (
    ask_leader,
    credentials_of,
    list_pods,
    look,
    plan_policy,
    read_config,
)
from controller.kubectl_output import NONE, duration, print_rows
from controller.plan import Line, plan
from controller.status import describe
from controller.verdict import Keep, Reap
from kube.client import ApiClient
from kube.console import print_error
from kube.errors import Forbidden, Unreachable
from webhook import stamps

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from kube.pod import Pod

UNKNOWN = "unknown"

PLAN_COLUMNS = {
    "NAMESPACE": "namespace",
    "POD": "pod",
    "VERDICT": "verdict",
    "SHAPE": "shape",
    "WHEN": "when",
    "REASON": "reason",
}
STATUS_COLUMNS = {
    "NAMESPACE": "namespace",
    "POD": "pod",
    "SET": "set",
    "INDEX": "index",
    "INCARNATION": "incarnation",
    "PHASE": "phase",
    "VERDICT": "verdict",
    "HOLD": "hold",
}


def run_plan(args: argparse.Namespace) -> int:
    """`kubectl podstamp plan`."""
    return asyncio.run(_plan(args))


def run_status(args: argparse.Namespace) -> int:
    """`kubectl podstamp status`."""
    return asyncio.run(_status(args))


async def _plan(args: argparse.Namespace) -> int:
    async with ApiClient(credentials_of(args)) as client:
        config = await read_config(client, args.config, args.podstamp_namespace)
        policy = plan_policy(config)
        pods = await _pods_to_judge(client, args)
        seen, problem = await look(client, config, pods, policy)
    lines = [line for line in plan(seen, policy) if _is_asked_for(line.pod, args)]
    if not args.all:
        lines = [line for line in lines if isinstance(line.verdict, Reap)]
    rows = [_plan_row(line) for line in lines]
    empty = "no managed pods" if args.all else "nothing to reap"
    print_rows(rows, PLAN_COLUMNS, output=args.output, empty=empty)
    if problem is not None and config.retired.enabled:
        print_error(problem)
        return 1
    return 0


async def _pods_to_judge(client: ApiClient, args: argparse.Namespace) -> list[Pod]:
    """All managed pods, so that two of one incarnation are seen; else those one may see."""
    try:
        return await list_pods(client, None)
    except Forbidden:
        if not args.namespace:
            raise
        return await list_pods(client, args.namespace)


def _is_asked_for(pod: Pod, args: argparse.Namespace) -> bool:
    return not args.namespace or args.all_namespaces or pod.metadata.namespace == args.namespace


def _plan_row(line: Line) -> dict[str, Any]:
    pod = line.pod
    row = {
        "namespace": pod.metadata.namespace,
        "pod": pod.metadata.name,
        "uid": pod.metadata.uid,
        "incarnation": pod.metadata.annotations.incarnation,
        **describe(line.verdict),
    }
    if isinstance(line.verdict, Keep):
        return row | {"dryRun": None, "dueInSeconds": None, "when": None}
    when = "now" if not line.due_s else f"after {duration(line.due_s)}"
    if line.dry_run:
        when += " (dry run)"
    return row | {"dryRun": line.dry_run, "dueInSeconds": line.due_s, "when": when}


async def _status(args: argparse.Namespace) -> int:
    async with ApiClient(credentials_of(args)) as client:
        namespace = None if args.all_namespaces or not args.namespace else args.namespace
        pods = await list_pods(client, namespace, args.selector or "")
        known: Mapping[str, dict[str, Any]] = {}
        try:
            answer = await ask_leader(client, args.controller, args.podstamp_namespace, "/status")
            known = {line["uid"]: line for line in answer.get("pods", ())}
            problem = None
        except Unreachable as error:
            problem = error
    rows = [_status_row(pod, known.get(pod.metadata.uid)) for pod in pods]
    rows.sort(key=lambda row: (row["namespace"], row["pod"]))
    print_rows(rows, STATUS_COLUMNS, output=args.output, empty="no managed pods")
    if problem is not None:
        reason = " ".join(str(problem).split())
        print(f"warning: {reason}; verdicts are {UNKNOWN} (try plan --all)", file=sys.stderr)
    return 0


def _status_row(pod: Pod, known: dict[str, Any] | None) -> dict[str, Any]:
    phase = pod.status.phase or None
    row: dict[str, Any] = {
        "namespace": pod.metadata.namespace,
        "pod": pod.metadata.name,
        "uid": pod.metadata.uid,
        "set": pod.metadata.labels.get(stamps.PODSET),
        "index": pod.metadata.labels.get(stamps.PODSET_INDEX),
        "incarnation": pod.metadata.annotations.incarnation,
        "phase": "Terminating" if pod.metadata.deletion_timestamp else phase,
    }
    if known is None:
        return row | {
            "verdict": UNKNOWN,
            "shape": UNKNOWN,
            "reason": UNKNOWN,
            "remainingSeconds": UNKNOWN,
            "hold": UNKNOWN,
        }
    remaining_s = known.get("remainingSeconds")
    return row | {
        "verdict": known.get("verdict"),
        "shape": known.get("shape"),
        "reason": known.get("reason"),
        "remainingSeconds": remaining_s,
        "hold": NONE if remaining_s is None else duration(remaining_s),
    }
