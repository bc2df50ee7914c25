"""Hypothesis strategies for pods and reviews: sensible, odd, broken and huge.

`PODSTAMP_FUZZ_EXAMPLES=50000 pytest tests/webhook/test_fuzz.py`, run on 2026-11-29 with hypothesis
6.170: all four properties hold for 50,000 examples each. Shorter runs had found one fault before, a
retirement of a pod with a time but no word, which is now the row retire-where-a-time-is-stored.
"""

from __future__ import annotations

import copy
import os
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from tests.webhook.builders import (
    OTHER,
    STORED,
    Object,
    changed,
    owner,
    review,
    role_set,
    statefulset,
)
from webhook import stamps

EXAMPLES = int(os.environ.get("PODSTAMP_FUZZ_EXAMPLES", "1000"))
FUZZ = settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    derandomize=EXAMPLES <= 1000,
    # Slowness is that of the machine, and big pods are meant to be big.
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

# Characters that have broken JSON, JSON pointers, header lines or comparisons somewhere.
_ODD = 'a/~0"\\\u0000\u0085\u2028\ufeffé漢😀\t\n=,{}[]$()'
texts = st.text(st.sampled_from(_ODD), max_size=8) | st.sampled_from(
    ["", "true", "false", "chat", "chat,code", "a,,b", "base", "suspended", "x" * 300, "é" * 64]
)
instants = st.sampled_from(
    [
        "2026-01-01T00:00:00Z",
        "2026-01-01T05:30:00.5+05:30",
        "9999-12-31T23:59:59.999999999Z",
        "0001-01-01T00:00:00+14:00",
        "soon",
        "",
    ]
)
incarnations = st.sampled_from([STORED, STORED, OTHER, "", "not-a-uuid"])
indexes = st.sampled_from(["0", "1", "3", "03", "9" * 64, "x", ""])

LABELS: dict[str, st.SearchStrategy[str]] = {
    stamps.MANAGED: st.sampled_from(["true", "true", "false"]),
    stamps.ENABLED: st.sampled_from(["true", "true", "false"]),
    stamps.PODSET: texts,
    stamps.PODSET_INDEX: indexes,
    stamps.AIBRIX_INDEX: indexes,
    "stormservice.orchestration.aibrix.ai/podset-name": st.sampled_from(["ps", "", "a b"]),
    "apps.kubernetes.io/pod-index": indexes,
}
ANNOTATIONS: dict[str, st.SearchStrategy[str]] = {
    stamps.INCARNATION: incarnations,
    stamps.IF_INCARNATION: incarnations,
    stamps.ADAPTERS: texts,
    stamps.ADAPTERS_DIGEST: texts,
    stamps.LORA_MODIFIED: instants,
    stamps.RETIRED: texts,
    stamps.RETIRED_AT: instants,
    stamps.RESTORE: texts,
}
_FOREIGN = st.sampled_from(["app", "a/b", "x~y/z", "~0~1", "", "é", "k" * 300])


def _maps(known: dict[str, st.SearchStrategy[str]]) -> st.SearchStrategy[Object | None]:
    ours = st.fixed_dictionaries({}, optional=known)
    foreign = st.dictionaries(_FOREIGN, texts, max_size=3)
    huge = st.just({f"label-{at}": "v" * (at % 60) for at in range(3000)})
    small = st.builds(lambda a, b: {**b, **a}, ours, foreign)
    # One in many: a huge one costs as much as a hundred small ones.
    return st.none() | st.integers(0, 99).flatmap(lambda n: huge if n == 42 else small)


label_maps, annotation_maps = _maps(LABELS), _maps(ANNOTATIONS)
names = st.sampled_from(["engine", "ps-3", "ps-03", "ps-", "ps-24567", "web-2", "p" + "x" * 61, ""])
arguments = st.lists(
    st.sampled_from(
        [
            "vllm", "serve", "--model", "base", "--lora-modules", "--lora-modules=chat=/a",
            "--lora_modules", "--lora-paths", "chat=/a", "code", '{"name":"tool"}', '{"name":1}',
            '{"lora_name":"x"}', "{", "=", "$(X)=/a", "sh", "-c", "x --lora-modules a=b", "--",
            "--served-model-name=chat", "{" * 50 + "[" * 50, "\ufeff{}",
        ]
    ),
    max_size=6,
)  # fmt: skip
owners = st.lists(
    st.sampled_from([owner(), statefulset(), role_set(), owner("Job", "j", "batch/v1"), {}]),
    max_size=2,
)


