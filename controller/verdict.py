"""The one list of verdicts: whether a pod is reaped or kept, and why.

Pure functions over what was read; nothing here reads, waits or deletes. Whatever is not known for
certain (a phase, a record, a node) keeps the pod.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from controller.records import Miss, Record
from kube.pod import controller_of, is_terminating
from webhook import stamps

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from kube.meta import OwnerReference
    from kube.pod import ContainerStatus, Pod

JOB_KIND = "Job"
REPLACED = "replaced"
"""The record's state that lets a pod go that never started."""
SANDBOX_CONDITION = "PodReadyToStartContainers"


class Shape(StrEnum):
    """What a pod that is over looks like; DESIGN section 6 defines each."""

    TERMINAL = "terminal"
    TERMINAL_RETIRED = "terminal-retired"
    REPLACED_NEVER_STARTED = "replaced-never-started"


class Why(StrEnum):
    """Why a pod is kept; the value is a metric label."""

    UNMANAGED = "unmanaged"
    TERMINATING = "terminating"
    PENDING = "pending"
    RUNNING = "running"
    UNKNOWN_PHASE = "unknown-phase"
    OWNER = "owner"
    CONTAINER_RUNNING = "container-running"
    NOT_TERMINATED = "not-terminated"
    NOT_RETIRED = "not-retired"
    ACTIVE = "active"
    MISMATCH = "mismatch"
    AMBIGUOUS = "ambiguous"
    UNREADABLE = "unreadable"
    RESTORE = "restore"
    HAS_ADDRESS = "has-address"
    MAY_HAVE_STARTED = "may-have-started"
    UNVERIFIED = "unverified"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class Keep:
    """The pod stays; `detail` completes `why` for a person."""

    why: Why
    detail: str

    @property
    def reason(self) -> str:
        return f"{self.why}: {self.detail}"


@dataclass(frozen=True, slots=True)
class Reap:
    """The pod is over; the two identities are what a delete must name as preconditions."""

    shape: Shape
    uid: str
    resource_version: str
    reason: str


Verdict = Keep | Reap


class NodeStanding(StrEnum):
    """What a fresh GET of the pod's Node said; a Node that is merely NotReady is `present`."""

    NOT_ASKED = "not-asked"
    PRESENT = "present"
    GONE = "gone"
    OUT_OF_SERVICE = "out-of-service"


@dataclass(frozen=True, slots=True)
class OwnerKind:
    """An owner's kind and API group, written `Kind.group` (`PodSet.orchestration.aibrix.ai`)."""

    kind: str
    group: str

    def __str__(self) -> str:
        return f"{self.kind}.{self.group}" if self.group else self.kind


def owner_kind(reference: OwnerReference) -> OwnerKind:
    """Kind and group of an owner reference; the version does not matter."""
    group, slash, _ = reference.api_version.rpartition("/")
    return OwnerKind(reference.kind, group if slash else "")


def judge_terminal(
    pod: Pod,
    *,
    owner_kinds: Collection[OwnerKind],
    doubt: str | None,
    node: NodeStanding = NodeStanding.NOT_ASKED,
) -> Verdict:
    """The terminal reaper's verdict; `doubt` says why the pod's stamps are not believed."""
    kept = _never(pod)
    if kept is not None:
        return kept
    if pod.status.phase not in ("Failed", "Succeeded"):
        return _alive(pod)
    owner = controller_of(pod)
    if owner is None:
        return Keep(Why.OWNER, "no controller owns it, so nobody waits for its name")
    if owner_kind(owner) not in owner_kinds:
        return Keep(Why.OWNER, f"pods of a {owner_kind(owner)} are not in terminal.ownerKinds")
    if doubt is not None:
        return Keep(Why.UNVERIFIED, doubt)
    running = _running_container(pod)
    if running is not None and node not in (NodeStanding.GONE, NodeStanding.OUT_OF_SERVICE):
        return Keep(Why.CONTAINER_RUNNING, _still_runs(pod, running, node))
    ended = _ended(pod)
    if running is not None:
        ended += f", and its Node {pod.spec.node_name} is {node}"
    return _reap(pod, Shape.TERMINAL, f"{ended}; it holds a name that its {owner.kind} needs")


def judge_retired(pod: Pod, *, record: Record | Miss, doubt: str | None) -> Verdict:
    """The retired reaper's verdict on a pod and what its record says."""
    kept = _never(pod)
    if kept is not None:
        return kept
    phase = pod.status.phase
    if phase not in ("Pending", "Failed", "Succeeded"):
        return _alive(pod)
    owner = controller_of(pod)
    if owner is not None and owner.kind == JOB_KIND:
        return Keep(Why.OWNER, "a Job counts its own finished pods")
    if isinstance(record, Miss):
        return _MISSES[record]
    if record.active:
        return Keep(Why.ACTIVE, f"its record says {record.state}, and that it is active")
    kept = _never_started(pod, record) if phase == "Pending" else _all_terminated(pod)
    if kept is not None:
        return kept
    if doubt is not None:
        return Keep(Why.UNVERIFIED, doubt)
    if phase == "Pending":
        reason = f"its record says {record.state}, and no sandbox was ever made for it"
        return _reap(pod, Shape.REPLACED_NEVER_STARTED, reason)
    reason = f"its record says {record.state}, and it {_ended(pod)} with all containers terminated"
    return _reap(pod, Shape.TERMINAL_RETIRED, reason)


