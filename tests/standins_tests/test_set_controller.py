"""The stand-in set controller on the embedded API server, with a kubelet beside it."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from kube import paths
from tests.apiserver import EmbeddedCluster
from tests.clock import FakeClock
from tests.standins.kubelet import Kubelet
from tests.standins.podsets import GROUP, PLURAL, VERSION
from tests.standins.set_controller import SetController
from tests.standins_tests.cluster import NAMESPACE, Admin
from tests.standins_tests.running import eventually, running, until

pytestmark = pytest.mark.anyio


@pytest.fixture
async def kubelet(embedded: EmbeddedCluster, admin: Admin) -> AsyncIterator[Kubelet]:
    async with running(Kubelet(embedded.kubeconfig)) as kubelet:
        yield kubelet


@pytest.fixture
async def sets(embedded: EmbeddedCluster, kubelet: Kubelet) -> AsyncIterator[SetController]:
    async with running(SetController(embedded.kubeconfig, first_backoff_s=0.005)) as sets:
        yield sets


def running_phases(size: int, **others: str) -> dict[str, str]:
    return {f"llm-{index}": "Running" for index in range(size)} | {
        name.replace("_", "-"): phase for name, phase in others.items()
    }


async def uids(admin: Admin) -> dict[str, str]:
    return {name: pod["metadata"]["uid"] for name, pod in (await admin.pods()).items()}


async def test_a_set_becomes_whole_and_says_so(sets: SetController, admin: Admin) -> None:
    await admin.podset("llm", 3)
    await eventually(admin.phases, running_phases(3))

    async def status() -> Any:
        return await admin.set_status("llm")

    await eventually(status, {"readyPods": 3, "totalPods": 3, "phase": "Ready"})
    assert sets.created == {"llm-0": 1, "llm-1": 1, "llm-2": 1}


async def test_a_set_from_before_it_started_is_filled(
    admin: Admin, embedded: EmbeddedCluster
) -> None:
    await admin.podset("llm", 2)
    async with running(SetController(embedded.kubeconfig)):
        await eventually(admin.phases, {"llm-0": "Pending", "llm-1": "Pending"})


async def test_a_deleted_pod_is_replaced_once_it_is_gone(
    sets: SetController, admin: Admin, kubelet: Kubelet
) -> None:
    await admin.podset("llm", 2)
    await eventually(admin.phases, running_phases(2))
    before = await uids(admin)
    kubelet.stalled = True
    await admin.delete("llm-1")
    passes = sets.passes
    await until(lambda: sets.passes > passes)
    assert (await uids(admin)) == before
    kubelet.resume()
    await eventually(admin.phases, running_phases(2))

    async def replaced() -> bool:
        now = await uids(admin)
        return now["llm-0"] == before["llm-0"] and now.get("llm-1") not in (None, before["llm-1"])

    await eventually(replaced, True)


@pytest.mark.parametrize("end", ["fail", "succeed"])
async def test_dead_pods_hold_their_names_until_somebody_deletes_them(
    sets: SetController, admin: Admin, kubelet: Kubelet, end: str
) -> None:
    await admin.podset("llm", 4)
    await eventually(admin.phases, running_phases(4))
    before = await uids(admin)
    for name in ("llm-1", "llm-2"):
        await getattr(kubelet, end)(NAMESPACE, name)
    await until(lambda: sets.skipped["llm-1"] > 0 and sets.skipped["llm-2"] > 0)
    assert await uids(admin) == before
    assert sets.created.total() == 4
    await admin.delete("llm-2")
    await until(lambda: sets.created["llm-2"] == 2)
    dead = "Failed" if end == "fail" else "Succeeded"
    await eventually(admin.phases, running_phases(4, llm_1=dead))
    await admin.delete("llm-1")
    await eventually(admin.phases, running_phases(4))


async def quiet(sets: SetController, admin: Admin) -> int:
    """How many passes there were once no event leads to another."""
    while True:
        passes = sets.passes
        for _ in range(10):
            await admin.pods()
        if sets.passes == passes:
            return passes


async def test_it_acts_on_events_and_does_not_poll(
    admin: Admin, embedded: EmbeddedCluster, kubelet: Kubelet, clock: FakeClock
) -> None:
    async with running(SetController(embedded.kubeconfig, clock=clock)) as sets:
        await admin.podset("llm", 2)
        await eventually(admin.phases, running_phases(2))
        await kubelet.fail(NAMESPACE, "llm-1")
        await until(lambda: sets.skipped["llm-1"] > 0)
        await quiet(sets, admin)
        await clock.advance(3600)  # a write that met a conflict is repeated
        passes = await quiet(sets, admin)
        await clock.advance(3600)
        assert await quiet(sets, admin) == passes


async def test_any_other_refusal_ends_the_pass_and_is_repeated_with_backoff(
    admin: Admin, embedded: EmbeddedCluster, clock: FakeClock
) -> None:
    controller = SetController(embedded.kubeconfig, clock=clock, first_backoff_s=1)
    async with running(controller) as sets:
        refusal = embedded.faults.fail(
            409, reason="Conflict", message="held", verb="create", path=r"/pods$", times=2
        )
        await admin.podset("llm", 2)
        for wait_s in (1, 2):
            await until(lambda: clock.sleepers == 1)
            assert clock.next_wake_s == wait_s
            assert await admin.pods() == {}
            await clock.advance(wait_s)
        await eventually(admin.phases, {"llm-0": "Pending", "llm-1": "Pending"})
    assert refusal.hits == 2
    assert sets.errors[:2] == ["held", "held"]
    assert sets.skipped == {}


async def test_a_restarted_container_costs_the_pod_once_the_set_is_not_whole(
    sets: SetController, admin: Admin, kubelet: Kubelet
) -> None:
    await admin.podset("llm", 2)
    await eventually(admin.phases, running_phases(2))
    before = await uids(admin)
    await kubelet.restart_container(NAMESPACE, "llm-0")
    passes = sets.passes
    await until(lambda: sets.passes > passes)
    assert await uids(admin) == before
    await admin.delete("llm-1")

    async def both_replaced() -> bool:
        now = await uids(admin)
        return len(now) == 2 and not set(now.values()) & set(before.values())

    await eventually(both_replaced, True)


async def test_a_smaller_set_loses_its_highest_indexes(sets: SetController, admin: Admin) -> None:
    await admin.podset("llm", 4)
    await eventually(admin.phases, running_phases(4))
    path = paths.custom(GROUP, VERSION, PLURAL, NAMESPACE, "llm")
    await admin.client.patch(path, {"spec": {"podGroupSize": 2}})
    await eventually(admin.phases, running_phases(2))


async def test_a_deleted_set_takes_its_pods_along(sets: SetController, admin: Admin) -> None:
    await admin.podset("llm", 2)
    await admin.podset("other", 2)
    await eventually(admin.phases, running_phases(2, other_0="Running", other_1="Running"))
    await admin.client.delete(paths.custom(GROUP, VERSION, PLURAL, NAMESPACE, "llm"))
    await eventually(admin.phases, {"other-0": "Running", "other-1": "Running"})

    async def names() -> list[str]:
        path = paths.custom(GROUP, VERSION, PLURAL, NAMESPACE)
        listed = await admin.client.get(path, type=dict[str, Any])
        return [each["metadata"]["name"] for each in listed["items"]]

    await eventually(names, ["other"])


async def test_a_delete_missed_by_the_watch_is_found_by_the_list(
    admin: Admin, embedded: EmbeddedCluster
) -> None:
    async with running(SetController(embedded.kubeconfig)) as sets:
        await admin.podset("llm", 2)
        await eventually(admin.phases, {"llm-0": "Pending", "llm-1": "Pending"})
        embedded.faults.swallow_events(1, resource="pods", type="DELETED")
        await admin.delete("llm-1")  # nobody has to stop it, so it goes at once
        await admin.podset("other", 2)
        await until(lambda: sets.created["other-1"] == 1)
        assert not await admin.exists("llm-1")
        embedded.faults.cut_watches()
        await until(lambda: sets.created["llm-1"] == 2)
