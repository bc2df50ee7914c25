"""Guards: what one list says is not enough to take most of a router's engines away."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest
from prometheus_client import CollectorRegistry
from pytest_httpx import HTTPXMock

from controller.routers.config import AnnotateRouter, EngineSource, Guard
from controller.routers.desired import Desired
from controller.routers.engines import Engine, Fleet
from controller.routers.kinds import Difference, Kind, Target
from controller.routers.metrics import RouterMetrics
from controller.routers.probes import Prober
from controller.routers.router import Router
from controller.routers.transport import Connector
from kube.client import ApiClient
from kube.credentials import Credentials
from kube.errors import ServerError
from kube.events import EventRecorder, ObjectReference
from tests.clock import FakeClock
from tests.routers.fleet import engine

pytestmark = pytest.mark.anyio

ENGINES = [engine(f"e{n}", f"http://10.0.0.{n}:8000") for n in range(1, 5)]
URLS = [e.url for e in ENGINES]


def fleet(*numbers: int) -> Fleet:
    chosen = [ENGINES[n - 1] for n in numbers]
    return Fleet({e.url: e for e in chosen}, tuple(chosen), ())


class Lists:
    """A source of which the first and the second list can differ, or fail."""

    def __init__(self, *numbers: int) -> None:
        self.first = fleet(*numbers)
        self.second: Fleet | None = self.first
        self.confirmed = 0

    async def wait_synced(self) -> None:
        return

    def fleet(self) -> Fleet:
        return self.first

    def subscribe(self, wake: object) -> object:
        return lambda: None

    async def confirm(self) -> Fleet:
        self.confirmed += 1
        if self.second is None:
            raise ServerError(503, message="the server is starting")
        return self.second


class Held:
    """A kind with one target, which takes whatever it is told. `known` is its record."""

    label = "held"
    regarding = None

    def __init__(self, known: frozenset[str] = frozenset()) -> None:
        self.have: frozenset[str] = known
        self.history: list[frozenset[str]] = []
        self._known = known

    async def load(self) -> None:
        return

    def targets(self) -> Mapping[str, Target]:
        return {"": self}

    async def settle(self, desired: Desired) -> None:
        return

    def applied_urls(self) -> frozenset[str]:
        return self._known

    async def aclose(self) -> None:
        return

    async def observe(self) -> None:
        return

    def observed(self) -> tuple[str, ...]:
        return tuple(sorted(self.have))

    def difference(self, desired: Desired) -> Difference:
        wanted = frozenset(desired.backends)
        return Difference(add=tuple(wanted - self.have), remove=tuple(self.have - wanted))

    async def apply(self, desired: Desired, difference: Difference) -> None:
        self.have = frozenset(desired.backends)
        self.history.append(self.have)


class World:
    """One router on a fake clock; its engines all answer."""

    def __init__(
        self, clock: FakeClock, lists: Lists, held: Held, group: asyncio.TaskGroup
    ) -> None:
        self.clock = clock
        self.lists = lists
        self.held = held
        self.registry = CollectorRegistry()
        metrics = RouterMetrics(self.registry)
        config = AnnotateRouter(
            name="chat",
            engines=EngineSource(namespace="models"),
            guard=Guard(confirm_after_seconds=1.0),
            period_seconds=10.0,
        )
        self.client = ApiClient(Credentials("https://127.0.0.1:1"))
        self.router = Router(
            config,
            kind=lambda latest, wake: self._kind(),
            source=lists,  # type: ignore[arg-type]  # `subscribe` is looser here
            prober=lambda wake: Prober(
                "chat",
                config.probe,
                connector=Connector(https=False, ca_file="", timeout_s=1.0),
                clock=clock,
                random=random.Random(1),
                metrics=metrics,
                on_change=wake,
                spawn=group.create_task,
            ),
            regarding=lambda: ObjectReference("v1", "ConfigMap"),
            recorder=EventRecorder(
                self.client, instance="test", clock=clock, random=random.Random(1)
            ),
            clock=clock,
            random=random.Random(1),
            metrics=metrics,
            may_act=lambda: True,
            spawn=group.create_task,
        )

    def _kind(self) -> Kind:
        return self.held

    def show(self, first: Fleet, second: Fleet | None) -> None:
        """What the store holds from now on, and what a list of one's own would say."""
        self.lists.first, self.lists.second = first, second
        self.router.wake()

    def guarded(self, outcome: str) -> float:
        labels = {"router": "chat", "outcome": outcome}
        return self.registry.get_sample_value("podstamp_router_guarded_total", labels) or 0.0


@asynccontextmanager
async def world(
    httpx_mock: HTTPXMock, clock: FakeClock, lists: Lists, held: Held | None = None
) -> AsyncIterator[World]:
    httpx_mock.add_response(url=re.compile(r".*/health"), is_reusable=True, is_optional=True)
    models = {"data": [{"id": "base"}]}
    httpx_mock.add_response(
        url=re.compile(r".*/models"), json=models, is_reusable=True, is_optional=True
    )
    async with asyncio.TaskGroup() as group:
        made = World(clock, lists, held or Held(), group)
        task = group.create_task(made.router.run())
        await clock.advance(0.5)
        try:
            yield made
        finally:
            task.cancel()
            for lane in made.router._tasks.values():
                lane.cancel()
            await made.client.aclose()


