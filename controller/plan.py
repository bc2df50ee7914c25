"""What the reapers would do with each pod, decided from one read-only look at the cluster.

Pure. The same verdicts as in the running controller; only hold times begin at the look itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from controller.records import Miss, PodKey, Record, match
from controller.records_stamps import record_of
from controller.trust import Guards, Ledger, doubt_retirement, doubt_stamps
from controller.verdict import (
    Keep,
    NodeStanding,
    OwnerKind,
    Reap,
    Verdict,
    Why,
    combine,
    judge_retired,
    judge_terminal,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kube.namespace import Namespace
    from kube.pod import Pod


@dataclass(frozen=True, slots=True)
class PlanPolicy:
    """What of the configuration a plan reads; seconds."""

    owner_kinds: frozenset[OwnerKind]
    terminal_enabled: bool = True
    terminal_dry_run: bool = True
    terminal_hold_s: float = 0.0
    retired_enabled: bool = False
    retired_dry_run: bool = True
    retired_hold_s: float = 300.0
    by_stamps: bool = True
    by_name: bool = False


@dataclass(frozen=True, slots=True)
class Look:
    """One look at the cluster; `rows` is None if the records could not be read."""

    pods: Sequence[Pod]
    namespaces: Mapping[str, Namespace]
    nodes: Mapping[str, NodeStanding]
    rows: Mapping[PodKey, Sequence[Record]] | None
    guards: Guards


@dataclass(frozen=True, slots=True)
class Line:
    """One pod; `due_s` are the seconds until it may go at the earliest, None if it is kept."""

    pod: Pod
    verdict: Verdict
    dry_run: bool = False
    due_s: float | None = None


def plan(look: Look, policy: PlanPolicy) -> list[Line]:
    """A line for each pod, by namespace and name."""
    ledger = Ledger()
    for pod in look.pods:
        ledger.seen(pod)
    return [_line(pod, look, policy, ledger) for pod in sorted(look.pods, key=lambda pod: pod.key)]


def needs_node(pods: Iterable[Pod], policy: PlanPolicy) -> set[str]:
    """Names of the Nodes whose standing decides about a pod."""
    return {
        pod.spec.node_name
        for pod in pods
        if _is_container_running(judge_terminal(pod, owner_kinds=policy.owner_kinds, doubt=None))
        and pod.spec.node_name
    }


def _is_container_running(verdict: Verdict) -> bool:
    return isinstance(verdict, Keep) and verdict.why is Why.CONTAINER_RUNNING


def _line(pod: Pod, look: Look, policy: PlanPolicy, ledger: Ledger) -> Line:
    doubt = doubt_stamps(pod, look.namespaces.get(pod.metadata.namespace), ledger)
    terminal = None
    if policy.terminal_enabled:
        node = look.nodes.get(pod.spec.node_name, NodeStanding.NOT_ASKED)
        terminal = judge_terminal(pod, owner_kinds=policy.owner_kinds, doubt=doubt, node=node)
    retired = _retired(pod, look, policy, doubt)
    verdict = combine(terminal, retired)
    if isinstance(verdict, Keep):
        return Line(pod, verdict)
    if verdict is terminal:
        return Line(pod, verdict, policy.terminal_dry_run, policy.terminal_hold_s)
    return Line(pod, verdict, policy.retired_dry_run, policy.retired_hold_s)


def _retired(pod: Pod, look: Look, policy: PlanPolicy, doubt: str | None) -> Verdict:
    record: Record | Miss
    if look.rows is None:
        record = Miss.UNREADABLE
    else:
        record = match(pod, look.rows.get(pod.key, ()), by_name=policy.by_name)
    if doubt is None and policy.by_stamps and record_of(pod) is not None:
        doubt = doubt_retirement(pod, look.guards)
    verdict = judge_retired(pod, record=record, doubt=doubt)
    if isinstance(verdict, Reap) and not policy.retired_enabled:
        return Keep(Why.OFF, f"retired.enabled is false, else {verdict.shape}: {verdict.reason}")
    return verdict
