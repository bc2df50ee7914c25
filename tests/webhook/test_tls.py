"""What new connections get, whatever was offered."""

import asyncio
import ssl
from datetime import UTC, datetime

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from prometheus_client import CollectorRegistry

from certs.issue import KeyPair
from certs.metrics import CertMetrics
from certs.validity import certificates, fingerprint
from tests.certs.forge import Forged, Key, forge_ca, forge_leaf, new_key
from tests.certs.tls import blind_context, client_context, handshake
from tests.certs.world import DAY, NAMES, Authority
from tests.clock import FakeClock
from webhook.tls import ServingContext

NOW = datetime.now(UTC).replace(microsecond=0)
OURS = Authority.make(NOW)
VERSIONS = (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)


def serving(clock: FakeClock | None = None) -> ServingContext:
    return ServingContext(clock=clock or FakeClock(NOW))


def offer(context: ServingContext, pair: KeyPair | Forged) -> str | None:
    return context.offer(pair.cert_pem, pair.key_pem)


def shown(context: ServingContext) -> str:
    return fingerprint(handshake(context.context, blind_context(), NAMES[0]))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", [*NAMES[:1], None, "other.example", "127.0.0.1"])
def test_a_client_gets_the_pair_whatever_name_and_version_it_asks_for(
    name: str | None, version: ssl.TLSVersion
) -> None:
    context = serving()
    pair = OURS.leaf(NOW)
    assert offer(context, pair) is None
    got = handshake(context.context, blind_context(), name, version)
    assert got == certificates(pair.cert_pem)[0]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_pair_with_a_key_of_another_type_replaces_the_old_one_wholly(
    version: ssl.TLSVersion,
) -> None:
    """OpenSSL keeps one certificate for each key type: the old one must not come up again."""
    ca = forge_ca(NOW - DAY)
    keys: list[Key] = [
        new_key(),
        rsa.generate_private_key(65537, 2048),
        ec.generate_private_key(ec.SECP384R1()),
    ]
    context = serving()
    for key in keys:
        pair = forge_leaf(NOW - DAY, ca, key=key)
        assert offer(context, pair) is None
        got = handshake(context.context, blind_context(), NAMES[0], version)
        assert got == pair.certificate


GOOD = OURS.leaf(NOW)
OTHER = OURS.leaf(NOW)


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (KeyPair(GOOD.cert_pem, OTHER.key_pem), "KEY_VALUES_MISMATCH"),
        (KeyPair(b"", b""), "no certificate"),
        (KeyPair(b"junk", GOOD.key_pem), "no certificate"),
        (KeyPair(GOOD.cert_pem, b""), "no private key"),
        (KeyPair(GOOD.cert_pem, b"junk"), "no private key"),
        (KeyPair(GOOD.cert_pem[:300], GOOD.key_pem), "no certificate"),
        (OURS.leaf(NOW - 91 * DAY), "expired"),
        (OURS.leaf(NOW + DAY), "not valid before"),
        (
            forge_leaf(NOW - DAY, forge_ca(NOW - DAY), key=ec.generate_private_key(ec.SECP256K1())),
            "NO_SHARED_CIPHER",
        ),
    ],
    ids=[
        "mismatched",
        "empty",
        "junk certificate",
        "no key",
        "junk key",
        "cut off",
        "expired",
        "of tomorrow",
        "key that no client speaks",
    ],
)
def test_a_bad_pair_never_replaces_a_good_one(
    bad: KeyPair | Forged, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    registry = CollectorRegistry()
    context = ServingContext(clock=FakeClock(NOW), metrics=CertMetrics(registry))
    assert offer(context, GOOD) is None
    good = shown(context)
    for _ in range(2):
        refusal = offer(context, bad)
        assert refusal is not None
        assert why in refusal
        assert "\n" not in refusal
        assert shown(context) == good
    assert context.ready() is None
    assert registry.get_sample_value("podstamp_certificate_refused_pairs_total") == 1
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == [
        "bad serving certificate, the old one stays"
    ]


def test_a_bad_first_pair_is_told_as_one(caplog: pytest.LogCaptureFixture) -> None:
    assert serving().offer(b"", b"") == "there is no certificate in it"
    assert "bad serving certificate, and there is none yet" in caplog.text


def test_a_pair_out_of_its_dates_is_better_than_none_or_another_such_one() -> None:
    context = serving()
    for pair in (OURS.leaf(NOW - 91 * DAY), OURS.leaf(NOW + DAY)):
        assert offer(context, pair) is None
        assert shown(context) == fingerprint(certificates(pair.cert_pem)[0])
        assert "bad" in (context.ready() or "")


def test_it_is_ready_from_the_first_pair_until_that_expires() -> None:
    clock = FakeClock(NOW)
    context = serving(clock)
    assert context.ready() == "no serving certificate yet"
    offer(context, OURS.leaf(NOW, DAY))
    assert context.ready() is None
    clock.set_forward(DAY.total_seconds() - 1)
    assert context.ready() is None
    clock.set_forward(1)
    assert "expired" in (context.ready() or "")


def test_without_a_pair_a_handshake_fails_at_once() -> None:
    with pytest.raises(ssl.SSLError):
        handshake(serving().context, blind_context(), NAMES[0])


def test_a_whole_chain_is_shown() -> None:
    """cert-manager stores intermediates behind the leaf."""
    root = Authority.make(NOW)
    context = serving()
    leaf = root.leaf(NOW)
    assert context.offer(leaf.cert_pem + root.ca.cert_pem, leaf.key_pem) is None
    got = handshake(context.context, client_context([root.certificate]), NAMES[0])
    assert got == certificates(leaf.cert_pem)[0]


@pytest.mark.anyio
async def test_open_connections_outlive_a_new_pair_and_new_ones_get_it() -> None:
    context = serving()
    first, second = OURS.leaf(NOW), OURS.leaf(NOW)
    offer(context, first)

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line)
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=context.context)
    port = server.sockets[0].getsockname()[1]

    async def connect() -> tuple[asyncio.StreamReader, asyncio.StreamWriter, str]:
        trust = client_context([OURS.certificate])
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=trust, server_hostname=NAMES[0]
        )
        der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        return reader, writer, ssl.DER_cert_to_PEM_cert(der)

    old = await connect()
    assert offer(context, second) is None
    new = await connect()
    for (reader, writer, certificate), pair in ((old, first), (new, second)):
        assert certificates(certificate.encode()) == certificates(pair.cert_pem)
        writer.write(b"still here\n")
        assert await reader.readline() == b"still here\n"
        writer.close()
        await writer.wait_closed()
    server.close()
    await server.wait_closed()


@pytest.mark.anyio
async def test_whoever_waits_for_the_first_pair_is_woken_by_it() -> None:
    context = serving()
    waiting = asyncio.create_task(context.wait_served())
    await asyncio.sleep(0)
    assert not waiting.done()
    offer(context, GOOD)
    await waiting
