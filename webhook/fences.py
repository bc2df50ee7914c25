"""Rules of fences and of retirement: who may write to which incarnation.

Invariant: a write that names an incarnation counts for that one alone, and the name is consumed.
"""

from __future__ import annotations

from webhook import stamps
from webhook.case import BYPASSED, Case, Denial, Endpoint, Scope, conflict, invalid, shown


def refuse_fence_on_create(case: Case) -> Denial | None:
    if case.annotations.if_incarnation is None:
        return None
    return conflict(
        f"{case.title} is being created, but {stamps.IF_INCARNATION} fences this write to "
        f"incarnation {shown(case.annotations.if_incarnation)}: the pod that it was meant for is "
        f"gone. To create a new pod, leave the annotation out"
    )


def judge_fence(case: Case) -> Denial | None:
    """Equal to the stored incarnation it is consumed; a leftover is only cleared away."""
    fence = case.annotations.if_incarnation
    if fence is None:
        return None
    if not case.has_new_fence:
        if case.scope is not Scope.TERMINATING:
            case.annotate(stamps.IF_INCARNATION, fence, None)
        return None
    if not case.fenced:
        return _wrong_fence(case, fence)
    case.annotate(stamps.IF_INCARNATION, fence, None)
    return None


def _wrong_fence(case: Case, fence: str) -> Denial:
    stored = case.old_annotations.incarnation
    if not stored:
        return conflict(
            f"{case.title} has no incarnation, but {stamps.IF_INCARNATION} fences this write to "
            f"{shown(fence)}. Adopt the pod first, then repeat the write with its new incarnation: "
            f"{case.adopt_command()}"
        )
    return conflict(
        f"{case.title} is incarnation {shown(stored)}, but {stamps.IF_INCARNATION} fences this "
        f"write to {shown(fence)}. If it is meant for the present pod: "
        f"{_fenced_command(case, stored)}"
    )


def _fenced_command(case: Case, stored: str) -> str:
    new, old = case.annotations, case.old_annotations
    changes = [f"{stamps.IF_INCARNATION}={stored}"]
    if new.retired is not None and new.retired != old.retired:
        changes.append(f"{stamps.RETIRED}={new.retired}")
    if new.adapters is not None and new.adapters != old.adapters:
        changes.append(f"{stamps.ADAPTERS}={new.adapters}")
    return case.kubectl("annotate", "--overwrite", *changes)


def refuse_surviving_fence(case: Case) -> Denial | None:
    if not case.has_new_fence:
        return None
    return conflict(
        f"{case.title}: {stamps.IF_INCARNATION} was not judged, because {BYPASSED}. "
        f"Repeat the write"
    )


# Retirement.


def drop_copied_retirement(case: Case) -> Denial | None:
    """A new life is not over, whatever manifest or stored leftover it comes from."""
    annotations = case.annotations
    if annotations.retired is not None:
        case.annotate(stamps.RETIRED, annotations.retired, None)
    if annotations.retired_at is not None:
        case.annotate(stamps.RETIRED_AT, annotations.retired_at, None)
    return None


def refuse_retired_at_birth(case: Case) -> Denial | None:
    if case.annotations.retired is None and case.annotations.retired_at is None:
        return None
    return invalid(
        f"{case.title} carries {stamps.RETIRED} or {stamps.RETIRED_AT}, which no new incarnation "
        f"can have ({BYPASSED}). Leave both annotations out"
    )


