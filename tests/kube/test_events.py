"""Events against a server in memory, on a clock that is moved."""

import asyncio
import json
import random
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kube.client import ApiClient
from kube.credentials import Credentials
from kube.events import EventRecorder, ObjectReference, TokenBucket, event_name
from tests.clock import FakeClock

pytestmark = pytest.mark.anyio

POD = ObjectReference("v1", "Pod", "ns", "llm-1", "U1", "7")
OTHER = ObjectReference("v1", "Pod", "ns", "llm-2", "U2")
OWNER = ObjectReference("orchestration.aibrix.ai/v1alpha1", "PodSet", "ns", "llm", "S")


class Events:
    """Events as a server stores them, and faults."""

    def __init__(self) -> None:
        self.stored: dict[str, dict[str, Any]] = {}
        self.calls: list[str] = []
        # What the next calls meet instead, used up one by one.
        self.faults: list[httpx.Response | Exception] = []
        self.lose_answer = False
        self.hang = False

    @property
    def all(self) -> list[dict[str, Any]]:
        return list(self.stored.values())

    async def handle(self, request: httpx.Request) -> httpx.Response:
        self.calls.append(f"{request.method} {request.url.path}")
        if self.hang:
            await asyncio.Event().wait()
        if self.faults:
            fault = self.faults.pop(0)
            if isinstance(fault, Exception):
                raise fault
            return fault
        body = json.loads(request.content)
        if request.method == "POST":
            name = body["metadata"]["name"]
            if name in self.stored:
                return refused(409, "AlreadyExists")
            self.stored[name] = body
        else:
            name = request.url.path.rsplit("/", 1)[1]
            if name not in self.stored:
                return refused(404, "NotFound")
            self.stored[name] |= body
        if self.lose_answer:
            self.lose_answer = False
            raise httpx.ReadError("the answer was lost")
        return httpx.Response(200, json=self.stored[name])


def refused(code: int, reason: str, message: str = "") -> httpx.Response:
    body = {"kind": "Status", "code": code, "reason": reason, "message": message or reason}
    return httpx.Response(code, json=body)


@asynccontextmanager
async def recording(
    clock: FakeClock, **options: Any
) -> AsyncIterator[tuple[Events, EventRecorder]]:
    events = Events()
    client = ApiClient(
        Credentials("http://api"),
        clock=clock,
        transport=lambda _: httpx.MockTransport(events.handle),
    )
    recorder = EventRecorder(
        client, instance="controller-0", clock=clock, random=random.Random(1), **options
    )
    task = asyncio.create_task(recorder.run())
    try:
        yield events, recorder
    finally:
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            task.result()


async def test_an_event_has_every_field_that_the_api_asks_for(clock: FakeClock) -> None:
    async with recording(clock) as (events, recorder):
        recorder.record(
            POD, reason="ReapedTerminal", note="it was over", action="Delete", related=OWNER
        )
        await clock.settle()
        (event,) = events.all
    assert event["apiVersion"] == "events.k8s.io/v1"
    assert event["kind"] == "Event"
    assert event["metadata"]["namespace"] == "ns"
    assert event["metadata"]["name"].startswith("llm-1.")
    assert event["reportingController"] == "podstamp.dev/controller"
    assert event["reportingInstance"] == "controller-0"
    assert (event["reason"], event["action"]) == ("ReapedTerminal", "Delete")
    assert (event["note"], event["type"]) == ("it was over", "Normal")
    assert event["regarding"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": "ns",
        "name": "llm-1",
        "uid": "U1",
        "resourceVersion": "7",
    }
    assert event["related"]["uid"] == "S"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", event["eventTime"])
    assert datetime.fromisoformat(event["eventTime"]) == clock.now()
    assert "series" not in event
    assert events.calls == ["POST /apis/events.k8s.io/v1/namespaces/ns/events"]


async def test_an_event_about_a_cluster_scoped_object_is_in_default(clock: FakeClock) -> None:
    async with recording(clock) as (events, recorder):
        recorder.record(ObjectReference("v1", "Node", name="n", uid="N"), reason="R", note="n")
        await clock.settle()
        (event,) = events.all
    assert event["metadata"]["namespace"] == "default"
    assert "namespace" not in event["regarding"]


