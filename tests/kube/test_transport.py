"""TLS material and its change under a running client, on real sockets."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kube.client import ApiClient
from kube.credentials import Credentials
from kube.errors import ConfigError, Unreachable
from kube.tls import TlsMaterial, build_context, read_material
from tests.clock import FakeClock
from tests.kube.server import Exchange, ScriptedServer, scripted, until
from tests.pki import TestCa

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def old_ca() -> TestCa:
    return TestCa("old")


@pytest.fixture(scope="module")
def new_ca() -> TestCa:
    return TestCa("new")


async def answer(exchange: Exchange) -> None:
    if "watch" not in exchange.query:
        await exchange.answer({"connection": exchange.connection})
        return
    await exchange.begin()
    await exchange.chunk(b"first\n")
    await asyncio.Event().wait()


@asynccontextmanager
async def served(ca: TestCa) -> AsyncIterator[ScriptedServer]:
    async with scripted(answer, ca.issue("127.0.0.1")) as server:
        yield server


async def test_a_server_of_the_cluster_is_trusted_and_of_another_is_not(
    old_ca: TestCa, new_ca: TestCa
) -> None:
    async with served(old_ca) as server:
        async with ApiClient(Credentials(server.url, ca_pem=old_ca.cert)) as client:
            assert await client.get("/p") == {"connection": 1}
        async with ApiClient(Credentials(server.url, ca_pem=new_ca.cert)) as client:
            with pytest.raises(Unreachable, match="its certificate is not trusted"):
                await client.get("/p")
        async with ApiClient(Credentials(server.url, insecure=True)) as client:
            assert await client.get("/p")


async def test_another_host_name_is_refused_unless_it_is_configured(old_ca: TestCa) -> None:
    async with scripted(answer, old_ca.issue("api.internal")) as server:
        credentials: dict[str, Any] = {"ca_pem": old_ca.cert}
        async with ApiClient(Credentials(server.url, **credentials)) as client:
            with pytest.raises(Unreachable, match="not trusted"):
                await client.get("/p")
        named = Credentials(server.url, tls_server_name="api.internal", **credentials)
        async with ApiClient(named) as client:
            assert await client.get("/p")


async def test_a_client_certificate_is_shown(old_ca: TestCa, tmp_path: Path) -> None:
    pair = old_ca.issue(common_name="podstamp")
    (tmp_path / "cert").write_text(pair.cert)
    (tmp_path / "key").write_text(pair.key)
    names: list[str] = []

    async def whoami(exchange: Exchange) -> None:
        peer = exchange.writer.get_extra_info("peercert")
        names.append(dict(entry[0] for entry in peer["subject"])["commonName"])
        await exchange.answer({})

    texts: dict[str, Any] = {"client_cert_pem": pair.cert, "client_key_pem": pair.key}
    files = {"client_cert_file": tmp_path / "cert", "client_key_file": tmp_path / "key"}
    async with scripted(whoami, old_ca.issue("127.0.0.1"), client_ca=old_ca.cert) as server:
        for shown in (texts, files):
            async with ApiClient(Credentials(server.url, ca_pem=old_ca.cert, **shown)) as client:
                await client.get("/p")
        async with ApiClient(Credentials(server.url, ca_pem=old_ca.cert)) as client:
            with pytest.raises(Unreachable):
                await client.get("/p")
    assert names == ["podstamp", "podstamp"]


async def test_a_new_ca_is_for_new_connections_and_old_ones_finish(
    old_ca: TestCa, new_ca: TestCa, tmp_path: Path, clock: FakeClock
) -> None:
    file = tmp_path / "ca.crt"
    file.write_text(old_ca.cert)
    async with served(old_ca) as server:
        async with ApiClient(Credentials(server.url, ca_file=file), clock=clock) as client:
            lines = client.watch("/p", resource_version="1", timeout_s=300, read_timeout_s=300)
            async with aclosing(lines):
                assert await anext(lines) == b"first"
                assert await client.get("/p") == {"connection": 2}
                file.write_text(new_ca.cert + old_ca.cert)
                clock.set_forward(59)
                assert await client.get("/p") == {"connection": 2}
                clock.set_forward(1)
                assert await client.get("/p") == {"connection": 3}
                assert server.alive == 3, "the watch and its pool live on"
            await until(lambda: server.alive == 1)
            assert await client.get("/p") == {"connection": 3}


async def test_material_that_did_not_change_keeps_its_connections(
    old_ca: TestCa, tmp_path: Path, clock: FakeClock
) -> None:
    file = tmp_path / "ca.crt"
    file.write_text(old_ca.cert)
    async with served(old_ca) as server:
        async with ApiClient(Credentials(server.url, ca_file=file), clock=clock) as client:
            for _ in range(3):
                file.write_text(old_ca.cert)
                clock.set_forward(120)
                assert await client.get("/p") == {"connection": 1}


@pytest.mark.parametrize("content", [None, "", "no certificate"])
async def test_a_ca_file_that_went_bad_leaves_the_last_good_one(
    old_ca: TestCa, tmp_path: Path, clock: FakeClock, content: str | None
) -> None:
    file = tmp_path / "ca.crt"
    file.write_text(old_ca.cert)
    async with served(old_ca) as server:
        async with ApiClient(Credentials(server.url, ca_file=file), clock=clock) as client:
            await client.get("/p")
            if content is None:
                file.unlink()
            else:
                file.write_text(content)
            clock.set_forward(60)
            assert await client.get("/p") == {"connection": 1}


async def test_a_server_that_changed_its_ca_is_trusted_again_without_waiting(
    old_ca: TestCa, new_ca: TestCa, tmp_path: Path, clock: FakeClock
) -> None:
    file = tmp_path / "ca.crt"
    file.write_text(old_ca.cert)
    async with served(new_ca) as server:
        async with ApiClient(Credentials(server.url, ca_file=file), clock=clock) as client:
            with pytest.raises(Unreachable, match="not trusted"):
                await client.get("/p")
            file.write_text(new_ca.cert)
            with pytest.raises(Unreachable, match="not trusted"):
                await client.get("/p")
            assert await client.get("/p")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"ca_pem": "junk"}, "CA certificate cannot be used"),
        ({"ca_file": Path("/nowhere/ca.crt")}, "/nowhere/ca.crt: cannot read the CA"),
        ({"client_cert_pem": "junk", "client_key_pem": "junk"}, "certificate and key cannot be"),
        ({"token_file": Path("/nowhere/token")}, "/nowhere/token: cannot read the token"),
        ({"server": "https://"}, "is no http or https URL"),
        ({"server": "https://[::1"}, "is no http or https URL"),
        ({"server": "https://api:port"}, "is no http or https URL"),
    ],
    ids=["CA", "CA file", "pair", "token", "server", "address", "port"],
)
async def test_credentials_that_cannot_be_used_are_the_users_mistake(
    fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        ApiClient(Credentials(**{"server": "https://api", **fields}))


async def test_a_key_of_another_certificate_is_the_users_mistake(old_ca: TestCa) -> None:
    one, two = old_ca.issue("a"), old_ca.issue("b")
    material = TlsMaterial(None, one.cert.encode(), two.key.encode())
    with pytest.raises(ConfigError, match="certificate and key"):
        build_context(material, insecure=False)


async def test_a_context_verifies_by_default(old_ca: TestCa) -> None:
    credentials = Credentials("https://api", ca_pem=old_ca.cert)
    context = build_context(read_material(credentials), insecure=False)
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert len(context.get_ca_certs()) == 1, "the cluster's CA and no other"


async def test_nobody_at_the_address_is_said_in_words() -> None:
    async with scripted(answer) as server:
        url = server.url
    async with ApiClient(Credentials(url)) as client:
        with pytest.raises(Unreachable, match=f"GET /p on {url}: connection refused"):
            await client.get("/p")
