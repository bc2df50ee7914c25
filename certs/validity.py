"""What stored certificates are worth at a given time, and what is wrong with them.

Pure. Anything may be stored: junk, halves, another CA's pair. Each certificate is judged by itself,
so that one broken piece does not hide the good ones. Only what a client that follows RFC 5280 would
accept counts as usable.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes, PublicKeyTypes
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from certs.issue import CaKey, KeyPair, check_name, issue_leaf

CERT_KEY = "tls.crt"
PRIVATE_KEY = "tls.key"
CA_KEY = "ca.crt"
CA_PRIVATE_KEY = "ca.key"

_NOTHING = "nothing is stored"
_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Signer:
    """A CA whose key we hold."""

    certificate: x509.Certificate
    key: CaKey


@dataclass(frozen=True, slots=True)
class Leaf:
    """A serving pair that is usable now, and the CA that vouches for it."""

    certificate: x509.Certificate
    cert_pem: bytes
    key_pem: bytes
    issuer: x509.Certificate


@dataclass(frozen=True, slots=True)
class Stored:
    """The usable part of what is stored; `problems` says in words why the rest is not.

    `cas` are all CA certificates that are valid now, the signer's first.
    """

    cas: tuple[x509.Certificate, ...]
    signer: Signer | None
    leaf: Leaf | None
    signer_problem: str | None
    leaf_problem: str | None

    @property
    def problems(self) -> tuple[str, ...]:
        problems = (self.signer_problem, self.leaf_problem)
        return tuple(dict.fromkeys(p for p in problems if p))


def inspect(data: Mapping[str, bytes], names: Sequence[str], now: datetime) -> Stored:
    """Judge the keys of the Secret for a webhook that is called by `names`, the first above all."""
    if not any(data.values()):
        return Stored((), None, None, _NOTHING, _NOTHING)
    cas = [ca for ca in certificates(data.get(CA_KEY, b"")) if ca_problem(ca, now) is None]
    signer, signer_problem = _signer(data, cas, names, now)
    leaf, leaf_problem = _leaf(data, cas, names, now)
    if signer is not None:
        cas.sort(key=lambda ca: ca != signer.certificate)
    return Stored(tuple(dict.fromkeys(cas)), signer, leaf, signer_problem, leaf_problem)


def signer_of(ca: KeyPair) -> Signer:
    """A CA that was just issued, as a signer."""
    key = load_pem_private_key(ca.key_pem, password=None)
    assert isinstance(key, ec.EllipticCurvePrivateKey), "podstamp issues ECDSA keys"
    return Signer(certificates(ca.cert_pem)[0], key)


def certificates(pem: bytes) -> list[x509.Certificate]:
    """Every certificate in `pem` that can be read, in order, each once; junk is left out."""
    found: dict[x509.Certificate, None] = {}
    for block in _CERTIFICATE.findall(pem):
        try:
            found[x509.load_pem_x509_certificate(block)] = None
        except ValueError:
            continue
    return list(found)


def fingerprint(certificate: x509.Certificate) -> str:
    """SHA-256 over the DER form, lower-case hex, as `openssl x509 -fingerprint -sha256` has it."""
    return certificate.fingerprint(hashes.SHA256()).hex()


def to_pem(cas: Iterable[x509.Certificate]) -> bytes:
    """A bundle of these certificates."""
    return b"".join(ca.public_bytes(Encoding.PEM) for ca in cas)


def renew_at(certificate: x509.Certificate) -> datetime:
    """When it should be renewed: at two thirds of its life."""
    return _at(certificate, 2 / 3)


def overdue_at(certificate: x509.Certificate) -> datetime:
    """When a renewal has been failing for long: at five sixths of its life."""
    return _at(certificate, 5 / 6)


def date_problem(certificate: x509.Certificate, now: datetime) -> str | None:
    """Why it is not valid at `now`, if so."""
    if now >= certificate.not_valid_after_utc:
        return f"expired at {stamp(certificate.not_valid_after_utc)}"
    if now < certificate.not_valid_before_utc:
        return f"is not valid before {stamp(certificate.not_valid_before_utc)}"
    return None


def stamp(time: datetime) -> str:
    """RFC 3339, UTC, whole seconds."""
    return f"{time:%Y-%m-%dT%H:%M:%SZ}"


def ca_problem(certificate: x509.Certificate, now: datetime) -> str | None:
    """Why it cannot stand in a bundle as a CA, if so."""
    try:
        basic = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
        usage = certificate.extensions.get_extension_for_class(x509.KeyUsage).value
    except (x509.ExtensionNotFound, ValueError):
        return "is not a CA"
    if not basic.ca or not usage.key_cert_sign:
        return "is not a CA"
    return date_problem(certificate, now)


def leaf_names(certificate: x509.Certificate) -> tuple[str, ...]:
    """Its subject alternative names, DNS names and IP addresses, as text."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return ()
    addresses = names.get_values_for_type(x509.IPAddress)
    return (*names.get_values_for_type(x509.DNSName), *map(str, addresses))