async def test_an_action_is_never_empty_and_long_texts_are_cut(clock: FakeClock) -> None:
    async with recording(clock) as (events, recorder):
        recorder.record(POD, reason="R" * 200, note="n" * 3000)
        await clock.settle()
        (event,) = events.all
    assert (len(event["reason"]), len(event["action"])) == (128, 128)
    assert len(event["note"]) == 1024
    assert event["note"].endswith("…")


# A busy machine is slow at times; that is no fault of what is tested.
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(st.text(st.sampled_from("abc.-0"), max_size=300))
def test_a_name_is_valid_whatever_the_object_is_called(name: str) -> None:
    found = event_name(name.lstrip(".-"), "0123456789abcdef")
    assert len(found) <= 253
    assert found.endswith("0123456789abcdef")
    assert not re.search(r"[-.]\.0123456789abcdef$", found)


async def test_records_of_two_pods_are_two_events(clock: FakeClock) -> None:
    async with recording(clock) as (events, recorder):
        for regarding in (POD, OTHER):
            recorder.record(regarding, reason="ReapedTerminal", note="the same note")
        await clock.settle()
    assert sorted(e["regarding"]["uid"] for e in events.all) == ["U1", "U2"]


async def test_two_incarnations_of_one_name_are_two_events(clock: FakeClock) -> None:
    successor = ObjectReference("v1", "Pod", "ns", "llm-1", "U9")
    async with recording(clock) as (events, recorder):
        for regarding in (POD, successor):
            recorder.record(regarding, reason="ReapedTerminal", note="the same note")
        await clock.settle()
    assert sorted(e["regarding"]["uid"] for e in events.all) == ["U1", "U9"]


async def test_repeats_become_a_series_of_one_event(clock: FakeClock) -> None:
    async with recording(clock) as (events, recorder):
        recorder.record(POD, reason="R", note="n")
        await clock.advance(60)
        recorder.record(POD, reason="R", note="n")
        await clock.advance(60)
        recorder.record(POD, reason="R", note="n")
        await clock.settle()
        (event,) = events.all
        assert event["series"]["count"] == 3
        assert datetime.fromisoformat(event["series"]["lastObservedTime"]) == clock.now()
        recorder.record(POD, reason="R", note="another")
        recorder.record(POD, reason="other", note="n")
        recorder.record(POD, reason="R", note="n", type="Warning")
        await clock.settle()
        assert len(events.all) == 4


async def test_repeats_that_wait_together_are_sent_once(clock: FakeClock) -> None:
    async with recording(clock) as (events, recorder):
        for _ in range(5):
            recorder.record(POD, reason="R", note="n")
        await clock.settle()
        (event,) = events.all
        assert event["series"]["count"] == 5
        assert len(events.calls) == 1


async def test_a_series_whose_event_has_expired_begins_anew(clock: FakeClock) -> None:
    async with recording(clock) as (events, recorder):
        recorder.record(POD, reason="R", note="n")
        await clock.settle()
        (first,) = events.stored
        events.stored.clear()
        recorder.record(POD, reason="R", note="n")
        await clock.settle()
        (second,) = events.stored
        assert first != second
        assert [c.split()[0] for c in events.calls] == ["POST", "PATCH", "POST"]


@pytest.mark.parametrize(
    "fault",
    [
        httpx.Response(503),
        httpx.Response(429),
        httpx.ConnectError("refused"),
        httpx.ReadTimeout("slow"),
    ],
    ids=["503", "429", "refused", "timeout"],
)
async def test_a_passing_failure_is_tried_again(
    clock: FakeClock, fault: httpx.Response | Exception
) -> None:
    async with recording(clock) as (events, recorder):
        events.faults = [fault]
        recorder.record(POD, reason="R", note="n")
        await clock.advance(5)
        assert len(events.all) == 1
        assert recorder.dropped == 0


