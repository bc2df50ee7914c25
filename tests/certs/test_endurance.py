"""Certificates rotate, replicas die, bundles are wiped: admission goes on as if nothing were."""

from pathlib import Path

import pytest

from kube import paths
from kube.client import ApiClient
from kube.credentials import load_credentials
from tests.apiserver import EmbeddedCluster
from tests.certs.endurance import by_url, endure
from tests.controlplane.processes import free_port

pytestmark = pytest.mark.anyio

WEBHOOKS = Path(__file__).parent.parent.parent / "manifests" / "base" / "webhooks.yaml"


async def test_no_review_fails_while_leaf_and_ca_rotate_ten_times(
    embedded: EmbeddedCluster, tmp_path: Path
) -> None:
    port = free_port()
    async with ApiClient(load_credentials(embedded.kubeconfig)) as admin:
        for name, labels in (("podstamp-system", {}), ("llm", {"podstamp.dev/enabled": "true"})):
            metadata = {"name": name, "labels": labels}
            await admin.create(
                paths.namespaces(), {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
            )
        for document in by_url(WEBHOOKS.read_text(), port):
            plural = (
                paths.mutating_webhooks()
                if document["kind"].startswith("Mutating")
                else paths.validating_webhooks()
            )
            await admin.create(plural, document)
        seen = await endure(admin, embedded.kubeconfig, port, "llm", tmp_path)
    assert seen.traffic.failures == []
    assert seen.traffic.answers > 100
    assert seen.kills == 7
    assert max(seen.repairs_s) < 5.0
