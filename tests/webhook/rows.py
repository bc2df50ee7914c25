"""The table of admission: a row for each rule and each public bug report about admission.

A row says what is stored, what is written, and what comes of it. The same rows run on the pure
functions and over HTTPS through the embedded API server.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.webhook.builders import (
    OTHER,
    OWNER_UID,
    STORED,
    Object,
    changed,
    owner,
    pod,
    role_set,
    stamped,
    statefulset,
)
from webhook.stamps import (
    ADAPTERS,
    ADAPTERS_DIGEST,
    AIBRIX_INDEX,
    ENABLED,
    IF_INCARNATION,
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

CREATE_ROWS = (
    Row(
        id="create-is-stamped",
        rule="stamp",
        write=pod(),
        labels={MANAGED: "true"},
        annotations={INCARNATION: FRESH, LORA_MODIFIED: ABSENT, ADAPTERS_DIGEST: ABSENT},
    ),
    Row(
        id="create-without-any-metadata-map",
        rule="stamp",
        write=pod(labels=None, annotations=None),
        labels={MANAGED: "true"},
        annotations={INCARNATION: FRESH},
    ),
    Row(
        id="create-with-empty-maps",
        rule="stamp",
        write=pod(labels={}, annotations={}),
        labels={MANAGED: "true"},
        annotations={INCARNATION: FRESH},
    ),
    Row(
        id="foreign-keys-with-slash-and-tilde-stay",
        rule="stamp",
        write=pod(labels={"a.b/c": "x"}, annotations={"x/y": "~1/~0", "odd": "ü\u0085"}),
        labels={"a.b/c": "x", MANAGED: "true"},
        annotations={"x/y": "~1/~0", "odd": "ü\u0085", INCARNATION: FRESH},
    ),
    Row(
        id="copied-manifest-gets-an-incarnation-of-its-own",
        rule="stamp",
        write=pod(annotations={INCARNATION: STORED}),
        annotations={INCARNATION: FRESH},
        warns=(INCARNATION,),
    ),
    Row(
        id="copy-is-told-what-was-dropped",
        rule="copied-stamps",
        write=pod(annotations={RETIRED: "suspended"}, labels={PODSET: "ps"}),
        annotations={RETIRED: ABSENT},
        labels={PODSET: ABSENT},
        warns=(RETIRED, PODSET),
    ),
    Row(
        id="copied-retirement-is-dropped",
        rule="copied-retirement",
        write=DEBUG_COPY,
        annotations={RETIRED: ABSENT, RETIRED_AT: ABSENT, INCARNATION: FRESH},
        warns=(RETIRED_AT,),
    ),
    Row(
        id="copied-set-stamps-are-dropped",
        rule="stamp-set",
        write=pod(labels={PODSET: "ps", PODSET_INDEX: "3"}),
        labels={PODSET: ABSENT, PODSET_INDEX: ABSENT},
        warns=(PODSET_INDEX,),
    ),
    Row(
        id="copied-set-stamps-are-computed-anew",
        rule="stamp-set",
        write=pod("ps-3", owners=[owner()], labels={PODSET: "other", PODSET_INDEX: "9"}),
        labels=IN_SET,
        warns=(PODSET_INDEX,),
    ),
    Row(
        id="fence-on-create",
        rule="fence-on-create",
        write=pod(annotations={IF_INCARNATION: STORED}),
        code=409,
        reason="Conflict",
        says=(IF_INCARNATION, STORED, "gone"),
    ),
    Row(
        id="restore-pod-is-marked-at-create",
        write=pod(annotations={RESTORE: "true"}),
        annotations={RESTORE: "true", INCARNATION: FRESH},
    ),
    Row(
        id="opted-out-pod-is-left-out",
        rule="opted-out",
        write=pod(labels={ENABLED: "false"}),
        untouched=True,
    ),
    Row(
        id="role-set-pod-is-left-out",
        rule="role-set",
        write=pod(owners=[role_set()]),
        untouched=True,
    ),
    Row(
        id="role-set-pod-that-asks-is-stamped",
        rule="stamp",
        write=pod(owners=[role_set()], labels={ENABLED: "true"}),
        labels={MANAGED: "true"},
    ),
    Row(
        id="kube-system-is-never-touched",
        rule="excluded-namespace",
        write=pod(),
        namespace="kube-system",
        untouched=True,
    ),
    Row(
        id="own-namespace-is-never-touched",
        rule="excluded-namespace",
        write=pod(),
        namespace="podstamp-system",
        untouched=True,
    ),
    # Sets.
    Row(id="podset-index-from-the-name", rule="stamp-set", write=PODSET_POD, labels=IN_SET),
    Row(
        id="podset-own-label-is-kept",
        rule="stamp-set",
        write=changed(PODSET_POD, labels={AIBRIX_INDEX: "3"}),
        labels=IN_SET,
    ),
    Row(
        id="podset-by-its-own-label",
        rule="stamp-set",
        write=pod("ps-4", labels={AIBRIX_PODSET: "ps"}),
        labels={PODSET: "ps", PODSET_INDEX: "4", AIBRIX_INDEX: "4"},
    ),
    Row(
        id="name-without-an-owner-says-nothing",
        write=pod("ps-3"),
        labels={PODSET: ABSENT, PODSET_INDEX: ABSENT, AIBRIX_INDEX: ABSENT},
    ),
    Row(
        id="leading-zero-is-no-index",
        rule="stamp-set",
        write=pod("ps-03", owners=[owner()]),
        labels={PODSET: "ps", PODSET_INDEX: ABSENT, AIBRIX_INDEX: ABSENT},
        warns=("index",),
    ),
    Row(
        id="suffix-is-read-after-the-whole-set-name",
        rule="stamp-set",
        write=pod("ps-3-7", owners=[owner(name="ps-3")]),
        labels={PODSET: "ps-3", PODSET_INDEX: "7"},
    ),
    Row(
        id="shortened-name-with-own-label",
        rule="stamp-set",
        write=pod(
            "p" + "x" * 60 + "-7", owners=[owner(name="ps" + "x" * 60)], labels={AIBRIX_INDEX: "7"}
        ),
        labels={PODSET: "ps" + "x" * 60, PODSET_INDEX: "7", AIBRIX_INDEX: "7"},
    ),
    Row(
        id="shortened-name-without-own-label",
        rule="stamp-set",
        write=pod("p" + "x" * 60 + "-7", owners=[owner(name="ps" + "x" * 60)]),
        labels={PODSET_INDEX: ABSENT, AIBRIX_INDEX: ABSENT},
        warns=("index",),
    ),
    Row(
        id="set-name-that-is-no-label-value",
        rule="stamp-set",
        write=pod("p-1", owners=[owner(name="a" * 64)]),
        labels={PODSET: ABSENT},
        warns=("no label value",),
    ),
    Row(
        id="statefulset-index-from-its-label",
        rule="stamp-set",
        write=pod("web-2", owners=[statefulset()], labels={APPS_INDEX: "2"}),
        labels={PODSET: "web", PODSET_INDEX: "2", AIBRIX_INDEX: ABSENT},
    ),
    Row(
        id="leaderworkerset-worker",
        rule="stamp-set",
        write=pod(
            "lws-0-1",
            owners=[statefulset("lws-0")],
            labels={
                APPS_INDEX: "1",
                "leaderworkerset.sigs.k8s.io/worker-index": "1",
                "leaderworkerset.sigs.k8s.io/group-index": "0",
            },
        ),
        labels={PODSET: "lws-0", PODSET_INDEX: "1"},
    ),
    Row(
        id="generate-name-alone",
        write=pod(None, generateName="ps-", owners=[owner()]),
        labels={MANAGED: "true", PODSET: "ps", PODSET_INDEX: ABSENT},
        annotations={INCARNATION: FRESH},
    ),
    Row(
        id="name-and-own-label-disagree",
        rule="index-mismatch",
        write=changed(PODSET_POD, labels={AIBRIX_INDEX: "4"}),
        code=422,
        reason="Invalid",
        says=("metadata.name", "ps-3", AIBRIX_INDEX, "'4'"),
    ),
    Row(
        id="statefulset-name-and-label-disagree",
        rule="index-mismatch",
        write=pod("web-2", owners=[statefulset()], labels={APPS_INDEX: "1"}),
        code=422,
        reason="Invalid",
        says=("metadata.name", APPS_INDEX),
    ),
    # Adapters.
    Row(
        id="adapters-of-annotation-and-arguments",
        rule="adapters-digest",
        write=pod(annotations={ADAPTERS: "chat, code"}, args=["--lora-modules", "chat=/a"]),
        annotations={ADAPTERS: "chat, code", ADAPTERS_DIGEST: DIGEST},
    ),
    Row(
        id="lora-modified-is-now-with-adapters",
        rule="lora-at-create",
        write=pod(annotations={ADAPTERS: "chat", LORA_MODIFIED: PAST}),
        annotations={LORA_MODIFIED: NOW},
    ),
    Row(
        id="lora-modified-without-adapters-is-dropped",
        rule="lora-at-create",
        write=pod(annotations={LORA_MODIFIED: PAST}),
        annotations={LORA_MODIFIED: ABSENT},
    ),
    Row(
        id="wrong-digest-is-overwritten",
        rule="adapters-digest",
        write=pod(annotations={ADAPTERS: "chat,code", ADAPTERS_DIGEST: "0" * 16}),
        annotations={ADAPTERS_DIGEST: DIGEST},
    ),
    Row(
        id="digest-without-adapters-is-dropped",
        rule="adapters-digest",
        write=pod(annotations={ADAPTERS_DIGEST: "0" * 16}),
        annotations={ADAPTERS_DIGEST: ABSENT},
    ),
    *(
        Row(
            id=f"adapter-name-{name}",
            rule="adapter-names",
            write=pod(annotations={ADAPTERS: text}, args=["--served-model-name", "base"]),
            code=422,
            reason="Invalid",
            says=(ADAPTERS, says),
        )
        for name, text, says in (
            ("empty", "chat,,code", "empty"),
            ("duplicate", "chat,code,chat", "twice"),
            ("too-long", f"chat,{LONG}", "254"),
            ("served", "chat,base", "served model name"),
        )
    ),
    Row(
        id="bad-names-in-arguments-only-warn",
        rule="unreadable-adapters",
        write=pod(args=["--lora-modules", "=/a", "x=/b", "x=/c", "$(V)=/d"]),
        annotations={ADAPTERS_DIGEST: adapters_digest(["x"])},
        warns=("empty name", "twice", "$(V)"),
    ),
    Row(
        id="shell-text-only-warns",
        rule="unreadable-adapters",
        write=pod(command=["sh", "-c", "vllm serve m --lora-modules a=/a"]),
        annotations={ADAPTERS_DIGEST: ABSENT, INCARNATION: FRESH},
        warns=("cannot be read",),
    ),
    # The validating endpoint alone.
    Row(
        id="bypassed-create-with-old-incarnation",
        rule="incarnation-skew",
        write=pod(labels={MANAGED: "true"}, annotations={INCARNATION: OTHER}),
        bypass=True,
        code=422,
        reason="Invalid",
        says=(INCARNATION, OTHER, "10"),
    ),
    Row(
        id="bypassed-create-with-no-uuid",
        rule="incarnation-skew",
        write=pod(labels={MANAGED: "true"}, annotations={INCARNATION: "mine"}),
        bypass=True,
        code=422,
        reason="Invalid",
        says=(INCARNATION, "UUID"),
    ),
    Row(
        id="bypassed-create-without-stamps",
        write=pod(),
        bypass=True,
        untouched=True,
    ),
    Row(
        id="bypassed-create-that-says-managed",
        rule="incarnation-skew",
        write=pod(labels={MANAGED: "true"}),
        bypass=True,
        untouched=True,
        warns=(INCARNATION,),
    ),
    Row(
        id="bypassed-create-that-is-retired",
        rule="retired-at-birth",
        write=pod(annotations={RETIRED: "suspended"}),
        bypass=True,
        code=422,
        reason="Invalid",
        says=(RETIRED,),
    ),
    Row(
        id="bypassed-create-with-a-fence",
        rule="fence-on-create",
        write=pod(annotations={IF_INCARNATION: STORED}),
        bypass=True,
        code=409,
        reason="Conflict",
        says=(IF_INCARNATION,),
    ),
    # Other pods.
    Row(
        id="index-held-by-a-live-pod",
        rule="index-conflict",
        write=PODSET_POD,
        neighbours=(Neighbour(HOLDER),),
        code=409,
        reason="Conflict",
        says=("ps-other-3", STORED, "index 3"),
    ),
    *(
        Row(
            id=f"index-of-a-{name}-pod-is-free",
            write=PODSET_POD,
            neighbours=(neighbour,),
            labels=IN_SET,
        )
        for name, neighbour in (
            ("failed", Neighbour(HOLDER, "Failed")),
            ("succeeded", Neighbour(HOLDER, "Succeeded")),
            ("terminating", Neighbour(HOLDER, terminating=True)),
            (
                "foreign",
                Neighbour(changed(HOLDER, ownerReferences=[owner(uid=OWNER_UID[::-1])])),
            ),
        )
    ),
    Row(
        id="name-held-by-a-failed-pod",
        rule="name-held",
        write=PODSET_POD,
        neighbours=(Neighbour(STAMPED_POD, "Failed"),),
        warns=(STORED, "Failed", "reaped"),
    ),
    Row(
        id="name-held-by-a-terminating-pod",
        rule="name-held",
        write=PODSET_POD,
        neighbours=(Neighbour(STAMPED_POD, terminating=True),),
        warns=(STORED, "finalizers", "example.org/hold"),
    ),
)


def _update(
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


_UNMANAGED = pod(labels={"app": "x"}, annotations={"note": "x"})
_UNSTAMPED = pod(labels={MANAGED: "true"})
_FULL = changed(STAMPED_POD, labels={ENABLED: "true"}, annotations={RESTORE: "true"})

UPDATE_ROWS = (
    *(
        _update(
            f"immutable-{key.rpartition('/')[2]}-{how}",
            _FULL,
            rule="immutable-stamps",
            set_labels={key: value} if where == "labels" else None,
            set_annotations={key: value} if where == "annotations" else None,
            code=422,
            reason="Invalid",
            says=(key, stored) + (() if value is None else (value,)),
        )
        for where, key, stored, other in (
            ("labels", MANAGED, "true", "false"),
            ("labels", PODSET, "ps", "other"),
            ("labels", PODSET_INDEX, "3", "4"),
            ("labels", ENABLED, "true", "false"),
            ("annotations", INCARNATION, STORED, OTHER),
            ("annotations", RESTORE, "true", "false"),
        )
        for how, value in (("changed", other), ("removed", None))
    ),
    _update(
        "immutable-stamp-added-later",
        stamped(),
        rule="immutable-stamps",
        set_annotations={RESTORE: "true"},
        code=422,
        reason="Invalid",
        says=(RESTORE, "absent"),
    ),
    _update(
        "own-index-moves-away-from-the-stamp",
        STAMPED_POD,
        rule="own-index",
        set_labels={AIBRIX_INDEX: "5"},
        code=422,
        reason="Invalid",
        says=(AIBRIX_INDEX, PODSET_INDEX, "'5'", "'3'"),
    ),
    _update("own-index-is-removed", STAMPED_POD, set_labels={AIBRIX_INDEX: None}, untouched=True),
    _update("label-write-by-others", stamped(), set_labels={"team": "a"}, untouched=True),
    _update("unmanaged-pod-passes", _UNMANAGED, set_labels={PODSET: "x"}, untouched=True),
    # Adoption.
    _update(
        "adoption",
        pod("ps-3", owners=[owner()], annotations={RETIRED: "suspended", RETIRED_AT: PAST}),
        rule="stamp",
        set_labels={MANAGED: "true"},
        labels={MANAGED: "true", **IN_SET},
        annotations={INCARNATION: FRESH, RETIRED: ABSENT, RETIRED_AT: ABSENT},
        warns=(RETIRED,),
    ),
    _update(
        "adoption-drops-a-retirement",
        pod(annotations={RETIRED: "suspended", RETIRED_AT: PAST}),
        rule="copied-retirement",
        set_labels={MANAGED: "true"},
        annotations={RETIRED: ABSENT, RETIRED_AT: ABSENT},
        warns=(RETIRED,),
    ),
    _update(
        "adoption-replaces-a-sent-incarnation",
        _UNMANAGED,
        rule="stamp",
        set_labels={MANAGED: "true"},
        set_annotations={INCARNATION: OTHER},
        annotations={INCARNATION: FRESH},
        warns=(INCARNATION,),
    ),
    _update(
        "adoption-by-empty-incarnation",
        _UNSTAMPED,
        rule="stamp",
        set_annotations={INCARNATION: ""},
        annotations={INCARNATION: FRESH},
    ),
    _update(
        "adoption-by-empty-incarnation-leaves-the-rest",
        _UNSTAMPED,
        rule="immutable-ownership",
        set_annotations={INCARNATION: "", RESTORE: "true"},
        code=422,
        reason="Invalid",
        says=(RESTORE,),
    ),
    _update(
        "forged-incarnation-on-an-unstamped-pod",
        _UNSTAMPED,
        rule="immutable-stamps",
        set_annotations={INCARNATION: OTHER},
        code=422,
        reason="Invalid",
        says=(INCARNATION, OTHER, "kubectl annotate pod engine", f"{INCARNATION}="),
    ),
    _update(
        "adoption-declares-adapters",
        pod(annotations={ADAPTERS: "chat"}),
        rule="lora-modified",
        set_labels={MANAGED: "true"},
        annotations={ADAPTERS_DIGEST: adapters_digest(["chat"]), LORA_MODIFIED: NOW},
    ),
    _update(
        "adoption-keeps-lora-modified",
        pod(annotations={ADAPTERS: "chat", LORA_MODIFIED: PAST}),
        set_labels={MANAGED: "true"},
        annotations={LORA_MODIFIED: PAST},
    ),
    _update(
        "adoption-of-a-role-set-pod",
        pod(owners=[role_set()]),
        rule="role-set",
        set_labels={MANAGED: "true"},
        untouched=True,
        warns=("RoleSet",),
    ),
    _update(
        "adoption-of-a-role-set-pod-warns",
        pod(owners=[role_set()]),
        rule="role-set-warning",
        set_labels={MANAGED: "true"},
        warns=("RoleSet", f"{ENABLED}=true"),
    ),
    _update(
        "adoption-of-a-role-set-pod-that-asks",
        pod(owners=[role_set()]),
        rule="stamp",
        set_labels={MANAGED: "true", ENABLED: "true"},
        annotations={INCARNATION: FRESH},
    ),
    Row(
        id="bypassed-adoption-with-old-incarnation",
        rule="incarnation-skew",
        stored=_UNSTAMPED,
        write=changed(_UNSTAMPED, annotations={INCARNATION: OTHER}),
        bypass=True,
        code=422,
        reason="Invalid",
        says=(OTHER,),
    ),
    # Fences.
    _update(
        "fence-holds",
        stamped(),
        rule="fence",
        set_annotations={IF_INCARNATION: STORED, "note": "x"},
        annotations={IF_INCARNATION: ABSENT, "note": "x"},
    ),
    _update(
        "fence-of-another-incarnation",
        stamped(),
        rule="fence",
        set_annotations={IF_INCARNATION: OTHER},
        code=409,
        reason="Conflict",
        says=(OTHER, STORED, "kubectl annotate pod engine", f"{IF_INCARNATION}={STORED}"),
    ),
    _update(
        "fence-that-is-empty",
        stamped(),
        rule="fence",
        set_annotations={IF_INCARNATION: ""},
        code=409,
        reason="Conflict",
        says=(STORED,),
    ),
    _update(
        "fence-on-an-unmanaged-pod",
        _UNMANAGED,
        rule="fence",
        set_annotations={IF_INCARNATION: OTHER},
        code=409,
        reason="Conflict",
        says=("no incarnation", f"{MANAGED}=true"),
    ),
    _update(
        "leftover-fence-is-removed-not-judged",
        stamped(annotations={IF_INCARNATION: OTHER}),
        rule="fence",
        set_annotations={ADAPTERS: "chat"},
        annotations={IF_INCARNATION: ABSENT, ADAPTERS: "chat"},
    ),
    Row(
        id="bypassed-fence",
        rule="fence-survived",
        stored=stamped(),
        write=changed(stamped(), annotations={IF_INCARNATION: STORED}),
        bypass=True,
        code=409,
        reason="Conflict",
        says=(IF_INCARNATION,),
    ),
    # Retirement.
    _update(
        "retire",
        stamped(),
        rule="retired",
        set_annotations={IF_INCARNATION: STORED, RETIRED: "suspended"},
        annotations={RETIRED: "suspended", RETIRED_AT: NOW, IF_INCARNATION: ABSENT},
    ),
    _update(
        "retire-without-a-fence",
        stamped(),
        rule="retired",
        set_annotations={RETIRED: "suspended"},
        code=409,
        reason="Conflict",
        says=(
            STORED,
            "kubectl annotate pod engine",
            f"{IF_INCARNATION}={STORED}",
            f"{RETIRED}=suspended",
        ),
    ),
    _update(
        "retire-another-incarnation",
        stamped(),
        rule="fence",
        set_annotations={IF_INCARNATION: OTHER, RETIRED: "suspended"},
        code=409,
        reason="Conflict",
        says=(STORED, f"{RETIRED}=suspended"),
    ),
    _update(
        "retire-with-a-leftover-fence",
        stamped(annotations={IF_INCARNATION: STORED}),
        rule="retired",
        set_annotations={RETIRED: "suspended"},
        code=409,
        reason="Conflict",
        says=(f"{IF_INCARNATION}-",),
    ),
    _update(
        "retire-an-unmanaged-pod",
        _UNMANAGED,
        rule="retired",
        set_annotations={RETIRED: "suspended"},
        code=409,
        reason="Conflict",
        says=(f"{MANAGED}=true",),
    ),
    _update(
        "retire-with-no-word",
        stamped(),
        rule="retired",
        set_annotations={IF_INCARNATION: STORED, RETIRED: ""},
        code=422,
        reason="Invalid",
        says=(RETIRED, "empty"),
    ),
    _update(
        "retire-again-with-the-same-word",
        RETIRED_POD,
        rule="fence",
        set_annotations={IF_INCARNATION: STORED, RETIRED: "suspended"},
        annotations={RETIRED: "suspended", RETIRED_AT: PAST, IF_INCARNATION: ABSENT},
    ),
    _update(
        "retire-again-with-another-word",
        RETIRED_POD,
        rule="retired",
        set_annotations={IF_INCARNATION: STORED, RETIRED: "replaced"},
        annotations={RETIRED: "suspended", RETIRED_AT: PAST, IF_INCARNATION: ABSENT},
        warns=(RETIRED, "suspended"),
    ),
    _update(
        "retired-word-changed-without-a-fence",
        RETIRED_POD,
        rule="retired",
        set_annotations={RETIRED: "replaced"},
        code=422,
        reason="Invalid",
        says=(RETIRED, "suspended", "replaced", "kubectl delete pod engine"),
    ),
    _update(
        "retired-word-removed",
        RETIRED_POD,
        rule="retired",
        set_annotations={RETIRED: None},
        code=422,
        reason="Invalid",
        says=(RETIRED, "suspended", "kubectl delete pod engine"),
    ),
    _update(
        "retired-word-removed-with-a-fence",
        RETIRED_POD,
        rule="retired",
        set_annotations={RETIRED: None, IF_INCARNATION: STORED},
        code=422,
        reason="Invalid",
        says=(RETIRED, "kubectl delete pod engine"),
    ),
    _update(
        "retired-at-changed",
        RETIRED_POD,
        rule="retired-at",
        set_annotations={RETIRED_AT: "2026-01-02T00:00:00Z"},
        code=422,
        reason="Invalid",
        says=(RETIRED_AT, PAST, "2026-01-02T00:00:00Z"),
    ),
    _update(
        "retired-at-forged",
        stamped(),
        rule="retired-at",
        set_annotations={RETIRED_AT: PAST},
        code=422,
        reason="Invalid",
        says=(RETIRED_AT,),
    ),
    _update(
        "retired-at-sent-with-the-retirement-is-replaced",
        stamped(),
        rule="retired",
        set_annotations={IF_INCARNATION: STORED, RETIRED: "suspended", RETIRED_AT: PAST},
        annotations={RETIRED_AT: NOW},
    ),
    _update(
        "retired-time-is-made-up-for",
        stamped(annotations={RETIRED: "suspended"}),
        rule="retired",
        set_annotations={IF_INCARNATION: STORED},
        annotations={RETIRED: "suspended", RETIRED_AT: NOW},
    ),
    _update(
        "retire-where-a-time-is-stored",
        stamped(annotations={RETIRED_AT: PAST}),
        rule="fence",
        set_annotations={IF_INCARNATION: STORED, RETIRED: "suspended"},
        annotations={RETIRED: "suspended", RETIRED_AT: PAST, IF_INCARNATION: ABSENT},
    ),
    Row(
        id="bypassed-retirement",
        rule="retired-holds",
        stored=stamped(),
        write=changed(stamped(), annotations={RETIRED: "suspended"}),
        bypass=True,
        code=422,
        reason="Invalid",
        says=(RETIRED, RETIRED_AT),
    ),
    Row(
        id="bypassed-second-retirement",
        rule="retired-holds",
        stored=RETIRED_POD,
        write=changed(RETIRED_POD, annotations={RETIRED: "replaced"}),
        bypass=True,
        code=422,
        reason="Invalid",
        says=("suspended", "replaced"),
    ),
    # lora-modified.
    _update(
        "lora-operator-writes-its-local-time",
        WITH_LORA,
        set_annotations={LORA_MODIFIED: "2026-02-03T10:36:07.12+05:30"},
        annotations={LORA_MODIFIED: "2026-02-03T10:36:07.12+05:30"},
    ),
    _update(
        "lora-older-is-raised",
        WITH_LORA,
        rule="lora-modified",
        set_annotations={LORA_MODIFIED: "2025-12-31T23:59:59Z"},
        annotations={LORA_MODIFIED: JUST_AFTER_PAST},
    ),
    _update(
        # As text this is later, as an instant it is earlier.
        "lora-is-compared-as-an-instant",
        WITH_LORA,
        rule="lora-modified",
        set_annotations={LORA_MODIFIED: "2026-01-01T05:00:00+05:30"},
        annotations={LORA_MODIFIED: JUST_AFTER_PAST},
    ),
    _update(
        "lora-removal-is-restored",
        WITH_LORA,
        rule="lora-modified",
        set_annotations={LORA_MODIFIED: None},
        annotations={LORA_MODIFIED: PAST},
    ),
    _update(
        "lora-unreadable-becomes-now",
        WITH_LORA,
        rule="lora-modified",
        set_annotations={LORA_MODIFIED: "yesterday"},
        annotations={LORA_MODIFIED: NOW},
        warns=(LORA_MODIFIED,),
    ),
    _update(
        "adapters-change",
        WITH_LORA,
        rule="lora-modified",
        set_annotations={ADAPTERS: "chat,code"},
        annotations={ADAPTERS_DIGEST: DIGEST, LORA_MODIFIED: NOW},
    ),
    _update(
        "adapters-in-another-order-are-no-change",
        changed(WITH_LORA, annotations={ADAPTERS: "chat,code", ADAPTERS_DIGEST: DIGEST}),
        set_annotations={ADAPTERS: "code, chat"},
        annotations={ADAPTERS_DIGEST: DIGEST, LORA_MODIFIED: PAST},
    ),
    _update(
        "adapters-digest-is-repaired",
        WITH_LORA,
        rule="adapters-digest",
        set_annotations={ADAPTERS_DIGEST: "0" * 16},
        annotations={ADAPTERS_DIGEST: adapters_digest(["chat"])},
    ),
    _update(
        "adapters-written-badly",
        WITH_LORA,
        rule="adapter-names",
        set_annotations={ADAPTERS: "chat,chat"},
        code=422,
        reason="Invalid",
        says=(ADAPTERS, "twice"),
    ),
    _update(
        "adapters-that-were-bad-before-only-warn",
        stamped(annotations={ADAPTERS: "chat,chat"}),
        rule="adapter-names",
        set_annotations={LORA_MODIFIED: PAST},
        annotations={LORA_MODIFIED: PAST},
        warns=(ADAPTERS, "twice"),
    ),
    # Terminating.
    _update(
        "finalizer-removal",
        stamped(),
        terminating=True,
        metadata={"finalizers": []},
        untouched=True,
    ),
    _update(
        "terminating-pod-loses-its-stamps",
        STAMPED_POD,
        terminating=True,
        set_labels={MANAGED: None, PODSET: None},
        untouched=True,
    ),
    _update(
        "terminating-pod-with-a-fence",
        stamped(),
        rule="fence",
        terminating=True,
        set_annotations={IF_INCARNATION: STORED},
        annotations={IF_INCARNATION: ABSENT},
    ),
    _update(
        "terminating-pod-with-a-wrong-fence",
        stamped(),
        rule="fence",
        terminating=True,
        set_annotations={IF_INCARNATION: OTHER},
        code=409,
        reason="Conflict",
        says=(STORED,),
    ),
    _update(
        "terminating-pod-with-a-leftover-fence",
        stamped(annotations={IF_INCARNATION: OTHER}),
        terminating=True,
        set_annotations={ADAPTERS: "chat"},
        untouched=True,
    ),
)


def _delete(id: str, stored: Object, **expected: Any) -> Row:
    return Row(id=id, stored=stored, **expected)


DELETE_ROWS = (
    _delete("delete", stamped()),
    _delete("delete-of-an-unmanaged-pod", _UNMANAGED),
    _delete(
        "delete-by-a-fenced-user",
        stamped(),
        rule="fenced-deleter",
        user=FENCED_USER,
        code=409,
        reason="Conflict",
        says=(FENCED_USER, STORED, "preconditions"),
    ),
    _delete(
        "delete-by-a-fenced-group",
        stamped(),
        rule="fenced-deleter",
        groups=("a", FENCED_GROUP),
        code=409,
        reason="Conflict",
        says=("preconditions",),
    ),
    _delete(
        "delete-by-a-fenced-user-with-the-uid", stamped(), user=FENCED_USER, preconditions=True
    ),
    _delete("delete-of-a-terminating-pod", stamped(), user=FENCED_USER, terminating=True),
)

ROWS: tuple[Row, ...] = (*CREATE_ROWS, *UPDATE_ROWS, *DELETE_ROWS)
