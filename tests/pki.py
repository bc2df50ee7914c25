"""A CA and leaves of it for tests, made in milliseconds, with what strict verifiers ask for.

Nothing here is shared with podstamp's own certificates, which the tests judge.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, PEM."""

    cert: str
    key: str


class TestCa:
    """Signs for as long as a test lasts."""

    __test__ = False

    def __init__(self, name: str = "test CA") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name, ())
        public = self._key.public_key()
        builder = (
            _builder(self._name, self._name, public)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .add_extension(_usage(signs_certificates=True), critical=True)
        )
        self.cert = _pem(builder.sign(self._key, hashes.SHA256()))

    def issue(
        self, *hosts: str, common_name: str = "server", organizations: Sequence[str] = ()
    ) -> Pair:
        """A leaf for these host names and IP addresses; also for a client of that name."""
        key = ec.generate_private_key(ec.SECP256R1())
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        names = x509.SubjectAlternativeName([_general_name(host) for host in hosts or ("none",)])
        builder = (
            _builder(_name(common_name, organizations), self._name, key.public_key())
            .add_extension(names, critical=False)
            .add_extension(authority, critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(both), critical=False)
        )
        text = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        return Pair(_pem(builder.sign(self._key, hashes.SHA256())), text.decode())


def _name(common_name: str, organizations: Sequence[str]) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, each) for each in organizations]
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(cert: x509.Certificate) -> str:
    return cert.public_bytes(serialization.Encoding.PEM).decode()
