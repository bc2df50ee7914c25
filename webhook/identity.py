"""Rules of the stamps themselves: written at birth, true to the set, never changed.

Invariant: a stamp is minted at CREATE or adoption and by nobody but the webhook.
"""

from __future__ import annotations

from typing import Final

from webhook import stamps
from webhook.case import BYPASSED, Case, Denial, invalid, is_role_set_pod, shown
from webhook.sets import PODSET, is_label_value

_SKEW_MS: Final = int(stamps.INCARNATION_SKEW.total_seconds() * 1000)


def stamp_identity(case: Case) -> Denial | None:
    """A value that the client sends is replaced: copies of a manifest must not share one."""
    case.label(stamps.MANAGED, case.labels.managed, "true")
    incarnation = stamps.incarnation_at(case.now_ns // 1_000_000, case.random_bytes)
    case.annotate(stamps.INCARNATION, case.annotations.incarnation, incarnation)
    return None


def stamp_set(case: Case) -> Denial | None:
    """Set and index, computed anew; the set's own index label where its kind lets us write it."""
    labels = case.labels
    membership = case.membership
    if membership is None:
        case.label(stamps.PODSET, labels.podset, None)
        case.label(stamps.PODSET_INDEX, labels.podset_index, None)
        return None
    kind, name, index = membership.kind, membership.set_name, membership.index
    if is_label_value(name):
        case.label(stamps.PODSET, labels.podset, name)
    else:
        case.label(stamps.PODSET, labels.podset, None)
        case.warn(f"{kind.kind} {name!r} is no label value, so {stamps.PODSET} is not written")
    case.label(stamps.PODSET_INDEX, labels.podset_index, index)
    if index is None:
        if membership.named or membership.own_index is not None:
            case.warn(
                f"the name of {case.title} does not end in -<index> of {kind.kind} {name!r} and "
                f"no label gives the index, so {stamps.PODSET_INDEX} is not written"
            )
    elif kind.writes_index_label and membership.own_index is None:
        case.label(stamps.AIBRIX_INDEX, None, index)
    return None


def tell_copied_stamps(case: Case) -> Denial | None:
    """A copied manifest, a restored backup or `kubectl debug --copy-to` learns what was dropped."""
    annotations, labels = case.annotations, case.labels
    if (
        annotations.incarnation is None
        and annotations.retired is None
        and annotations.retired_at is None
        and labels.podset is None
        and labels.podset_index is None
    ):
        return None
    sent = (
        (stamps.INCARNATION, annotations.incarnation),
        (stamps.RETIRED, annotations.retired),
        (stamps.RETIRED_AT, annotations.retired_at),
        (stamps.PODSET, labels.podset),
        (stamps.PODSET_INDEX, labels.podset_index),
    )
    changes = case.label_changes.keys() | case.annotation_changes.keys()
    keys = [key for key, value in sent if value and key in changes]
    if keys:
        # A second apply of it would be an update that changes what is held.
        advice = (
            "" if case.old_pod else "; take them out of the manifest, or its next apply is refused"
        )
        case.warn(f"stamps of another pod were dropped or made anew: {', '.join(keys)}{advice}")
    return None


def refuse_other_index(case: Case) -> Denial | None:
    """The name and the set's own label must not name two indexes."""
    membership = case.membership
    if membership is None or not membership.clashes:
        return None
    label = stamps.AIBRIX_INDEX if membership.kind is PODSET else "apps.kubernetes.io/pod-index"
    return invalid(
        f"metadata.name {case.name!r} says index {membership.name_index} of {membership.kind.kind} "
        f"{membership.set_name!r}, but metadata.labels[{label}] says {membership.own_index!r}. "
        f"Set the label to {membership.name_index!r} or leave it out"
    )


def refuse_changed_own_index(case: Case) -> Denial | None:
    """AIBrix's own label may not come to disagree with the stamp."""
    written, stored = case.labels.aibrix_index, case.old_labels.aibrix_index
    stamped = case.old_labels.podset_index
    if written is None or stamped is None or written in (stored, stamped):
        return None
    membership = case.membership
    if membership is None or membership.kind is not PODSET:
        return None
    return invalid(
        f"{case.title}: metadata.labels[{stamps.AIBRIX_INDEX}] cannot become {shown(written)} "
        f"while metadata.labels[{stamps.PODSET_INDEX}] is {shown(stamped)}: "
        + case.kubectl("label", "--overwrite", f"{stamps.AIBRIX_INDEX}={stamped}")
    )


def hold_stamps(case: Case) -> Denial | None:
    """What was stamped holds for the life of the pod."""
    labels, old_labels = case.labels, case.old_labels
    new, old = case.annotations, case.old_annotations
    # A pod that was left out before it was stamped comes in by a change of this label.
    enabled = old_labels.enabled if old.incarnation else labels.enabled
    held = (
        (stamps.MANAGED, old_labels.managed, labels.managed),
        (stamps.ENABLED, enabled, labels.enabled),
        (stamps.PODSET, old_labels.podset, labels.podset),
        (stamps.PODSET_INDEX, old_labels.podset_index, labels.podset_index),
        (stamps.INCARNATION, old.incarnation or None, new.incarnation or None),
        (stamps.RESTORE, old.restore, new.restore),
    )
    changed = [entry for entry in held if entry[1] != entry[2]]
    return invalid(_changed(case, changed)) if changed else None


def hold_ownership(case: Case) -> Denial | None:
    """Adoption of a managed pod leaves alone what is written at CREATE only."""
    stored, written = case.old_annotations.restore, case.annotations.restore
    if not case.was_managed or stored == written:
        return None
    return invalid(_changed(case, [(stamps.RESTORE, stored, written)]))


def _changed(case: Case, changes: list[tuple[str, str | None, str | None]]) -> str:
    """Which key, the stored and the wanted value, and what to do instead."""
    told = "; ".join(
        f"{key} is {shown(stored)} and cannot become {shown(written)}"
        for key, stored, written in changes
    )
    if any(key == stamps.INCARNATION and stored is None for key, stored, _ in changes):
        advice = f"To have one minted: {case.adopt_command()}"
    else:
        advice = f"Leave it as it is, or delete the pod for a new one: {case.kubectl('delete')}"
    return f"{case.title}: {told}. {advice}"


def refuse_skewed_incarnation(case: Case) -> Denial | None:
    """Only the webhook mints incarnations, and it does so now."""
    incarnation = case.annotations.incarnation
    if incarnation is None:
        if case.managed:
            case.warn(f"{case.title} is stored without {stamps.INCARNATION}: {BYPASSED}")
        return None
    minted = stamps.incarnation_time(incarnation)
    if minted is None:
        return invalid(
            f"{case.title}: {stamps.INCARNATION} {shown(incarnation)} is no UUID of version 7 "
            f"({BYPASSED}). Leave it out"
        )
    skew_ms = abs(case.now_ns // 1_000_000 - int(minted.timestamp() * 1000))
    if skew_ms > _SKEW_MS:
        return invalid(
            f"{case.title}: {stamps.INCARNATION} {shown(incarnation)} was minted "
            f"{skew_ms // 60_000} minutes away from now, more than 10 ({BYPASSED}). Leave it out"
        )
    return None


def tell_role_set(case: Case) -> Denial | None:
    if case.managed and not case.was_managed and is_role_set_pod(case):
        command = case.kubectl("label", "--overwrite", f"{stamps.ENABLED}=true")
        case.warn(
            f"a pod of an AIBrix RoleSet is not stamped by itself; to have it done: {command}"
        )
    return None
