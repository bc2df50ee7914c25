"""Pods that terminate, and deletes."""

from __future__ import annotations

from tests.webhook.builders import (
    OTHER,
    STORED,
    stamped,
)
from tests.webhook.rows.row import (
    ABSENT,
    FENCED_GROUP,
    FENCED_USER,
    STAMPED_POD,
    UNMANAGED,
    Row,
    delete,
    update,
)
from webhook.stamps import (
    ADAPTERS,
    IF_INCARNATION,
    MANAGED,
    PODSET,
)

ROWS: tuple[Row, ...] = (
    update(
        "finalizer-removal",
        stamped(),
        terminating=True,
        metadata={"finalizers": []},
        untouched=True,
    ),
    update(
        "terminating-pod-loses-its-stamps",
        STAMPED_POD,
        terminating=True,
        set_labels={MANAGED: None, PODSET: None},
        untouched=True,
    ),
    update(
        "terminating-pod-with-a-fence",
        stamped(),
        rule="fence",
        terminating=True,
        set_annotations={IF_INCARNATION: STORED},
        annotations={IF_INCARNATION: ABSENT},
    ),
    update(
        "terminating-pod-with-a-wrong-fence",
        stamped(),
        rule="fence",
        terminating=True,
        set_annotations={IF_INCARNATION: OTHER},
        code=409,
        reason="Conflict",
        says=(STORED,),
    ),
    update(
        "terminating-pod-with-a-leftover-fence",
        stamped(annotations={IF_INCARNATION: OTHER}),
        terminating=True,
        set_annotations={ADAPTERS: "chat"},
        untouched=True,
    ),
    delete("delete", stamped()),
    delete("delete-of-an-unmanaged-pod", UNMANAGED),
    delete(
        "delete-by-a-fenced-user",
        stamped(),
        rule="fenced-deleter",
        user=FENCED_USER,
        code=409,
        reason="Conflict",
        says=(FENCED_USER, STORED, "preconditions"),
    ),
    delete(
        "delete-by-a-fenced-group",
        stamped(),
        rule="fenced-deleter",
        groups=("a", FENCED_GROUP),
        code=409,
        reason="Conflict",
        says=("preconditions",),
    ),
    delete("delete-by-a-fenced-user-with-the-uid", stamped(), user=FENCED_USER, preconditions=True),
    delete("delete-of-a-terminating-pod", stamped(), user=FENCED_USER, terminating=True),
)