def combine(terminal: Verdict | None, retired: Verdict | None) -> Verdict:
    """What both loops together do with a pod; None for a loop that is off or has not looked.

    Of two reasons to keep a pod, the one that is about its record says more, if it has one.
    """
    for verdict in (terminal, retired):
        if isinstance(verdict, Reap):
            return verdict
    if isinstance(retired, Keep) and retired.why in _ABOUT_RECORDS:
        return retired
    return terminal or retired or Keep(Why.OFF, "no reaper is on")


_ABOUT_RECORDS = frozenset(
    {
        Why.ACTIVE,
        Why.MISMATCH,
        Why.AMBIGUOUS,
        Why.UNREADABLE,
        Why.NOT_TERMINATED,
        Why.RESTORE,
        Why.HAS_ADDRESS,
        Why.MAY_HAVE_STARTED,
        Why.UNVERIFIED,
        Why.OFF,
    }
)


def may_be_retired(pod: Pod) -> bool:
    """Whether any record could lead to a delete; the others need no look-up."""
    verdict = judge_retired(pod, record=Miss.NONE, doubt=None)
    return isinstance(verdict, Keep) and verdict.why is Why.NOT_RETIRED


_MISSES = {
    Miss.NONE: Keep(Why.NOT_RETIRED, "no record says that its execution is over"),
    Miss.MISMATCH: Keep(Why.MISMATCH, "the record of its name is about another incarnation"),
    Miss.AMBIGUOUS: Keep(Why.AMBIGUOUS, "several records of its incarnation contradict each other"),
    Miss.UNREADABLE: Keep(Why.UNREADABLE, "its record could not be read"),
}


def _never(pod: Pod) -> Keep | None:
    if pod.metadata.labels.get(stamps.MANAGED) != "true":
        return Keep(Why.UNMANAGED, f"it has no label {stamps.MANAGED}=true")
    if is_terminating(pod):
        held = ", ".join(pod.metadata.finalizers)
        detail = f", held by {held}" if held else ""
        return Keep(Why.TERMINATING, f"it is being deleted already{detail}")
    return None


def _alive(pod: Pod) -> Keep:
    phase = pod.status.phase
    if phase == "Running":
        return Keep(Why.RUNNING, "it runs")
    if phase == "Pending":
        return Keep(Why.PENDING, "it is about to start")
    return Keep(Why.UNKNOWN_PHASE, f"its phase is {phase!r}, which proves nothing")


def _never_started(pod: Pod, record: Record) -> Keep | None:
    """None if the Pending pod is a fresh-create pod that was replaced before any sandbox."""
    if record.state != REPLACED:
        return Keep(Why.PENDING, f"it is about to start; its record says {record.state}")
    if pod.metadata.annotations.restore == "true":
        return Keep(Why.RESTORE, "it restores an earlier execution")
    if pod.status.pod_ip or any(address.ip for address in pod.status.pod_ips):
        return Keep(Why.HAS_ADDRESS, "it has an address, so its sandbox was made")
    said = {c.status for c in pod.status.conditions if c.type == SANDBOX_CONDITION}
    if said != {"False"}:
        return Keep(Why.MAY_HAVE_STARTED, f"condition {SANDBOX_CONDITION} is not False")
    return None


def _all_terminated(pod: Pod) -> Keep | None:
    """None if each container, init and ephemeral ones too, has a terminated status."""
    statuses = {status.name: status for status in _statuses(pod)}
    spec = pod.spec
    for declared in (*spec.containers, *spec.init_containers, *spec.ephemeral_containers):
        if declared.name not in statuses:
            return Keep(Why.NOT_TERMINATED, f"container {declared.name} has no status")
    for status in _statuses(pod):
        if status.state.terminated is None or status.state.running is not None:
            return Keep(Why.NOT_TERMINATED, f"container {status.name} is not terminated")
    if not statuses:
        return Keep(Why.NOT_TERMINATED, "it has no container status")
    return None


def _statuses(pod: Pod) -> Iterator[ContainerStatus]:
    yield from pod.status.init_container_statuses
    yield from pod.status.container_statuses
    yield from pod.status.ephemeral_container_statuses


def _running_container(pod: Pod) -> str | None:
    return next((s.name for s in _statuses(pod) if s.state.running is not None), None)


def _still_runs(pod: Pod, container: str, node: NodeStanding) -> str:
    where = f" on Node {pod.spec.node_name}" if pod.spec.node_name else ""
    known = ", which is in service" if node is NodeStanding.PRESENT else ""
    return f"container {container} still runs{where}{known}"


def _ended(pod: Pod) -> str:
    why = f" ({pod.status.reason})" if pod.status.reason else ""
    return f"{pod.status.phase}{why}"


def _reap(pod: Pod, shape: Shape, reason: str) -> Reap:
    return Reap(shape, pod.metadata.uid, pod.metadata.resource_version, reason)
