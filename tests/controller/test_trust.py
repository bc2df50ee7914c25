"""Which pods' stamps are not believed, and why."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from controller.trust import Guards, Ledger, doubt_retirement, doubt_stamps, missing_guards
from kube.namespace import Namespace
from tests.controller.pods import BORN, as_pod, incarnation, namespace, pod
from webhook import stamps

LATER = BORN + timedelta(hours=1)


def doubt(document: dict[str, Any], where: Namespace | None = None, *, known: bool = True) -> str:
    ledger = Ledger()
    if known:
        ledger.seen(as_pod(document))
    return doubt_stamps(as_pod(document), where or namespace(), ledger) or ""


def test_a_stamped_pod_in_an_enabled_namespace_is_believed() -> None:
    assert doubt(pod()) == ""


@pytest.mark.parametrize(
    ("document", "where", "words"),
    [
        (pod(), namespace(enabled=False), "namespace llm is not enabled"),
        (pod(), namespace(enabled=False, **{stamps.ENABLED: "yes"}), "is not enabled"),
        (pod(namespace="kube-system"), namespace("kube-system"), "never in scope"),
        (pod(namespace="podstamp-system"), namespace("podstamp-system"), "never in scope"),
        (pod(labels={stamps.ENABLED: "false"}), namespace(), "is false"),
        (pod(stamp=None), namespace(), "no incarnation"),
        (pod(stamp="web-0-1"), namespace(), "no UUID version 7"),
        (pod(stamp="2f1d7a6c-6a0e-4b0f-9a57-0f7e1f0a9c11"), namespace(), "no UUID version 7"),
        (pod(stamp=incarnation(minted=BORN - timedelta(minutes=11))), namespace(), "11 minutes"),
    ],
    ids=[
        "namespace",
        "other-value",
        "kube-system",
        "own-namespace",
        "left-out",
        "unstamped",
        "no-uuid",
        "uuid-4",
        "copied-long-ago",
    ],
)
def test_each_rule_of_the_stamps_is_held(
    document: dict[str, Any], where: Namespace, words: str
) -> None:
    assert words in doubt(document, where)


@pytest.mark.parametrize(
    "minted",
    [BORN - timedelta(minutes=10), BORN + timedelta(seconds=3), BORN + timedelta(days=90)],
    ids=["ten-minutes-before", "clock-of-the-webhook-ahead", "adopted-much-later"],
)
def test_incarnations_minted_about_or_after_the_creation_are_believed(minted: Any) -> None:
    assert doubt(pod(stamp=incarnation(minted=minted))) == ""


def test_a_namespace_that_could_not_be_read_is_not_believed() -> None:
    ledger = Ledger()
    ledger.seen(as_pod(pod()))
    assert "could not be read" in (doubt_stamps(as_pod(pod()), None, ledger) or "")


def test_a_pod_that_was_never_seen_is_not_believed() -> None:
    assert "not seen before" in doubt(pod(), known=False)


def test_a_rewritten_incarnation_is_not_believed_even_when_it_is_written_back() -> None:
    ledger = Ledger()
    for stamp in (incarnation(1), incarnation(2), incarnation(1)):
        ledger.seen(as_pod(pod(stamp=stamp)))
    assert "changed" in (doubt_stamps(as_pod(pod(stamp=incarnation(1))), namespace(), ledger) or "")


def test_a_fresh_read_with_another_incarnation_is_not_believed() -> None:
    ledger = Ledger()
    ledger.seen(as_pod(pod(stamp=incarnation(1))))
    assert "changed" in (doubt_stamps(as_pod(pod(stamp=incarnation(2))), namespace(), ledger) or "")


def test_an_incarnation_removed_and_written_anew_is_not_believed() -> None:
    ledger = Ledger()
    for stamp in (incarnation(1), None, incarnation(2)):
        ledger.seen(as_pod(pod(stamp=stamp)))
    assert doubt_stamps(as_pod(pod(stamp=incarnation(2))), namespace(), ledger)


def test_adoption_of_a_managed_pod_without_incarnation_is_believed() -> None:
    ledger = Ledger()
    for stamp in (None, "", incarnation(1)):
        ledger.seen(as_pod(pod(stamp=stamp) if stamp != "" else pod(stamp=None)))
    assert doubt_stamps(as_pod(pod(stamp=incarnation(1))), namespace(), ledger) is None


def test_of_two_uids_with_one_incarnation_neither_is_believed_again() -> None:
    one = as_pod(pod("web-1", uid="one", stamp=incarnation(1)))
    two = as_pod(pod("web-2", uid="two", stamp=incarnation(1)))
    ledger = Ledger()
    ledger.seen(one)
    assert doubt_stamps(one, namespace(), ledger) is None
    ledger.seen(two)
    assert "two pods" in (doubt_stamps(one, namespace(), ledger) or "")
    assert "two pods" in (doubt_stamps(two, namespace(), ledger) or "")
    ledger.gone(one, LATER)
    assert "two pods" in (doubt_stamps(two, namespace(), ledger) or "")


def test_a_copy_whose_original_is_gone_is_not_believed() -> None:
    original = as_pod(pod("web-1", uid="one", stamp=incarnation(1)))
    copy = as_pod(pod("web-9", uid="two", stamp=incarnation(1), born=BORN + timedelta(minutes=5)))
    ledger = Ledger()
    ledger.seen(original)
    ledger.gone(original, BORN + timedelta(minutes=1))
    ledger.seen(copy)
    assert "gone" in (doubt_stamps(copy, namespace(), ledger) or "")
    for number in range(2, 5):  # Later removals make it forget the original, but not the doubt.
        other = as_pod(pod(f"x-{number}", stamp=incarnation(number)))
        ledger.seen(other)
        ledger.gone(other, LATER)
    assert "gone" in (doubt_stamps(copy, namespace(), ledger) or "")


def test_the_memory_of_pods_that_are_gone_is_bounded() -> None:
    ledger = Ledger()
    for number in range(1, 2000):
        minted = BORN + timedelta(minutes=number)
        one = as_pod(pod(f"web-{number}", stamp=incarnation(number, minted=minted), born=minted))
        ledger.seen(one)
        ledger.gone(one, minted)
    assert ledger.remembered <= 22


def test_a_retirement_by_stamp_needs_a_readable_time_and_the_policies() -> None:
    document = pod(annotations={stamps.RETIRED: "suspended"})
    assert "no podstamp.dev/retired-at" in (doubt_retirement(as_pod(document), Guards(())) or "")
    document["metadata"]["annotations"][stamps.RETIRED_AT] = "soon"
    assert "no time" in (doubt_retirement(as_pod(document), Guards(())) or "")
    document["metadata"]["annotations"][stamps.RETIRED_AT] = "2026-01-01T00:00:00Z"
    assert doubt_retirement(as_pod(document), Guards(())) is None
    missing = Guards(("policy podstamp-status",))
    assert "policy podstamp-status" in (doubt_retirement(as_pod(document), missing) or "")


@pytest.mark.parametrize(
    ("policies", "denying", "missing"),
    [
        (["a", "b", "foreign"], ["a", "b"], ()),
        (["a"], ["a", "b"], ("policy b",)),
        (["a", "b"], ["b"], ("a binding of policy a that denies",)),
        ([], [], ("policy a", "policy b")),
    ],
    ids=["all", "no-policy", "no-binding", "nothing"],
)
def test_each_policy_and_its_binding_is_required(
    policies: list[str], denying: list[str], missing: tuple[str, ...]
) -> None:
    assert missing_guards(("a", "b"), policies, denying) == Guards(missing)
