"""JSON Patch, held against an RFC 6902 library."""

from __future__ import annotations

from typing import Any

import jsonpatch
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.apiserver.errors import StatusError
from tests.apiserver.json_patch import apply

KEYS = st.sampled_from(["a", "b", "x/y", "~t", "0"])
DOCUMENTS = st.dictionaries(
    KEYS,
    st.recursive(
        st.none() | st.booleans() | st.integers(-2, 2) | st.text("xy", max_size=2),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
        max_leaves=8,
    ),
    max_size=4,
)


@settings(max_examples=150, deadline=None)
@given(DOCUMENTS, DOCUMENTS)
def test_the_difference_of_two_documents_leads_from_one_to_the_other(
    old: dict[str, Any], new: dict[str, Any]
) -> None:
    before = repr(old)
    operations = jsonpatch.make_patch(old, new).patch
    assert apply(old, operations) == new
    assert repr(old) == before


DOCUMENT = {"a": {"b": [1, 2]}, "c": None}

ALLOWED: list[Any] = [
    pytest.param(
        [{"op": "add", "path": "/a/b/-", "value": 3}],
        {"a": {"b": [1, 2, 3]}, "c": None},
        id="append",
    ),
    pytest.param(
        [{"op": "add", "path": "/a/b/0", "value": 0}],
        {"a": {"b": [0, 1, 2]}, "c": None},
        id="insert",
    ),
    pytest.param(
        [{"op": "move", "from": "/a/b", "path": "/d"}],
        {"a": {}, "c": None, "d": [1, 2]},
        id="move",
    ),
    pytest.param(
        [
            {"op": "copy", "from": "/a", "path": "/d"},
            {"op": "remove", "path": "/d/b/0"},
        ],
        {"a": {"b": [1, 2]}, "c": None, "d": {"b": [2]}},
        id="a copy is of its own",
    ),
    pytest.param([{"op": "test", "path": "/c", "value": None}], DOCUMENT, id="test null"),
    pytest.param([{"op": "test", "path": "/zz", "value": None}], DOCUMENT, id="test nothing"),
    pytest.param(
        [{"op": "replace", "path": "/zz", "value": 1}], {**DOCUMENT, "zz": 1}, id="replace nothing"
    ),
    pytest.param([{"op": "replace", "path": "", "value": {"x": 1}}], {"x": 1}, id="the whole"),
]


@pytest.mark.parametrize(("operations", "patched"), ALLOWED)
def test_what_fits(operations: list[Any], patched: Any) -> None:
    assert apply(DOCUMENT, operations) == patched


REFUSED: list[Any] = [
    pytest.param([{"op": "remove", "path": "/zz"}], 422, id="remove nothing"),
    pytest.param([{"op": "remove", "path": "/a/b/2"}], 422, id="remove past the end"),
    pytest.param([{"op": "replace", "path": "/a/b/2", "value": 1}], 422, id="replace past the end"),
    pytest.param([{"op": "add", "path": "/a/b/3", "value": 1}], 422, id="add past the end"),
    pytest.param([{"op": "add", "path": "/zz/y", "value": 1}], 422, id="add below nothing"),
    pytest.param([{"op": "add", "path": "/c/y", "value": 1}], 422, id="add below null"),
    pytest.param([{"op": "copy", "from": "/zz", "path": "/d"}], 422, id="copy nothing"),
    pytest.param([{"op": "test", "path": "/a/b", "value": [1]}], 422, id="test fails"),
    pytest.param([{"op": "add", "path": "a", "value": 1}], 422, id="no pointer"),
    pytest.param([{"op": "frobnicate", "path": "/a"}], 400, id="unknown operation"),
    pytest.param([{"op": "add"}], 400, id="no path"),
    pytest.param({"op": "add", "path": "/a", "value": 1}, 400, id="no list"),
]


@pytest.mark.parametrize(("operations", "code"), REFUSED)
def test_what_does_not_fit(operations: Any, code: int) -> None:
    with pytest.raises(StatusError) as caught:
        apply(DOCUMENT, operations)
    assert caught.value.code == code
    assert DOCUMENT == {"a": {"b": [1, 2]}, "c": None}
