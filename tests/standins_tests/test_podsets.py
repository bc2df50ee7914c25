"""What the stand-in set controller decides, as AIBrix's PodSet controller does."""

from typing import Any

import pytest

from tests.standins.podsets import (
    INDEX_LABEL,
    SET_LABEL,
    Steps,
    make_pod,
    plan,
    pod_name,
    status_of,
)

Json = dict[str, Any]


def podset(size: int = 3, policy: str | None = None, **metadata: Any) -> Json:
    template = {
        "metadata": {"labels": {"app": "x", "tier": "own"}, "finalizers": ["f"]},
        "spec": {
            "initContainers": [{"name": "i"}],
            "containers": [
                {"name": "c", "env": [{"name": "A", "value": "1"}, {"name": "PODSET_NAME"}]}
            ],
        },
    }
    spec: Json = {"podGroupSize": size, "template": template}
    if policy:
        spec["recoveryPolicy"] = policy
    return {"metadata": {"name": "llm", "namespace": "ns", "uid": "u", **metadata}, "spec": spec}


def pod(
    index: int | str,
    phase: str = "Running",
    *,
    restarts: int = 0,
    terminating: bool = False,
    ready: bool = True,
) -> Json:
    metadata: Json = {"name": f"llm-{index}", "labels": {INDEX_LABEL: str(index)}}
    if terminating:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    status = {
        "phase": phase,
        "conditions": [{"type": "Ready", "status": str(ready)}],
        "containerStatuses": [{"name": "c", "restartCount": restarts}],
    }
    return {"metadata": metadata, "status": status}


CASES: dict[str, tuple[Json, list[Json], Steps]] = {
    "none": (podset(), [], Steps(create=(0, 1, 2))),
    "whole": (podset(), [pod(0), pod(1), pod(2)], Steps()),
    "two-gone": (podset(), [pod(1)], Steps(create=(0, 2))),
    "failed-holds-its-name": (podset(), [pod(0), pod(1, "Failed"), pod(2)], Steps(create=(1,))),
    "succeeded-too": (
        podset(),
        [pod(0), pod(1, "Succeeded"), pod(2, "Failed")],
        Steps(create=(1, 2)),
    ),
    "terminating-counts": (podset(), [pod(0), pod(1, terminating=True), pod(2)], Steps()),
    "terminating-and-failed-does-not": (
        podset(),
        [pod(0), pod(1, "Failed", terminating=True), pod(2)],
        Steps(create=(1,)),
    ),
    "pending-and-unknown-count": (podset(), [pod(0), pod(1, "Pending"), pod(2, "Odd")], Steps()),
    "restarted-are-deleted-first": (
        podset(),
        [pod(0, restarts=1), pod(1, restarts=2)],
        Steps(delete=("llm-0", "llm-1")),
    ),
    "restarted-stay-in-a-whole-set": (podset(), [pod(0, restarts=1), pod(1), pod(2)], Steps()),
    "too-many": (
        podset(2),
        [pod(3), pod(0), pod("x"), pod(1)],
        Steps(delete=("llm-x", "llm-3")),
    ),
    "recreate-deletes-all": (
        podset(3, "Recreate"),
        [pod(2), pod(0), pod(1, "Failed")],
        Steps(delete=("llm-0", "llm-2")),
    ),
    "recreate-creates-all": (podset(2, "Recreate"), [pod(1, "Failed")], Steps(create=(0, 1))),
}


@pytest.mark.parametrize(("each", "pods", "steps"), CASES.values(), ids=CASES.keys())
def test_a_pass_takes_these_steps(each: Json, pods: list[Json], steps: Steps) -> None:
    assert plan(each, pods) == steps


def test_a_pod_has_the_sets_labels_and_owner() -> None:
    made = make_pod(podset(labels={"app": "set", "team": "t"}, annotations={"n": "1"}), 2)
    assert made["metadata"] == {
        "name": "llm-2",
        "generateName": "llm-",
        "namespace": "ns",
        "labels": {"app": "x", "tier": "own", "team": "t", SET_LABEL: "llm", INDEX_LABEL: "2"},
        "annotations": {"n": "1"},
        "finalizers": ["f"],
        "ownerReferences": [
            {
                "apiVersion": "orchestration.aibrix.ai/v1alpha1",
                "kind": "PodSet",
                "name": "llm",
                "uid": "u",
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }


def test_each_container_knows_set_index_and_size_and_cannot_override_them() -> None:
    template = podset(4)
    made = make_pod(template, 1)
    own = [
        {"name": "PODSET_NAME", "value": "llm"},
        {"name": "POD_GROUP_INDEX", "value": "1"},
        {"name": "POD_GROUP_SIZE", "value": "4"},
    ]
    assert made["spec"]["hostname"] == "llm-1"
    assert made["spec"]["initContainers"][0]["env"] == own
    assert made["spec"]["containers"][0]["env"] == [*own, {"name": "A", "value": "1"}]
    assert template == podset(4)


@pytest.mark.parametrize(
    ("length", "name"),
    [(60, "s" * 60 + "-0"), (61, "s" * 61 + "-0"), (70, "s" * 61 + "-0")],
    ids=["kept", "just-too-long", "cut-in-front"],
)
def test_a_long_name_keeps_its_end(length: int, name: str) -> None:
    assert pod_name("s" * length, 0) == name
    assert len(name) <= 63


def test_a_cut_name_keeps_its_first_character() -> None:
    name = pod_name("abc" + "s" * 70, 12)
    assert (name[0], name[-3:], len(name)) == ("a", "-12", 63)


@pytest.mark.parametrize(
    ("pods", "ready", "total", "phase"),
    [
        ([], 0, 0, "Pending"),
        ([pod(0, ready=False), pod(1, ready=False)], 0, 2, "Pending"),
        ([pod(0), pod(1, ready=False)], 1, 2, "Running"),
        ([pod(0), pod(1, "Failed")], 1, 1, "Running"),
        ([pod(0), pod(1)], 2, 2, "Ready"),
    ],
    ids=["none", "none-ready", "one-ready", "one-failed", "all-ready"],
)
def test_the_status_counts_active_and_ready_pods(
    pods: list[Json], ready: int, total: int, phase: str
) -> None:
    status = {"readyPods": ready, "totalPods": total, "phase": phase}
    assert status_of(podset(2), pods) == status