def _signer(
    data: Mapping[str, bytes],
    cas: Sequence[x509.Certificate],
    names: Sequence[str],
    now: datetime,
) -> tuple[Signer | None, str | None]:
    key, problem = _private_key(data, CA_PRIVATE_KEY)
    if key is None:
        return None, problem
    if not isinstance(key, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
        return None, f"{CA_PRIVATE_KEY} is of a type that podstamp does not sign with"
    bundle = certificates(data.get(CA_KEY, b""))
    own = [ca for ca in bundle if _public(ca.public_key()) == _public(key.public_key())]
    if not own:
        missing = f"holds no CA for the key in {CA_PRIVATE_KEY}" if bundle else "is missing"
        return None, f"{CA_KEY} {missing}"
    for ca in own:
        problem = ca_problem(ca, now) if ca not in cas else _signing_problem(ca, key, names[0])
        if problem is None:
            return Signer(ca, key), None
    return None, f"the CA {problem}"


@lru_cache(maxsize=4)
def _signing_problem(ca: x509.Certificate, key: CaKey, name: str) -> str | None:
    """Why clients refuse what it signs: name constraints, a weak key, an odd profile, …

    Without this trial a CA that is good by its looks would be renewed from for ever.
    """
    born = ca.not_valid_before_utc
    trial = issue_leaf(ca, key, [name], born, timedelta(days=1))
    problem = chain_problem(certificates(trial.cert_pem), ca, name, born)
    return f"cannot sign: {problem}" if problem else None


def _leaf(
    data: Mapping[str, bytes], cas: Sequence[x509.Certificate], names: Sequence[str], now: datetime
) -> tuple[Leaf | None, str | None]:
    cert_pem = data.get(CERT_KEY, b"")
    chain = certificates(cert_pem)
    if not chain:
        return None, f"{CERT_KEY} is {'unreadable' if cert_pem else 'missing'}"
    leaf = chain[0]
    key, problem = _private_key(data, PRIVATE_KEY)
    if key is None:
        return None, problem
    if _public(key.public_key()) != _public(leaf.public_key()):
        return None, f"{PRIVATE_KEY} is not the key of {CERT_KEY}"
    if not _serves(key):
        return None, f"{PRIVATE_KEY} is of a type that API servers do not take"
    dates = date_problem(leaf, now)
    if dates is not None:
        return None, f"the serving certificate {dates}"
    missing = [name for name in names if name not in leaf_names(leaf)]
    if missing:
        return None, f"the serving certificate lacks the name {', '.join(missing)}"
    if not cas:
        return None, f"{CA_KEY} holds no valid CA"
    problem = None
    for ca in cas:
        problem = chain_problem(chain, ca, names[0], now)
        if problem is None:
            return Leaf(leaf, cert_pem, data[PRIVATE_KEY], ca), None
    return None, f"no CA in {CA_KEY} vouches for the serving certificate: {problem}"


def chain_problem(
    chain: Sequence[x509.Certificate], ca: x509.Certificate, name: str, now: datetime
) -> str | None:
    """Why a client that trusts `ca` would refuse `chain` (leaf first) for `name`, if so."""
    subject = check_name(name)
    wanted = x509.DNSName(subject) if isinstance(subject, str) else x509.IPAddress(subject)
    verifier = PolicyBuilder().store(Store([ca])).time(now).build_server_verifier(wanted)
    try:
        verifier.verify(chain[0], list(chain[1:]))
    except (VerificationError, UnsupportedAlgorithm, ValueError) as error:
        return " ".join(str(error).split())
    return None


def _private_key(data: Mapping[str, bytes], name: str) -> tuple[PrivateKeyTypes | None, str | None]:
    pem = data.get(name)
    if not pem:
        return None, f"{name} is missing"
    key = _load_key(pem)
    return key, None if key is not None else f"{name} is unreadable"


@lru_cache(maxsize=8)
def _load_key(pem: bytes) -> PrivateKeyTypes | None:
    """The key; None if it cannot be read. Checking an RSA key takes long enough to be felt."""
    try:
        return load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return None


def _serves(key: PrivateKeyTypes) -> bool:
    """Whether it is of a type that kube-apiserver (Go) and OpenSSL both speak TLS with."""
    if isinstance(key, ec.EllipticCurvePrivateKey):
        return isinstance(key.curve, ec.SECP256R1 | ec.SECP384R1 | ec.SECP521R1)
    return isinstance(key, rsa.RSAPrivateKey) and key.key_size >= 2048


def _public(key: PublicKeyTypes) -> bytes:
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _at(certificate: x509.Certificate, share: float) -> datetime:
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return begin + (end - begin) * share
