"""Stamps touched for routers that look for adapters only when a pod changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from controller.routers.annotate import Annotator, Seen, compare, seen_of
from controller.routers.desired import Backend, Desired
from controller.routers.kinds import Difference
from controller.routers.metrics import RouterMetrics
from controller.routers.record import Record
from kube import paths
from tests.apiserver import EmbeddedCluster
from tests.routers.fleet import backend, desired
from tests.routers.rig import NAMESPACE, Rig, config_of, rigged
from tests.standins_tests.running import until
from webhook import stamps

CONFIG = {"pollSeconds": 1.0}


def seen(*backends: Backend) -> dict[str, Seen]:
    return {b.engine.uid: seen_of(b) for b in backends}


BARE = backend("e1")
ADAPTED = backend("e1", adapters=("a",))
STAMPED = backend("e1", adapters=("a",), lora_modified_ns=5)
OTHER = backend("e2", "http://10.0.0.2:8000")


@pytest.mark.parametrize(
    ("before", "now", "difference"),
    [
        pytest.param({}, BARE, Difference(claim=("uid-e1",)), id="seen for the first time"),
        pytest.param(seen(BARE), BARE, Difference(), id="the same"),
        pytest.param(seen(BARE), ADAPTED, Difference(change=("uid-e1",)), id="changed, no stamp"),
        pytest.param(seen(ADAPTED), BARE, Difference(change=("uid-e1",)), id="lost, no stamp"),
        pytest.param(seen(BARE), STAMPED, Difference(claim=("uid-e1",)), id="somebody stamped"),
        pytest.param(
            seen(backend("e1", adapters=("b", "a"))),
            backend("e1", adapters=("a", "b")),
            Difference(),
            id="another order",
        ),
    ],
)
def test_only_a_change_without_a_stamp_is_touched(
    before: dict[str, Seen], now: Backend, difference: Difference
) -> None:
    assert compare(desired(now, OTHER), {**before, **seen(OTHER)}) == difference


def test_an_engine_that_has_not_been_asked_since_its_stamp_is_waited_for() -> None:
    waiting = Backend(STAMPED.engine, STAMPED.models, (), asked=False)
    assert compare(desired(waiting), seen(BARE)) == Difference()


@pytest.fixture
async def rig(embedded: EmbeddedCluster) -> AsyncIterator[Rig]:
    async with rigged(embedded) as made:
        yield made


async def stamp_of(rig: Rig, name: str) -> str | None:
    pod = await rig.client.get(paths.pod(NAMESPACE, name))
    stamp: str | None = pod["metadata"]["annotations"].get("lora-modified")
    return stamp


async def until_stamped(rig: Rig, name: str) -> str:
    """Its stamp, once it has one."""
    async with asyncio.timeout(10):
        while True:
            stamp = await stamp_of(rig, name)
            if stamp is not None:
                return stamp


@pytest.mark.anyio
async def test_adapters_that_change_without_a_stamp_get_one(rig: Rig) -> None:
    first, second = await rig.engine("e1", adapters=["a"]), await rig.engine("e2", adapters=["a"])
    await rig.start("p1", first)
    await rig.start("p2", second)
    async with rig.leading(config_of("annotate", **CONFIG)) as loop:
        await until(lambda: len(observed(loop)) == 2)
        first.adapters["b"] = None
        written = await until_stamped(rig, "p1")
        asked = first.requests["/v1/models"]
        assert stamps.parse_instant(written) is not None
        await until(lambda: first.requests["/v1/models"] > asked + 1)
        assert await stamp_of(rig, "p1") == written
        assert await stamp_of(rig, "p2") is None


def observed(loop: Any) -> list[str]:
    return [uid for r in loop.status() for t in r["targets"] for uid in t["observed"]]


@pytest.mark.anyio
async def test_what_changed_while_the_controller_was_down_is_noticed(rig: Rig) -> None:
    engine = await rig.engine("e1", adapters=["a"])
    await rig.start("p1", engine)
    config = config_of("annotate", **CONFIG)
    async with rig.leading(config) as loop:
        await until(lambda: len(observed(loop)) == 1)
    engine.adapters.clear()
    async with rig.leading(config):
        await until_stamped(rig, "p1")


@pytest.mark.anyio
async def test_a_stamp_of_somebody_else_is_not_followed_by_another(rig: Rig) -> None:
    engine = await rig.engine("e1", adapters=["a"])
    await rig.start("p1", engine)
    async with rig.leading(config_of("annotate", **CONFIG)) as loop:
        await until(lambda: len(observed(loop)) == 1)
        engine.adapters["b"] = None
        stamp = "2026-06-01T12:00:00.000000001Z"
        await rig.patch("p1", {"metadata": {"annotations": {"lora-modified": stamp}}})
        asked = engine.requests["/v1/models"]
        await until(lambda: engine.requests["/v1/models"] > asked + 1)
        assert await stamp_of(rig, "p1") == stamp


@pytest.mark.anyio
@pytest.mark.parametrize("late", ["replaced in the store", "replaced on the server"])
async def test_a_late_touch_never_reaches_a_successor(rig: Rig, late: str) -> None:
    await rig.create("e1", "10.0.0.1")
    held = Desired({ADAPTED.engine.url: ADAPTED})
    latest = held
    if late == "replaced in the store":
        latest = Desired({ADAPTED.engine.url: backend("e1", uid="other", adapters=("a",))})
    annotator = Annotator(
        "chat",
        record=Record(rig.client, "podstamp-system", "chat"),
        client=rig.client,
        clock=rig.clock,
        metrics=RouterMetrics(rig.registry.__class__()),
        latest=lambda: latest,
    )
    await annotator.load()
    await annotator.apply(held, Difference(change=("uid-e1",)))
    assert await stamp_of(rig, "e1") is None
    sent = [verb for verb, path, _ in rig.server.requests() if path.endswith("/pods/e1")]
    assert ("patch" in sent) is (late == "replaced on the server")
