"""The stand-in kubelet on the embedded API server."""

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest

from kube import paths
from tests.apiserver import EmbeddedCluster
from tests.clock import FakeClock
from tests.standins.kubelet import ADDRESS, Kubelet
from tests.standins.pod_status import Start
from tests.standins_tests.cluster import NAMESPACE, Admin
from tests.standins_tests.running import eventually, running, until

pytestmark = pytest.mark.anyio

Json = dict[str, Any]


@pytest.fixture
async def kubelet(embedded: EmbeddedCluster, admin: Admin) -> AsyncIterator[Kubelet]:
    async with running(Kubelet(embedded.kubeconfig)) as kubelet:
        yield kubelet


async def runs(admin: Admin, *names: str) -> None:
    await eventually(admin.phases, dict.fromkeys(names, "Running"))


def ready(pod: Json) -> str:
    conditions = pod["status"]["conditions"]
    return next((each["status"] for each in conditions if each["type"] == "Ready"), "")


async def test_pods_are_bound_run_and_get_addresses_of_their_own(
    kubelet: Kubelet, admin: Admin
) -> None:
    await admin.pod("a")
    await admin.pod("b")
    await runs(admin, "a", "b")
    pods = (await admin.pods()).values()
    assert {pod["spec"]["nodeName"] for pod in pods} == {"node-1"}
    assert {ready(pod) for pod in pods} == {"True"}
    addresses = {pod["status"]["podIP"] for pod in pods}
    assert len(addresses) == 2
    assert all(address.startswith("127.64.") for address in addresses)


async def test_its_node_is_there_and_ready_and_may_have_been_there_before(
    kubelet: Kubelet, admin: Admin, embedded: EmbeddedCluster
) -> None:
    node = await admin.client.get(paths.node("node-1"), type=Json)
    assert node["status"]["conditions"][0]["type"] == "Ready"
    async with running(Kubelet(embedded.kubeconfig, binds=False)):
        assert await admin.client.get(paths.node("node-1"), type=Json) == node


async def test_an_address_comes_from_the_callback_or_else_the_annotation(
    kubelet: Kubelet, admin: Admin
) -> None:
    kubelet.address = lambda pod: {"a": "127.0.0.2"}.get(pod["metadata"]["name"])
    annotated = {"annotations": {ADDRESS: "127.0.0.3"}}
    await admin.pod("a", metadata=annotated)
    await admin.pod("b", metadata=annotated)
    await runs(admin, "a", "b")
    addresses = {name: pod["status"]["podIP"] for name, pod in (await admin.pods()).items()}
    assert addresses == {"a": "127.0.0.2", "b": "127.0.0.3"}


async def test_pods_from_before_it_started_are_run_too(
    admin: Admin, embedded: EmbeddedCluster
) -> None:
    await admin.pod("a")
    async with running(Kubelet(embedded.kubeconfig)):
        await runs(admin, "a")


async def test_pods_of_other_nodes_are_left_alone(admin: Admin, embedded: EmbeddedCluster) -> None:
    async with running(Kubelet(embedded.kubeconfig, node="n1")):
        async with running(Kubelet(embedded.kubeconfig, node="n2", binds=False)):
            await admin.pod("foreign", spec={"nodeName": "n3"})
            await admin.pod("a")
            await admin.pod("b", spec={"nodeName": "n2"})
            await eventually(admin.phases, {"a": "Running", "b": "Running", "foreign": "Pending"})
            await admin.pod("later")
            await eventually(partial(phase_of, admin, "later"), "Running")
            assert await phase_of(admin, "foreign") == "Pending"
            nodes = {name: pod["spec"]["nodeName"] for name, pod in (await admin.pods()).items()}
            assert nodes == {"a": "n1", "b": "n2", "foreign": "n3", "later": "n1"}


async def phase_of(admin: Admin, name: str) -> str:
    return (await admin.phases())[name]


STARTS = {
    Start.UNSCHEDULED: ("Pending", False, None),
    Start.CREATING: ("Pending", True, "False"),
    Start.REJECTED: ("Failed", True, None),
}


@pytest.mark.parametrize("start", STARTS, ids=lambda start: start.value)
async def test_a_pod_may_start_badly_or_not_at_all(
    kubelet: Kubelet, admin: Admin, start: Start
) -> None:
    phase, bound, sandbox = STARTS[start]
    kubelet.start = lambda pod: start if pod["metadata"]["name"] == "bad" else Start.RUN
    await admin.pod("bad")
    await admin.pod("good")
    await eventually(admin.phases, {"bad": phase, "good": "Running"})

    async def seen() -> tuple[bool, str | None, bool]:
        pod = await admin.get("bad")
        conditions = {c["type"]: c["status"] for c in pod["status"].get("conditions", ())}
        told = conditions.get("PodReadyToStartContainers")
        return "nodeName" in pod["spec"], told, "podIP" in pod["status"]

    await eventually(seen, (bound, sandbox, False))


async def test_a_pod_left_pending_can_be_started_later(kubelet: Kubelet, admin: Admin) -> None:
    kubelet.start = lambda pod: Start.CREATING
    await admin.pod("a")

    async def bound() -> bool:
        return "nodeName" in (await admin.get("a"))["spec"]

    await eventually(bound, True)
    await kubelet.start_now(NAMESPACE, "a")
    await runs(admin, "a")


async def test_a_deleted_pod_stops_after_its_time(
    admin: Admin, embedded: EmbeddedCluster, clock: FakeClock
) -> None:
    async with running(Kubelet(embedded.kubeconfig, stop_delay_s=5, clock=clock)):
        await admin.pod("a")
        await runs(admin, "a")
        await admin.delete("a")
        await until(lambda: clock.sleepers == 1)
        await clock.advance(4.9)
        assert "deletionTimestamp" in (await admin.get("a"))["metadata"]
        await clock.advance(0.1)
        await eventually(lambda: admin.exists("a"), False)


