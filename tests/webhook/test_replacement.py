"""A replacement that a set controller makes on the delete event is never refused.

The webhook's own store is far behind all the while, so it still shows the predecessor.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.apiserver import EmbeddedCluster
from tests.standins.kubelet import Kubelet
from tests.standins.set_controller import SetController
from tests.standins_tests.running import running, until
from tests.webhook.builders import owner, pod
from tests.webhook.hosted import HostedWebhook
from tests.webhook.site import Answer, Site, base, by_url, documents, open_site, pods, write_pair
from webhook.stamps import AIBRIX_INDEX, ENABLED, INCARNATION

pytestmark = pytest.mark.anyio

CRD = Path(__file__).parents[1] / "standins" / "podset_crd.yaml"
NAMESPACE = "models"
SETS = f"/apis/orchestration.aibrix.ai/v1alpha1/namespaces/{NAMESPACE}/podsets"
BEHIND_S = 60.0


class World:
    """Server, webhook and set controller, on one loop but for the server."""

    def __init__(self, site: Site, webhook: HostedWebhook, sets: SetController) -> None:
        self.site = site
        self.webhook = webhook
        self.sets = sets

    async def call(self, method: str, path: str, body: Any = None) -> Answer:
        # The webhook answers on this loop, so it must not be blocked by its own caller.
        return await anyio.to_thread.run_sync(self.site.call, method, path, body)

    async def must(self, method: str, path: str, body: Any = None) -> Any:
        answer = await self.call(method, path, body)
        assert answer.ok, answer.body
        return answer.body


@pytest.fixture
async def world(embedded: EmbeddedCluster, tmp_path: Path) -> AsyncIterator[World]:
    ca_pem = write_pair(tmp_path / "certs")
    async with AsyncExitStack() as stack:
        site = stack.enter_context(open_site(embedded))
        for crd in documents(CRD):
            path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
            site.must("POST", path, crd)
        site.namespace({ENABLED: "true"}, NAMESPACE)
        webhook = HostedWebhook(embedded.kubeconfig, tmp_path / "certs")
        await stack.enter_async_context(running(webhook))
        url = f"https://127.0.0.1:{webhook.port}"
        site.install(*(by_url(each, url, ca_pem) for each in base("webhooks.yaml")))
        sets = SetController(embedded.kubeconfig)
        await stack.enter_async_context(running(sets))
        await stack.enter_async_context(running(Kubelet(embedded.kubeconfig)))
        yield World(site, webhook, sets)


async def _incarnations(world: World) -> dict[str, str]:
    listed = await world.must("GET", pods(NAMESPACE))
    return {
        item["metadata"]["name"]: item["metadata"]["annotations"][INCARNATION]
        for item in listed["items"]
    }


def _created_since(world: World, name: str, before: int) -> bool:
    return world.sets.created[name] > before


async def test_every_replacement_of_a_set_is_created_at_once(world: World) -> None:
    template = {"spec": {"containers": [{"name": "engine", "image": "engine:1"}]}}
    spec = {"podGroupSize": 3, "template": template}
    metadata = {"name": "ps", "namespace": NAMESPACE}
    api = {"apiVersion": "orchestration.aibrix.ai/v1alpha1", "kind": "PodSet"}
    await world.must("POST", SETS, api | {"metadata": metadata, "spec": spec})
    await until(lambda: len(world.webhook.store) == 3)
    first = await _incarnations(world)
    world.webhook.store.delay_s = BEHIND_S
    for name in sorted(first):
        before = world.sets.created[name]
        await world.must("PATCH", pods(NAMESPACE, name, "/status"), {"status": {"phase": "Failed"}})
        await world.must("DELETE", pods(NAMESPACE, name))
        # Far less than the store is behind: it still shows the predecessor alive.
        await until(partial(_created_since, world, name, before), BEHIND_S / 2)
        held = world.webhook.store.get(NAMESPACE, name)
        assert held is not None
        assert held.metadata.annotations.incarnation == first[name]
    # Conflicts on the set's own status are its usual life.
    assert [error for error in world.sets.errors if "webhook" in error] == []
    second = await _incarnations(world)
    assert second.keys() == first.keys()
    assert not set(second.values()) & set(first.values())


async def test_an_index_that_has_just_become_free_may_be_taken_under_another_name(
    world: World,
) -> None:
    first = pod("other-3", owners=[owner()], labels={AIBRIX_INDEX: "3"})
    await world.must("POST", pods(NAMESPACE), first)
    await until(lambda: len(world.webhook.store) == 1)
    refused = await world.call("POST", pods(NAMESPACE), pod("ps-3", owners=[owner()]))
    assert refused.code == 409
    assert "other-3" in refused.body["message"]
    world.webhook.store.delay_s = BEHIND_S
    status = {"status": {"phase": "Failed"}}
    await world.must("PATCH", pods(NAMESPACE, "other-3", "/status"), status)
    await world.must("DELETE", pods(NAMESPACE, "other-3"))
    created = await world.call("POST", pods(NAMESPACE), pod("ps-3", owners=[owner()]))
    assert created.ok, created.body
    assert "other-3" in created.warnings[0]
    assert world.webhook.tally.confirmations == {"held": 1, "free": 1}
