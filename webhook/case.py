"""One review as the rules see it: the pod before and after, its scope, and the answer in making.

Invariant: made from a request, settings and a time alone; rules change nothing but the three
lists of the answer (labels, annotations, warnings) and the suspicion.
"""

from __future__ import annotations

import shlex
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import msgspec

from webhook import stamps
from webhook.adapters import Arguments, Declared, declared_adapters, read_arguments, shorten
from webhook.review import CREATE, DELETE, UPDATE, Annotations, Labels, Metadata, Pod, Request
from webhook.sets import (
    AIBRIX_GROUP,
    Membership,
    SetKinds,
    controller_of,
    find_membership,
    set_kinds,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kube.pod import Pod as StoredPod
    from webhook.patch import Changes

NO_METADATA: Final = Metadata()
NO_LABELS: Final = Labels()
NO_ANNOTATIONS: Final = Annotations()

BYPASSED: Final = "the mutating webhook of podstamp did not see this write"
"""Why the validating endpoint meets what the mutating one never lets through."""

MAX_WARNING_LENGTH: Final = 250
"""kube-apiserver cuts a longer warning at 256 characters once the total passes 4 KiB."""


MAX_MESSAGE_LENGTH: Final = 2000
"""Of a refusal, which quotes what the client sent."""


class Endpoint(Enum):
    """Which of the two webhooks is asked."""

    MUTATE = "mutate"
    VALIDATE = "validate"


class Scope(StrEnum):
    """What the write is to podstamp; the value is shown as the rule of an allowed review."""

    OUT = "out-of-scope"
    CREATE = "create"
    UPDATE = "update"
    ADOPT = "adopt"
    UNMANAGED = "unmanaged"
    TERMINATING = "terminating"
    DELETE = "delete"


class Settings(msgspec.Struct, frozen=True):
    """What the rules take from the configuration."""

    kinds: SetKinds = msgspec.field(default_factory=set_kinds)
    excluded_namespaces: frozenset[str] = frozenset({"kube-system", "podstamp-system"})
    fenced_users: frozenset[str] = frozenset()
    fenced_groups: frozenset[str] = frozenset()


class StoreView(Protocol):
    """What the rules may ask of the webhook's own store, which may lag behind."""

    @property
    def synced(self) -> bool: ...
    def holder(self, namespace: str, name: str) -> StoredPod | None: ...
    def at_index(self, namespace: str, owner_uid: str, index: str) -> Iterable[StoredPod]: ...


class EmptyView:
    """The view where there is no store."""

    synced = False

    def holder(self, namespace: str, name: str) -> StoredPod | None:
        return None

    def at_index(self, namespace: str, owner_uid: str, index: str) -> Iterable[StoredPod]:
        return ()


EMPTY_VIEW: Final = EmptyView()


class Suspicion(NamedTuple):
    """Another pod that seems to hold the index; one fresh read of it decides."""

    namespace: str
    name: str
    uid: str
    owner_uid: str
    set_index: str
    set_name: str


class Denial(NamedTuple):
    """A refusal, in the words of the API's own errors."""

    code: int
    reason: str
    message: str


def conflict(message: str) -> Denial:
    """409: the write was meant for another pod, or another pod is in its way."""
    return Denial(409, "Conflict", _fit(message, MAX_MESSAGE_LENGTH))


def invalid(message: str) -> Denial:
    """422: the object may never look like this."""
    return Denial(422, "Invalid", _fit(message, MAX_MESSAGE_LENGTH))


class Case:
    """See the module. `pod` is the new object, or on DELETE the old one."""

    __slots__ = (
        "_arguments",
        "_declared",
        "_membership",
        "_membership_known",
        "annotation_changes",
        "annotations",
        "endpoint",
        "label_changes",
        "labels",
        "metadata",
        "name",
        "namespace",
        "now_ns",
        "old_annotations",
        "old_labels",
        "old_pod",
        "owner",
        "pod",
        "random_bytes",
        "request",
        "scope",
        "settings",
        "suspicion",
        "view",
        "warnings",
    )

    def __init__(
        self,
        request: Request,
        pod: Pod,
        old_pod: Pod | None,
        endpoint: Endpoint,
        settings: Settings,
        now_ns: int,
        random_bytes: bytes = b"",
        view: StoreView = EMPTY_VIEW,
    ) -> None:
        self.request = request
        self.endpoint = endpoint
        self.settings = settings
        self.now_ns = now_ns
        self.random_bytes = random_bytes
        self.view = view
        self.pod = pod
        self.old_pod = old_pod
        metadata = pod.metadata or NO_METADATA
        self.metadata = metadata
        self.labels = metadata.labels or NO_LABELS
        self.annotations = metadata.annotations or NO_ANNOTATIONS
        old_metadata = (old_pod and old_pod.metadata) or NO_METADATA
        self.old_labels = old_metadata.labels or NO_LABELS
        self.old_annotations = old_metadata.annotations or NO_ANNOTATIONS
        self.owner = controller_of(metadata) if metadata.owner_references else None
        self.namespace = request.namespace or ""
        # On deletecollection the request has no name.
        self.name = metadata.name or request.name or ""
        self.label_changes: Changes = {}
        self.annotation_changes: Changes = {}
        self.warnings: list[str] = []
        self.suspicion: Suspicion | None = None
        self.scope = Scope.OUT
        self._arguments: Arguments | None = None
        self._declared: Declared | None = None
        self._membership: Membership | None = None
        self._membership_known = False

    # Facts.

    @property
    def managed(self) -> bool:
        return self.labels.managed == "true"

    @property
    def was_managed(self) -> bool:
        return self.old_labels.managed == "true"

    @property
    def terminating(self) -> bool:
        """Deletion is under way in the stored object or in the written one."""
        old = self.old_pod and self.old_pod.metadata
        return bool(self.metadata.deletion_timestamp or (old and old.deletion_timestamp))

    @property
    def has_new_fence(self) -> bool:
        """A fence that this write sets; one that is already stored is a leftover."""
        fence = self.annotations.if_incarnation
        return fence is not None and fence != self.old_annotations.if_incarnation

    @property
    def fenced(self) -> bool:
        """This write sets a fence, and it is for the stored incarnation."""
        stored = self.old_annotations.incarnation
        return bool(stored) and self.has_new_fence and self.annotations.if_incarnation == stored

    @property
    def membership(self) -> Membership | None:
        if not self._membership_known:
            self._membership_known = True
            self._membership = find_membership(
                self.metadata, self.labels, self.owner, self.name, self.settings.kinds
            )
        return self._membership

    @property
    def arguments(self) -> Arguments:
        """What the containers' arguments say."""
        if self._arguments is None:
            self._arguments = read_arguments((self.pod.spec and self.pod.spec.containers) or ())
        return self._arguments

    @property
    def declared(self) -> Declared:
        """Adapters of the written pod."""
        if self._declared is None:
            self._declared = declared_adapters(self.annotations.adapters, self.arguments)
        return self._declared

    @property
    def adapters_changed(self) -> bool:
        """The write changes which adapters are declared; arguments of a pod cannot change."""
        old = self.old_annotations.adapters
        if old == self.annotations.adapters:
            return False
        return set(self.declared.names) != set(declared_adapters(old, self.arguments).names)

    # The answer.

    def label(self, key: str, current: str | None, value: str | None) -> None:
        """Have label `key`, now `current`, stored as `value`; None is absent."""
        if current != value:
            self.label_changes[key] = value

    def annotate(self, key: str, current: str | None, value: str | None) -> None:
        """The same for an annotation."""
        if current != value:
            self.annotation_changes[key] = value

    def warn(self, text: str) -> None:
        """Tell the client; cut to what the API server passes on whole."""
        self.warnings.append(fit_warning(text))

    # Words for people.

    @property
    def title(self) -> str:
        """The pod as a message names it."""
        name = self.name or f"{self.metadata.generate_name or ''}*"
        return f"pod {self.namespace}/{name}"

    def kubectl(self, verb: str, *changes: str) -> str:
        """A kubectl command on this pod that can be pasted into a shell."""
        words = ["kubectl", verb, "pod", self.name, "-n", self.namespace or "default", *changes]
        return shlex.join(words)

    def adopt_command(self) -> str:
        """The command that brings this pod under podstamp."""
        # What is stored counts: the write that gets this advice is refused.
        stored = self.old_labels
        left_out = stored.enabled == "false" or (
            stored.enabled != "true" and is_owned_by_role_set(self)
        )
        if self.was_managed and not left_out:
            return self.kubectl("annotate", "--overwrite", f"{stamps.INCARNATION}=")
        changes = [f"{stamps.ENABLED}=true"] if left_out else []
        if not self.was_managed:
            changes.append(f"{stamps.MANAGED}=true")
        overwrite = stored.enabled is not None or stored.managed is not None
        return self.kubectl("label", *(["--overwrite"] if overwrite else []), *changes)


def shown(value: str | None) -> str:
    """A stored or written value in a message."""
    return "absent" if value is None else shorten(value, 100)


def fit_warning(text: str) -> str:
    """One printable line that the API server does not cut."""
    return _fit(text, MAX_WARNING_LENGTH)


def _fit(text: str, limit: int) -> str:
    # Values that clients send may be of any length and hold anything.
    line = "".join(c if c.isprintable() else " " for c in text[: limit + 1])
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


# Scope.


def is_excluded_namespace(case: Case) -> bool:
    """kube-system and podstamp's own namespace are never touched."""
    return case.namespace in case.settings.excluded_namespaces


def is_opted_out(case: Case) -> bool:
    """The pod itself says no."""
    return case.labels.enabled == "false"


def is_owned_by_role_set(case: Case) -> bool:
    """An AIBrix RoleSet compares live and rendered metadata, and would recreate a stamped pod."""
    owner = case.owner
    return (
        owner is not None
        and owner.kind == "RoleSet"
        and owner.api_version.rpartition("/")[0] == AIBRIX_GROUP
    )


def is_role_set_pod(case: Case) -> bool:
    """A pod of a RoleSet is in scope only if it says so itself."""
    return case.labels.enabled != "true" and is_owned_by_role_set(case)


class ExclusionTest(Protocol):
    def __call__(self, case: Case, /) -> bool: ...


class Exclusion(NamedTuple):
    """Why a pod that is not stamped yet is left alone."""

    name: str
    applies: ExclusionTest
    judged: bool = False
    """Whether fences and retirements of such a pod are judged all the same."""
    stamped_too: bool = False
    """Whether even a stamped pod is left alone."""


EXCLUSIONS: Final = (
    Exclusion("excluded-namespace", is_excluded_namespace, stamped_too=True),
    Exclusion("opted-out", is_opted_out),
    Exclusion("role-set", is_role_set_pod, judged=True),
)


def exclusion_of(case: Case, exclusions: Iterable[Exclusion] = EXCLUSIONS) -> Exclusion | None:
    """The first exclusion that applies."""
    for exclusion in exclusions:
        if exclusion.applies(case):
            return exclusion
    return None


def scope_of(case: Case, exclusion: Exclusion | None) -> Scope:
    """What the write is to podstamp. A pod that is stamped stays in scope whatever it says."""
    operation = case.request.operation
    if exclusion is not None:
        stamped = case.was_managed and bool(case.old_annotations.incarnation)
        if operation == CREATE or not stamped or exclusion.stamped_too:
            judged = exclusion.judged and operation == UPDATE
            return (
                (Scope.TERMINATING if case.terminating else Scope.UNMANAGED)
                if judged
                else Scope.OUT
            )
    if operation == CREATE:
        return Scope.CREATE
    if operation != UPDATE and operation != DELETE:
        return Scope.OUT
    if case.terminating:
        return Scope.TERMINATING
    if operation == DELETE:
        return Scope.DELETE
    if case.was_managed:
        return Scope.ADOPT if _mints(case) else Scope.UPDATE
    return Scope.ADOPT if case.managed else Scope.UNMANAGED


def _mints(case: Case) -> bool:
    """A managed pod without an incarnation asks for one: by an empty one or by enabled=true, which
    also ends an exclusion; after mutation it has one."""
    if case.old_annotations.incarnation or not case.managed:
        return False
    written = case.annotations.incarnation
    if case.endpoint is Endpoint.VALIDATE:
        return written is not None
    asks = case.labels.enabled == "true" and case.old_labels.enabled != "true"
    return asks or written == ""
