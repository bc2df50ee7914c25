"""Stamps are claims: what speaks against believing those of a pod.

Pure, apart from the memory of what each UID was first seen with. A doubt is a clause for a person;
None means that nothing speaks against the pod. Any doubt keeps it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from webhook import stamps

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from kube.namespace import Namespace
    from kube.pod import Pod

NEVER_NAMESPACES = frozenset({"kube-system", "podstamp-system"})
"""Out of scope whatever their labels say."""
_TIDY_EVERY = timedelta(minutes=1)


class Ledger:
    """What each UID was first seen with, and which incarnations two pods have shared.

    A doubt stays with its UID. The incarnation of a pod that is gone is remembered for as long as
    a copy of it could still pass for one that was minted at the copy's own creation.
    """

    __slots__ = ("_changed", "_doubts", "_first", "_holders", "_past", "_tidy_at")

    def __init__(self) -> None:
        self._first: dict[str, str | None] = {}
        self._holders: dict[str, str] = {}
        self._changed: dict[str, set[str]] = {}
        self._doubts: dict[str, str] = {}
        self._past: dict[str, datetime] = {}
        self._tidy_at: datetime | None = None

    @property
    def remembered(self) -> int:
        """How many incarnations of pods that are gone are still known."""
        return len(self._past)

    def seen(self, pod: Pod) -> None:
        """The pod was added or changed."""
        uid, incarnation = pod.metadata.uid, pod.metadata.annotations.incarnation or None
        first = self._first.setdefault(uid, incarnation)
        if first is None:
            self._first[uid] = first = incarnation
        if first != incarnation:
            self._doubts[uid] = f"its incarnation changed after it was first seen as {first}"
            if incarnation is not None:
                self._changed.setdefault(uid, set()).add(incarnation)
        if incarnation is None:
            return
        holder = self._holders.setdefault(incarnation, uid)
        if holder != uid:
            for each in (holder, uid):
                self._doubts[each] = f"two pods have held its incarnation {incarnation}"
        elif incarnation in self._past:
            self._doubts[uid] = f"its incarnation {incarnation} was that of a pod that is gone"

    def gone(self, pod: Pod, now: datetime) -> None:
        """The pod was removed at `now` (UTC)."""
        uid = pod.metadata.uid
        self._doubts.pop(uid, None)
        for incarnation in (self._first.pop(uid, None), *self._changed.pop(uid, ())):
            if incarnation is None:
                continue
            if self._holders.get(incarnation) == uid:
                del self._holders[incarnation]
            minted = stamps.incarnation_time(incarnation)
            if minted is not None:
                self._past[incarnation] = minted
        self._tidy(now)

    def doubt(self, pod: Pod) -> str | None:
        """Whether this pod, as it was read just now, is still who it was first seen as."""
        uid = pod.metadata.uid
        if uid not in self._first:
            return "it was not seen before"
        first = self._first[uid]
        if first not in (None, pod.metadata.annotations.incarnation):
            return f"its incarnation changed after it was first seen as {first}"
        return self._doubts.get(uid)

    def _tidy(self, now: datetime) -> None:
        if self._tidy_at is not None and now < self._tidy_at:
            return
        self._tidy_at = now + _TIDY_EVERY
        horizon = now - 2 * stamps.INCARNATION_SKEW
        for incarnation in [i for i, minted in self._past.items() if minted < horizon]:
            del self._past[incarnation]


def doubt_stamps(pod: Pod, namespace: Namespace | None, ledger: Ledger) -> str | None:
    """Why the pod's stamps are not believed (DESIGN section 6), or None."""
    where = pod.metadata.namespace
    if where in NEVER_NAMESPACES:
        return f"namespace {where} is never in scope"
    if namespace is None:
        return f"namespace {where} could not be read"
    if namespace.metadata.labels.get(stamps.ENABLED) != "true":
        return f"namespace {where} is not enabled"
    if pod.metadata.labels.get(stamps.ENABLED) == "false":
        return f"its label {stamps.ENABLED} is false"
    incarnation = pod.metadata.annotations.incarnation
    if not incarnation:
        return "it has no incarnation"
    minted = stamps.incarnation_time(incarnation)
    if minted is None:
        return f"its incarnation {incarnation!r} is no UUID version 7"
    created = pod.metadata.creation_timestamp
    if created is None:
        return "it has no creation time"
    if created - minted > stamps.INCARNATION_SKEW:
        age_min = (created - minted) // timedelta(minutes=1)
        return f"its incarnation is {age_min} minutes older than the pod itself"
    return ledger.doubt(pod)


@dataclass(frozen=True, slots=True)
class Guards:
    """The admission policies without which a pod could be stamped as retired by anyone."""

    missing: tuple[str, ...]

    @property
    def doubt(self) -> str | None:
        if not self.missing:
            return None
        return f"{', '.join(self.missing)} not found: anyone could have written its stamps"


def doubt_retirement(pod: Pod, guards: Guards) -> str | None:
    """What speaks against a retirement that the pod's own stamps claim, or None."""
    retired_at = pod.metadata.annotations.retired_at
    if not retired_at:
        return f"it has {stamps.RETIRED}, but no {stamps.RETIRED_AT}"
    if stamps.parse_instant(retired_at) is None:
        return f"its {stamps.RETIRED_AT} {retired_at!r} is no time"
    return guards.doubt


def missing_guards(
    required: Iterable[str], policies: Iterable[str], denying: Iterable[str]
) -> Guards:
    """Which policies of `required` do not exist or have no binding that denies.

    `denying`: names of the policies that some binding enforces.
    """
    present, enforced = set(policies), set(denying)
    missing = []
    for name in required:
        if name not in present:
            missing.append(f"policy {name}")
        elif name not in enforced:
            missing.append(f"a binding of policy {name} that denies")
    return Guards(tuple(missing))
