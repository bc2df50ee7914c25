"""Leader election against a Lease in memory, on a clock that is moved."""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from kube.client import ApiClient
from kube.credentials import Credentials
from kube.errors import ConfigError
from kube.lease import LeaderElector, Lease, LeaseMeta, LeaseSpec, Observed, may_take, taken
from tests.clock import FakeClock

pytestmark = pytest.mark.anyio

NAME = "/apis/coordination.k8s.io/v1/namespaces/podstamp-system/leases"


class Leases:
    """One Lease on a server: optimistic locking, and faults."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.version = 10
        self.writes: list[tuple[str, str]] = []
        self.attempts: list[str] = []
        self.cut_off: set[str] = set()
        self.hanging: set[str] = set()
        self.lose_answers = False
        self.before_answer: Callable[[], None] = lambda: None

    def store(self, spec: dict[str, Any], **meta: Any) -> None:
        self.version += 1
        meta = {"name": "podstamp-controller", "resourceVersion": str(self.version)} | meta
        self.lease = {"metadata": meta, "spec": spec}

    @property
    def holder(self) -> str:
        assert self.lease is not None
        return str(self.lease["spec"]["holderIdentity"])

    def transport(self, who: str) -> httpx.MockTransport:
        async def handle(request: httpx.Request) -> httpx.Response:
            if who in self.hanging:
                await asyncio.Event().wait()
            if who in self.cut_off:
                raise httpx.ConnectError("cut off")
            self.before_answer()
            return self.answer(who, request)

        return httpx.MockTransport(handle)

    def answer(self, who: str, request: httpx.Request) -> httpx.Response:
        if request.method != "GET":
            self.attempts.append(who)
        if request.method == "POST":
            if self.lease is not None:
                return failed(409, "AlreadyExists")
            self.store(json.loads(request.content)["spec"])
        elif self.lease is None:
            return failed(404, "NotFound")
        elif request.method == "PATCH":
            patch = json.loads(request.content)
            version = patch["metadata"]["resourceVersion"]
            if version != self.lease["metadata"]["resourceVersion"]:
                return failed(409, "Conflict")
            self.store(self.lease["spec"] | patch["spec"])
        if request.method != "GET":
            self.writes.append((who, self.holder))
            if self.lose_answers:
                raise httpx.ReadError("the answer was lost")
        return httpx.Response(200, json=self.lease)


def failed(code: int, reason: str) -> httpx.Response:
    return httpx.Response(code, json={"kind": "Status", "code": code, "reason": reason})


class Candidate:
    """A process that wants to lead, and what it did."""

    def __init__(self, leases: Leases, name: str, clock: FakeClock, **timing: float) -> None:
        self.clock = clock
        self.terms = 0
        self.working = False
        self.stop_takes_s = 0.0
        self.stopped_at: list[float] = []
        self.fail_with: Exception | None = None
        self.finish = asyncio.Event()
        client = ApiClient(
            Credentials("http://api"), clock=clock, transport=lambda _: leases.transport(name)
        )
        self.elector = LeaderElector(
            client,
            "podstamp-system",
            "podstamp-controller",
            name,
            clock=clock,
            random=random.Random(name),
            **timing,
        )
        self.task: asyncio.Task[None] | None = None

    async def lead(self) -> None:
        self.terms += 1
        self.working = True
        try:
            await self.finish.wait()
            if self.fail_with is not None:
                raise self.fail_with
        finally:
            if self.stop_takes_s:
                await self.clock.sleep(self.stop_takes_s)
            self.working = False
            self.stopped_at.append(self.clock.monotonic())

    def start(self) -> None:
        self.task = asyncio.create_task(self.elector.run(self.lead))

    async def stop(self) -> None:
        assert self.task is not None
        self.task.cancel()
        await asyncio.wait([self.task])


@asynccontextmanager
async def candidates(
    clock: FakeClock, *names: str, leases: Leases | None = None, **timing: float
) -> AsyncIterator[tuple[Any, ...]]:
    server = leases or Leases()
    found = [Candidate(server, name, clock, **timing) for name in names]
    for candidate in found:
        candidate.start()
        await clock.settle()
    try:
        yield (server, *found)
    finally:
        server.hanging.clear()
        for candidate in found:
            await candidate.stop()


def observed(holder: str | None, seconds: int | None = 15, seen_at_s: float = 100) -> Observed:
    spec = LeaseSpec(holder_identity=holder, lease_duration_seconds=seconds)
    return Observed(Lease(LeaseMeta(), spec), seen_at_s)


@pytest.mark.parametrize(
    ("lease", "now_s", "expected"),
    [
        (observed(None), 100, True),
        (observed(""), 100, True),
        (observed("me"), 100, True),
        (observed("other"), 100, False),
        (observed("other"), 114.9, False),
        (observed("other"), 115, True),
        (observed("other", seconds=40), 139.9, False),
        (observed("other", seconds=40), 140, True),
        (observed("other", seconds=1), 114.9, False),
        (observed("other", seconds=None), 115, True),
    ],
    ids=[
        "no holder",
        "released",
        "mine",
        "held",
        "almost over",
        "over",
        "held longer by their word",
        "over by their word",
        "never sooner than by ours",
        "no duration",
    ],
)
def test_a_lease_is_free_when_it_stood_unchanged_for_its_time(
    lease: Observed, now_s: float, expected: bool
) -> None:
    assert may_take(lease, "me", now_s, duration_s=15) == expected


@pytest.mark.parametrize(
    ("spec", "acquired", "transitions"),
    [
        (LeaseSpec(), "now", 0),
        (LeaseSpec("me", 15, "before", "before", 3), "before", 3),
        (LeaseSpec("other", 15, "before", "before", 3), "now", 4),
        (LeaseSpec("", 1, "before", "before", 3), "now", 4),
    ],
    ids=["new", "renewed", "taken over", "released before"],
)
def test_a_lease_tells_when_and_how_often_it_changed_hands(
    spec: LeaseSpec, acquired: str, transitions: int
) -> None:
    written = taken(spec, "me", "now", 14.2)
    assert (written.holder_identity, written.renew_time) == ("me", "now")
    assert (written.acquire_time, written.lease_transitions) == (acquired, transitions)
    assert written.lease_duration_seconds == 15, "rounded up"


@pytest.mark.parametrize(
    ("retry", "renew", "duration"), [(10, 10, 15), (2, 15, 15), (2, 20, 15), (0, 10, 15)]
)
async def test_times_that_let_two_lead_are_refused(
    clock: FakeClock, retry: float, renew: float, duration: float
) -> None:
    with pytest.raises(ConfigError, match="retry period"):
        Candidate(
            Leases(),
            "a",
            clock,
            retry_period_s=retry,
            renew_deadline_s=renew,
            duration_s=duration,
        )


async def test_the_first_leads_and_the_second_waits(clock: FakeClock) -> None:
    async with candidates(clock, "a", "b") as (leases, a, b):
        assert (a.working, b.working) == (True, False)
        assert (a.elector.is_leader, b.elector.is_leader) == (True, False)
        assert (a.elector.may_act(), b.elector.may_act()) == (True, False)
        await clock.advance(120)
        assert (a.terms, b.terms) == (1, 0)
        assert leases.holder == "a"
        assert all(who == "a" for who, _ in leases.writes)
        assert 60 <= len(leases.writes) <= 80


async def test_a_clean_stop_hands_over_within_one_retry_period(clock: FakeClock) -> None:
    async with candidates(clock, "a", "b") as (leases, a, b):
        await clock.advance(30)
        await a.stop()
        assert not a.working
        assert not a.elector.is_leader
        assert leases.holder == ""
        await clock.advance(2)
        assert (b.working, leases.holder) == (True, "b")


async def test_the_work_stops_before_the_lease_is_released(clock: FakeClock) -> None:
    async with candidates(clock, "a") as (leases, a):
        a.stop_takes_s = 14
        stopping = asyncio.create_task(a.stop())
        await clock.advance(13.9)
        assert a.working
        assert leases.holder == "a"
        assert a.elector.may_act(), "renewed while the work comes to its end"
        await clock.advance(0.2)
        await stopping
        assert (a.working, leases.holder) == (False, "")


async def test_a_leader_that_is_cut_off_stops_before_the_other_starts(clock: FakeClock) -> None:
    async with candidates(clock, "a", "b") as (leases, a, b):
        await clock.advance(30)
        leases.cut_off.add("a")
        began = clock.monotonic()
        while not b.working:
            await clock.advance(0.1)
            assert not (a.working and b.working)
            assert not (a.elector.may_act() and b.elector.may_act())
            assert clock.monotonic() - began < 30
        assert a.stopped_at[0] - began <= 10
        assert clock.monotonic() - a.stopped_at[0] >= 3, "the other waits for the whole duration"
        leases.cut_off.clear()
        await clock.advance(30)
        assert (a.working, b.working, a.terms, b.terms) == (False, True, 1, 1)


async def test_a_leader_that_is_cut_off_alone_leads_again_when_the_way_opens(
    clock: FakeClock,
) -> None:
    async with candidates(clock, "a") as (leases, a):
        leases.cut_off.add("a")
        await clock.advance(60)
        assert (a.working, a.terms, a.elector.is_leader) == (False, 1, False)
        leases.cut_off.clear()
        await clock.advance(3)
        assert (a.working, a.terms) == (True, 2)


async def test_calls_that_hang_end_well_before_the_deadline(clock: FakeClock) -> None:
    async with candidates(clock, "a") as (leases, a):
        await clock.advance(5)
        leases.hanging.add("a")
        await clock.advance(6)
        leases.hanging.clear()
        await clock.advance(30)
        assert (a.working, a.terms) == (True, 1), "a hanging call was given up and repeated"
        leases.hanging.add("a")
        began = clock.monotonic()
        await clock.advance(30)
        assert not a.working
        assert a.stopped_at[0] - began <= 10


async def test_a_frozen_leader_may_not_act_when_it_wakes(clock: FakeClock) -> None:
    async with candidates(clock, "a") as (_, a):
        await clock.advance(5)
        assert a.elector.may_act()
        clock.set_forward(20)
        assert not a.elector.may_act(), "before any of its tasks has run"
        await clock.advance(0)
        assert len(a.stopped_at) == 1
        assert (a.terms, a.elector.may_act()) == (2, True), "a new term, acquired afresh"


async def test_the_time_counts_from_when_a_renewal_began_not_from_its_answer(
    clock: FakeClock,
) -> None:
    async with candidates(clock, "a") as (leases, a):
        leases.before_answer = lambda: clock.set_forward(3)
        await clock.advance(2)
        renewed_before_s = clock.monotonic() - 3
        leases.cut_off.add("a")
        clock.set_forward(renewed_before_s + 9.9 - clock.monotonic())
        assert a.elector.may_act()
        clock.set_forward(0.2)
        assert not a.elector.may_act()


async def test_a_clock_that_is_wrong_by_minutes_changes_nothing(clock: FakeClock) -> None:
    """The holder's wall time is written and shown, and never compared."""
    leases = Leases()
    theirs, ours = FakeClock(), clock
    theirs.jump(300)
    a, b = Candidate(leases, "a", theirs), Candidate(leases, "b", ours)
    a.start()
    await theirs.settle()
    b.start()
    for _ in range(600):
        await theirs.advance(0.1)
        await ours.advance(0.1)
        assert (a.working, b.working) == (True, False)
    ours.jump(3600)
    await ours.advance(1)
    await theirs.advance(1)
    assert (a.working, b.working) == (True, False)
    leases.cut_off.add("a")
    for _ in range(200):
        await theirs.advance(0.1)
        await ours.advance(0.1)
        assert not (a.working and b.working)
    assert b.working
    await a.stop()
    await b.stop()


