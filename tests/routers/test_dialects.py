"""Requests and answers of the worker APIs, as the real routers were seen to speak."""

from __future__ import annotations

import json
from typing import Any

import pytest

from controller.routers.dialects import (
    DIALECTS,
    Entry,
    Observed,
    Outcome,
    adapter_url,
    base_url,
    entries_of,
    is_adapter_url,
)
from controller.routers.transport import RefusedError
from tests.routers.fleet import backend, desired

URL = "http://10.0.0.1:8000"
ENTRY = Entry(URL, "uid", "inc", "base")


def test_each_dialect_asks_for_an_add_in_its_own_words() -> None:
    asked = {name: DIALECTS[name].add_request(ENTRY) for name in DIALECTS}
    assert asked == {
        "vllm": ("POST", "/workers", {"url": URL}),
        "legacy": ("POST", "/add_worker?url=http%3A%2F%2F10.0.0.1%3A8000", None),
        "sglang": ("POST", "/workers", {"url": URL, "model_id": "base"}),
        "smg": ("POST", "/workers", {"url": URL, "models": [{"id": "base"}]}),
    }


@pytest.mark.parametrize("name", ["sglang", "smg"])
def test_an_engine_that_names_no_model_is_added_without_one(name: str) -> None:
    assert DIALECTS[name].add_request(Entry(URL, "uid", "inc")).json == {"url": URL}


def test_each_dialect_removes_by_what_it_knows_a_worker_by() -> None:
    worker = Observed(URL, id="id/1")
    asked = {name: DIALECTS[name].remove_request(worker) for name in DIALECTS}
    assert asked == {
        "vllm": ("DELETE", "/workers/http%3A%2F%2F10.0.0.1%3A8000", None),
        "legacy": ("POST", "/remove_worker?url=http%3A%2F%2F10.0.0.1%3A8000", None),
        "sglang": ("DELETE", "/workers/id%2F1", None),
        "smg": ("DELETE", "/workers/id%2F1", None),
    }


def test_the_ranks_of_a_data_parallel_engine_are_removed_by_their_base() -> None:
    asked = {DIALECTS["vllm"].remove_request(Observed(f"{URL}@{rank}")) for rank in range(2)}
    assert len(asked) == 1
    assert next(iter(asked)).path.endswith("%3A8000")


@pytest.mark.parametrize(
    ("name", "status", "body", "outcome"),
    [
        ("vllm", 200, {"success": True}, Outcome.DONE),
        (
            "vllm",
            400,
            {"error": "Worker already exists", "code": "ADD_WORKER_FAILED"},
            Outcome.DONE,
        ),
        ("vllm", 400, {"error": "did not become healthy"}, Outcome.FAILED),
        ("vllm", 503, {}, Outcome.FAILED),
        ("legacy", 200, "Successfully added", Outcome.DONE),
        ("sglang", 202, {"worker_id": "u-1"}, Outcome.QUEUED),
        ("sglang", 401, {"error": "Unauthorized"}, Outcome.FAILED),
        ("sglang", 400, {"error": "bad"}, Outcome.FAILED),
        ("smg", 202, {"worker_id": "u-1"}, Outcome.QUEUED),
        ("smg", 409, {"code": "WORKER_ALREADY_EXISTS"}, Outcome.QUEUED),
        ("smg", 409, {"code": "WORKER_CREATE_IN_PROGRESS"}, Outcome.QUEUED),
        ("smg", 400, {"error": "no scheme"}, Outcome.FAILED),
    ],
)
def test_an_answer_to_an_add_means(name: str, status: int, body: Any, outcome: Outcome) -> None:
    verdict = DIALECTS[name].judge_add(status, json.dumps(body).encode())
    assert verdict.outcome is outcome
    assert bool(verdict.reason) is (outcome is Outcome.FAILED)


def test_a_queued_add_can_be_followed_by_its_id() -> None:
    assert DIALECTS["sglang"].judge_add(202, b'{"worker_id":"u-1"}').id == "u-1"
    assert DIALECTS["sglang"].job_request("u/1").path == "/workers/u%2F1"


def test_a_refused_key_says_where_it_is_configured() -> None:
    assert "apiKeyFile" in DIALECTS["sglang"].judge_add(401, b"{}").reason


