"""Certificates that podstamp itself would never issue: odd keys, odd extensions, odd times."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tests.certs.world import DAY, NAMES

Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey


def new_key() -> Key:
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: Key) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


@dataclass(frozen=True)
class Forged:
    """A certificate and its key."""

    certificate: x509.Certificate
    key: Key

    @property
    def cert_pem(self) -> bytes:
        return self.certificate.public_bytes(Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        return key_pem(self.key)


def forge_ca(
    now: datetime,
    *,
    key: Key | None = None,
    subject: str = "forged CA",
    life: timedelta = 365 * DAY,
    ca: bool = True,
    extra: Iterable[x509.ExtensionType] = (),
) -> Forged:
    """A self-signed certificate; `ca` False: one that is no CA by its extensions."""
    key = key or new_key()
    extensions = [
        (x509.BasicConstraints(ca=ca, path_length=None), True),
        (_usage(sign=ca), True),
        (x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False),
        *((extension, True) for extension in extra),
    ]
    return Forged(_sign(subject, subject, key, key, now, now + life, extensions), key)


def forge_leaf(
    now: datetime,
    ca: Forged,
    *,
    key: Key | None = None,
    names: Iterable[str] = NAMES,
    life: timedelta = 90 * DAY,
    purpose: x509.ObjectIdentifier = ExtendedKeyUsageOID.SERVER_AUTH,
) -> Forged:
    """A leaf of `ca`, which may outlive it; no names: no SANs at all."""
    key = key or new_key()
    sans = [x509.DNSName(name) for name in names]
    extensions: list[tuple[x509.ExtensionType, bool]] = [
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (_usage(sign=False), True),
        (x509.ExtendedKeyUsage([purpose]), False),
        (x509.AuthorityKeyIdentifier.from_issuer_public_key(ca.key.public_key()), False),
    ]
    if sans:
        extensions.append((x509.SubjectAlternativeName(sans), False))
    issuer = ca.certificate.subject
    return Forged(_sign(NAMES[0][:64], issuer, key, ca.key, now, now + life, extensions), key)


def _sign(
    subject: str,
    issuer: str | x509.Name,
    key: Key,
    by: Key,
    begin: datetime,
    end: datetime,
    extensions: Iterable[tuple[x509.ExtensionType, bool]],
) -> x509.Certificate:
    builder = (
        x509.CertificateBuilder()
        .subject_name(_name(subject))
        .issuer_name(_name(issuer) if isinstance(issuer, str) else issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(end)
    )
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical)
    return builder.sign(by, None if isinstance(by, ed25519.Ed25519PrivateKey) else hashes.SHA256())


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _usage(*, sign: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not sign,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=sign,
        crl_sign=sign,
        encipher_only=False,
        decipher_only=False,
    )
