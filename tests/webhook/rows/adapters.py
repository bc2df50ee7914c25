"""Adapters and lora-modified, at CREATE and later."""

from __future__ import annotations

from tests.webhook.builders import (
    changed,
    pod,
    stamped,
)
from tests.webhook.rows.row import (
    ABSENT,
    DIGEST,
    FRESH,
    JUST_AFTER_PAST,
    LONG,
    NOW,
    PAST,
    WITH_LORA,
    Row,
    update,
)
from webhook.stamps import (
    ADAPTERS,
    ADAPTERS_DIGEST,
    INCARNATION,
    LORA_MODIFIED,
    adapters_digest,
)

ROWS: tuple[Row, ...] = (
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
    update(
        "lora-operator-writes-its-local-time",
        WITH_LORA,
        set_annotations={LORA_MODIFIED: "2026-02-03T10:36:07.12+05:30"},
        annotations={LORA_MODIFIED: "2026-02-03T10:36:07.12+05:30"},
    ),
    update(
        "lora-older-is-raised",
        WITH_LORA,
        rule="lora-modified",
        set_annotations={LORA_MODIFIED: "2025-12-31T23:59:59Z"},
        annotations={LORA_MODIFIED: JUST_AFTER_PAST},
    ),
    update(
        # As text this is later, as an instant it is earlier.
        "lora-is-compared-as-an-instant",
        WITH_LORA,
        rule="lora-modified",
        set_annotations={LORA_MODIFIED: "2026-01-01T05:00:00+05:30"},
        annotations={LORA_MODIFIED: JUST_AFTER_PAST},
    ),
    update(
        "lora-removal-is-restored",
        WITH_LORA,
        rule="lora-modified",
        set_annotations={LORA_MODIFIED: None},
        annotations={LORA_MODIFIED: PAST},
    ),
    update(
        "lora-unreadable-becomes-now",
        WITH_LORA,
        rule="lora-modified",
        set_annotations={LORA_MODIFIED: "yesterday"},
        annotations={LORA_MODIFIED: NOW},
        warns=(LORA_MODIFIED,),
    ),
    update(
        "adapters-change",
        WITH_LORA,
        rule="lora-modified",
        set_annotations={ADAPTERS: "chat,code"},
        annotations={ADAPTERS_DIGEST: DIGEST, LORA_MODIFIED: NOW},
    ),
    update(
        "adapters-in-another-order-are-no-change",
        changed(WITH_LORA, annotations={ADAPTERS: "chat,code", ADAPTERS_DIGEST: DIGEST}),
        set_annotations={ADAPTERS: "code, chat"},
        annotations={ADAPTERS_DIGEST: DIGEST, LORA_MODIFIED: PAST},
    ),
    update(
        "adapters-digest-is-repaired",
        WITH_LORA,
        rule="adapters-digest",
        set_annotations={ADAPTERS_DIGEST: "0" * 16},
        annotations={ADAPTERS_DIGEST: adapters_digest(["chat"])},
    ),
    update(
        "adapters-written-badly",
        WITH_LORA,
        rule="adapter-names",
        set_annotations={ADAPTERS: "chat,chat"},
        code=422,
        reason="Invalid",
        says=(ADAPTERS, "twice"),
    ),
    update(
        "adapters-that-were-bad-before-only-warn",
        stamped(annotations={ADAPTERS: "chat,chat"}),
        rule="adapter-names",
        set_annotations={LORA_MODIFIED: PAST},
        annotations={LORA_MODIFIED: PAST},
        warns=(ADAPTERS, "twice"),
    ),
)
