"""Issues the CA and the serving certificate.

Pure but for the key material: the caller gives names, lives and the time. Each CA has a subject of
its own, made from its key, so that two CAs in one bundle are never taken for each other.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kube.errors import ConfigError

CaKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
"""Keys of a CA that podstamp signs with. Its own are ECDSA P-256."""

BACKDATED = timedelta(hours=1)
"""How far NotBefore lies back, for API servers whose clock is behind ours."""

_LABEL_MAX = 63
_COMMON_NAME_MAX = 64


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its private key, both PEM; the key as unencrypted PKCS #8."""

    cert_pem: bytes
    key_pem: bytes


def server_names(
    service: str, namespace: str, domain: str, extra: Iterable[str] = ()
) -> tuple[str, ...]:
    """The names that the serving certificate bears, the one that API servers ask for first.

    kube-apiserver verifies a webhook that is reached by Service as `<service>.<namespace>.svc`.
    `extra` are DNS names or IP addresses, for webhooks that are reached by URL.
    """
    own = f"{service}.{namespace}"
    names = [f"{own}.svc", f"{own}.svc.{domain}", own, service]
    names += (str(check_name(name)) for name in extra)
    return tuple(dict.fromkeys(names))


def check_name(name: str) -> str | ipaddress.IPv4Address | ipaddress.IPv6Address:
    """The name as an IP address if it is one, else as a DNS name; ConfigError if it is neither."""
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        pass
    labels = name.removeprefix("*.").split(".")
    for label in labels:
        plain = label.replace("-", "").isalnum() and label.isascii()
        if not plain or label[0] == "-" or label[-1] == "-" or len(label) > _LABEL_MAX:
            raise ConfigError(f"{name!r} is neither a DNS name nor an IP address")
    return name


def issue_ca(now: datetime, life: timedelta) -> KeyPair:
    """A new self-signed CA that may sign serving certificates, but no further CAs."""
    key = ec.generate_private_key(ec.SECP256R1())
    key_id = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    name = _name(f"podstamp CA {key_id.digest.hex()[:16]}")
    certificate = (
        _builder(name, name, key, now, now + life)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(key_cert_sign=True, crl_sign=True), critical=True)
        .add_extension(key_id, critical=False)
        .sign(key, hashes.SHA256())
    )
    return _pair(certificate, key)


def issue_leaf(
    ca: x509.Certificate,
    ca_key: CaKey,
    names: Iterable[str],
    now: datetime,
    life: timedelta,
) -> KeyPair:
    """A new serving certificate for `names` that does not outlive its CA."""
    key = ec.generate_private_key(ec.SECP256R1())
    checked = [check_name(name) for name in names]
    sans = [x509.DNSName(n) if isinstance(n, str) else x509.IPAddress(n) for n in checked]
    common = next((str(n) for n in checked if len(str(n)) <= _COMMON_NAME_MAX), "podstamp webhook")
    end = min(now + life, ca.not_valid_after_utc)
    certificate = (
        _builder(_name(common), ca.subject, key, now, end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(digital_signature=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(sans), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(_authority(ca), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    return _pair(certificate, key)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    now: datetime,
    end: datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(end)
    )


def _authority(ca: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    try:
        own = ca.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    except x509.ExtensionNotFound:
        own = x509.SubjectKeyIdentifier.from_public_key(ca.public_key())
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own)


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _usage(
    *, digital_signature: bool = False, key_cert_sign: bool = False, crl_sign: bool = False
) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=key_cert_sign,
        crl_sign=crl_sign,
        encipher_only=False,
        decipher_only=False,
    )


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> KeyPair:
    return KeyPair(
        cert_pem=certificate.public_bytes(Encoding.PEM),
        key_pem=key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    )
