"""The discovery file of smg."""

from __future__ import annotations

import json

import pytest

from controller.routers.desired import Desired
from controller.routers.transport import Answer, RefusedError
from controller.routers.worker_file import WorkerFile, worker_id
from tests.routers.fleet import backend, desired

A, B = "http://10.0.0.1:8000", "http://10.0.0.2:8000"
FILE = WorkerFile(adapters=True)


def test_a_worker_for_each_engine_and_each_adapter() -> None:
    one = backend("e1", A, adapters=("x", "y"))
    two = backend("e2", B, models=("llama", "alias"))
    rendered = FILE.render(desired(two, one), {})
    assert json.loads(rendered.content) == {
        "version": 1,
        "workers": [
            {"id": worker_id(A), "url": A, "model_id": "base"},
            {"id": worker_id(f"{A}/x/.."), "url": f"{A}/x/..", "model_id": "x"},
            {"id": worker_id(f"{A}/y/.."), "url": f"{A}/y/..", "model_id": "y"},
            {"id": worker_id(B), "url": B, "model_id": "llama"},
        ],
    }


def test_equal_sets_make_equal_bytes_in_any_order() -> None:
    one, two = backend("e1", A), backend("e2", B)
    assert FILE.render(desired(one, two), {}).content == FILE.render(desired(two, one), {}).content


def test_the_id_of_a_url_outlives_its_incarnation() -> None:
    first = FILE.render(desired(backend("e1", A, uid="A")), {})
    second = FILE.render(desired(backend("e1", A, uid="B")), {})
    assert first.content == second.content


def test_an_engine_without_a_model_is_written_without_one() -> None:
    rendered = FILE.render(desired(backend("e1", A, models=())), {})
    assert json.loads(rendered.content)["workers"] == [{"id": worker_id(A), "url": A}]


def test_adapters_can_be_left_out() -> None:
    rendered = WorkerFile(adapters=False).render(desired(backend("e1", A, adapters=("x",))), {})
    assert list(rendered.entries) == [A]


def test_an_empty_set_is_an_empty_list() -> None:
    assert json.loads(FILE.render(desired(), {}).content) == {"version": 1, "workers": []}


def test_what_is_written_reads_as_it_was_meant() -> None:
    rendered = FILE.render(desired(backend("e1", A, adapters=("x",)), backend("e2", B)), {})
    assert FILE.parse(rendered.content) == rendered.entries
    assert FILE.engines(list(rendered.entries)) == [A, B]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b'{"version":1,"workers":[{"id":"x","url":',
        b"{}",
        b'{"version":1,"workers":[{"id":"x"}]}',
        b'{"version":1,"workers":[{"id":"x","url":"u","unknown":1}]}',
    ],
)
def test_a_file_that_smg_would_not_take_says_nothing(content: bytes) -> None:
    assert FILE.parse(content) is None


def test_what_smg_lists_is_read_without_what_drains() -> None:
    workers = [
        {"url": A, "model_id": "base", "status": "ready"},
        {"url": B, "model_id": "base", "status": "draining"},
        {"url": f"{B}/x/..", "model_id": None, "status": "pending"},
    ]
    body = json.dumps({"workers": workers}).encode()
    assert FILE.parse_report(Answer(200, body)) == {A: ("base",)}
    with pytest.raises(RefusedError):
        FILE.parse_report(Answer(503, b""))


def test_what_is_undecided_stays_as_it_is_written() -> None:
    present = {A: ("base",), f"{A}/x/..": ("x",), B: ("llama",)}
    rendered = FILE.render(Desired({}, (), frozenset({A, "http://10.0.0.9:1"})), present)
    assert rendered.entries == {A: ("base",), f"{A}/x/..": ("x",)}


def test_what_must_not_be_back_yet_is_left_out() -> None:
    rendered = FILE.render(desired(backend("e1", A), backend("e2", B)), {}, {B})
    assert list(rendered.entries) == [A]
