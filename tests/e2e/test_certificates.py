"""Certificates on the real kube-apiserver, kept by webhooks with their account's token."""

from pathlib import Path

import pytest

from certs.secret import SecretStore
from certs.settings import NAMESPACE, SECRET
from kube import paths
from kube.client import ApiClient
from kube.credentials import load_credentials
from tests.certs.endurance import endure
from tests.controlplane import ControlPlane
from tests.e2e.installation import SYSTEM, Installation

pytestmark = pytest.mark.anyio


async def test_no_review_fails_while_leaf_and_ca_rotate_ten_times(
    plane: ControlPlane, podstamp: Installation, namespace: str, tmp_path: Path
) -> None:
    account = plane.kubeconfig_for_service_account(SYSTEM, "podstamp-webhook")
    podstamp.stop_webhook()
    try:
        async with ApiClient(load_credentials(plane.kubeconfig)) as admin:
            seen = await endure(admin, account, podstamp.port, namespace, tmp_path)
    finally:
        podstamp.start_webhook()
    assert seen.traffic.failures == []
    assert seen.traffic.answers > 100
    assert seen.kills == 7
    assert max(seen.repairs_s) < 5.0


async def test_an_immutable_secret_is_made_anew_when_it_can_serve_no_longer(
    plane: ControlPlane, podstamp: Installation
) -> None:
    async with ApiClient(load_credentials(plane.kubeconfig)) as admin:
        store = SecretStore(admin, NAMESPACE, SECRET)
        broken = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": SECRET},
            "type": "kubernetes.io/tls",
            "data": {"tls.crt": "eA==", "tls.key": "eA=="},
            "immutable": True,
        }
        podstamp.stop_webhook()
        try:
            await admin.delete(paths.secret(NAMESPACE, SECRET))
            await admin.create(paths.secrets(NAMESPACE), broken)
        finally:
            podstamp.start_webhook()
        after = await store.read()
    assert after is not None
    assert after.immutable is False
    assert set(after.data or {}) >= {"tls.crt", "tls.key", "ca.crt", "ca.key"}
