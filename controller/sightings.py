"""Tells of pods that are kept although something about them is odd; each is told once.

Two live pods of one set and index (neither is deleted), phases that no Kubernetes knows, and pods
that are over but held by finalizers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller.reports import identity
from kube.logs import get_logger
from kube.pod import controller_of, is_live, is_terminal, is_terminating
from webhook import stamps

if TYPE_CHECKING:
    from collections.abc import Hashable

    from controller.metrics import ReaperMetrics
    from controller.reports import Reports
    from kube.pod import Pod
    from kube.store import Change, Store

log = get_logger("controller.sightings")

KNOWN_PHASES = frozenset({"", "Pending", "Running", "Succeeded", "Failed", "Unknown"})

UNKNOWN_PHASE = "unknown-phase"
HELD = "held-by-finalizers"
INDEX_CONFLICT = "index-conflict"


def live_slot(pod: Pod) -> Hashable | None:
    """Namespace, controller UID and index of a live pod; None if it holds no slot."""
    owner = controller_of(pod)
    index = pod.metadata.labels.get(stamps.PODSET_INDEX)
    if owner is None or index is None or not is_live(pod):
        return None
    return (pod.metadata.namespace, owner.uid, index)


class Sightings:
    """One leader's term."""

    def __init__(self, pods: Store[Pod], reports: Reports, metrics: ReaperMetrics) -> None:
        self._pods = pods
        self._reports = reports
        self._metrics = metrics
        self._told: dict[str, set[str]] = {}
        self._holders: dict[Hashable, tuple[str, ...]] = {}

    def start(self) -> None:
        """Look at all pods of the store, and from now on at each change, until stop()."""
        for pod in list(self._pods.values()):
            self._look(pod)
        self._unsubscribe = self._pods.subscribe(self._changed)

    def stop(self) -> None:
        self._unsubscribe()

    def _changed(self, change: Change[Pod]) -> None:
        old, new = change.old, change.new
        if old is not None:
            left = live_slot(old)
            if left is not None and (new is None or live_slot(new) != left):
                self._leave(left, old.metadata.uid)
        if new is not None:
            self._look(new)
        elif old is not None:
            self._told.pop(old.metadata.uid, None)

    def _leave(self, slot: Hashable, uid: str) -> None:
        others = tuple(each for each in self._holders.get(slot, ()) if each != uid)
        if others:
            self._holders[slot] = others
        else:
            self._holders.pop(slot, None)

    def _look(self, pod: Pod) -> None:
        phase = pod.status.phase
        if phase not in KNOWN_PHASES and self._first(pod, UNKNOWN_PHASE):
            log.warning("kept a pod of unknown phase", **identity(pod), phase=phase)
        held = pod.metadata.finalizers
        if is_terminating(pod) and is_terminal(pod) and held and self._first(pod, HELD):
            log.warning("pod is held by finalizers", **identity(pod), finalizers=",".join(held))
        slot = live_slot(pod)
        if slot is None:
            return
        uid = pod.metadata.uid
        holders = self._holders.get(slot, ())
        if uid not in holders:
            self._holders[slot] = (*holders, uid)
        for other_uid in holders:
            other = self._pods.by_uid(other_uid)
            if other is None or other_uid == uid:
                continue
            for one, two in ((pod, other), (other, pod)):
                if self._first(one, f"{INDEX_CONFLICT} {two.metadata.uid}"):
                    self._reports.index_conflict(one, two)

    def _first(self, pod: Pod, kind: str) -> bool:
        told = self._told.setdefault(pod.metadata.uid, set())
        if kind in told:
            return False
        told.add(kind)
        self._metrics.sightings.labels(kind.partition(" ")[0]).inc()
        return True
