"""The running keeper on an API server: it wakes by itself, and failures do not stop it."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from certs.bundles import BundleStore, Configuration
from certs.metrics import CertMetrics
from certs.rotation import Keeper
from certs.settings import CertSettings
from kube import paths
from kube.client import ApiClient
from kube.clock import SystemClock
from kube.credentials import load_credentials
from tests.apiserver import EmbeddedCluster
from tests.certs.memory import MUTATING, REPLICAS, SECRET, VALIDATING
from tests.certs.tasks import running
from tests.certs.world import entry
from webhook.tls import ServingContext

pytestmark = pytest.mark.anyio

LIMIT_S = 30.0


class Site:
    """An installed podstamp without certificates, and one keeper."""

    def __init__(self, client: ApiClient) -> None:
        self.client = client
        self.registry = CollectorRegistry()
        self.serving = ServingContext()
        self.bundles = BundleStore(client, "podstamp")
        self.keeper = Keeper(
            client,
            self.serving,
            namespace="podstamp-system",
            settings=CertSettings(settle_seconds=0.05),
            identity="webhook/a",
            clock=SystemClock(),
            random=Random(1),
            metrics=CertMetrics(self.registry),
        )

    async def install(self) -> None:
        await self.client.create(paths.namespaces(), {"metadata": {"name": "podstamp-system"}})
        for path in (MUTATING, VALIDATING):
            webhook = entry("create.podstamp.dev") | {
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
            }
            await self.client.create(
                path.rsplit("/", 1)[0], {"metadata": {"name": "podstamp"}, "webhooks": [webhook]}
            )

    async def filled(self) -> bool:
        return all(e.bundle for c in await self.bundles.read() for e in c.entries)

    async def wipe(self) -> None:
        for configuration in await self.bundles.read():
            await self.bundles.patch(configuration, _wiping(configuration))

    def failures(self) -> float:
        count = self.registry.get_sample_value("podstamp_certificate_pass_errors_total")
        assert count is not None
        return count


def _wiping(configuration: Configuration) -> list[dict[str, Any]]:
    path = f"/webhooks/{configuration.entries[0].index}/clientConfig/caBundle"
    return [{"op": "replace", "path": path, "value": ""}]


@asynccontextmanager
async def site(embedded: EmbeddedCluster) -> AsyncIterator[Site]:
    async with ApiClient(load_credentials(embedded.kubeconfig)) as client:
        made = Site(client)
        await made.install()
        yield made


async def until(reached: Callable[[], Any]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while True:
            value = reached()
            if await value if asyncio.iscoroutine(value) else value:
                return
            await asyncio.sleep(0.01)


async def test_it_issues_serves_confirms_and_repairs_by_itself(embedded: EmbeddedCluster) -> None:
    async with site(embedded) as made:
        assert made.keeper.ready() == "no serving certificate yet"
        async with running(made.keeper.run()):
            await made.serving.wait_served()
            await until(made.filled)
            assert made.keeper.ready() is None
            assert made.keeper.notice() is None
            await until(lambda: embedded.watches >= 3)
            for _ in range(2):
                await made.wipe()
                await until(made.filled)
            before = made.serving.fingerprint
            await made.client.delete(SECRET)
            await until(lambda: made.serving.fingerprint != before)
            data = (await made.client.get(REPLICAS))["data"]
            assert list(data) == ["webhook-a"]
        await made.keeper.stop()
        assert not (await made.client.get(REPLICAS)).get("data")
        told = made.serving.fingerprint
        assert json.loads(data["webhook-a"])["leaf"] in (before, told)


async def test_a_server_that_fails_for_a_while_stops_nothing(embedded: EmbeddedCluster) -> None:
    async with site(embedded) as made:
        embedded.faults.fail(503, times=None)
        began = time.monotonic()
        async with running(made.keeper.run()):
            await until(lambda: made.failures() >= 4)
            assert time.monotonic() - began > 0.8, "three waits, each twice as long"
            assert made.keeper.notice() is not None
            assert made.keeper.ready() == f"no serving certificate yet; {made.keeper.notice()}"
            embedded.faults.clear()
            await made.serving.wait_served()
            await until(made.filled)
            await until(lambda: made.keeper.notice() is None)
