"""A pod's place in its set."""

from __future__ import annotations

import msgspec
import pytest

from tests.webhook.builders import Object, owner, pod, statefulset
from webhook.review import Labels, Metadata
from webhook.sets import (
    Membership,
    controller_of,
    find_membership,
    is_index,
    is_label_value,
    set_kinds,
)

OWN_INDEX = "stormservice.orchestration.aibrix.ai/pod-group-index"
OWN_NAME = "stormservice.orchestration.aibrix.ai/podset-name"


def place(obj: Object, *configured: str) -> Membership | None:
    metadata = msgspec.convert(obj["metadata"], Metadata)
    return find_membership(
        metadata,
        metadata.labels or Labels(),
        controller_of(metadata),
        metadata.name or "",
        set_kinds(configured),
    )


@pytest.mark.parametrize("text", ["0", "7", "10", "9" * 63])
def test_a_decimal_without_leading_zeros_is_an_index(text: str) -> None:
    assert is_index(text)


@pytest.mark.parametrize("text", ["", "00", "07", "-1", "+1", "1 ", "1\n", "x", "٣", "9" * 64])
def test_anything_else_is_none(text: str) -> None:
    assert not is_index(text)


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        ("ps", True),
        ("a.b_c-D9", True),
        ("x" * 63, True),
        ("x" * 64, False),
        ("-a", False),
        ("a-", False),
        ("a b", False),
        ("ä", False),
        ("a\n", False),
    ],
)
def test_label_values_are_those_of_the_api_server(text: str, valid: bool) -> None:
    assert is_label_value(text) is valid


@pytest.mark.parametrize(
    ("name", "index"),
    [("ps-0", "0"), ("ps-12", "12"), ("ps-012", None), ("ps-", None), ("ps", None),
     ("ps-1-2", None), ("psx-1", None), ("PS-1", None), ("ps-a", None), ("xps-1", None)],
)  # fmt: skip
def test_the_index_is_the_exact_suffix_after_the_set_name(name: str, index: str | None) -> None:
    found = place(pod(name, owners=[owner()]))
    assert found is not None
    assert found.index == index


def test_a_generated_name_says_no_index() -> None:
    generated = place(pod("ps-24567", generateName="ps-", owners=[owner()]))
    given = place(pod("ps-13", generateName="ps-", owners=[owner()]))
    assert generated is not None
    assert (generated.index, generated.named) == (None, False)
    assert given is not None
    assert (given.index, given.named) == ("13", True)


def test_a_generated_name_leaves_the_own_label() -> None:
    labels = {OWN_INDEX: "4"}
    found = place(pod("ps-24567", generateName="ps-", owners=[owner()], labels=labels))
    assert found is not None
    assert (found.index, found.clashes) == ("4", False)


def test_an_own_label_that_is_no_index_is_not_taken() -> None:
    found = place(pod("short", owners=[owner()], labels={OWN_INDEX: "04"}))
    assert found is not None
    assert (found.index, found.own_index) == (None, "04")


def test_the_controller_goes_before_the_own_label() -> None:
    labels = {OWN_NAME: "other"}
    found = place(pod("ps-1", owners=[owner()], labels=labels))
    assert found is not None
    assert found.set_name == "ps"
    assert place(pod("other-1", owners=[owner("Job", "j", "batch/v1")], labels=labels)) is None


def test_the_own_label_serves_where_there_is_no_controller() -> None:
    found = place(pod("ps-1", labels={OWN_NAME: "ps"}))
    assert found is not None
    assert (found.set_name, found.owner_uid, found.index) == ("ps", "", "1")


def test_an_owner_that_is_no_controller_makes_no_set() -> None:
    assert place(pod("ps-1", owners=[owner() | {"controller": False}])) is None
    both = place(pod("ps-1", owners=[statefulset() | {"controller": None}, owner()]))
    assert both is not None
    assert both.set_name == "ps"


@pytest.mark.parametrize("version", ["v1alpha1", "v1", "v2beta1"])
def test_any_version_of_a_kind_is_that_kind(version: str) -> None:
    reference = owner(api_version=f"orchestration.aibrix.ai/{version}")
    assert place(pod("ps-1", owners=[reference])) is not None


def test_a_kind_of_another_group_is_another_kind() -> None:
    assert place(pod("ps-1", owners=[owner(api_version="example.org/v1")])) is None


def test_configured_kinds_are_sets() -> None:
    reference = owner("Fleet", "fl", "serving.example.org/v1")
    assert place(pod("fl-2", owners=[reference])) is None
    found = place(pod("fl-2", owners=[reference]), "Fleet.serving.example.org")
    assert found is not None
    assert (found.set_name, found.index, found.own_index) == ("fl", "2", None)


def test_configuring_a_built_in_kind_keeps_its_labels() -> None:
    kinds = set_kinds(["PodSet.orchestration.aibrix.ai"])
    assert kinds == set_kinds()


@pytest.mark.parametrize("text", ["Fleet", "", ".", "Fleet.", ".example.org"])
def test_a_kind_without_a_group_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="Kind"):
        set_kinds([text])
