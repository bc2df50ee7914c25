"""Reap records: an event on the pod and one on its owner, a log line, a count.

Written only after a delete succeeded, or once for a pod in dry run; never in the way of a delete.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller.verdict import Shape
from kube.events import ObjectReference
from kube.logs import get_logger
from kube.pod import controller_of
from webhook import stamps

if TYPE_CHECKING:
    from controller.verdict import Reap
    from kube.events import EventRecorder
    from kube.pod import Pod

log = get_logger("controller.reports")

ACTION_REAP = "Reap"
ACTION_KEEP = "Keep"
INDEX_CONFLICT = "IndexConflict"


class Reports:
    """One in a process; remembers which pods a dry run has already named."""

    def __init__(self, recorder: EventRecorder) -> None:
        self._recorder = recorder
        self._named: dict[str, Shape] = {}

    def reaped(self, pod: Pod, verdict: Reap) -> None:
        """The pod was deleted just now."""
        note = describe(pod, verdict)
        self._record(pod, _reason("Reaped", verdict.shape), f"deleted {note}")
        log.info("reaped", **identity(pod), shape=verdict.shape, reason=verdict.reason)

    def would_reap(self, pod: Pod, verdict: Reap) -> bool:
        """Name a pod that only the dry run keeps; False if it was named in this shape before."""
        if self.is_named(pod.metadata.uid, verdict.shape):
            return False
        self._named[pod.metadata.uid] = verdict.shape
        note = describe(pod, verdict)
        self._record(pod, _reason("WouldReap", verdict.shape), f"dry run: would delete {note}")
        log.info("would reap", **identity(pod), shape=verdict.shape, reason=verdict.reason)
        return True

    def is_named(self, uid: str, shape: Shape) -> bool:
        """Whether a dry run has reported this pod in this shape."""
        return self._named.get(uid) is shape

    def forget(self, uid: str) -> None:
        """The pod is gone."""
        self._named.pop(uid, None)

    def index_conflict(self, pod: Pod, other: Pod) -> None:
        """Two live pods hold one index of one set; neither is deleted."""
        index = pod.metadata.labels.get(stamps.PODSET_INDEX, "")
        note = (
            f"index {index} of {owner_name(pod)} is also held by live pod {other.metadata.name}"
            f" (incarnation {other.metadata.annotations.incarnation or 'none'});"
            " delete the one that is not wanted: podstamp deletes neither"
        )
        self._recorder.record(
            _reference(pod),
            reason=INDEX_CONFLICT,
            note=note,
            type="Warning",
            action=ACTION_KEEP,
            related=_reference(other),
        )
        log.warning("index held twice", **identity(pod), index=index, other=other.metadata.name)

    def _record(self, pod: Pod, reason: str, note: str) -> None:
        self._recorder.record(_reference(pod), reason=reason, note=note, action=ACTION_REAP)
        owner = controller_of(pod)
        if owner is None:
            return
        regarding = ObjectReference(
            api_version=owner.api_version,
            kind=owner.kind,
            namespace=pod.metadata.namespace,
            name=owner.name,
            uid=owner.uid,
        )
        self._recorder.record(
            regarding, reason=reason, note=note, action=ACTION_REAP, related=_reference(pod)
        )


def describe(pod: Pod, verdict: Reap) -> str:
    """Which pod, which life of it, where in its set, and why."""
    parts = [f"incarnation {pod.metadata.annotations.incarnation or 'none'}"]
    index = pod.metadata.labels.get(stamps.PODSET_INDEX)
    if index is not None:
        parts.append(f"index {index} of {owner_name(pod)}")
    parts.append(f"shape {verdict.shape}")
    return f"pod {pod.metadata.name} ({', '.join(parts)}): {verdict.reason}"


def owner_name(pod: Pod) -> str:
    """`PodSet web`, or the set's label, or `no set`."""
    owner = controller_of(pod)
    if owner is not None:
        return f"{owner.kind} {owner.name}"
    name = pod.metadata.labels.get(stamps.PODSET)
    return f"set {name}" if name else "no set"


def identity(pod: Pod) -> dict[str, str | None]:
    """The fields by which a log names a pod."""
    meta = pod.metadata
    return {
        "namespace": meta.namespace,
        "pod": meta.name,
        "uid": meta.uid,
        "incarnation": meta.annotations.incarnation,
    }


def _reason(verb: str, shape: Shape) -> str:
    return f"{verb}{'Terminal' if shape is Shape.TERMINAL else 'Retired'}"


def _reference(pod: Pod) -> ObjectReference:
    meta = pod.metadata
    return ObjectReference(
        api_version="v1",
        kind="Pod",
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
    )
