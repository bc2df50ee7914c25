"""How a webhook is reached, and that only the one that caBundle vouches for is believed."""

import base64
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.apiserver.errors import StatusError
from tests.apiserver_unit.admission.hook import Hook, Identity, Json, identity
from tests.apiserver_unit.admission.store import MemorySource, entry, pod, pods
from tests.apiserver_unit.admission.test_webhooks import running

pytestmark = pytest.mark.anyio

SERVICE_NAME = "hook.sys.svc"


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


async def outcome(client_config: Json, source: MemorySource, **services: str) -> str:
    """What a client is told of a mutating call: "" if it succeeded."""
    source.hooks("c", entry(client_config))
    async with running(source) as chain:
        for name, base in services.items():
            chain.services["sys", name] = base
        try:
            await chain.mutate(pods(), pod(), None)
        except StatusError as error:
            return error.message
    return ""


def by_service(hook: Hook, **service: Any) -> Json:
    reference = {"namespace": "sys", "name": "hook", "path": "/mutate", **service}
    return {"service": reference, "caBundle": hook.identity.bundle}


async def test_a_service_is_asked_under_its_own_name() -> None:
    async with Hook(names=(SERVICE_NAME,)) as hook:
        assert await outcome(by_service(hook), MemorySource(), hook=hook.base) == ""
    assert hook.targets == ["/mutate?timeout=10s"]
    assert hook.hosts == ["hook.sys.svc:443"]


async def test_a_service_whose_certificate_names_another_is_not_believed() -> None:
    async with Hook(names=("other.sys.svc", "127.0.0.1")) as hook:
        message = await outcome(by_service(hook), MemorySource(), hook=hook.base)
    assert 'Post "https://hook.sys.svc:443/mutate?timeout=10s": tls: failed to verify' in message
    assert hook.reviews == []


BUNDLES = {
    "empty": ("", "certificate signed by unknown authority"),
    "of-another-ca": (identity("other").bundle, "certificate signed by unknown authority"),
    "a-newline": (encoded("\n"), "unable to parse bytes as PEM block"),
    "no-base64": ("%%", "unable to parse bytes as PEM block"),
    "no-pem": (encoded("hello"), "unable to parse bytes as PEM block"),
}


@pytest.mark.parametrize(("bundle", "why"), BUNDLES.values(), ids=BUNDLES.keys())
async def test_a_wrong_ca_bundle_is_a_failed_call(bundle: str, why: str) -> None:
    async with Hook() as hook:
        message = await outcome({**hook.client_config(), "caBundle": bundle}, MemorySource())
    assert 'failed calling webhook "a.example.dev": ' in message
    assert why in message
    assert hook.reviews == []


async def test_a_bundle_of_old_and_new_ca_trusts_both() -> None:
    old, new = (base64.b64decode(identity(name).bundle) for name in ("other", "127.0.0.1"))
    bundle = base64.b64encode(old + new).decode()
    async with Hook() as hook:
        assert await outcome({**hook.client_config(), "caBundle": bundle}, MemorySource()) == ""


async def test_a_bundle_may_hold_the_serving_certificate_itself() -> None:
    async with Hook() as hook:
        leaf, _, _ = hook.identity.chain_pem.partition(b"-----BEGIN PRIVATE KEY")
        bundle = base64.b64encode(leaf).decode()
        assert await outcome({**hook.client_config(), "caBundle": bundle}, MemorySource()) == ""


async def test_a_name_in_the_subject_alone_does_not_count() -> None:
    async with Hook(who=nameless_identity(SERVICE_NAME)) as hook:
        message = await outcome(by_service(hook), MemorySource(), hook=hook.base)
    assert "tls: failed to verify certificate" in message


def nameless_identity(common_name: str) -> Identity:
    """A self-signed certificate as people made them before SANs were asked for."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    key_pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return Identity(base64.b64encode(pem).decode(), pem + key_pem)


async def test_a_changed_ca_bundle_holds_at_the_next_call() -> None:
    source = MemorySource()
    async with Hook() as hook, running(source) as chain:
        config = hook.client_config()
        source.hooks("c", entry(config))
        await chain.mutate(pods(), pod(), None)
        config["caBundle"] = identity("other").bundle
        with pytest.raises(StatusError, match="unknown authority"):
            await chain.mutate(pods(), pod(), None)


async def test_a_closed_port_is_a_failed_call() -> None:
    async with Hook() as hook:
        config = hook.client_config()
    assert "connection refused" in await outcome(config, MemorySource())


async def test_a_webhook_that_came_back_on_its_port_is_asked_over_a_new_connection() -> None:
    source = MemorySource()
    async with running(source) as chain:
        for _ in range(2):
            async with Hook(names=(SERVICE_NAME,)) as hook:
                source.hooks("c", entry(by_service(hook)))
                chain.services["sys", "hook"] = hook.base
                await chain.mutate(pods(), pod(), None)
                assert hook.connections == 1


def stored_service(**spec: Any) -> MemorySource:
    source = MemorySource()
    ports = [{"port": 443, "name": "https", "targetPort": 1}]
    service = {"metadata": {"name": "hook", "namespace": "sys"}, "spec": {"ports": ports, **spec}}
    source.put("", "services", service)
    return source


def endpoint_slice(*endpoints: Json, port: int, service: str = "hook") -> Json:
    labels = {"kubernetes.io/service-name": service}
    return {
        "metadata": {"name": f"{service}-x", "namespace": "sys", "labels": labels},
        "ports": [{"name": "metrics", "port": 1}, {"name": "https", "port": port}],
        "endpoints": list(endpoints),
    }


async def test_a_stored_service_leads_to_its_ready_endpoints_in_turn() -> None:
    async with Hook(names=(SERVICE_NAME,)) as one, Hook(names=(SERVICE_NAME,)) as two:
        source = stored_service()
        ready: Json = {"addresses": ["127.0.0.1"]}
        unready: Json = {"addresses": ["127.0.0.2"], "conditions": {"ready": False}}
        source.put(
            "discovery.k8s.io",
            "endpointslices",
            endpoint_slice(ready, port=1, service="foreign"),
            endpoint_slice(ready, unready, port=one.port),
            endpoint_slice(ready, port=two.port),
        )
        source.hooks("c", entry(by_service(one)))
        async with running(source) as chain:
            for _ in range(4):
                await chain.mutate(pods(), pod(), None)
        assert (len(one.reviews), len(two.reviews)) == (2, 2)


async def test_an_external_name_is_reached_at_the_port_of_the_reference() -> None:
    async with Hook(names=(SERVICE_NAME,)) as hook:
        source = stored_service(type="ExternalName", externalName="127.0.0.1")
        assert await outcome(by_service(hook, port=hook.port), source) == ""


UNRESOLVED = {
    "no-service": (MemorySource(), 443, 'service "hook" not found'),
    "no-port": (stored_service(), 444, 'no service port 444 found for service "hook"'),
    "no-endpoints": (stored_service(), 443, 'no endpoints available for service "hook"'),
}


@pytest.mark.parametrize(("source", "port", "why"), UNRESOLVED.values(), ids=UNRESOLVED.keys())
async def test_a_service_without_endpoints_is_a_failed_call(
    source: MemorySource, port: int, why: str
) -> None:
    async with Hook(names=(SERVICE_NAME,)) as hook:
        message = await outcome(by_service(hook, port=port), source)
    assert message.endswith(f'/mutate?timeout=10s": {why}')
