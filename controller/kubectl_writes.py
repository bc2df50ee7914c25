"""kubectl podstamp retire and adopt: the two writes that people make to pods, each fenced.

A write names the incarnation that was read, so it can never reach a pod's successor.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from controller.kubectl_cluster import credentials_of
from controller.kubectl_output import print_rows
from controller.verdict import OwnerKind, owner_kind
from kube import paths
from kube.client import ApiClient
from kube.console import print_error
from kube.errors import ConfigError, Conflict, KubeError
from kube.namespace import Namespace
from kube.pod import Pod, controller_of, is_terminating
from webhook import stamps

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable

STATE_WORD = re.compile(r"[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?")
MAX_DECISIONS = 4
ROLE_SET = OwnerKind("RoleSet", "orchestration.aibrix.ai")
"""Its in-place update compares live and rendered metadata, so its pods are out of scope."""
COLUMNS = {"NAMESPACE": "namespace", "POD": "pod", "RESULT": "result", "DETAIL": "detail"}


class NotDone(KubeError):
    """A write that came to nothing."""


class NotApplicable(NotDone):
    """A pod to which the write does not apply: an error if it was named, else skipped."""


@dataclass(frozen=True, slots=True)
class Write:
    """A merge patch to send, or None with the reason that nothing is to be done."""

    patch: dict[str, Any] | None
    detail: str


def retirement(pod: Pod, state: str) -> Write:
    """The fenced write that retires this incarnation; NotApplicable if it is not managed."""
    annotations = pod.metadata.annotations
    if is_terminating(pod):
        return Write(None, "it is being deleted already")
    if pod.metadata.labels.get(stamps.MANAGED) != "true" or not annotations.incarnation:
        raise NotApplicable(
            f"{_name(pod)} is not managed by podstamp: adopt it first, with"
            f" kubectl podstamp adopt {pod.metadata.name} -n {pod.metadata.namespace}"
        )
    if annotations.retired and annotations.retired_at:
        return Write(None, f"already {annotations.retired}, which stays")
    # Without the time no webhook saw the retirement, and the reaper does not believe it.
    state = annotations.retired or state
    wanted = {stamps.IF_INCARNATION: annotations.incarnation, stamps.RETIRED: state}
    return Write({"metadata": {"uid": pod.metadata.uid, "annotations": wanted}}, state)


def adoption(pod: Pod) -> Write:
    """The write on which the webhook mints the stamps of a pod that has none.

    NotApplicable for pods that the webhook would leave as they are.
    """
    if is_terminating(pod):
        return Write(None, "it is being deleted already")
    managed = pod.metadata.labels.get(stamps.MANAGED) == "true"
    if managed and pod.metadata.annotations.incarnation:
        return Write(None, f"already managed, incarnation {pod.metadata.annotations.incarnation}")
    if pod.metadata.labels.get(stamps.ENABLED) == "false":
        raise NotApplicable(f"{_name(pod)} is left out by its own label {stamps.ENABLED}=false")
    owner = controller_of(pod)
    if (
        owner is not None
        and owner_kind(owner) == ROLE_SET
        and pod.metadata.labels.get(stamps.ENABLED) != "true"
    ):
        raise NotApplicable(
            f"{_name(pod)} is of a RoleSet, which would recreate a pod that it finds changed:"
            f" label it {stamps.ENABLED}=true if you want it all the same"
        )
    identity = {"uid": pod.metadata.uid, "resourceVersion": pod.metadata.resource_version}
    if managed:
        return Write({"metadata": {**identity, "annotations": {stamps.INCARNATION: ""}}}, "")
    return Write({"metadata": {**identity, "labels": {stamps.MANAGED: "true"}}}, "")


def run_retire(args: argparse.Namespace) -> int:
    """`kubectl podstamp retire`."""
    if not STATE_WORD.fullmatch(args.state):
        raise ConfigError(f"--state {args.state!r}: write one word, such as suspended or replaced")
    return asyncio.run(_write(args, lambda pod: retirement(pod, args.state), "retired"))


def run_adopt(args: argparse.Namespace) -> int:
    """`kubectl podstamp adopt`."""
    return asyncio.run(_write(args, adoption, "adopted"))


async def _write(args: argparse.Namespace, decide: Callable[[Pod], Write], done: str) -> int:
    if bool(args.pods) == bool(args.selector or args.every):
        raise ConfigError("name pods, or give a selector with -l, or --all (one of the three)")
    credentials = credentials_of(args)
    async with ApiClient(credentials) as client:
        targets = await _targets(client, args, credentials.namespace)
        await _check_namespaces(client, (namespace for namespace, _ in targets))
        rows: list[dict[str, Any]] = []
        failed = False
        for namespace, name in targets:
            try:
                row = await write_one(client, namespace, name, decide, done)
            except NotApplicable as error:
                if args.pods:
                    print_error(error)
                    failed = True
                    continue
                row = {"namespace": namespace, "pod": name, "result": "skipped"}
                row |= {"uid": None, "detail": str(error)}
            except KubeError as error:
                print_error(error)
                failed = True
                continue
            rows.append(row)
    if rows or not failed:
        print_rows(rows, COLUMNS, output=args.output, empty="no pods found")
    return 1 if failed else 0


async def _targets(
    client: ApiClient, args: argparse.Namespace, default_namespace: str
) -> list[tuple[str, str]]:
    namespace = args.namespace or default_namespace
    if args.pods:
        if args.all_namespaces:
            raise ConfigError("a pod's name needs one namespace: leave out -A")
        keys = [(namespace, name.removeprefix("pod/")) for name in dict.fromkeys(args.pods)]
        for key in keys:
            paths.pod(*key)  # ConfigError for what is no name, before any of them is written.
        return keys
    path = paths.pods(None if args.all_namespaces else namespace)
    pages = client.list_pages(path, type=Pod, label_selector=args.selector or "")
    return [pod.key async for page in pages for pod in page.items]


async def write_one(
    client: ApiClient, namespace: str, name: str, decide: Callable[[Pod], Write], done: str
) -> dict[str, Any]:
    """Read, decide, write; a pod that changed in between is read anew, but never its successor."""
    first = pod = await client.get(paths.pod(namespace, name), type=Pod)
    for _ in range(MAX_DECISIONS):
        if pod.metadata.uid != first.metadata.uid:
            raise NotDone(f"{_name(first)} was replaced meanwhile: nothing was written")
        write = decide(pod)
        row = {"namespace": namespace, "pod": name, "uid": pod.metadata.uid}
        if write.patch is None:
            return row | {"result": "unchanged", "detail": write.detail}
        try:
            after = await client.patch(paths.pod(namespace, name), write.patch, type=Pod)
        except Conflict as error:
            refusal: KubeError = error
            pod = await client.get(paths.pod(namespace, name), type=Pod)
            continue
        return row | {"result": done, "detail": _outcome(after, write)}
    raise refusal


def _outcome(pod: Pod, write: Write) -> str:
    """What the stored pod says; NotDone if no webhook saw the write: then it counts for nothing."""
    annotations = pod.metadata.annotations
    if write.detail and annotations.retired_at:
        return f"{annotations.retired} at {annotations.retired_at}"
    if not write.detail and annotations.incarnation:
        return f"incarnation {annotations.incarnation}"
    raise NotDone(
        f"{_name(pod)} was written but not stamped: is its namespace labelled"
        f" {stamps.ENABLED}=true, and does the webhook run?"
    )


async def _check_namespaces(client: ApiClient, names: Iterable[str]) -> None:
    """NotDone for a namespace that is not enabled: nothing would be stamped there."""
    for name in sorted(set(names)):
        namespace = await client.get(paths.namespace(name), type=Namespace)
        if namespace.metadata.labels.get(stamps.ENABLED) != "true":
            raise NotDone(
                f"namespace {name} is not enabled:"
                f" kubectl label namespace {name} {stamps.ENABLED}=true"
            )


def _name(pod: Pod) -> str:
    return f"pod {pod.metadata.name} in namespace {pod.metadata.namespace}"
