"""One replica of a router: late work finds itself superseded, and lost answers are no harm."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry
from pytest_httpx import HTTPXMock

from controller.routers.config import Replicas, WorkersRouter
from controller.routers.desired import Desired
from controller.routers.kinds import Difference
from controller.routers.metrics import RouterMetrics
from controller.routers.ownership import Claim
from controller.routers.record import Record
from controller.routers.transport import RefusedError, UnreachableError
from controller.routers.workers import WorkerReplica, Workers
from kube.client import ApiClient
from kube.credentials import Credentials
from tests.clock import FakeClock
from tests.routers.fleet import backend, desired

pytestmark = pytest.mark.anyio

ROUTER = "http://router:8000"
A, B = "http://10.0.0.1:8000", "http://10.0.0.2:8000"
NOBODY = Desired({})


class Memory(Record):
    """A record that is stored nowhere; `refuse` makes a write fail."""

    def __init__(self, client: ApiClient) -> None:
        super().__init__(client, "podstamp-system", "chat")
        self.data: dict[str, str] = {}
        self.refuse: Exception | None = None

    def get(self, key: str) -> str:
        return self.data.get(key, "")

    async def load(self) -> None:
        return

    async def update(self, change: Callable[[Mapping[str, str]], dict[str, str]]) -> None:
        if self.refuse is not None:
            raise self.refuse
        self.data = change(self.data)


class World:
    """One replica; `latest` is what is desired when a call is about to be made."""

    def __init__(
        self, clock: FakeClock, client: ApiClient, group: asyncio.TaskGroup, dialect: Any
    ) -> None:
        self.clock = clock
        self.latest = NOBODY
        self.registry = CollectorRegistry()
        self.record = Memory(client)
        self.workers = Workers(
            WorkersRouter(name="chat", dialect=dialect, replicas=Replicas(urls=(ROUTER,))),
            record=self.record,
            pods=None,
            clock=clock,
            random=random.Random(1),
            metrics=RouterMetrics(self.registry),
            latest=lambda: self.latest,
            wake=lambda: None,
            spawn=group.create_task,
        )
        [target] = self.workers.targets().values()
        assert isinstance(target, WorkerReplica)
        self.replica = target

    async def claim(self, *urls: str, uid: str = "uid-e1") -> None:
        claims = {url: Claim(uid, "inc", self.clock.now()) for url in urls}
        await self.workers.ownership.claim(claims, renew_after_s=60)

    async def compare(self, wanted: Desired) -> Difference:
        await self.replica.observe()
        return self.replica.difference(wanted)

    def superseded(self, work: str) -> float:
        labels = {"router": "chat", "work": work}
        return self.registry.get_sample_value("podstamp_router_superseded_total", labels) or 0.0


@asynccontextmanager
async def world(clock: FakeClock, dialect: str = "vllm") -> AsyncIterator[World]:
    async with ApiClient(Credentials("https://127.0.0.1:1")) as client:
        async with asyncio.TaskGroup() as group:
            made = World(clock, client, group, dialect)
            try:
                yield made
            finally:
                await made.workers.aclose()


def lists(mock: HTTPXMock, *workers: dict[str, Any]) -> None:
    mock.add_response(method="GET", url=f"{ROUTER}/workers", json={"workers": list(workers)})


def calls(mock: HTTPXMock) -> list[str]:
    return [request.method for request in mock.get_requests() if request.method != "GET"]


async def test_a_late_removal_does_not_remove_the_successor(
    httpx_mock: HTTPXMock, clock: FakeClock
) -> None:
    async with world(clock) as w:
        await w.claim(A)
        lists(httpx_mock, {"url": A})
        found = await w.compare(NOBODY)
        assert found.remove == (A,)
        w.latest = desired(backend("successor", A, uid="B"))
        await w.replica.apply(NOBODY, found)
        assert calls(httpx_mock) == []
        assert w.superseded("remove") == 1


async def test_a_late_add_does_not_bring_back_what_has_gone(
    httpx_mock: HTTPXMock, clock: FakeClock
) -> None:
    async with world(clock) as w:
        wanted = desired(backend("e1", A))
        lists(httpx_mock)
        found = await w.compare(wanted)
        assert found.add == (A,)
        w.latest = NOBODY
        await w.replica.apply(wanted, found)
        await clock.settle()
        assert calls(httpx_mock) == []
        assert w.superseded("add") == 1


async def test_an_add_whose_answer_is_lost_is_found_done_in_the_list(
    httpx_mock: HTTPXMock, clock: FakeClock
) -> None:
    async with world(clock) as w:
        w.latest = wanted = desired(backend("e1", A))
        lists(httpx_mock)
        httpx_mock.add_exception(httpx.ReadTimeout(""), method="POST")
        await w.replica.apply(wanted, await w.compare(wanted))
        await clock.settle()
        lists(httpx_mock, {"url": A})
        assert await w.compare(wanted) == Difference()
        assert calls(httpx_mock) == ["POST"]


async def test_an_add_that_is_refused_is_not_asked_for_at_once_again(
    httpx_mock: HTTPXMock, clock: FakeClock
) -> None:
    async with world(clock) as w:
        w.latest = wanted = desired(backend("e1", A), backend("e2", B))
        for _ in range(2):
            lists(httpx_mock)
        httpx_mock.add_response(method="POST", status_code=503, is_reusable=True)
        await w.replica.apply(wanted, await w.compare(wanted))
        await clock.settle()
        found = await w.compare(wanted)
        assert found == Difference(pending=(A, B))
        assert calls(httpx_mock) == ["POST", "POST"]
        await clock.advance(1.1)
        lists(httpx_mock)
        assert (await w.compare(wanted)).add == (A, B)


async def test_a_record_that_cannot_be_written_lets_nothing_be_added_but_ghosts_go(
    httpx_mock: HTTPXMock, clock: FakeClock
) -> None:
    async with world(clock) as w:
        await w.claim(B)
        w.latest = wanted = desired(backend("e1", A))
        lists(httpx_mock, {"url": B})
        httpx_mock.add_response(method="DELETE")
        found = await w.compare(wanted)
        w.record.refuse = UnreachableError("the API server does not answer")
        with pytest.raises(UnreachableError):
            await w.replica.apply(wanted, found)
        await clock.settle()
        assert calls(httpx_mock) == ["DELETE"]


async def test_one_removal_that_is_refused_does_not_keep_the_other_from_leaving(
    httpx_mock: HTTPXMock, clock: FakeClock
) -> None:
    async with world(clock, "sglang") as w:
        await w.claim(A, B)
        lists(httpx_mock, {"url": A, "id": "a"}, {"url": B, "id": "b"})
        httpx_mock.add_response(method="DELETE", url=f"{ROUTER}/workers/a", status_code=500)
        httpx_mock.add_response(method="DELETE", url=f"{ROUTER}/workers/b", status_code=202)
        with pytest.raises(RefusedError, match="stays"):
            await w.replica.apply(NOBODY, await w.compare(NOBODY))
        assert calls(httpx_mock) == ["DELETE", "DELETE"]


async def test_a_queued_add_that_vanished_from_the_router_is_asked_for_again(
    httpx_mock: HTTPXMock, clock: FakeClock
) -> None:
    async with world(clock, "sglang") as w:
        w.latest = wanted = desired(backend("e1", A))
        lists(httpx_mock)
        httpx_mock.add_response(method="POST", status_code=202, json={"worker_id": "u1"})
        await w.replica.apply(wanted, await w.compare(wanted))
        await clock.settle()
        lists(httpx_mock)
        httpx_mock.add_response(
            url=f"{ROUTER}/workers/u1", json={"job_status": {"status": "processing"}}
        )
        assert await w.compare(wanted) == Difference(pending=(A,))
        lists(httpx_mock)
        httpx_mock.add_response(url=f"{ROUTER}/workers/u1", status_code=404)
        await w.compare(wanted)
        await clock.advance(1.1)
        lists(httpx_mock)
        assert (await w.compare(wanted)).add == (A,)


async def test_a_claim_is_kept_as_long_as_a_replica_was_not_seen_without_its_entry(
    httpx_mock: HTTPXMock, clock: FakeClock
) -> None:
    async with world(clock) as w:
        await w.claim(A)
        await clock.advance(3600)
        httpx_mock.add_exception(httpx.ConnectError("refused"))
        with pytest.raises(UnreachableError):
            await w.compare(NOBODY)
        await w.workers.settle(NOBODY)
        assert list(w.workers.ownership.claims) == [A]
        lists(httpx_mock)
        await w.compare(NOBODY)
        await w.workers.settle(NOBODY)
        assert not w.workers.ownership.claims


async def test_a_list_that_is_none_changes_nothing(httpx_mock: HTTPXMock, clock: FakeClock) -> None:
    async with world(clock) as w:
        await w.claim(A)
        httpx_mock.add_response(text="<html>starting</html>")
        with pytest.raises(RefusedError):
            await w.compare(NOBODY)
        await w.workers.settle(NOBODY)
        assert list(w.workers.ownership.claims) == [A]