def judge_retirement(case: Case) -> Denial | None:
    """The first word counts: a fenced write of another is answered with the stored one."""
    word, stored = case.annotations.retired, case.old_annotations.retired
    if word == stored:
        if word and case.fenced and case.old_annotations.retired_at is None:
            _stamp_retired_at(case)
        return None
    if word is None:
        if not case.was_managed:
            return None
        return invalid(
            f"{case.title} is retired: {stamps.RETIRED} is {shown(stored)} and cannot be removed. "
            f"For a new incarnation delete the pod: {case.kubectl('delete')}"
        )
    if stored is not None and case.was_managed:
        if not case.fenced:
            return invalid(
                f"{case.title} is retired: {stamps.RETIRED} is {shown(stored)} and cannot become "
                f"{shown(word)}. It needs no second retirement; for a new incarnation delete the "
                f"pod: {case.kubectl('delete')}"
            )
        case.annotate(stamps.RETIRED, word, stored)
        case.warn(f"{stamps.RETIRED} stays {shown(stored)}: the pod was retired before")
        return None
    if not case.fenced:
        return _unfenced_retirement(case, word)
    if not word:
        return invalid(
            f"{stamps.RETIRED} is empty; it takes a state word: "
            + case.kubectl(
                "annotate",
                "--overwrite",
                f"{stamps.IF_INCARNATION}={case.old_annotations.incarnation}",
                f"{stamps.RETIRED}=suspended",
            )
        )
    _stamp_retired_at(case)
    return None


def _stamp_retired_at(case: Case) -> None:
    """Now, unless a time is stored already, which holds."""
    stored = case.old_annotations.retired_at
    time = stamps.format_instant(case.now_ns) if stored is None else stored
    case.annotate(stamps.RETIRED_AT, case.annotations.retired_at, time)


def _unfenced_retirement(case: Case, word: str) -> Denial:
    incarnation = case.old_annotations.incarnation
    if not incarnation:
        return conflict(
            f"{case.title} has no incarnation, so {stamps.RETIRED}={word} could hit another pod "
            f"of this name. Adopt it first, then retire it: {case.adopt_command()}"
        )
    if case.annotations.if_incarnation is not None:
        return conflict(
            f"{case.title} carries an old {stamps.IF_INCARNATION}, which fences nothing. Remove "
            f"it, then repeat the write: {case.kubectl('annotate', f'{stamps.IF_INCARNATION}-')}"
        )
    return conflict(
        f"{case.title}: {stamps.RETIRED} needs {stamps.IF_INCARNATION} in the same write; the pod "
        f"is incarnation {shown(incarnation)}. If it is the one you mean: "
        f"{_fenced_command(case, incarnation)}"
    )


def hold_retirement(case: Case) -> Denial | None:
    """The stored word holds, and a new one has come through the mutating endpoint."""
    word, stored = case.annotations.retired, case.old_annotations.retired
    if word == stored:
        return None
    if stored is not None:
        return invalid(
            f"{case.title}: {stamps.RETIRED} is {shown(stored)} and cannot become {shown(word)}"
        )
    if case.annotations.retired_at is None:
        return invalid(
            f"{case.title}: {stamps.RETIRED} comes without {stamps.RETIRED_AT}, because "
            f"{BYPASSED}. Repeat the write"
        )
    return None


def hold_retired_at(case: Case) -> Denial | None:
    """Written together with `retired`, and never changed."""
    written, stored = case.annotations.retired_at, case.old_annotations.retired_at
    if written == stored:
        return None
    judged = case.fenced or case.endpoint is Endpoint.VALIDATE
    if stored is None and case.annotations.retired and judged:
        # The retirement itself is judged by its own rule, which also writes the time.
        return None
    return invalid(
        f"{case.title}: {stamps.RETIRED_AT} is {shown(stored)} and cannot become "
        f"{shown(written)}. podstamp writes it together with {stamps.RETIRED}; leave it as it is"
    )


def refuse_unfenced_delete(case: Case) -> Denial | None:
    """Those who delete by name are held to name the UID that they mean."""
    settings, user = case.settings, case.request.user_info
    if user is None or not (settings.fenced_users or settings.fenced_groups):
        return None
    if user.username not in settings.fenced_users and settings.fenced_groups.isdisjoint(
        user.groups or ()
    ):
        return None
    options = case.request.options
    if options is not None and options.preconditions is not None and options.preconditions.uid:
        return None
    uid = case.metadata.uid or ""
    return conflict(
        f"{case.title} may be deleted by {user.username!r} only with the UID that is meant: the "
        f"pod there now is {uid!r}, incarnation {case.annotations.incarnation!r}. Send "
        f'{{"kind":"DeleteOptions","apiVersion":"v1","preconditions":{{"uid":"{uid}"}}}}'
    )
