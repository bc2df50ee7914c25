"""The policies without any webhook: each rule allows and refuses, on both API servers."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from tests.cluster import Cluster
from tests.webhook.builders import STORED, Object, changed, incarnation, pod, stamped
from tests.webhook.site import (
    ADMISSION,
    HOLD,
    POLL_S,
    READY_S,
    Answer,
    Site,
    base,
    open_site,
    pods,
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
)

FRESH = incarnation(0)
TIME = "2026-01-01T00:00:00Z"
FULL = stamped(
    labels={PODSET: "ps", PODSET_INDEX: "3", ENABLED: "true", AIBRIX_INDEX: "3"},
    annotations={RESTORE: "true", ADAPTERS: "chat", ADAPTERS_DIGEST: "0" * 16, LORA_MODIFIED: TIME},
)
PLAIN = pod()
ADOPT = {MANAGED: "true"}
UNSTAMPED = pod(labels={MANAGED: "true"})
OPTED_OUT = pod(labels={MANAGED: "true", ENABLED: "false"})
RETIREMENT = {RETIRED: "suspended", RETIRED_AT: TIME}
RETIRED_POD = changed(FULL, annotations=RETIREMENT)
WITH_LEFTOVER = changed(stamped(), annotations={IF_INCARNATION: STORED})


@dataclass(frozen=True, slots=True)
class Case:
    """One write of `pods`, and whether the policies let it pass."""

    id: str
    stored: Object | None
    written: Object
    refused: str = ""
    """Text that the refusal contains; empty: it passes."""
    terminating: bool = False


def _each(stored: Object, where: str, *changes: tuple[str, str | None]) -> Iterator[Case]:
    for key, value in changes:
        written = changed(
            stored,
            labels={key: value} if where == "labels" else None,
            annotations={key: value} if where == "annotations" else None,
        )
        word = "removed" if value is None else "changed"
        yield Case(f"{key.rpartition('/')[2]}-{word}", stored, written, key)


CASES = (
    Case("create-plain", None, PLAIN),
    Case("create-stamped", None, FULL),
    Case("create-unmanaged-with-retired", None, changed(PLAIN, annotations=RETIREMENT)),
    Case("create-with-retired", None, changed(FULL, annotations={RETIRED: "x"}), RETIRED),
    Case("create-with-retired-at", None, changed(FULL, annotations={RETIRED_AT: TIME}), RETIRED_AT),
    Case("create-with-fence", None, WITH_LEFTOVER, IF_INCARNATION),
    Case("create-with-no-uuid", None, changed(FULL, annotations={INCARNATION: "x"}), INCARNATION),
    *_each(FULL, "labels", (MANAGED, "false"), (MANAGED, None)),
    *_each(FULL, "labels", (PODSET, "other"), (PODSET, None)),
    *_each(FULL, "labels", (PODSET_INDEX, "4"), (PODSET_INDEX, None)),
    *_each(FULL, "labels", (ENABLED, "false"), (ENABLED, None)),
    *_each(FULL, "annotations", (INCARNATION, FRESH), (INCARNATION, None)),
    *_each(FULL, "annotations", (RESTORE, "false"), (RESTORE, None)),
    Case("stamp-added", stamped(), changed(stamped(), labels={PODSET: "ps"}), PODSET),
    Case("other-label", FULL, changed(FULL, labels={"team": "a"})),
    Case("adapters", FULL, changed(FULL, annotations={ADAPTERS: "a", LORA_MODIFIED: "now"})),
    # Adoption.
    Case(
        "adopt", PLAIN, changed(PLAIN, labels={MANAGED: "true"}, annotations={INCARNATION: FRESH})
    ),
    Case("adopt-bare", PLAIN, changed(PLAIN, labels={MANAGED: "true"})),
    Case(
        "adopt-with-set-stamps",
        UNSTAMPED,
        changed(UNSTAMPED, labels={PODSET: "ps"}, annotations={INCARNATION: FRESH}),
    ),
    Case(
        "adopt-with-no-uuid",
        UNSTAMPED,
        changed(UNSTAMPED, annotations={INCARNATION: ""}),
        INCARNATION,
    ),
    Case(
        "adopt-into-retirement",
        changed(PLAIN, annotations=RETIREMENT),
        changed(PLAIN, labels={MANAGED: "true"}, annotations={INCARNATION: FRESH, **RETIREMENT}),
        RETIRED,
    ),
    Case(
        "adopt-out-of-retirement",
        changed(PLAIN, annotations=RETIREMENT),
        changed(PLAIN, labels={MANAGED: "true"}, annotations={INCARNATION: FRESH}),
    ),
    # It was left out: the change of the label is how it comes in.
    Case("unstamped-enabled", UNSTAMPED, changed(UNSTAMPED, labels={ENABLED: "true"})),
    Case(
        "adopt-by-enabled",
        OPTED_OUT,
        changed(
            OPTED_OUT, labels={ENABLED: "true", PODSET: "ps"}, annotations={INCARNATION: FRESH}
        ),
    ),
    Case("unstamped-set-stamp", UNSTAMPED, changed(UNSTAMPED, labels={PODSET: "ps"}), PODSET),
    Case("unmanaged", PLAIN, changed(PLAIN, annotations={INCARNATION: FRESH, **RETIREMENT})),
    # Retirement.
    Case("retire", FULL, RETIRED_POD),
    Case("retire-without-time", FULL, changed(FULL, annotations={RETIRED: "x"}), RETIRED),
    Case(
        "retire-another-incarnation",
        FULL,
        changed(FULL, annotations={INCARNATION: FRESH, **RETIREMENT}),
        INCARNATION,
    ),
    Case("retire-unstamped", UNSTAMPED, changed(UNSTAMPED, annotations=RETIREMENT), RETIRED),
    Case("time-alone", FULL, changed(FULL, annotations={RETIRED_AT: TIME}), RETIRED_AT),
    *_each(RETIRED_POD, "annotations", (RETIRED, "other"), (RETIRED, None)),
    *_each(RETIRED_POD, "annotations", (RETIRED_AT, "2026-01-02T00:00:00Z"), (RETIRED_AT, None)),
    # Fences.
    Case("fence", FULL, changed(FULL, annotations={IF_INCARNATION: STORED}), IF_INCARNATION),
    Case("empty-fence", FULL, changed(FULL, annotations={IF_INCARNATION: ""}), IF_INCARNATION),
    Case("leftover-fence", WITH_LEFTOVER, changed(WITH_LEFTOVER, labels={"team": "a"})),
    Case(
        "leftover-cleared",
        WITH_LEFTOVER,
        changed(WITH_LEFTOVER, annotations={IF_INCARNATION: None}),
    ),
    # Terminating.
    Case("terminating-unstamped", FULL, changed(FULL, labels={MANAGED: None}), terminating=True),
    Case("terminating-retired", FULL, changed(FULL, annotations={RETIRED: "x"}), terminating=True),
    Case("finalizers-go", FULL, changed(FULL, finalizers=[]), terminating=True),
)

STAMPS: tuple[tuple[str, str, str], ...] = (
    *(("labels", key, "x") for key in (PODSET, PODSET_INDEX, AIBRIX_INDEX)),
    ("labels", MANAGED, "false"),
    ("labels", ENABLED, "false"),
    *(
        ("annotations", key, "x")
        for key in (
            INCARNATION,
            IF_INCARNATION,
            RETIRED,
            RETIRED_AT,
            RESTORE,
            ADAPTERS,
            ADAPTERS_DIGEST,
            LORA_MODIFIED,
        )
    ),
)
KEYS = [key.rpartition("/")[2] for _, key, _ in STAMPS]


@pytest.fixture(scope="module")
def site(cluster: Cluster) -> Iterator[Site]:
    """The policies of the manifests and their bindings, in force."""
    with open_site(cluster) as opened:
        policies = base("policies.yaml")
        opened.install(*policies)
        try:
            _wait_in_force(opened)
            yield opened
        finally:
            for obj in policies:
                plural = (
                    "validatingadmissionpolicies"
                    if obj["kind"] == "ValidatingAdmissionPolicy"
                    else "validatingadmissionpolicybindings"
                )
                opened.must("DELETE", f"{ADMISSION}/{plural}/{obj['metadata']['name']}")


def _wait_in_force(site: Site) -> None:
    """A real server begins to enforce a policy some seconds after it was stored."""
    namespace = site.namespace()
    site.create_pod(namespace, FULL)
    binding = _binding("engine", annotations={INCARNATION: "x"})
    canaries: tuple[Callable[[], Answer], ...] = (
        lambda: site.call(
            "POST", pods(namespace), changed(FULL, annotations={RETIRED: "x"}), dryRun="All"
        ),
        lambda: site.call(
            "PATCH",
            pods(namespace, "engine", "/status"),
            {"metadata": {"annotations": {RETIRED: "x"}}},
            dryRun="All",
        ),
        lambda: site.call("POST", pods(namespace, "engine", "/binding"), binding, dryRun="All"),
    )
    deadline = time.monotonic() + READY_S
    for canary in canaries:
        while canary().code != 422:
            assert time.monotonic() < deadline
            time.sleep(POLL_S)


def _binding(name: str, **metadata: Object) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name} | metadata,
        "target": {"apiVersion": "v1", "kind": "Node", "name": "node-1"},
    }


def _store(site: Site, namespace: str, wanted: Object, *, terminating: bool = False) -> Object:
    """Have `wanted` stored, by writes that the policies let pass."""
    metadata = wanted["metadata"]
    annotations = metadata.get("annotations") or {}
    labels = metadata.get("labels") or {}
    first = copy.deepcopy(wanted)
    steps: list[Object] = []
    if MANAGED in labels and IF_INCARNATION in annotations:
        # Written before the pod is managed it is a leftover.
        first["metadata"]["labels"] = {k: v for k, v in labels.items() if k != MANAGED}
        steps.append({"labels": {MANAGED: "true"}})
    elif MANAGED in labels and RETIRED in annotations:
        kept = {k: v for k, v in annotations.items() if k not in RETIREMENT}
        first["metadata"]["annotations"] = kept
        steps.append({"annotations": {k: annotations[k] for k in RETIREMENT}})
    if terminating:
        first["metadata"]["finalizers"] = [HOLD]
    site.create_pod(namespace, first)
    path = pods(namespace, metadata["name"])
    for step in steps:
        site.must("PATCH", path, {"metadata": step})
    if terminating:
        site.must("DELETE", path)
    return site.must("GET", path)


def _check(answer: Answer, refused: str) -> None:
    if not refused:
        assert answer.ok, answer.body["message"]
        return
    assert (answer.code, answer.body.get("reason")) == (422, "Invalid"), answer.body
    assert "ValidatingAdmissionPolicy 'podstamp-" in answer.body["message"]
    assert refused in answer.body["message"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_pods_are_judged_without_a_webhook(site: Site, case: Case) -> None:
    namespace = site.namespace()
    if case.stored is None:
        site.create_pod(namespace, pod("first"))
        _check(site.call("POST", pods(namespace), case.written), case.refused)
        return
    stored = _store(site, namespace, case.stored, terminating=case.terminating)
    for key in ("labels", "annotations", "finalizers"):
        if key in case.written["metadata"]:
            stored["metadata"][key] = case.written["metadata"][key]
    path = pods(namespace, stored["metadata"]["name"])
    _check(site.call("PUT", path, stored), case.refused)


@pytest.mark.parametrize(("where", "key", "value"), STAMPS, ids=KEYS)
def test_pods_status_changes_no_stamp_of_a_managed_pod(
    site: Site, where: str, key: str, value: str
) -> None:
    namespace = site.namespace()
    stored = _store(site, namespace, FULL)
    path = pods(namespace, "engine", "/status")
    written: list[str | None] = [value]
    if key in stored["metadata"][where]:
        written.append(None)
    for each in written:
        _check(site.call("PATCH", path, {"metadata": {where: {key: each}}}), key)


def test_changed_stamps_are_listed_with_commas(site: Site) -> None:
    namespace = site.namespace()
    _store(site, namespace, FULL)
    change = {"metadata": {"labels": {PODSET: "x"}, "annotations": {RESTORE: "x"}}}
    for sub, said in (("/status", f"({PODSET}, {RESTORE});"), ("", f": {PODSET}, {RESTORE};")):
        answer = site.call("PATCH", pods(namespace, "engine", sub), change)
        assert said in answer.body["message"]


def test_pods_status_cannot_forge_an_adoption(site: Site) -> None:
    namespace = site.namespace()
    _store(site, namespace, PLAIN)
    path = pods(namespace, "engine", "/status")
    site.must("PATCH", path, {"metadata": {"annotations": {INCARNATION: FRESH}}})
    adoption = {"metadata": {"labels": {MANAGED: "true"}}}
    _check(site.call("PATCH", path, adoption), MANAGED)


def test_a_retirement_cannot_be_forged_in_two_writes(site: Site) -> None:
    namespace = site.namespace()
    _store(site, namespace, PLAIN)
    path = pods(namespace, "engine")
    site.must("PATCH", f"{path}/status", {"metadata": {"annotations": RETIREMENT}})
    adoption = {"metadata": {"labels": {MANAGED: "true"}, "annotations": {INCARNATION: FRESH}}}
    _check(site.call("PATCH", path, adoption), RETIRED)


def test_pods_status_itself_passes(site: Site) -> None:
    namespace = site.namespace()
    _store(site, namespace, FULL)
    body = {"status": {"phase": "Failed"}, "metadata": {"annotations": {"note": "x"}}}
    after = site.must("PATCH", pods(namespace, "engine", "/status"), body)
    assert after["status"]["phase"] == "Failed"
    assert after["metadata"]["annotations"][INCARNATION] == STORED


def test_pods_status_of_a_terminating_pod_passes(site: Site) -> None:
    namespace = site.namespace()
    _store(site, namespace, FULL, terminating=True)
    body = {"metadata": {"annotations": {RETIRED: "x"}}}
    assert site.call("PATCH", pods(namespace, "engine", "/status"), body).ok


@pytest.mark.parametrize("endpoint", ["pods/binding", "bindings"])
@pytest.mark.parametrize(("where", "key", "value"), STAMPS, ids=KEYS)
def test_a_binding_carries_no_stamp(
    site: Site, endpoint: str, where: str, key: str, value: str
) -> None:
    namespace = site.namespace()
    site.create_pod(namespace, PLAIN)
    path = (
        pods(namespace, "engine", "/binding")
        if endpoint == "pods/binding"
        else f"/api/v1/namespaces/{namespace}/bindings"
    )
    _check(site.call("POST", path, _binding("engine", **{where: {key: value}})), key)


@pytest.mark.parametrize("endpoint", ["pods/binding", "bindings"])
def test_a_plain_binding_passes(site: Site, endpoint: str) -> None:
    namespace = site.namespace()
    site.create_pod(namespace, FULL)
    binding = _binding("engine", annotations={"scheduler.example.org/note": "x"})
    if endpoint == "pods/binding":
        site.must("POST", pods(namespace, "engine", "/binding"), binding)
    else:
        site.must("POST", f"/api/v1/namespaces/{namespace}/bindings", binding)
    stored = site.must("GET", pods(namespace, "engine"))
    assert stored["spec"]["nodeName"] == "node-1"
    assert stored["metadata"]["annotations"][INCARNATION] == STORED


@pytest.mark.parametrize("sub", ["/ephemeralcontainers", "/resize"])
def test_other_subresources_drop_a_changed_stamp(site: Site, sub: str) -> None:
    namespace = site.namespace()
    stored = _store(site, namespace, FULL)
    forged = copy.deepcopy(stored)
    forged["metadata"]["annotations"] |= {INCARNATION: FRESH, RETIRED: "x"}
    forged["metadata"]["labels"][PODSET_INDEX] = "9"
    if sub == "/ephemeralcontainers":
        forged["spec"]["ephemeralContainers"] = [{"name": "debug", "image": "busybox:1"}]
    site.must("PUT", pods(namespace, "engine", sub), forged)
    after = site.must("GET", pods(namespace, "engine"))
    for where in ("labels", "annotations"):
        assert after["metadata"][where] == stored["metadata"][where]
