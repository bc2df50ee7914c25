"""One leader's term: what ends it, and what outlives a changed configuration."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from controller.config import ControllerConfig
from controller.configfile import LiveConfig
from controller.term import ROUTERS, Surroundings, Term
from kube.store import Store
from tests.clock import FakeClock
from tests.controller.pods import namespace, pod
from tests.controller.running import config_of
from tests.controller.world import World

pytestmark = pytest.mark.anyio

LIVE = config_of("terminal: {dryRun: false}")


class Broken(Exception):
    """A defect."""


class BrokenLoop:
    """A router loop that raises when it is told to."""

    def __init__(self) -> None:
        self.fail = asyncio.Event()

    async def run(self) -> None:
        await self.fail.wait()
        raise Broken("a defect")


class StubbornLoop:
    """A router loop that beats once and then hangs."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def run(self) -> None:
        self._world.watchdog.beat(ROUTERS)
        await asyncio.Event().wait()


def term(world: World, config: LiveConfig, routers: Any = lambda config: None) -> Term:
    around = Surroundings(
        client=world.api.client,
        pods=world.pods,
        namespaces=world.namespaces,
        ledger=world.ledger,
        reports=world.reports,
        metrics=world.metrics,
        watchdog=world.watchdog,
        clock=world.clock,
        random=random.Random(3),
        gate=world.gate(),
    )
    return Term(around, config, routers)


@pytest.fixture
def world(clock: FakeClock) -> World:
    return World(clock)


async def test_a_loop_that_raises_ends_the_term_and_the_others(world: World) -> None:
    broken = BrokenLoop()
    config = LiveConfig(LIVE, lambda: LIVE, world.metrics)
    running = asyncio.ensure_future(term(world, config, lambda config: broken).run())
    await world.clock.advance(1)
    assert not running.done()
    broken.fail.set()
    await world.clock.advance(0)
    assert running.done()
    assert isinstance(running.exception(), ExceptionGroup)
    world.add(pod("web-1", phase="Failed", index="1"))
    await world.clock.advance(60)
    assert world.api.deletes == []


async def test_a_loop_that_hangs_is_overdue_and_one_that_was_ended_is_not(world: World) -> None:
    config = LiveConfig(LIVE, lambda: LIVE, world.metrics)
    running = asyncio.ensure_future(term(world, config, lambda c: StubbornLoop(world)).run())
    await world.clock.advance(200)
    assert world.watchdog.overdue() == [ROUTERS]
    running.cancel()
    await world.clock.advance(0)
    assert world.watchdog.overdue() == []


async def test_a_new_configuration_replaces_the_loops_and_keeps_the_budget(world: World) -> None:
    configs: list[ControllerConfig] = [LIVE]
    config = LiveConfig(LIVE, lambda: configs[-1], world.metrics)
    this = term(world, config)
    running = asyncio.ensure_future(this.run())
    world.add(*(pod(f"web-{i}", phase="Failed", index=str(i)) for i in range(100)))
    await world.clock.advance(1)
    assert world.api.pod_names() == set()
    first = this.terminal
    configs.append(config_of("terminal: {dryRun: false, maxDeletesPerMinute: 110}"))
    config.reload()
    await world.clock.advance(1)
    assert this.terminal is not first
    world.sync()
    world.add(*(pod(f"api-{i}", phase="Failed", index=str(i)) for i in range(30)))
    await world.clock.advance(1)
    assert len(world.api.pod_names()) == 20
    await world.clock.advance(60)
    assert world.api.pod_names() == set()
    running.cancel()
    await world.clock.advance(0)
    assert this.terminal is None


async def test_a_loop_that_is_switched_off_does_nothing(world: World) -> None:
    off = config_of("terminal: {enabled: false, dryRun: false}")
    this = term(world, LiveConfig(off, lambda: off, world.metrics))
    running = asyncio.ensure_future(this.run())
    world.add(pod("web-1", phase="Failed", index="1"))
    await world.clock.advance(60)
    assert this.terminal is None
    assert world.api.calls == []
    running.cancel()
    await world.clock.advance(0)


@pytest.mark.parametrize("late", ["pods", "namespaces"])
async def test_nothing_is_judged_before_both_stores_are_synced(clock: FakeClock, late: str) -> None:
    world = World(clock)
    world.add(pod("web-1", phase="Failed", index="1"))
    if late == "pods":
        world.pods = Store(clock)
    else:
        world.namespaces = Store(clock)
    running = asyncio.ensure_future(
        term(world, LiveConfig(LIVE, lambda: LIVE, world.metrics)).run()
    )
    await world.clock.advance(60)
    assert world.api.calls == []
    assert world.count() == 0
    if late == "pods":
        world.sync()
    else:
        world.namespaces.replace((namespace(),))
    await world.clock.advance(1)
    assert world.api.pod_names() == set()
    running.cancel()
    await world.clock.advance(0)
