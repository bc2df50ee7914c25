"""Rules about other pods: one that holds the same index, one that still holds the name.

Invariant: the store may lag, so what it says is a suspicion or a warning, never a refusal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kube.pod import controller_of, is_live, is_terminal, is_terminating
from webhook import stamps
from webhook.case import Case, Denial, Suspicion, conflict

if TYPE_CHECKING:
    from kube.pod import Pod as StoredPod


def suspect_index_holder(case: Case) -> Denial | None:
    owner, index = case.owner, case.labels.podset_index
    if owner is None or not owner.uid or index is None:
        return None
    for other in case.view.at_index(case.namespace, owner.uid, index):
        if not holds_index(other, owner.uid, index) or other.metadata.name == case.name:
            continue
        metadata = other.metadata
        suspicion = Suspicion(
            case.namespace, metadata.name, metadata.uid, owner.uid, index, owner.name
        )
        if case.view.synced:
            case.suspicion = suspicion
        else:
            case.warn(unconfirmed_conflict(suspicion))
        break
    return None


def holds_index(pod: StoredPod, owner_uid: str, index: str) -> bool:
    """A live pod of that controller that is stamped with that index."""
    owner = controller_of(pod)
    return (
        is_live(pod)
        and owner is not None
        and owner.uid == owner_uid
        and pod.metadata.labels.get(stamps.PODSET_INDEX) == index
    )


def confirmed_conflict(suspicion: Suspicion, fresh: StoredPod | None) -> Denial | None:
    """The refusal, if a fresh read of the suspect shows that it is still the holder."""
    if (
        fresh is None
        or fresh.metadata.uid != suspicion.uid
        or not holds_index(fresh, suspicion.owner_uid, suspicion.set_index)
    ):
        return None
    name = f"{suspicion.namespace}/{suspicion.name}"
    return conflict(
        f"index {suspicion.set_index} of {suspicion.set_name!r} is held by pod {name}, incarnation "
        f"{fresh.metadata.annotations.incarnation!r}, phase {fresh.status.phase or 'unknown'}. "
        f"If that pod is the one to go: "
        f"kubectl delete pod {suspicion.name} -n {suspicion.namespace}"
    )


def unconfirmed_conflict(suspicion: Suspicion) -> str:
    """The warning, where that could not be shown."""
    return (
        f"pod {suspicion.name} may still hold index {suspicion.set_index} of "
        f"{suspicion.set_name!r}; allowed, as it could not be confirmed"
    )


def tell_name_holder(case: Case) -> Denial | None:
    """The server's own check of the name is atomic, so this only explains."""
    holder = case.view.holder(case.namespace, case.name) if case.name else None
    if holder is None or holder.metadata.uid == case.metadata.uid:
        return None
    incarnation = holder.metadata.annotations.incarnation or "unknown"
    text = (
        f"the name is held by incarnation {incarnation}, {holder.status.phase or 'phase unknown'}"
    )
    if is_terminating(holder):
        finalizers = ", ".join(holder.metadata.finalizers)
        text += f", terminating, held by finalizers {finalizers}" if finalizers else ", terminating"
    elif is_terminal(holder):
        text += ", about to be reaped"
    case.warn(text)
    return None