def _object(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Object]:
    return st.fixed_dictionaries({}, optional=fields)


metadata = _object(
    name=names,
    generateName=st.sampled_from(["ps-", "", "x"]),
    uid=st.just("u-1"),
    labels=label_maps,
    annotations=annotation_maps,
    ownerReferences=st.none() | owners,
    deletionTimestamp=st.sampled_from([None, None, None, "2026-01-01T00:00:00Z"]),
    finalizers=st.just(["example.org/hold"]),
)
containers = st.lists(
    _object(name=texts, command=st.none() | arguments, args=st.none() | arguments), max_size=2
)
pods = st.fixed_dictionaries(
    {},
    optional={
        "apiVersion": st.just("v1"),
        "kind": st.just("Pod"),
        "metadata": metadata,
        "spec": st.none() | _object(containers=st.none() | containers, nodeName=texts),
        "status": st.just({"phase": "Running"}),
    },
)

_MANY_ONES = ["models"] * 8
namespaces = st.sampled_from([*_MANY_ONES, "", "kube-system"])
_removed: st.SearchStrategy[str | None] = st.none()


def _changes(known: dict[str, st.SearchStrategy[str]]) -> st.SearchStrategy[Object]:
    """New values for up to three keys; None removes one."""
    keys = st.lists(st.sampled_from([*known, "app"]), max_size=3, unique=True)
    return keys.flatmap(
        lambda chosen: st.fixed_dictionaries(
            {key: _removed | known.get(key, texts) for key in chosen}
        )
    )


@st.composite
def updates(draw: st.DrawFn) -> tuple[Object, Object]:
    """A pod before and after a write that changes little, as most do; often a stamped one."""
    old: Object = copy.deepcopy(draw(pods))
    meta: Object = old.setdefault("metadata", {})
    if draw(st.integers(0, 9)) != 3:
        meta.pop("deletionTimestamp", None)
    if draw(st.integers(0, 3)) != 3:
        meta["labels"] = {**(meta.get("labels") or {}), stamps.MANAGED: "true"}
        kept = meta.get("annotations") or {}
        meta["annotations"] = {**kept, stamps.INCARNATION: draw(incarnations)}
    changes = {"labels": draw(_changes(LABELS)), "annotations": draw(_changes(ANNOTATIONS))}
    if draw(st.integers(0, 3)) == 3:
        fence = (meta.get("annotations") or {}).get(stamps.INCARNATION, "")
        changes["annotations"] |= {stamps.IF_INCARNATION: fence, stamps.RETIRED: draw(texts)}
    return changed(old, **changes), old


@st.composite
def reviews(draw: st.DrawFn, *, whole: bool = False) -> Object:
    """A review of well-typed pods; `whole` has all the objects that the operation has."""
    word = draw(st.sampled_from(["CREATE", "UPDATE", "UPDATE", "UPDATE", "DELETE"]))
    new: Object | None = None
    old: Object | None = None
    if word == "UPDATE":
        new, old = draw(updates())
    elif word == "CREATE":
        new = draw(pods)
    else:
        old = draw(pods)
    if not whole:
        word = draw(st.sampled_from([word, word, "CONNECT", "", "?"]))
        new, old = (draw(st.sampled_from([each, each, each, None])) for each in (new, old))
    return review(
        word,
        new,
        old,
        namespace=draw(namespaces),
        user=draw(st.sampled_from(["jane", "jane", "fenced"])),
        uid=draw(st.sampled_from(["u-1", 'quo"ted', "é\u2028", "x" * 500])),
    )


junk: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_FOREIGN, inner, max_size=3),
    max_leaves=6,
)


@st.composite
def corrupted(draw: st.DrawFn) -> Object:
    """A review in which one value, anywhere, was replaced by junk, dropped or made null."""
    # Strategies hand out shared objects.
    body = copy.deepcopy(draw(reviews()))
    places = list(_places(body["request"]))
    holder, key = draw(st.sampled_from(places))
    holder[key] = draw(junk)
    return body


def _places(value: Any) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = []
    pairs: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        pairs = list(value.items())
    elif isinstance(value, list):
        pairs = list(enumerate(value))
    for key, inner in pairs:
        if key != "uid" or "operation" not in value:
            found.append((value, key))
        found += _places(inner)
    return found
