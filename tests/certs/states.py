"""Every state that the Secret can be in, by name."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID

from certs.issue import server_names
from certs.validity import signer_of
from tests.certs.forge import Forged, forge_ca, forge_leaf
from tests.certs.world import DAY, Authority, pem

Data = Mapping[str, bytes]
HOUR = timedelta(hours=1)


@dataclass(frozen=True)
class State:
    """`good`: it can be served as it is, and is left alone."""

    name: str
    data: Data | None
    good: bool = False
    immutable: bool = False


def states(now: datetime, ours: Authority, good: Data) -> Iterator[State]:
    """All of them; `good` is a whole Secret of the CA `ours`, valid now."""
    other = Authority.make(now)
    theirs = other.secret(other.leaf(now))
    yield State("good", good, good=True)
    yield State("no Secret", None)
    yield State("no data", {})
    yield State("immutable and good", good, good=True, immutable=True)
    yield State("immutable and broken", {**good, "tls.crt": b"x"}, immutable=True)
    for key in good:
        yield State(f"{key} missing", {k: v for k, v in good.items() if k != key})
        yield State(f"{key} empty", {**good, key: b""})
        yield State(f"{key} junk", {**good, key: b"\x00\xff junk \xfe"})
        yield State(f"{key} cut off", {**good, key: good[key][: len(good[key]) // 2]})
        yield State(f"{key} of another CA", {**good, key: theirs[key]})
        yield State(f"{key} alone", {key: good[key]})
    yield State("pair of another CA", {**theirs, "ca.crt": good["ca.crt"]})
    yield State("another CA with its key", {**theirs, "tls.crt": good["tls.crt"]})
    yield State("all of another CA", theirs, good=True)
    yield State("all of another CA but its key", {**theirs, "ca.key": b""})
    swapped = {"tls.crt": good["tls.key"], "tls.key": good["tls.crt"]}
    yield State("tls.crt and tls.key swapped", {**good, **swapped})
    yield State("the leaf as ca.crt", {**good, "ca.crt": good["tls.crt"]})
    junk = b"junk\n" + good["ca.crt"] + b"junk"
    yield State("junk beside the CA", {**good, "ca.crt": junk}, good=True)
    crlf = {key: value.replace(b"\n", b"\r\n") for key, value in good.items()}
    yield State("CRLF at line ends", crlf, good=True)
    yield from _dates(now, ours)
    yield from _names(now, ours)
    yield from _leaves(now, ours, good)
    yield from _authorities(now)
    yield from _rotating(now, ours, good, other)


def _dates(now: datetime, ours: Authority) -> Iterator[State]:
    for name, born, life, good in (
        ("leaf that expired yesterday", now - 91 * DAY, 90 * DAY, False),
        ("leaf that expires this second", now - DAY, DAY, False),
        ("leaf of a clock an hour ahead", now + HOUR, 90 * DAY, True),
        ("leaf of a clock two hours ahead", now + 2 * HOUR, 90 * DAY, False),
        ("leaf of a clock an hour behind", now - HOUR, 90 * DAY, True),
        ("leaf that was due long ago", now - 89 * DAY, 90 * DAY, False),
    ):
        yield State(name, ours.secret(ours.leaf(born, life)), good)
    for name, born, end in (
        ("expired CA", now - 365 * DAY, now - DAY),
        ("CA of tomorrow", now + DAY, now + 365 * DAY),
    ):
        ca = forge_ca(born, life=end - born)
        yield _state(f"{name}, leaf of its time", ca, forge_leaf(born, ca, life=end - born))
        yield _state(f"{name}, leaf of now", ca, forge_leaf(now - HOUR, ca))


def _names(now: datetime, ours: Authority) -> Iterator[State]:
    for name, names in (
        ("names of another namespace", server_names("podstamp-webhook", "old", "cluster.local")),
        ("names of another Service", server_names("old", "podstamp-system", "cluster.local")),
        ("another cluster domain", server_names("podstamp-webhook", "podstamp-system", "x.y")),
    ):
        yield State(name, ours.secret(ours.leaf(now, names=names)))


def _leaves(now: datetime, ours: Authority, good: Data) -> Iterator[State]:
    signer = signer_of(ours.ca)
    assert isinstance(signer.key, ec.EllipticCurvePrivateKey)
    ca = Forged(signer.certificate, signer.key)
    begin = now - HOUR
    for name, leaf, is_good in (
        ("RSA leaf", forge_leaf(begin, ca, key=rsa.generate_private_key(65537, 2048)), True),
        ("P-384 leaf", forge_leaf(begin, ca, key=ec.generate_private_key(ec.SECP384R1())), True),
        ("odd curve", forge_leaf(begin, ca, key=ec.generate_private_key(ec.SECP256K1())), False),
        ("Ed25519 leaf", forge_leaf(begin, ca, key=ed25519.Ed25519PrivateKey.generate()), False),
        ("leaf without SANs", forge_leaf(begin, ca, names=()), False),
        ("leaf for clients", forge_leaf(begin, ca, purpose=ExtendedKeyUsageOID.CLIENT_AUTH), False),
    ):
        yield _state(name, ca, leaf, good=is_good)
    encrypted = load_pem_private_key(good["tls.key"], None).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")
    )
    yield State("encrypted tls.key", {**good, "tls.key": encrypted})


def _authorities(now: datetime) -> Iterator[State]:
    begin = now - HOUR
    ours_excluded = x509.NameConstraints(None, [x509.DNSName("svc")])
    for name, ca, good in (
        ("RSA CA", forge_ca(begin, key=rsa.generate_private_key(65537, 2048)), True),
        ("Ed25519 CA", forge_ca(begin, key=ed25519.Ed25519PrivateKey.generate()), False),
        ("CA that may not sign our names", forge_ca(begin, extra=[ours_excluded]), False),
        ("signer that is no CA", forge_ca(begin, ca=False), False),
    ):
        yield _state(name, ca, forge_leaf(begin, ca), good=good)


def _rotating(now: datetime, ours: Authority, good: Data, other: Authority) -> Iterator[State]:
    both = pem(other.certificate, ours.certificate)
    yield State("CA added", {**good, "ca.crt": both, "ca.key": other.ca.key_pem})
    yield State("new leaf, old CA kept", {**other.secret(other.leaf(now)), "ca.crt": both})
    third = Authority.make(now)
    twice = pem(third.certificate) + both
    yield State("CA added twice", {**good, "ca.crt": twice, "ca.key": third.ca.key_pem})
    yield State("CAs in the wrong order", {**good, "ca.crt": both})


def _state(name: str, ca: Forged, leaf: Forged, *, good: bool = False) -> State:
    data = {
        "ca.crt": ca.cert_pem,
        "ca.key": ca.key_pem,
        "tls.crt": leaf.cert_pem,
        "tls.key": leaf.key_pem,
    }
    return State(name, data, good)
