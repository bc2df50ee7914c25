"""The plan: the same verdicts as the reapers', from one look."""

from __future__ import annotations

from typing import Any

from controller.plan import Look, PlanPolicy, needs_node, plan
from controller.records import Record
from controller.trust import Guards
from controller.verdict import Keep, NodeStanding, OwnerKind, Reap, Why
from tests.controller.pods import RUNNING, TERMINATED, as_pod, incarnation, namespace, pod
from webhook import stamps

POLICY = PlanPolicy(owner_kinds=frozenset({OwnerKind("PodSet", "orchestration.aibrix.ai")}))
RETIRED = {stamps.RETIRED: "suspended", stamps.RETIRED_AT: "2026-01-01T00:00:00Z"}


def look(*documents: dict[str, Any], **more: Any) -> Look:
    return Look(
        pods=[as_pod(document) for document in documents],
        namespaces=more.get("namespaces", {"llm": namespace()}),
        nodes=more.get("nodes", {}),
        rows=more.get("rows", {}),
        guards=more.get("guards", Guards(())),
    )


def stamped(document: dict[str, Any]) -> dict[Any, Any]:
    meta = document["metadata"]
    stamp = meta["annotations"][stamps.INCARNATION]
    key = (meta["namespace"], meta["name"])
    return {key: [Record(*key, stamp, "suspended", False)]}


def test_every_pod_has_a_line_in_order_with_what_happens_to_it() -> None:
    lines = plan(
        look(pod("web-2", phase="Failed", index="2"), pod("web-1"), pod("web-3", phase="Pending")),
        POLICY,
    )
    assert [line.pod.metadata.name for line in lines] == ["web-1", "web-2", "web-3"]
    assert isinstance(lines[1].verdict, Reap)
    assert (lines[1].dry_run, lines[1].due_s) == (True, 0)
    assert [isinstance(line.verdict, Keep) for line in lines] == [True, False, True]
    assert lines[0].due_s is None


def test_a_retired_pod_says_that_the_loop_is_off_and_what_it_would_be() -> None:
    document = pod("run", phase="Failed", owners=(), annotations=RETIRED)
    rows = stamped(document)
    [line] = plan(look(document, rows=rows), POLICY)
    assert isinstance(line.verdict, Keep)
    assert line.verdict.why is Why.OFF
    assert "terminal-retired" in line.verdict.reason
    on = PlanPolicy(owner_kinds=POLICY.owner_kinds, retired_enabled=True, retired_dry_run=False)
    [line] = plan(look(document, rows=rows), on)
    assert isinstance(line.verdict, Reap)
    assert (line.dry_run, line.due_s) == (False, 300)


def test_records_that_could_not_be_read_keep_and_say_so() -> None:
    on = PlanPolicy(owner_kinds=POLICY.owner_kinds, retired_enabled=True, by_stamps=False)
    [line] = plan(look(pod("run", phase="Failed", owners=()), rows=None), on)
    assert isinstance(line.verdict, Keep)
    assert line.verdict.why is Why.UNREADABLE


def test_missing_policies_keep_a_pod_that_is_retired_by_stamp() -> None:
    document = pod("run", phase="Failed", owners=(), annotations=RETIRED)
    on = PlanPolicy(owner_kinds=POLICY.owner_kinds, retired_enabled=True)
    guards = Guards(("policy podstamp-status",))
    [line] = plan(look(document, rows=stamped(document), guards=guards), on)
    assert isinstance(line.verdict, Keep)
    assert "podstamp-status" in line.verdict.reason


def test_copies_of_one_incarnation_and_pods_of_other_namespaces_are_kept() -> None:
    lines = plan(
        look(
            pod("web-1", phase="Failed", stamp=incarnation(1)),
            pod("web-2", phase="Failed", stamp=incarnation(1)),
            pod("web-3", phase="Failed", namespace="elsewhere"),
        ),
        POLICY,
    )
    kept = [line.verdict for line in lines]
    assert all(isinstance(verdict, Keep) and verdict.why is Why.UNVERIFIED for verdict in kept)


def test_only_nodes_whose_standing_decides_are_asked_for() -> None:
    runs: dict[str, Any] = {"engine": RUNNING}
    pods = [
        as_pod(pod("a", phase="Failed", containers=runs, node="one")),
        as_pod(pod("b", phase="Running", containers=runs, node="two")),
        as_pod(pod("c", phase="Failed", containers={"engine": TERMINATED}, node="three")),
    ]
    assert needs_node(pods, POLICY) == {"one"}
    [line] = plan(look(pod("a", phase="Failed", containers=runs, node="one")), POLICY)
    assert isinstance(line.verdict, Keep)
    gone = {"one": NodeStanding.GONE}
    [line] = plan(look(pod("a", phase="Failed", containers=runs, node="one"), nodes=gone), POLICY)
    assert isinstance(line.verdict, Reap)
