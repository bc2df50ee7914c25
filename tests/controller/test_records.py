"""Which record speaks of a pod."""

from __future__ import annotations

import pytest

from controller.records import Miss, Record, match
from controller.records_stamps import StampRecords, record_of
from tests.controller.pods import as_pod, incarnation, pod
from webhook import stamps

pytestmark = pytest.mark.anyio

OWN, OTHER = incarnation(1), incarnation(2)
POD = as_pod(pod(stamp=OWN))


def row(of: str | None, state: str = "suspended", *, active: bool = False) -> Record:
    return Record("llm", "web-0", of, state, active)


@pytest.mark.parametrize(
    ("rows", "by_name", "expected"),
    [
        ([], False, Miss.NONE),
        ([row(OWN)], False, row(OWN)),
        ([row(OTHER), row(OWN)], False, row(OWN)),
        ([row(OWN), row(OTHER, active=True)], False, row(OWN)),
        ([row(OTHER)], False, Miss.MISMATCH),
        ([row(OTHER)], True, Miss.MISMATCH),
        ([row(None)], False, Miss.MISMATCH),
        ([row("")], False, Miss.MISMATCH),
        ([row(None)], True, row(None)),
        ([row(OWN), row(OWN, active=True)], False, row(OWN, active=True)),
        ([row(OWN, active=True), row(OWN)], False, row(OWN, active=True)),
        ([row(None, active=True), row(OWN)], True, row(None, active=True)),
        ([row(OWN), row(OWN)], False, row(OWN)),
        ([row(OWN), row(OWN, "replaced")], False, Miss.AMBIGUOUS),
    ],
)
def test_only_a_record_of_the_pods_own_incarnation_speaks_of_it(
    rows: list[Record], by_name: bool, expected: Record | Miss
) -> None:
    assert match(POD, rows, by_name=by_name) == expected


def test_a_pod_without_incarnation_matches_no_row_that_has_none() -> None:
    assert match(as_pod(pod(stamp=None)), [row(None)], by_name=False) is Miss.MISMATCH


async def test_stamps_speak_of_the_pod_that_carries_them() -> None:
    retired = as_pod(pod("web-1", stamp=OWN, annotations={stamps.RETIRED: "replaced"}))
    rows = await StampRecords().look_up([retired, POD])
    assert rows == {("llm", "web-1"): (Record("llm", "web-1", OWN, "replaced", False),)}


def test_an_empty_state_word_is_no_retirement() -> None:
    assert record_of(as_pod(pod(annotations={stamps.RETIRED: ""}))) is None
