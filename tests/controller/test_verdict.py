"""The whole matrix of verdicts against the oracle, and what a person reads of them."""

from __future__ import annotations

import itertools
from dataclasses import fields, replace
from typing import Any

import pytest

from controller.records import Miss, Record
from controller.verdict import (
    Keep,
    NodeStanding,
    OwnerKind,
    Reap,
    Shape,
    Verdict,
    Why,
    combine,
    judge_retired,
    judge_terminal,
)
from tests.controller.oracle import (
    Case,
    retired_obstacles,
    retired_shape,
    terminal_obstacles,
)
from tests.controller.pods import (
    JOB,
    PODSET,
    RUNNING,
    STATEFUL_SET,
    TERMINATED,
    WAITING,
    as_pod,
    owner,
    pod,
)

PODSETS = frozenset({OwnerKind("PodSet", "orchestration.aibrix.ai")})
PHASES = ("Pending", "Running", "Succeeded", "Failed", "Unknown", "", "Hibernated")
OWNERS: dict[str, tuple[dict[str, Any], ...]] = {
    "podset": (owner(PODSET),),
    "podset-beside-another": (owner(JOB, controller=False), owner(PODSET)),
    "none": (),
    "not-controlling": (owner(PODSET, controller=False),),
    "podset-of-another-group": (owner({**PODSET, "apiVersion": "example.com/v1"}),),
    "job": (owner(JOB),),
    "statefulset": (owner(STATEFUL_SET),),
}
CONTAINERS: dict[str, dict[str, Any]] = {
    "all-terminated": {
        "containers": {"engine": TERMINATED, "sidecar": TERMINATED},
        "init": {"load": TERMINATED},
        "ephemeral": {"debug": TERMINATED},
    },
    "one-running": {"containers": {"engine": TERMINATED, "sidecar": RUNNING}},
    "init-running": {"containers": {"engine": WAITING}, "init": {"load": RUNNING}},
    "ephemeral-running": {"ephemeral": {"debug": RUNNING}},
    "one-waiting": {"containers": {"engine": WAITING}, "init": {"load": TERMINATED}},
    "stateless": {"containers": {"engine": {}}},
    "one-without-status": {"containers": {"engine": TERMINATED, "sidecar": None}},
    "init-without-status": {"init": {"load": None}},
    "no-status": {"containers": {"engine": None}},
}
RECORDS: dict[str, Record | Miss] = {
    "none": Miss.NONE,
    "mismatch": Miss.MISMATCH,
    "ambiguous": Miss.AMBIGUOUS,
    "unreadable": Miss.UNREADABLE,
    "active": Record("llm", "web-0", "i", "suspended", True),
    "active-replaced": Record("llm", "web-0", "i", "replaced", True),
    "suspended": Record("llm", "web-0", "i", "suspended", False),
    "replaced": Record("llm", "web-0", "i", "replaced", False),
}
ADDRESSES: dict[str, dict[str, Any]] = {
    "none": {},
    "ip": {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]},
    "only-the-list": {"podIPs": [{"ip": "fd00::1"}]},
}
CONDITION = "PodReadyToStartContainers"
SANDBOXES: dict[str, list[dict[str, str]]] = {
    "False": [{"type": "PodScheduled", "status": "True"}, {"type": CONDITION, "status": "False"}],
    "absent": [{"type": "PodScheduled", "status": "False"}],
    "True": [{"type": CONDITION, "status": "True"}],
    "Unknown": [{"type": CONDITION, "status": "Unknown"}],
    "both": [{"type": CONDITION, "status": "False"}, {"type": CONDITION, "status": "True"}],
}
TERMINAL_MATRIX: dict[str, tuple[Any, ...]] = {
    "managed": (True, False),
    "terminating": (False, True),
    "phase": PHASES,
    "owner": tuple(OWNERS),
    "containers": tuple(CONTAINERS),
    "node": tuple(str(standing) for standing in NodeStanding),
    "believed": (True, False),
}
RETIRED_MATRIX: dict[str, tuple[Any, ...]] = {
    "terminating": (False, True),
    "phase": PHASES,
    "owner": ("podset", "none", "job"),
    "containers": ("all-terminated", "one-running", "init-without-status", "no-status"),
    "believed": (True, False),
    "record": tuple(RECORDS),
    "restore": (False, True),
    "address": tuple(ADDRESSES),
    "sandbox": tuple(SANDBOXES),
}


def cases(matrix: dict[str, tuple[Any, ...]]) -> list[Case]:
    """Every combination."""
    return [
        Case(**dict(zip(matrix, values, strict=True)))
        for values in itertools.product(*matrix.values())
    ]


def document(case: Case) -> dict[str, Any]:
    return pod(
        phase=case.phase,
        managed=case.managed,
        deleted=case.terminating,
        finalizers=("example.com/hold",) if case.terminating else (),
        owners=OWNERS[case.owner],
        annotations={"podstamp.dev/restore": "true"} if case.restore else {},
        status={"conditions": SANDBOXES[case.sandbox], **ADDRESSES[case.address]},
        **CONTAINERS[case.containers],
    )


def judged_terminal(case: Case) -> Verdict:
    return judge_terminal(
        as_pod(document(case)),
        owner_kinds=PODSETS,
        doubt=None if case.believed else "nobody vouches for it",
        node=NodeStanding(case.node),
    )


def judged_retired(case: Case) -> Verdict:
    return judge_retired(
        as_pod(document(case)),
        record=RECORDS[case.record],
        doubt=None if case.believed else "nobody vouches for it",
    )


