"""A row of the table of admission: what is stored, what is written, and what comes of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.webhook.builders import (
    STORED,
    Object,
    changed,
    owner,
    pod,
    stamped,
)
from webhook.stamps import (
    ADAPTERS,
    ADAPTERS_DIGEST,
    AIBRIX_INDEX,
    ENABLED,
    INCARNATION,
    LORA_MODIFIED,
    MANAGED,
    PODSET,
    PODSET_INDEX,
    RESTORE,
    RETIRED,
    RETIRED_AT,
    adapters_digest,
    incarnation_time,
    parse_instant,
)

AIBRIX_PODSET = "stormservice.orchestration.aibrix.ai/podset-name"
APPS_INDEX = "apps.kubernetes.io/pod-index"
PAST = "2026-01-01T00:00:00.5Z"
PAST_NS = parse_instant(PAST) or 0


@dataclass(frozen=True, slots=True)
class Matches:
    """A value that cannot be named beforehand. `test` gets it and the time of the write (ns)."""

    name: str
    test: Callable[[Any, int], bool]


def _is_fresh(value: Any, now_ns: int) -> bool:
    minted = incarnation_time(value) if isinstance(value, str) else None
    return minted is not None and abs(minted.timestamp() - now_ns / 1e9) < 60


def _is_now(value: Any, now_ns: int) -> bool:
    instant = parse_instant(value) if isinstance(value, str) else None
    return instant is not None and abs(instant - now_ns) < 60e9


ABSENT = Matches("absent", lambda value, _: value is None)
FRESH = Matches("an incarnation minted now", _is_fresh)
NOW = Matches("now, RFC 3339 UTC", _is_now)
JUST_AFTER_PAST = Matches("a nanosecond later", lambda v, _: parse_instant(v or "") == PAST_NS + 1)


@dataclass(frozen=True, slots=True)
class Neighbour:
    """Another pod that exists at the time of the write."""

    pod: Object
    phase: str = "Running"
    terminating: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """`rule` is what the row would miss: taking it out must break the row."""

    id: str
    rule: str = ""
    stored: Object | None = None
    write: Object | None = None
    code: int = 200
    reason: str = ""
    says: tuple[str, ...] = ()
    labels: Object = field(default_factory=dict)
    annotations: Object = field(default_factory=dict)
    warns: tuple[str, ...] = ()
    untouched: bool = False
    terminating: bool = False
    namespace: str = "models"
    user: str = "jane"
    groups: tuple[str, ...] = ()
    preconditions: bool = False
    bypass: bool = False
    """The mutating endpoint is not asked."""
    neighbours: tuple[Neighbour, ...] = ()


FENCED_USER = "system:serviceaccount:serving:pod-writer"
FENCED_GROUP = "system:serviceaccounts:legacy"
LONG = "a" * 254
DIGEST = adapters_digest(["chat", "code"])
PODSET_POD = pod("ps-3", owners=[owner()])
IN_SET = {PODSET: "ps", PODSET_INDEX: "3", AIBRIX_INDEX: "3"}
STAMPED_POD = stamped("ps-3", owners=[owner()], labels=IN_SET)
RETIRED_POD = stamped(annotations={RETIRED: "suspended", RETIRED_AT: PAST})
WITH_LORA = stamped(
    annotations={ADAPTERS: "chat", ADAPTERS_DIGEST: adapters_digest(["chat"]), LORA_MODIFIED: PAST}
)
DEBUG_COPY = pod(
    "ps-3-debug",
    labels={**IN_SET, MANAGED: "true", AIBRIX_PODSET: "ps"},
    annotations={INCARNATION: STORED, RETIRED: "suspended", RETIRED_AT: PAST},
)
HOLDER = stamped("ps-other-3", owners=[owner()], labels=IN_SET)


def update(
    id: str,
    stored: Object,
    *,
    rule: str = "",
    terminating: bool = False,
    metadata: Object | None = None,
    set_labels: Object | None = None,
    set_annotations: Object | None = None,
    **expected: Any,
) -> Row:
    return Row(
        id=id,
        rule=rule,
        stored=stored,
        write=changed(stored, labels=set_labels, annotations=set_annotations, **(metadata or {})),
        terminating=terminating,
        **expected,
    )


UNMANAGED = pod(labels={"app": "x"}, annotations={"note": "x"})
UNSTAMPED = pod(labels={MANAGED: "true"})
FULL = changed(STAMPED_POD, labels={ENABLED: "true"}, annotations={RESTORE: "true"})


def delete(id: str, stored: Object, **expected: Any) -> Row:
    return Row(id=id, stored=stored, **expected)