async def test_an_empty_list_is_not_applied_while_a_second_cannot_be_had(
    httpx_mock: HTTPXMock, clock: FakeClock
) -> None:
    async with world(httpx_mock, clock, Lists(1, 2)) as w:
        assert w.held.have == set(URLS[:2])
        w.show(fleet(), None)
        await clock.advance(60)
        assert w.held.have == set(URLS[:2])
        assert w.router.unconfirmed == set(URLS[:2])
        assert w.guarded("no list") >= 3
        w.show(fleet(), fleet())
        await clock.advance(10)
        assert w.held.have == set()
        assert not w.router.unconfirmed


async def test_an_empty_list_that_a_second_contradicts_is_not_applied(
    httpx_mock: HTTPXMock, clock: FakeClock
) -> None:
    async with world(httpx_mock, clock, Lists(1, 2)) as w:
        w.show(fleet(), fleet(1, 2))
        await clock.advance(60)
        assert w.held.have == set(URLS[:2])
        assert w.guarded("contradicted") >= 3


async def test_an_empty_list_that_a_second_confirms_is_honoured(
    httpx_mock: HTTPXMock, clock: FakeClock
) -> None:
    async with world(httpx_mock, clock, Lists(1, 2)) as w:
        w.show(fleet(), fleet())
        await clock.advance(0.9)
        assert w.held.have == set(URLS[:2])
        await clock.advance(0.5)
        assert w.held.have == set()
        assert w.lists.confirmed >= 1


async def test_a_removal_within_the_share_needs_no_second_list(
    httpx_mock: HTTPXMock, clock: FakeClock
) -> None:
    async with world(httpx_mock, clock, Lists(1, 2, 3, 4)) as w:
        before = w.lists.confirmed
        w.show(fleet(3, 4), None)
        await clock.advance(0.1)
        assert w.held.have == set(URLS[2:])
        assert w.lists.confirmed == before


async def test_of_a_removal_over_the_share_only_what_a_second_list_confirms_is_applied(
    httpx_mock: HTTPXMock, clock: FakeClock
) -> None:
    async with world(httpx_mock, clock, Lists(1, 2, 3, 4)) as w:
        w.show(fleet(4), fleet(2, 4))
        await clock.advance(3)
        assert w.held.have == {URLS[1], URLS[3]}


async def test_what_is_new_does_not_wait_for_the_second_list(
    httpx_mock: HTTPXMock, clock: FakeClock
) -> None:
    async with world(httpx_mock, clock, Lists(1, 2, 3)) as w:
        w.show(fleet(4), None)
        await clock.advance(0.5)
        assert w.held.have == {*URLS[:3]}
        await clock.advance(5)
        assert w.held.have == {*URLS}


async def test_at_start_nothing_is_taken_away_before_a_second_list_agrees(
    httpx_mock: HTTPXMock, clock: FakeClock
) -> None:
    lists = Lists()
    lists.second = fleet(1, 2)
    async with world(httpx_mock, clock, lists, Held(frozenset(URLS[:2]))) as w:
        await clock.advance(60)
        assert w.held.history == []
        w.show(fleet(2), fleet(2))
        await clock.advance(5)
        assert w.held.have == {URLS[1]}


async def test_at_start_an_empty_list_needs_a_second_one_though_no_record_says_what_is_there(
    httpx_mock: HTTPXMock, clock: FakeClock
) -> None:
    lists, held = Lists(), Held()
    held.have = frozenset(URLS[:2])
    lists.second = fleet(1, 2)
    async with world(httpx_mock, clock, lists, held) as w:
        await clock.advance(60)
        assert w.held.history == []
        assert w.guarded("contradicted") >= 3
        lists.second = fleet()
        await clock.advance(10)
        assert w.held.have == set()


async def test_at_start_an_empty_cluster_is_taken_for_empty_once_confirmed(
    httpx_mock: HTTPXMock, clock: FakeClock
) -> None:
    lists = Lists()
    lists.second = None
    async with world(httpx_mock, clock, lists, Held(frozenset(URLS[:2]))) as w:
        await clock.advance(30)
        assert w.held.history == []
        lists.second = fleet()
        await clock.advance(10)
        assert w.held.have == set()


async def test_a_second_list_that_hangs_is_given_up(
    httpx_mock: HTTPXMock, clock: FakeClock
) -> None:
    async with world(httpx_mock, clock, Lists(1, 2)) as w:

        async def confirm() -> Fleet:
            await asyncio.Event().wait()
            raise AssertionError

        w.lists.confirm = confirm  # type: ignore[method-assign]  # a list of this test alone
        w.show(fleet(), None)
        await clock.advance(40)
        assert w.guarded("no list") >= 2
        assert w.held.have == set(URLS[:2])
        assert isinstance(w.router.fleet.serving, dict)
        assert not any(isinstance(e, Engine) for e in w.router.fleet.serving.values())
