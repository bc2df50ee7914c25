"""The cert-manager overlay, with the objects that cert-manager and its injector would write."""

import subprocess
from base64 import b64encode
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from certs.serving import watch_directory
from certs.settings import CertSettings
from certs.steps import Keep
from certs.upkeep import Upkeep
from certs.validity import certificates
from tests.certs.memory import MUTATING, SECRET, VALIDATING, MemoryApi, MemoryClient
from tests.certs.tasks import running
from tests.certs.tls import client_context, handshake
from tests.certs.world import DAY, NAMES, Authority, bundles, encode
from tests.clock import FakeClock
from tests.kubectl import KUBECTL
from webhook.tls import ServingContext

pytestmark = pytest.mark.anyio

OVERLAY = Path(__file__).parent.parent.parent / "manifests" / "overlays" / "cert-manager"
INJECT = "cert-manager.io/inject-ca-from"
NOW = datetime.now(UTC).replace(microsecond=0)


@cache
def overlay() -> list[dict[str, Any]]:
    command = [str(KUBECTL), "kustomize", str(OVERLAY)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [document for document in yaml.safe_load_all(text) if document]


def one(kind: str, name: str) -> dict[str, Any]:
    [found] = [d for d in overlay() if (d["kind"], d["metadata"]["name"]) == (kind, name)]
    return found


def write_secret(api: MemoryApi, data: dict[str, bytes]) -> None:
    """As cert-manager does: three keys, no CA key, and its annotations."""
    metadata = {"annotations": {"cert-manager.io/certificate-name": "podstamp-webhook"}}
    keys = ("ca.crt", "tls.crt", "tls.key")
    body = {key: data[key] for key in keys}
    api.put(SECRET, {"metadata": metadata, "type": "kubernetes.io/tls", "data": encode(body)})


def inject(api: MemoryApi, ca: bytes) -> None:
    """As its CA injector does: every entry of an annotated configuration."""
    for path, kind in ((MUTATING, "Mutating"), (VALIDATING, "Validating")):
        stored = api.objects.get(path) or one(f"{kind}WebhookConfiguration", "podstamp")
        assert stored["metadata"]["annotations"][INJECT] == "podstamp-system/podstamp-webhook"
        for entry in stored["webhooks"]:
            entry["clientConfig"]["caBundle"] = b64encode(ca).decode()
        api.put(path, stored)


def mount(folder: Path, data: dict[str, bytes], version: str) -> None:
    """As a kubelet does: a new folder, and `..data` renamed onto it."""
    (folder / version).mkdir()
    for key in ("tls.crt", "tls.key"):
        (folder / version / key).write_bytes(data[key])
        if not (folder / key).is_symlink():
            (folder / key).symlink_to(f"..data/{key}")
    (folder / "..new").symlink_to(version)
    (folder / "..new").replace(folder / "..data")


async def test_what_cert_manager_renews_is_served_without_a_restart(tmp_path: Path) -> None:
    api, clock, authority = MemoryApi(), FakeClock(NOW), Authority.make(NOW)
    serving = ServingContext(clock=clock)
    before = authority.leaf(NOW)
    inject(api, authority.ca.cert_pem)
    mount(tmp_path, authority.secret(before), "..1")
    async with running(watch_directory(tmp_path, serving.offer, clock=clock)):
        await clock.settle()
        for entry, cas in bundles(api).items():
            shown = handshake(serving.context, client_context(cas), NAMES[0])
            assert shown == certificates(before.cert_pem)[0], entry
        after = authority.leaf(NOW)
        mount(tmp_path, authority.secret(after), "..2")
        await clock.advance(2)
        for entry, cas in bundles(api).items():
            shown = handshake(serving.context, client_context(cas), NAMES[0])
            assert shown == certificates(after.cert_pem)[0], entry


async def test_podstamp_does_not_write_what_cert_manager_writes() -> None:
    """Not even when it looks broken: two writers would undo each other for ever."""
    api, clock, authority = MemoryApi(), FakeClock(NOW), Authority.make(NOW)
    write_secret(api, authority.secret(authority.leaf(NOW - 91 * DAY)))
    inject(api, b"")
    before = {path: api.objects[path] for path in (SECRET, MUTATING, VALIDATING)}
    upkeep = Upkeep(
        MemoryClient(api, "a"),
        namespace="podstamp-system",
        settings=CertSettings(),
        clock=clock,
        random=Random(1),
    )
    outcome = await upkeep.advance()
    assert isinstance(outcome.step, Keep)
    del api.objects[SECRET]
    await upkeep.advance()
    after = {path: api.objects[path] for path in (MUTATING, VALIDATING)}
    assert after == {path: before[path] for path in (MUTATING, VALIDATING)}


def test_the_certificate_bears_every_name_that_api_servers_ask_for() -> None:
    spec = one("Certificate", "podstamp-webhook")["spec"]
    assert set(spec["dnsNames"]) >= set(NAMES)
    assert spec["secretName"] == CertSettings().secret
    ca = one("Issuer", spec["issuerRef"]["name"])["spec"]["ca"]["secretName"]
    made = one("Certificate", "podstamp-ca")["spec"]
    assert (made["isCA"], made["secretName"]) == (True, ca)
    assert made["privateKey"]["rotationPolicy"] == "Never"


def test_the_webhook_serves_the_mounted_secret_and_may_not_rotate() -> None:
    spec = one("Deployment", "podstamp-webhook")["spec"]["template"]["spec"]
    [container] = spec["containers"]
    env = {each["name"]: each.get("value") for each in container["env"]}
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    volumes = {each["name"]: each for each in spec["volumes"]}
    assert volumes["certs"]["secret"]["secretName"] == CertSettings().secret
    assert env["PODSTAMP_CERT_DIR"] == mounts["certs"]
    rules = (
        one("Role", "podstamp-webhook")["rules"] + one("ClusterRole", "podstamp-webhook")["rules"]
    )
    resources = {resource for rule in rules for resource in rule["resources"]}
    assert resources == {"pods", "configmaps", "events"}
