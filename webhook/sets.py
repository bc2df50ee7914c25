"""Sets whose pods are named by index: the table of their kinds, and a pod's place in its set.

Invariant: a set's name comes from an owner reference or the set's own label and an index from
an exact suffix or the set's own label; neither is ever guessed from the pod name alone.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from webhook.review import Labels, Metadata, OwnerReference

AIBRIX_GROUP: Final = "orchestration.aibrix.ai"

_INDEX = re.compile(r"0|[1-9][0-9]{0,62}", re.ASCII)
_LABEL_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?", re.ASCII)
# What a server appends to generateName (k8s.io/apimachinery/pkg/util/rand).
_GENERATED = re.compile(r"[bcdfghjklmnpqrstvwxz2456789]{5}", re.ASCII)


class SetKind(NamedTuple):
    """One kind of set. The labels are fields of `review.Labels`, "" where it has none."""

    group: str
    kind: str
    name_label: str = ""
    """Label with the set's name, used when the pod has no controller."""
    index_label: str = ""
    """Label with the index, the set's own."""
    writes_index_label: bool = False
    """Whether podstamp writes `index_label` where it is absent."""

    def own_name(self, labels: Labels) -> str | None:
        """The set's name by its own label."""
        return getattr(labels, self.name_label) if self.name_label else None

    def own_index(self, labels: Labels) -> str | None:
        """The index by the set's own label, as written."""
        return getattr(labels, self.index_label) if self.index_label else None


PODSET: Final = SetKind(AIBRIX_GROUP, "PodSet", "aibrix_podset", "aibrix_index", True)
# LeaderWorkerSet pods belong to StatefulSets, and only those number them without repeats.
STATEFULSET: Final = SetKind("apps", "StatefulSet", "", "apps_index")

BUILT_IN: Final = (PODSET, STATEFULSET)

SetKinds = dict[tuple[str, str], SetKind]


def set_kinds(configured: Iterable[str] = ()) -> SetKinds:
    """The table by group and kind. `configured` are `Kind.group` of sets that name their pods
    `<owner>-<n>`; ValueError for one that is not written so."""
    table = {(kind.group, kind.kind): kind for kind in BUILT_IN}
    for text in configured:
        kind, dot, group = text.partition(".")
        if not kind or not dot or not group:
            raise ValueError(f"{text!r} is not written as Kind.group, such as PodSet.example.org")
        table.setdefault((group, kind), SetKind(group, kind))
    return table


class Membership(msgspec.Struct, frozen=True, gc=False):
    """A pod's place in its set."""

    kind: SetKind
    set_name: str
    owner_uid: str
    """UID of the controller, "" if only a label names the set."""
    name_index: str | None
    """Index that the pod's name says; None if it says none."""
    own_index: str | None
    """Value of the set's own index label, as written."""
    named: bool
    """Whether the pod has a name that is not generated."""

    @property
    def index(self) -> str | None:
        """The index: by the name, or else by the set's own label if that is a decimal."""
        if self.name_index is not None:
            return self.name_index
        own = self.own_index
        return own if own is not None and is_index(own) else None

    @property
    def clashes(self) -> bool:
        """The name says one index and the set's own label another."""
        return (
            self.name_index is not None
            and self.own_index is not None
            and self.name_index != self.own_index
        )


def is_index(text: str) -> bool:
    """A decimal without leading zeros that fits a label."""
    return _INDEX.fullmatch(text) is not None


def is_label_value(text: str) -> bool:
    """At most 63 characters of those that the API server takes in a label's value."""
    return _LABEL_VALUE.fullmatch(text) is not None


def controller_of(metadata: Metadata) -> OwnerReference | None:
    """The owner reference with `controller: true`, if there is one."""
    for reference in metadata.owner_references or ():
        if reference.controller:
            return reference
    return None


def find_membership(
    metadata: Metadata,
    labels: Labels,
    owner: OwnerReference | None,
    name: str,
    kinds: Mapping[tuple[str, str], SetKind],
) -> Membership | None:
    """The set that a pod belongs to; None if it is in no set of `kinds`. `name` may be empty."""
    if owner is not None:
        kind = kinds.get((owner.api_version.rpartition("/")[0], owner.kind))
        if kind is None or not owner.name:
            return None
        return _place(metadata, labels, kind, owner.name, owner.uid, name)
    for kind in kinds.values():
        own_name = kind.own_name(labels)
        if own_name:
            return _place(metadata, labels, kind, own_name, "", name)
    return None


def _place(
    metadata: Metadata, labels: Labels, kind: SetKind, set_name: str, owner_uid: str, name: str
) -> Membership:
    named = bool(name) and not _is_generated(name, metadata.generate_name)
    name_index = None
    if named and name.startswith(set_name) and name[len(set_name) : len(set_name) + 1] == "-":
        suffix = name[len(set_name) + 1 :]
        if is_index(suffix):
            name_index = suffix
    return Membership(kind, set_name, owner_uid, name_index, kind.own_index(labels), named)


def _is_generated(name: str, prefix: str | None) -> bool:
    """Whether the server made `name` from generateName. Set controllers give both, so the prefix
    alone says nothing; a suffix of five such letters that happens to be a number is no index."""
    return (
        bool(prefix)
        and prefix is not None
        and len(name) == len(prefix) + 5
        and name.startswith(prefix)
        and _GENERATED.fullmatch(name, len(prefix)) is not None
    )
