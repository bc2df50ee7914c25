"""All routers of one term of leadership."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from controller.routers.config import RouterConfig
from controller.routers.loop import RouterLoop
from controller.routers.metrics import RouterMetrics
from kube.client import ApiClient
from kube.credentials import Credentials
from kube.errors import ConfigError
from kube.events import EventRecorder
from kube.pod import Pod
from kube.store import Store
from tests.clock import FakeClock
from tests.routers.rig import ENGINES, config_of

pytestmark = pytest.mark.anyio

CHAT = config_of("workers", dialect="vllm", replicas={"urls": ["http://127.0.0.1:1"]})


@asynccontextmanager
async def looping(
    clock: FakeClock, *configs: RouterConfig, beat: Callable[[], None] = lambda: None
) -> AsyncIterator[tuple[RouterLoop, Store[Pod], asyncio.Task[None]]]:
    """A loop whose API server is not there."""
    async with ApiClient(Credentials("https://127.0.0.1:1"), clock=clock) as client:
        pods: Store[Pod] = Store(clock)
        chance = random.Random(1)
        loop = RouterLoop(
            configs,
            client=client,
            pods=pods,
            clock=clock,
            random=chance,
            recorder=EventRecorder(client, instance="test", clock=clock, random=chance),
            metrics=RouterMetrics(CollectorRegistry()),
            beat=beat,
        )
        task = asyncio.ensure_future(loop.run())
        try:
            yield loop, pods, task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_it_lives_while_the_pods_are_not_known_and_does_nothing(clock: FakeClock) -> None:
    beats: list[float] = []
    async with looping(clock, CHAT, beat=lambda: beats.append(clock.monotonic())) as made:
        loop, _, task = made
        await clock.advance(60)
        assert len(beats) >= 12
        assert max(b - a for a, b in pairwise(beats)) <= 5.0
        assert loop.status() == []
        assert not task.done()


async def test_a_mistake_in_a_file_is_raised_as_what_it_is(
    clock: FakeClock, tmp_path: Path
) -> None:
    config = config_of(
        "annotate",
        engines={**ENGINES, "scheme": "https"},
        probe={"caFile": str(tmp_path / "absent")},
    )
    async with looping(clock, config) as (_, pods, task):
        pods.replace(())
        with pytest.raises(ConfigError, match="no readable CA bundle"):
            await task