async def test_two_that_write_at_once_are_told_apart_by_the_server(clock: FakeClock) -> None:
    leases = Leases()
    leases.store({"holderIdentity": ""})
    a, b = Candidate(leases, "a", clock), Candidate(leases, "b", clock)
    a.start()
    b.start()
    await clock.settle()
    assert sorted((a.working, b.working)) == [False, True]
    await a.stop()
    await b.stop()


async def test_another_holder_ends_leadership_at_once(clock: FakeClock) -> None:
    async with candidates(clock, "a") as (leases, a):
        await clock.advance(5)
        leases.store({"holderIdentity": "intruder", "leaseDurationSeconds": 15})
        leases.attempts.clear()
        await clock.advance(2)
        assert leases.attempts == ["a"], "its renewal, and no release of what is not its own"
        assert (a.working, a.elector.is_leader) == (False, False)
        assert leases.holder == "intruder", "not taken back, not released"
        await clock.advance(17)
        assert (a.working, leases.holder) == (True, "a")


async def test_a_deleted_lease_ends_leadership_and_is_made_anew(clock: FakeClock) -> None:
    async with candidates(clock, "a") as (leases, a):
        await clock.advance(5)
        leases.lease = None
        await clock.advance(5)
        assert (a.working, a.terms, leases.holder) == (True, 2, "a")


