"""Client and reflector over HTTPS against the embedded API server and its faults."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kube import paths
from kube.client import ApiClient
from kube.clock import SystemClock
from kube.credentials import load_credentials
from kube.errors import AlreadyExists, Conflict, Gone, KubeError, NotFound, Unreachable
from kube.events import EventRecorder, ObjectReference
from kube.lease import LeaderElector
from kube.pod import Pod
from kube.reflector import Reflector
from kube.store import Store
from tests.apiserver import EmbeddedCluster
from tests.kube.server import until

pytestmark = pytest.mark.anyio

IN_TIME_S = 30.0


class Live:
    """A client, and a store that a reflector keeps."""

    def __init__(self, client: ApiClient, store: Store[Pod], errors: list[KubeError]) -> None:
        self.client = client
        self.store = store
        self.errors = errors

    @property
    def names(self) -> set[str]:
        return {pod.metadata.name for pod in self.store.values()}

    async def create(self, *names: str) -> None:
        for name in names:
            body = {
                "metadata": {"name": name, "labels": {"podstamp.dev/managed": "true"}},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            }
            await self.client.create(paths.pods("team"), body)

    async def delete(self, name: str) -> None:
        await self.client.delete(paths.pod("team", name))


@asynccontextmanager
async def live(cluster: EmbeddedCluster, *names: str, page_size: int = 500) -> AsyncIterator[Live]:
    async with ApiClient(load_credentials(cluster.kubeconfig)) as client:
        await client.create(paths.namespaces(), {"metadata": {"name": "team"}})
        store: Store[Pod] = Store()
        errors: list[KubeError] = []
        found = Live(client, store, errors)
        await found.create(*names)
        reflector = Reflector(
            client,
            paths.pods(),
            Pod,
            store,
            label_selector="podstamp.dev/managed=true",
            clock=SystemClock(),
            random=random.Random(1),
            page_size=page_size,
            on_error=errors.append,
        )
        task = asyncio.create_task(reflector.run())
        try:
            await asyncio.wait_for(store.wait_synced(), IN_TIME_S)
            await until(lambda: cluster.watches > 0)
            yield found
        finally:
            task.cancel()
            await asyncio.wait([task])


async def test_pods_are_listed_in_pages_and_then_followed(embedded: EmbeddedCluster) -> None:
    async with live(embedded, "a", "b", "c", "d", "e", page_size=2) as found:
        assert found.names == {"a", "b", "c", "d", "e"}
        await found.create("f")
        await found.delete("a")
        await until(lambda: found.names == {"b", "c", "d", "e", "f"})
        assert found.errors == []


async def test_a_recreated_name_is_another_pod(embedded: EmbeddedCluster) -> None:
    async with live(embedded, "a") as found:
        first = found.store.get("team", "a")
        await found.delete("a")
        await found.create("a")
        await until(lambda: found.store.get("team", "a") not in (None, first))
        second = found.store.get("team", "a")
        assert first is not None
        assert second is not None
        assert second.metadata.uid != first.metadata.uid
        assert len(found.store) == 1


FAULTS: dict[str, Callable[[Any], object]] = {
    "a watch cut": lambda faults: faults.cut_watches(),
    "410 as a status": lambda faults: (faults.gone(verb="watch"), faults.cut_watches()),
    "410 as an event": lambda faults: (faults.gone(as_event=True), faults.cut_watches(clean=True)),
    "a body cut off": lambda faults: (
        faults.truncate_body(verb="list", keep_bytes=200),
        faults.cut_watches(),
    ),
    "503 and 429": lambda faults: (
        faults.fail(503, verb="list", times=2),
        faults.too_many(1, verb="list"),
        faults.cut_watches(),
    ),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
async def test_a_deletion_that_no_watch_told_of_is_found(
    embedded: EmbeddedCluster, fault: Callable[[Any], object]
) -> None:
    async with live(embedded, "a", "b", "c") as found:
        embedded.faults.swallow_events(2, type="DELETED")
        await found.delete("a")
        await found.delete("b")
        await found.create("d")
        await until(lambda: "d" in found.names)
        assert found.names == {"a", "b", "c", "d"}, "nobody told"
        fault(embedded.faults)
        await until(lambda: found.names == {"c", "d"})


async def test_history_that_was_compacted_away_is_listed_anew(embedded: EmbeddedCluster) -> None:
    async with live(embedded, "a", "b") as found:
        embedded.faults.swallow_events(2, type="DELETED")
        await found.delete("a")
        await found.delete("b")
        embedded.faults.compact()
        embedded.faults.cut_watches(clean=True)
        await until(lambda: found.names == set())
        assert [type(error) for error in found.errors] == [Gone]


async def test_a_server_that_refuses_connections_leaves_the_store_as_it_was(
    embedded: EmbeddedCluster,
) -> None:
    async with live(embedded, "a", "b") as found:
        embedded.faults.block()
        await until(lambda: len(found.errors) >= 3)
        assert all(isinstance(error, Unreachable) for error in found.errors)
        assert found.names == {"a", "b"}
        embedded.faults.clear()
        await found.delete("a")
        await until(lambda: found.names == {"b"})


async def test_a_delete_with_stale_preconditions_deletes_nothing(
    embedded: EmbeddedCluster,
) -> None:
    async with live(embedded, "a") as found:
        pod = found.store.get("team", "a")
        assert pod is not None
        path = paths.pod("team", "a")
        uid, version = pod.metadata.uid, pod.metadata.resource_version
        for stale in (("another", version), (uid, "1")):
            with pytest.raises(Conflict):
                await found.client.delete(path, uid=stale[0], resource_version=stale[1])
        await found.client.delete(path, uid=uid, dry_run=True)
        assert (await found.client.get(path, type=Pod)).metadata.uid == uid
        await found.client.delete(path, uid=uid, resource_version=version)
        await until(lambda: found.names == set())
        with pytest.raises(NotFound):
            await found.client.delete(path, uid=uid, resource_version=version)


async def test_a_taken_name_and_a_lost_update_are_told_apart(embedded: EmbeddedCluster) -> None:
    async with live(embedded, "a") as found:
        with pytest.raises(AlreadyExists):
            await found.create("a")
        path = paths.configmap("team", "c")
        await found.client.create(paths.configmaps("team"), {"metadata": {"name": "c"}})
        stored = await found.client.get(path)
        await found.client.replace(path, stored | {"data": {"k": "1"}})
        with pytest.raises(Conflict) as caught:
            await found.client.replace(path, stored | {"data": {"k": "2"}})
        assert not isinstance(caught.value, AlreadyExists)
        patched = await found.client.patch(path, {"data": {"l": "3"}})
        assert patched["data"] == {"k": "1", "l": "3"}


async def test_a_server_that_hangs_is_given_up(embedded: EmbeddedCluster) -> None:
    async with live(embedded, "a") as found:
        embedded.faults.hang(verb="get")
        with pytest.raises(Unreachable, match="no answer within"):
            await found.client.get(paths.pod("team", "a"), timeout_s=0.05)
        assert (await found.client.get(paths.pod("team", "a"), type=Pod)).metadata.name == "a"


async def test_an_event_is_stored_and_its_series_counts(embedded: EmbeddedCluster) -> None:
    async with live(embedded, "a") as found:
        pod = found.store.get("team", "a")
        assert pod is not None
        recorder = EventRecorder(
            found.client, instance="test", clock=SystemClock(), random=random.Random(1)
        )
        task = asyncio.create_task(recorder.run())
        about = ObjectReference("v1", "Pod", "team", "a", pod.metadata.uid)
        for _ in range(2):
            recorder.record(about, reason="ReapedTerminal", note="over", action="Delete")
            await recorder.flush(IN_TIME_S)
        task.cancel()
        await asyncio.wait([task])
        events = await found.client.get(paths.events("team"))
        (event,) = [e for e in events["items"] if e["reason"] == "ReapedTerminal"]
        assert event["regarding"]["uid"] == pod.metadata.uid
        assert event["series"]["count"] == 2
        assert recorder.dropped == 0


async def test_a_lease_is_taken_renewed_and_released(embedded: EmbeddedCluster) -> None:
    async with live(embedded) as found:
        elector = LeaderElector(
            found.client,
            "team",
            "leader",
            "me",
            clock=SystemClock(),
            random=random.Random(1),
            retry_period_s=0.02,
        )
        task = asyncio.create_task(elector.run(asyncio.Event().wait))  # type: ignore[arg-type]  # its True is not looked at
        await until(elector.may_act)
        first = await found.client.get(paths.lease("team", "leader"))
        assert first["spec"]["holderIdentity"] == "me"

        def renewals() -> int:
            renewal = ("patch", paths.lease("team", "leader"))
            return [call[:2] for call in embedded.requests()].count(renewal)

        # Two more begun: one at least is done.
        wanted = renewals() + 2
        await until(lambda: renewals() >= wanted)
        second = await found.client.get(paths.lease("team", "leader"))
        assert second["metadata"]["resourceVersion"] != first["metadata"]["resourceVersion"]
        assert second["spec"]["acquireTime"] == first["spec"]["acquireTime"]
        task.cancel()
        await asyncio.wait([task])
        last = await found.client.get(paths.lease("team", "leader"))
        assert last["spec"]["holderIdentity"] == ""
        assert last["spec"]["leaseTransitions"] == 0
