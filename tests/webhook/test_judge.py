"""What is judged at all, and the limits of an answer. Each rule has its rows in rows.py."""

from __future__ import annotations

from typing import Any

import pytest

from tests.webhook.builders import NOW_NS, RANDOM, Object, changed, encode, pod, review, stamped
from webhook import stamps
from webhook.case import Case, Denial, Endpoint, Scope, Settings
from webhook.judge import Judge, Verdict, with_warning
from webhook.review import Malformed, decode_review
from webhook.rules import Rule

JUDGE = Judge(Settings(fenced_users=frozenset({"writer"})))
FORGED = stamped(annotations={stamps.RETIRED: "x"})


def both(body: Object) -> tuple[Verdict, Verdict]:
    request = decode_review(encode(body))
    return JUDGE.mutate(request, NOW_NS, RANDOM), JUDGE.validate(request, NOW_NS)


@pytest.mark.parametrize(
    "change",
    [
        {"kind": {"group": "policy", "version": "v1", "kind": "Eviction"}},
        {"kind": {"group": "", "version": "v1", "kind": "Binding"}},
        {"subResource": "status"},
        {"subResource": "resize"},
    ],
    ids=["eviction", "binding", "status", "resize"],
)
@pytest.mark.parametrize("operation", ["CREATE", "UPDATE", "CONNECT"])
def test_what_is_no_pod_itself_passes_unchanged(operation: str, change: Object) -> None:
    for verdict in both(review(operation, FORGED, stamped(), **change)):
        assert (verdict.allowed, verdict.operations, verdict.rule) == (True, [], "not-a-pod")


@pytest.mark.parametrize("operation", ["CONNECT", "", "PATCH"])
def test_an_unknown_operation_passes_unchanged(operation: str) -> None:
    for verdict in both(review(operation, FORGED, stamped())):
        assert (verdict.allowed, verdict.operations) == (True, [])


@pytest.mark.parametrize("old", [stamped(), None], ids=["stamped", "absent"])
def test_a_delete_is_never_patched(old: Any) -> None:
    for verdict in both(review("DELETE", None, old)):
        assert (verdict.allowed, verdict.operations) == (True, [])


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
def test_a_write_without_its_object_cannot_be_judged(operation: str) -> None:
    request = decode_review(encode(review(operation, None, stamped())))
    with pytest.raises(Malformed, match=r"request\.object"):
        JUDGE.mutate(request, NOW_NS, RANDOM)
    with pytest.raises(Malformed, match=r"request\.object"):
        JUDGE.validate(request, NOW_NS)


def test_a_collection_is_deleted_pod_by_pod_under_the_pods_own_name() -> None:
    body = review("DELETE", None, stamped("engine-7"), user="writer", name="")
    _, verdict = both(body)
    assert verdict.code == 409
    assert "pod models/engine-7" in verdict.message


def test_nobody_is_fenced_unless_the_settings_say_so() -> None:
    request = decode_review(encode(review("DELETE", None, stamped(), user="writer")))
    assert Judge(Settings()).validate(request, NOW_NS).allowed


def test_the_uid_of_the_call_is_never_the_incarnation() -> None:
    body = review("CREATE", pod(), uid=stamps.incarnation_at(NOW_NS // 1_000_000, b"\x07" * 10))
    mutated, _ = both(body)
    assert body["request"]["uid"] not in str(mutated.operations)


def test_a_dry_run_is_answered_alike() -> None:
    assert both(review("CREATE", pod(), dryRun=True)) == both(review("CREATE", pod()))


def test_namespace_comes_from_the_request_alone() -> None:
    elsewhere = pod(namespace="kube-system", annotations={stamps.IF_INCARNATION: "x"})
    mutated, _ = both(review("CREATE", elsewhere, namespace="models"))
    assert mutated.code == 409
    assert "pod models/engine" in mutated.message


def _chatty(case: Case) -> Denial | None:
    for at in range(20):
        case.warn(f"{at} " + "é\n\x00" * 200)
    return None


def test_warnings_are_short_few_and_printable() -> None:
    rule = Rule("chatty", _chatty, (Endpoint.MUTATE,), (Scope.CREATE,))
    request = decode_review(encode(review("CREATE", pod())))
    warnings = Judge(Settings(), [rule]).mutate(request, NOW_NS, RANDOM).warnings
    assert len(warnings) == 8
    assert all(len(text) <= 250 and text.isprintable() for text in warnings)


def test_one_more_warning_keeps_the_limit() -> None:
    full = Verdict(True, "create", warnings=[str(at) for at in range(8)])
    assert with_warning(full, "more").warnings == full.warnings
    assert with_warning(Verdict(True, "create"), "more").warnings == ["more"]


def test_a_refusal_quotes_no_more_than_a_person_reads() -> None:
    huge = {stamps.IF_INCARNATION: "x\n" * 50_000, stamps.RETIRED: "y\x00" * 50_000}
    request = decode_review(
        encode(review("UPDATE", changed(stamped(), annotations=huge), stamped()))
    )
    message = JUDGE.mutate(request, NOW_NS, RANDOM).message
    assert len(message) <= 2000
    assert message.isprintable()
    assert stamps.IF_INCARNATION in message
