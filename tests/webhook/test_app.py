"""From the parts of a call to a reply."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from kube.pod import Pod
from kube.store import Store
from tests.webhook.builders import NOW_NS, RANDOM, encode, pod, review, stamped
from tests.webhook.rows import HOLDER, PODSET_POD
from webhook.app import (
    DEFAULT_DEADLINE_S,
    JSON,
    MAX_BODY_BYTES,
    MUTATE,
    VALIDATE,
    AdmissionApp,
    RandomBytes,
    Reply,
    deadline_s,
)
from webhook.case import Settings, StoreView, Suspicion, conflict
from webhook.conflicts import Confirmer, PodView
from webhook.judge import Judge, Verdict, denied
from webhook.metrics import Tally
from webhook.stamps import IF_INCARNATION, INCARNATION, incarnation_at


def make(tally: Tally | None = None, **more: Any) -> AdmissionApp:
    return AdmissionApp(
        Judge(Settings()),
        tally or Tally(),
        now_ns=lambda: NOW_NS,
        random_bytes=lambda _: RANDOM,
        **more,
    )


def ask(app: AdmissionApp, path: bytes, body: bytes) -> dict[str, Any]:
    reply = app.review(path, b"", body)
    assert isinstance(reply, Reply)
    assert (reply.status, reply.content_type, reply.close) == (200, JSON, False)
    response: dict[str, Any] = msgspec.json.decode(reply.content)["response"]
    return response


def test_each_path_is_an_endpoint_of_its_own() -> None:
    body = encode(review("CREATE", pod()))
    assert "patch" in ask(make(), MUTATE, body)
    assert "patch" not in ask(make(), VALIDATE, body)


def test_reviews_are_counted_with_their_rule() -> None:
    tally = Tally()
    app = make(tally)
    ask(app, MUTATE, encode(review("CREATE", pod())))
    ask(
        app, MUTATE, encode(review("UPDATE", stamped(annotations={IF_INCARNATION: "x"}), stamped()))
    )
    ask(app, VALIDATE, encode(review("CREATE", {"metadata": 5})))
    assert tally.reviews == {
        ("mutate", "CREATE", "patched", "create"): 1,
        ("mutate", "UPDATE", "denied", "fence"): 1,
        ("validate", "unknown", "denied", "malformed"): 1,
    }


def test_a_wrongly_typed_pod_is_refused_with_the_uid() -> None:
    response = ask(make(), MUTATE, encode(review("CREATE", {"metadata": 5}, uid="u-7")))
    assert (response["uid"], response["allowed"]) == ("u-7", False)
    assert (response["status"]["code"], response["status"]["reason"]) == (400, "BadRequest")


def test_what_is_no_review_is_http_400_and_counted() -> None:
    tally = Tally()
    reply = make(tally).review(MUTATE, b"", b"{}")
    assert isinstance(reply, Reply)
    assert (reply.status, reply.close) == (400, True)
    assert tally.failures == {400: 1}


@pytest.mark.parametrize(
    ("method", "path", "content_type", "length", "status"),
    [
        (b"POST", b"/", JSON, 2, 404),
        (b"POST", b"/mutate/", JSON, 2, 404),
        (b"GET", MUTATE, JSON, 0, 405),
        (b"POST", MUTATE, b"", 2, 415),
        (b"POST", MUTATE, b"application/yaml", 2, 415),
        (b"POST", MUTATE, b"application/jsonp", 2, 415),
        (b"POST", MUTATE, b"application/vnd.kubernetes.protobuf", 2, 415),
        (b"POST", MUTATE, JSON, MAX_BODY_BYTES + 1, 413),
    ],
)
def test_a_call_is_refused_before_its_body(
    method: bytes, path: bytes, content_type: bytes, length: int, status: int
) -> None:
    tally = Tally()
    refusal = make(tally).refuse(method, path, content_type, length)
    assert refusal is not None
    assert (refusal.status, refusal.close) == (status, True)
    assert tally.failures == {status: 1}


@pytest.mark.parametrize("path", [MUTATE, VALIDATE])
@pytest.mark.parametrize(
    "content_type", [JSON, b"application/json; charset=utf-8", b"Application/JSON"]
)
def test_json_of_a_sensible_size_is_taken(path: bytes, content_type: bytes) -> None:
    assert make().refuse(b"POST", path, content_type, MAX_BODY_BYTES) is None


def test_an_exception_of_ours_is_no_verdict() -> None:
    class Broken:
        synced = True

        def holder(self, namespace: str, name: str) -> Pod | None:
            raise ZeroDivisionError

        def at_index(self, namespace: str, owner_uid: str, index: str) -> Iterable[Pod]:
            return ()

    broken: StoreView = Broken()
    body = encode(review("CREATE", stamped(annotations={INCARNATION: _fresh()})))
    with pytest.raises(ZeroDivisionError):
        make(view=broken).review(VALIDATE, b"", body)


def _fresh() -> str:
    return incarnation_at(NOW_NS // 1_000_000, bytes(10))


def _suspicious(**more: Any) -> Any:
    """The response to a create whose index another pod holds, by the store."""
    store: Store[Pod] = Store()
    metadata = HOLDER["metadata"] | {"namespace": "models", "uid": "u-2", "resourceVersion": "1"}
    view = PodView(store)
    store.replace([msgspec.convert(HOLDER | {"metadata": metadata}, Pod)])
    created = stamped(
        "ps-3",
        owners=PODSET_POD["metadata"]["ownerReferences"],
        labels=HOLDER["metadata"]["labels"],
        annotations={INCARNATION: _fresh()},
    )
    app = make(view=view, monotonic=lambda: 1000.0, **more)
    pending = app.review(VALIDATE, b"timeout=3s", encode(review("CREATE", created)))
    assert not isinstance(pending, Reply)

    async def wait() -> Reply:
        return await pending

    return msgspec.json.decode(asyncio.run(wait()).content)["response"]


def test_a_suspicion_without_anyone_to_confirm_it_is_a_warning() -> None:
    response = _suspicious()
    assert response["allowed"]
    assert "ps-other-3" in response["warnings"][0]


class Recording(Confirmer):
    def __init__(self) -> None:
        self.budgets: list[float] = []

    async def decide(self, verdict: Verdict, suspicion: Suspicion, budget_s: float) -> Verdict:
        self.budgets.append(budget_s)
        return denied("index-conflict", conflict("held"), [])


def test_the_confirming_read_leaves_time_for_the_answer() -> None:
    recording = Recording()
    response = _suspicious(confirmer=recording)
    assert response["status"]["code"] == 409
    (budget_s,) = recording.budgets
    assert 0 < budget_s <= 3 - 0.2


@pytest.mark.parametrize(
    ("query", "seconds"),
    [
        (b"timeout=5s", 5.0),
        (b"timeout=10s", 10.0),
        (b"a=b&timeout=1m30s", 90.0),
        (b"timeout=", DEFAULT_DEADLINE_S),
        (b"timeout=soon", DEFAULT_DEADLINE_S),
        (b"timeout=\xff", DEFAULT_DEADLINE_S),
        (b"", DEFAULT_DEADLINE_S),
    ],
)
def test_the_deadline_is_that_of_the_api_server(query: bytes, seconds: float) -> None:
    assert deadline_s(query) == seconds


def test_random_bytes_are_given_out_once() -> None:
    source = RandomBytes()
    taken = [source.take(10) for _ in range(1000)]
    assert {len(each) for each in taken} == {10}
    assert len(set(taken)) == 1000
    assert len(source.take(10_000)) == 10_000