def disagreement(verdict: Verdict, obstacles: set[str], shape: str) -> str | None:
    """What is wrong with a verdict, or None."""
    if isinstance(verdict, Keep):
        if verdict.why not in obstacles:
            return f"kept for {verdict.why}, but the obstacles are {obstacles or 'none'}"
        return None if verdict.detail else "kept without a reason for a person"
    if obstacles:
        return f"reaped in spite of {obstacles}"
    expected = Reap(Shape(shape), "uid-llm-web-0", "10", verdict.reason)
    return None if verdict == expected and verdict.reason else f"{verdict} is not {expected}"


def test_terminal_verdicts_agree_with_the_oracle_on_every_combination() -> None:
    def oracle(case: Case) -> set[str]:
        plain = replace(case, owner="podset") if case.owner == "podset-beside-another" else case
        return terminal_obstacles(plain)

    matrix = cases(TERMINAL_MATRIX)
    wrong = [
        f"{case}: {problem}"
        for case in matrix
        if (problem := disagreement(judged_terminal(case), oracle(case), "terminal"))
    ]
    assert not wrong, f"{len(wrong)} of {len(matrix)} wrong, the first: {wrong[0]}"
    reaped = [case for case in matrix if isinstance(judged_terminal(case), Reap)]
    assert {case.phase for case in reaped} == {"Failed", "Succeeded"}
    # 2 phases, 2 ways to be owned, 6 container states at any Node, 3 at a Node that is gone or out.
    assert len(reaped) == 2 * 2 * (6 * 4 + 3 * 2)


def test_retired_verdicts_agree_with_the_oracle_on_every_combination() -> None:
    matrix = cases(RETIRED_MATRIX) + [
        Case(managed=False, record="replaced", phase=p) for p in PHASES
    ]
    wrong = []
    reaped = []
    for case in matrix:
        verdict = judged_retired(case)
        problem = disagreement(verdict, retired_obstacles(case), retired_shape(case))
        if problem:
            wrong.append(f"{case}: {problem}")
        if isinstance(verdict, Reap):
            reaped.append(case)
    assert not wrong, f"{len(wrong)} of {len(matrix)} wrong, the first: {wrong[0]}"
    assert {case.phase for case in reaped} == {"Pending", "Failed", "Succeeded"}
    assert {case.record for case in reaped} == {"suspended", "replaced"}
    assert not [case for case in reaped if case.owner == "job" or case.terminating]


def test_the_matrix_leaves_out_no_dimension() -> None:
    assert TERMINAL_MATRIX.keys() | RETIRED_MATRIX.keys() == {field.name for field in fields(Case)}


@pytest.mark.parametrize(
    ("change", "why", "words"),
    [
        ({"managed": False}, Why.UNMANAGED, "podstamp.dev/managed=true"),
        ({"terminating": True}, Why.TERMINATING, "held by example.com/hold"),
        ({"phase": "Hibernated"}, Why.UNKNOWN_PHASE, "'Hibernated'"),
        ({"owner": "job"}, Why.OWNER, "Job.batch"),
        ({"owner": "none"}, Why.OWNER, "no controller"),
        ({"believed": False}, Why.UNVERIFIED, "nobody vouches for it"),
        ({"containers": "one-running"}, Why.CONTAINER_RUNNING, "sidecar still runs on Node node-1"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_reason_to_keep_says_what_a_person_has_to_know(
    change: dict[str, Any], why: Why, words: str
) -> None:
    verdict = judged_terminal(replace(Case(), **change))
    assert isinstance(verdict, Keep)
    assert verdict.why is why
    assert words in verdict.reason


def test_a_reason_to_reap_names_phase_cause_and_a_node_that_is_gone() -> None:
    document = pod(
        phase="Failed", containers={"engine": RUNNING}, status={"reason": "NodeShutdown"}
    )
    verdict = judge_terminal(
        as_pod(document), owner_kinds=PODSETS, doubt=None, node=NodeStanding.GONE
    )
    assert isinstance(verdict, Reap)
    assert "Failed (NodeShutdown)" in verdict.reason
    assert "node-1 is gone" in verdict.reason


KEPT_TERMINAL = Keep(Why.OWNER, "terminal says")
REAP_TERMINAL = Reap(Shape.TERMINAL, "u", "1", "terminal says")
REAP_RETIRED = Reap(Shape.TERMINAL_RETIRED, "u", "1", "retired says")
KEPT_MISMATCH = Keep(Why.MISMATCH, "retired says")
KEPT_NOT_RETIRED = Keep(Why.NOT_RETIRED, "retired says")


@pytest.mark.parametrize(
    ("terminal", "retired", "expected"),
    [
        (REAP_TERMINAL, REAP_RETIRED, REAP_TERMINAL),
        (KEPT_TERMINAL, REAP_RETIRED, REAP_RETIRED),
        (REAP_TERMINAL, KEPT_MISMATCH, REAP_TERMINAL),
        (KEPT_TERMINAL, KEPT_MISMATCH, KEPT_MISMATCH),
        (KEPT_TERMINAL, KEPT_NOT_RETIRED, KEPT_TERMINAL),
        (KEPT_TERMINAL, None, KEPT_TERMINAL),
        (None, KEPT_NOT_RETIRED, KEPT_NOT_RETIRED),
        (None, REAP_RETIRED, REAP_RETIRED),
    ],
)
def test_two_loops_make_one_verdict(
    terminal: Verdict | None, retired: Verdict | None, expected: Verdict
) -> None:
    assert combine(terminal, retired) == expected


def test_without_any_loop_everything_is_kept() -> None:
    verdict = combine(None, None)
    assert isinstance(verdict, Keep)
    assert verdict.why is Why.OFF
