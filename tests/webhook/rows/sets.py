"""Creates of pods of a set: name, index, labels."""

from __future__ import annotations

from tests.webhook.builders import (
    changed,
    owner,
    pod,
    statefulset,
)
from tests.webhook.rows.row import (
    ABSENT,
    AIBRIX_PODSET,
    APPS_INDEX,
    FRESH,
    IN_SET,
    PODSET_POD,
    Row,
)
from webhook.stamps import (
    AIBRIX_INDEX,
    INCARNATION,
    MANAGED,
    PODSET,
    PODSET_INDEX,
)

ROWS: tuple[Row, ...] = (
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
)