async def test_a_finalizer_keeps_the_object_of_a_stopped_pod(
    kubelet: Kubelet, admin: Admin, embedded: EmbeddedCluster
) -> None:
    await admin.pod("a", metadata={"finalizers": ["x.example/y"]})
    await runs(admin, "a")
    await admin.delete("a")
    await eventually(admin.phases, {"a": "Succeeded"})

    def deletes() -> int:
        return sum(verb == "delete" for verb, *_ in embedded.requests())

    await until(lambda: deletes() == 2)
    await admin.client.patch(paths.pod(NAMESPACE, "a"), {"metadata": {"labels": {"n": "1"}}})
    await admin.pod("b")
    await eventually(admin.phases, {"a": "Succeeded", "b": "Running"})
    assert deletes() == 2
    await admin.client.patch(paths.pod(NAMESPACE, "a"), {"metadata": {"finalizers": None}})
    await eventually(lambda: admin.exists("a"), False)


async def test_the_successor_of_a_stopping_pod_is_not_removed(
    admin: Admin, embedded: EmbeddedCluster, clock: FakeClock
) -> None:
    async with running(Kubelet(embedded.kubeconfig, stop_delay_s=5, clock=clock)) as kubelet:
        await admin.pod("a", metadata={"finalizers": ["x.example/y"]})
        await runs(admin, "a")
        await kubelet.fail(NAMESPACE, "a")
        await admin.delete("a")
        await until(lambda: clock.sleepers == 1)
        await admin.client.patch(paths.pod(NAMESPACE, "a"), {"metadata": {"finalizers": None}})
        successor = await admin.pod("a")
        await clock.advance(5)
        await admin.pod("b")
        for _ in range(3):
            await eventually(partial(phase_of, admin, "b"), "Running")
            await clock.advance(1)
        await runs(admin, "a", "b")
        assert (await admin.get("a"))["metadata"]["uid"] == successor["metadata"]["uid"]


async def test_pods_end_and_their_containers_with_them(kubelet: Kubelet, admin: Admin) -> None:
    for name in ("f", "s", "e"):
        await admin.pod(name)
    await runs(admin, "f", "s", "e")
    await kubelet.fail(NAMESPACE, "f", exit_code=3)
    await kubelet.succeed(NAMESPACE, "s")
    await kubelet.evict(NAMESPACE, "e")
    pods = await admin.pods()
    assert await admin.phases() == {"e": "Failed", "f": "Failed", "s": "Succeeded"}
    codes = {
        name: pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"]
        for name, pod in pods.items()
    }
    assert codes == {"f": 3, "s": 0, "e": 137}
    assert {ready(pod) for pod in pods.values()} == {"False"}
    assert "podIP" in pods["f"]["status"]
    assert "podIP" not in pods["e"]["status"]
    assert pods["e"]["status"]["reason"] == "Evicted"


async def test_a_container_may_go_on_in_a_failed_pod(kubelet: Kubelet, admin: Admin) -> None:
    await admin.pod("a")
    await runs(admin, "a")
    await kubelet.fail(NAMESPACE, "a", still_running=["c"])
    [status] = (await admin.get("a"))["status"]["containerStatuses"]
    assert "running" in status["state"]


async def test_a_container_restarts_in_place(kubelet: Kubelet, admin: Admin) -> None:
    before = await admin.pod("a")
    await runs(admin, "a")
    await kubelet.restart_container(NAMESPACE, "a")
    await kubelet.restart_container(NAMESPACE, "a", "c")
    after = await admin.get("a")
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["status"]["containerStatuses"][0]["restartCount"] == 2


async def test_readiness_follows_the_probe_and_the_gates(kubelet: Kubelet, admin: Admin) -> None:
    await admin.pod("a")
    await admin.pod("g", spec={"readinessGates": [{"conditionType": "x.example/gate"}]})
    await runs(admin, "a", "g")
    await kubelet.set_ready(NAMESPACE, "a", False)
    assert ready(await admin.get("a")) == "False"
    await kubelet.set_ready(NAMESPACE, "a", True)
    assert ready(await admin.get("a")) == "True"
    assert ready(await admin.get("g")) == "False"
    gate = {"conditions": [{"type": "x.example/gate", "status": "True"}]}
    await admin.client.patch(
        paths.pod_status(NAMESPACE, "g"),
        {"status": gate},
        content_type="application/strategic-merge-patch+json",
    )

    async def gated() -> str:
        return ready(await admin.get("g"))

    await eventually(gated, "True")


async def test_a_stalled_kubelet_does_nothing_until_it_resumes(
    kubelet: Kubelet, admin: Admin
) -> None:
    await admin.pod("a")
    await runs(admin, "a")
    kubelet.stalled = True
    await admin.pod("b")
    await admin.delete("a")
    assert (await admin.phases())["b"] == "Pending"
    assert await admin.exists("a")
    kubelet.resume()
    await eventually(admin.phases, {"b": "Running"})


async def test_it_works_on_through_lost_watches_and_errors(
    admin: Admin, embedded: EmbeddedCluster
) -> None:
    kubeconfig = embedded.kubeconfig_for("kubelet", ["system:masters"])
    async with running(Kubelet(kubeconfig)):
        await admin.pod("a")
        await runs(admin, "a")
        lists = embedded.faults.fail(500, verb="list", path=r"/pods$", user="kubelet")
        writes = embedded.faults.fail(503, verb="patch", path=r"/status$", user="kubelet")
        embedded.faults.cut_watches()
        await admin.pod("b")
        await runs(admin, "a", "b")
    assert (lists.hits, writes.hits) == (1, 1)
