"""Two controllers and one Lease: killed, frozen, cut off, with wrong clocks, stopped cleanly."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path

import pytest

from tests.apiserver import EmbeddedCluster
from tests.controller.running import (
    LIVE,
    SHORT_LEASE,
    Cell,
    ShiftedClock,
    cell,
    outcomes,
    running,
    until,
)
from tests.launch import Launched, launch_controller

pytestmark = pytest.mark.anyio

LEASE_S = 2.0
RETRY_S = 0.2
TEXT = LIVE + SHORT_LEASE


def deletes(embedded: EmbeddedCluster, user: str) -> list[str]:
    return [path for verb, path, by in embedded.requests() if verb == "delete" and by == user]


def launch(embedded: EmbeddedCluster, folder: Path, user: str) -> Launched:
    config = folder / "controller.yaml"
    config.write_text(TEXT)
    return launch_controller(embedded.kubeconfig_for(user), folder, config=config, name=user)


async def holder(there: Cell) -> str:
    lease = await there.client.get(
        "/apis/coordination.k8s.io/v1/namespaces/podstamp-system/leases/podstamp-controller"
    )
    return str(lease["spec"].get("holderIdentity") or "")


async def held_by_another(there: Cell, before: str, timeout_s: float = 10) -> float:
    """Wait until somebody else holds the lease; the seconds that it took."""
    began = time.monotonic()
    while (await holder(there)) in ("", before):
        assert time.monotonic() - began < timeout_s
        await asyncio.sleep(0.02)
    return time.monotonic() - began


async def lease_is_free(there: Cell, timeout_s: float = 10) -> None:
    """Wait until nobody holds the lease."""
    began = time.monotonic()
    while await holder(there):
        assert time.monotonic() - began < timeout_s
        await asyncio.sleep(0.02)


async def test_after_a_kill_the_follower_leads_and_reaps(
    embedded: EmbeddedCluster, tmp_path: Path
) -> None:
    async with cell(embedded.kubeconfig) as there:
        leader = launch(embedded, tmp_path, "a")
        await there.create("web-1", index="1", phase="Failed")
        await there.gone("web-1")
        follower = launch(embedded, tmp_path, "b")
        try:
            before = await holder(there)
            leader.kill()
            await there.create("web-2", index="2", phase="Failed")
            assert await held_by_another(there, before) > LEASE_S / 2
            await there.gone("web-2")
            assert len(deletes(embedded, "a")) == 1
            assert len(deletes(embedded, "b")) == 1
        finally:
            leader.kill()
            assert follower.stop() == 0


async def test_a_frozen_leader_does_nothing_when_it_wakes_as_a_follower(
    embedded: EmbeddedCluster, tmp_path: Path
) -> None:
    async with cell(embedded.kubeconfig) as there:
        frozen = launch(embedded, tmp_path, "a")
        await until(lambda: embedded.watches >= 2)
        await there.create("web-1", index="1", phase="Failed")
        await there.gone("web-1")
        other = launch(embedded, tmp_path, "b")
        try:
            before = await holder(there)
            frozen.signal(signal.SIGSTOP)
            await held_by_another(there, before)
            # The frozen one has a pod that is over waiting in its sockets.
            embedded.faults.hang(verb="get", path="web-2", user="b", times=None)
            await there.create("web-2", index="2", phase="Failed")
            frozen.signal(signal.SIGCONT)
            await asyncio.sleep(1.0)
            assert await there.names() == {"web-2"}
            assert len(deletes(embedded, "a")) == 1
            embedded.faults.clear()
            await there.gone("web-2")
            assert len(deletes(embedded, "a")) == 1
        finally:
            assert frozen.stop() == 0
            assert other.stop() == 0


async def test_a_clean_stop_hands_over_within_one_retry_period(
    embedded: EmbeddedCluster,
) -> None:
    async with cell(embedded.kubeconfig) as there:
        async with running(embedded.kubeconfig, TEXT, identity="second") as second:
            async with running(embedded.kubeconfig, TEXT, identity="first") as first:
                await until(lambda: first.term or second.term)
                await until(lambda: second.pods.synced and first.pods.synced)
            if second.term is None:
                began = time.monotonic()
                await until(lambda: second.term is not None)
                assert time.monotonic() - began < 2 * RETRY_S + 0.3
            await there.create("web-1", index="1", phase="Failed")
            await there.gone("web-1")


async def test_a_leader_cut_off_stops_keeps_its_store_and_goes_on_when_the_way_opens(
    embedded: EmbeddedCluster,
) -> None:
    async with cell(embedded.kubeconfig) as there:
        async with running(embedded.kubeconfig_for("a"), TEXT, identity="a") as a:
            await until(lambda: a.term is not None)
            await there.create("web-0", index="0", phase="Running")
            await until(lambda: len(a.pods) == 1)
            embedded.faults.hang(user="a", times=None)
            embedded.faults.cut_watches()
            async with running(embedded.kubeconfig_for("b"), TEXT, identity="b") as b:
                await until(lambda: b.term is not None)
                assert a.term is None
                assert len(a.pods) == 1
                assert a.live_problem() is None
                assert (a.status()["leader"], b.status()["leader"]) == (False, True)
                assert "pods" not in a.status()
                assert a.router_status() == {"leader": False, "routers": []}
                await there.create("web-1", index="1", phase="Failed")
                await there.gone("web-1")
                assert deletes(embedded, "a") == []
                embedded.faults.clear()
            await until(lambda: a.term is not None)
            await there.create("web-2", index="2", phase="Failed")
            await there.gone("web-2")
            assert len(deletes(embedded, "a")) == 1


async def test_clocks_that_are_minutes_apart_do_not_make_two_leaders(
    embedded: EmbeddedCluster,
) -> None:
    async with cell(embedded.kubeconfig) as there:
        async with running(
            embedded.kubeconfig_for("a"), TEXT, identity="a", clock=ShiftedClock(wall_s=300)
        ) as a:
            await until(lambda: a.term is not None)
            async with running(
                embedded.kubeconfig_for("b"), TEXT, identity="b", clock=ShiftedClock(wall_s=-300)
            ) as b:
                for index in range(5):
                    await there.create(f"web-{index}", index=str(index), phase="Failed")
                    await there.gone(f"web-{index}")
                    await asyncio.sleep(LEASE_S / 4)
                    assert (a.term is not None, b.term is not None) == (True, False)
            assert len(deletes(embedded, "a")) == 5
            assert deletes(embedded, "b") == []


async def test_no_delete_begins_after_the_leaders_own_deadline(
    embedded: EmbeddedCluster,
) -> None:
    clock = ShiftedClock()
    async with cell(embedded.kubeconfig) as there:
        async with running(embedded.kubeconfig_for("a"), TEXT, clock=clock) as a:
            await until(lambda: a.term is not None)
            reading = embedded.faults.hang(verb="get", path="web-1", user="a", times=None)
            renewing = embedded.faults.hang(path="/leases/", user="a", times=None)
            await there.create("web-1", index="1", phase="Failed")
            await until(lambda: reading.hits and renewing.hits)
            # The renewal that is under way has no answer when the deadline passes.
            clock.forward_s += 1.2
            assert not a.elector.may_act()
            embedded.faults.remove(reading)
            await until(lambda: outcomes(a, "not-leader") == 1)
            assert deletes(embedded, "a") == []
            embedded.faults.clear()
            await there.gone("web-1")


class Broken(Exception):
    """A defect."""


class BrokenLoop:
    """Raises as soon as a pod is there."""

    def __init__(self, fail: asyncio.Event) -> None:
        self._fail = fail

    async def run(self) -> None:
        await self._fail.wait()
        raise Broken


async def test_a_loop_that_raises_ends_the_whole_controller_and_frees_the_lease(
    embedded: EmbeddedCluster,
) -> None:
    fail = asyncio.Event()

    async def lead_until_it_breaks(there: Cell) -> None:
        async with running(
            embedded.kubeconfig, TEXT, make_routers=lambda config: BrokenLoop(fail)
        ) as controller:
            await until(lambda: controller.term is not None)
            assert await holder(there) == "one"
            fail.set()
            # Released is the last that it does; a stop before would be a clean one.
            await lease_is_free(there)

    async with cell(embedded.kubeconfig) as there:
        with pytest.raises(ExceptionGroup) as caught:
            await lead_until_it_breaks(there)
        assert caught.value.subgroup(Broken) is not None
        await there.create("web-1", index="1", phase="Failed")
        assert await there.names() == {"web-1"}