async def test_a_renewal_whose_answer_was_lost_does_not_end_leadership(clock: FakeClock) -> None:
    async with candidates(clock, "a") as (leases, a):
        await clock.advance(5)
        leases.lose_answers = True
        await clock.advance(2)
        leases.lose_answers = False
        await clock.advance(60)
        assert (a.working, a.terms) == (True, 1)


async def test_work_that_raises_releases_the_lease_and_ends_the_run(clock: FakeClock) -> None:
    async with candidates(clock, "a") as (leases, a):
        a.fail_with = ZeroDivisionError()
        a.finish.set()
        await clock.settle()
        assert a.task.done()
        with pytest.raises(ZeroDivisionError):
            a.task.result()
        assert leases.holder == ""


async def test_work_that_returns_releases_the_lease_and_ends_the_run(clock: FakeClock) -> None:
    async with candidates(clock, "a") as (leases, a):
        a.finish.set()
        await clock.settle()
        assert a.task.result() is None
        assert leases.holder == ""


async def test_a_stop_that_cuts_a_renewal_off_releases_the_lease(clock: FakeClock) -> None:
    async with candidates(clock, "a") as (leases, a):
        await clock.advance(5)
        known = leases.version
        leases.lose_answers = True
        await clock.advance(2)
        leases.lose_answers = False
        assert leases.version > known
        await a.stop()
        assert leases.holder == ""


async def test_a_release_leaves_the_lease_of_another_alone(clock: FakeClock) -> None:
    async with candidates(clock, "a") as (leases, a):
        leases.store({"holderIdentity": "b"})
        await a.stop()
        assert leases.holder == "b"


async def test_a_release_that_fails_is_left_to_expire(clock: FakeClock) -> None:
    async with candidates(clock, "a", "b") as (leases, a, b):
        leases.cut_off.add("a")
        await a.stop()
        assert leases.holder == "a"
        await clock.advance(20)
        assert b.working


async def test_what_others_put_into_the_lease_survives(clock: FakeClock) -> None:
    leases = Leases()
    leases.store({"holderIdentity": "", "strategy": "x"}, labels={"team": "llm"})
    async with candidates(clock, "a", leases=leases):
        await clock.advance(10)
        assert leases.lease is not None
        assert leases.lease["spec"]["strategy"] == "x"