@pytest.mark.parametrize("name", list(DIALECTS))
@pytest.mark.parametrize(
    ("status", "body", "outcome"),
    [
        (200, b"", Outcome.DONE),
        (202, b"{}", Outcome.DONE),
        (404, b'{"code":"WORKER_NOT_FOUND"}', Outcome.DONE),
        (400, b'{"error":"Worker not found"}', Outcome.DONE),
        (500, b"", Outcome.FAILED),
        (401, b"", Outcome.FAILED),
    ],
)
def test_an_answer_to_a_removal_means(
    name: str, status: int, body: bytes, outcome: Outcome
) -> None:
    assert DIALECTS[name].judge_remove(status, body).outcome is outcome


@pytest.mark.parametrize(
    ("status", "body", "outcome"),
    [
        (200, {"job_status": {"status": "processing"}}, Outcome.QUEUED),
        (200, {"job_status": {"status": "failed", "message": "no"}}, Outcome.FAILED),
        (200, {"id": "x", "is_healthy": True}, Outcome.QUEUED),
        (404, {}, Outcome.FAILED),
        (500, {}, Outcome.QUEUED),
    ],
)
def test_the_job_of_a_queued_add_means(status: int, body: Any, outcome: Outcome) -> None:
    assert DIALECTS["smg"].judge_job(status, json.dumps(body).encode()).outcome is outcome


SGLANG_LIST = {
    "workers": [
        {"id": "u1", "url": URL, "model_id": "base", "is_healthy": True, "extra": {}},
        {"id": "u2", "url": f"{URL}/", "model_id": "unknown"},
    ],
    "total": 2,
}


def test_a_list_is_read_whole() -> None:
    listed = DIALECTS["sglang"].parse_list(200, json.dumps(SGLANG_LIST).encode())
    assert listed == [Observed(URL, "u1", "base"), Observed(f"{URL}/", "u2", "unknown")]


def test_a_draining_worker_is_told_apart() -> None:
    body = {
        "workers": [{"url": URL, "status": "draining"}, {"url": "http://x:1", "status": "ready"}]
    }
    listed = DIALECTS["smg"].parse_list(200, json.dumps(body).encode())
    assert [worker.draining for worker in listed] == [True, False]
    pending = b'{"workers":[{"url":"http://10.0.0.1:8000","status":"pending","model_id":null}]}'
    assert DIALECTS["smg"].parse_list(200, pending) == [Observed(URL, pending=True)]


def test_the_older_list_holds_urls_alone() -> None:
    body = json.dumps({"urls": [URL, "http://10.0.0.2:8000"]}).encode()
    assert DIALECTS["legacy"].list_request().path == "/list_workers"
    assert [w.url for w in DIALECTS["legacy"].parse_list(200, body)] == [
        URL,
        "http://10.0.0.2:8000",
    ]


@pytest.mark.parametrize("name", list(DIALECTS))
@pytest.mark.parametrize(
    ("status", "body"),
    [(200, b"<html>"), (200, b"{}"), (200, b'{"workers":null}'), (500, b"{}"), (404, b"")],
)
def test_what_is_no_list_is_refused_and_never_taken_for_an_empty_one(
    name: str, status: int, body: bytes
) -> None:
    with pytest.raises(RefusedError):
        DIALECTS[name].parse_list(status, body)


@pytest.mark.parametrize(
    ("url", "base"),
    [(URL, URL), (f"{URL}@0", URL), (f"{URL}@12", URL), ("http://u@h:1", "http://u@h:1")],
)
def test_a_rank_belongs_to_its_base(url: str, base: str) -> None:
    assert base_url(url) == base


ADAPTED = backend("e1", URL, models=("base", "alias"), adapters=("lora-a", "org/b c"))


@pytest.mark.parametrize(
    ("name", "adapters", "workers"),
    [
        ("vllm", True, {URL: ""}),
        ("legacy", True, {URL: ""}),
        ("sglang", True, {URL: "base"}),
        (
            "smg",
            True,
            {
                URL: "base",
                f"{URL}/lora-a/..": "lora-a",
                f"{URL}/org%2Fb%20c/..": "org/b c",
            },
        ),
        ("smg", False, {URL: "base"}),
    ],
)
def test_the_workers_that_an_engine_needs(
    name: str, adapters: bool, workers: dict[str, str]
) -> None:
    found = entries_of(desired(ADAPTED), DIALECTS[name], adapters)
    assert {url: entry.model for url, entry in found.items()} == workers
    assert {entry.uid for entry in found.values()} == {"uid-e1"}


def test_an_adapter_has_a_spelling_of_its_own_that_leads_to_the_engine() -> None:
    url = adapter_url(URL, "lora-a")
    assert is_adapter_url(url)
    assert not is_adapter_url(URL)
    assert url != adapter_url(URL, "lora-b")