async def test_an_event_whose_answer_was_lost_is_not_written_twice(clock: FakeClock) -> None:
    async with recording(clock) as (events, recorder):
        events.lose_answer = True
        recorder.record(POD, reason="R", note="n")
        await clock.advance(5)
        assert len(events.all) == 1
        assert recorder.dropped == 0
        recorder.record(POD, reason="R", note="n")
        await clock.advance(5)
        assert events.all[0]["series"]["count"] == 2


async def test_a_refused_event_is_dropped_said_once_and_in_nobodys_way(
    clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    message = "unable to create new content in namespace ns because it is being terminated"
    async with recording(clock) as (events, recorder):
        events.faults = [refused(403, "Forbidden", message) for _ in range(3)]
        for number in range(4):
            recorder.record(POD, reason="R", note=f"note {number}")
        await clock.advance(5)
        assert [e["note"] for e in events.all] == ["note 3"]
        assert recorder.dropped == 3
        said = [r for r in caplog.records if r.name == "kube.events"]
        assert len(said) == 1


async def test_an_outage_costs_three_attempts_and_then_the_event(clock: FakeClock) -> None:
    async with recording(clock) as (events, recorder):
        events.faults = [httpx.ConnectError("refused")] * 4
        recorder.record(POD, reason="R", note="one")
        recorder.record(POD, reason="R", note="two")
        await clock.advance(10)
        assert [e["note"] for e in events.all] == ["two"]
        assert recorder.dropped == 1
        assert len(events.calls) == 5


async def test_recording_never_waits_even_when_the_server_hangs(clock: FakeClock) -> None:
    async with recording(clock, capacity=3, timeout_s=0.02) as (events, recorder):
        events.hang = True
        for number in range(10):
            recorder.record(POD, reason="R", note=str(number))
        assert recorder.dropped == 7
        recorder.record(POD, reason="R", note="0")
        assert recorder.dropped == 7, "a repeat of a waiting one needs no place"


async def test_a_flood_is_spread_out(clock: FakeClock) -> None:
    async with recording(clock, rate_per_s=10, burst=5) as (events, recorder):
        for number in range(30):
            recorder.record(POD, reason="R", note=str(number))
        await clock.settle()
        assert len(events.all) == 5
        await clock.advance(1)
        assert len(events.all) == 15
        await clock.advance(10)
        assert len(events.all) == 30
        assert recorder.dropped == 0


@pytest.mark.parametrize("rate", [0.5, 1, 20])
def test_a_bucket_lets_burst_and_rate_through_and_no_more(rate: float) -> None:
    bucket = TokenBucket(rate, 3, now_s=0)
    assert [bucket.take(0) for _ in range(3)] == [0, 0, 0]
    assert bucket.take(0) == pytest.approx(1 / rate)
    assert bucket.take(0) == pytest.approx(2 / rate)
    assert bucket.take(100 / rate) == 0
    assert bucket.take(100 / rate) == 0
    assert bucket.take(100 / rate) == 0
    assert bucket.take(100 / rate) > 0, "time does not fill it beyond the burst"


async def test_flush_waits_for_what_is_queued(clock: FakeClock) -> None:
    async with recording(clock, rate_per_s=1, burst=1) as (events, recorder):
        await recorder.flush(1)
        for number in range(3):
            recorder.record(POD, reason="R", note=str(number))
        flushed = asyncio.create_task(recorder.flush(10))
        await clock.advance(1.9)
        assert not flushed.done()
        await clock.advance(0.2)
        await flushed
        assert len(events.all) == 3


async def test_flush_gives_up_when_its_time_is_over(clock: FakeClock) -> None:
    async with recording(clock, rate_per_s=0.01, burst=1) as (events, recorder):
        for number in range(3):
            recorder.record(POD, reason="R", note=str(number))
        flushed = asyncio.create_task(recorder.flush(2))
        await clock.advance(2.1)
        await flushed
        assert len(events.all) == 1


async def test_only_so_many_events_are_remembered_for_their_series(clock: FakeClock) -> None:
    async with recording(clock, remembered=2) as (events, recorder):
        for note in ("one", "two", "three", "three", "two", "one"):
            recorder.record(POD, reason="R", note=note)
            await clock.settle()
        assert [e["note"] for e in events.all] == ["one", "two", "three", "one"]
        assert ["series" in e for e in events.all] == [False, True, True, False]
