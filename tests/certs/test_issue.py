"""Certificates as API servers, OpenSSL and RFC 5280 want them."""

import ipaddress
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from certs.issue import check_name, issue_ca, issue_leaf, server_names
from certs.validity import certificates, leaf_names, renew_at, signer_of
from kube.errors import ConfigError
from tests.certs.tls import client_context, handshake
from tests.certs.world import DAY, NAMES, Authority
from tests.clock import FakeClock
from webhook.tls import ServingContext

NOW = datetime.now(UTC).replace(microsecond=0)
OURS = Authority.make(NOW)


def leaf(**options: object) -> x509.Certificate:
    return certificates(OURS.leaf(NOW, **options).cert_pem)[0]  # type: ignore[arg-type]  # as given


def test_the_ca_may_sign_leaves_and_nothing_else() -> None:
    extensions = OURS.certificate.extensions
    basic = extensions.get_extension_for_class(x509.BasicConstraints)
    usage = extensions.get_extension_for_class(x509.KeyUsage)
    assert (basic.critical, basic.value.ca, basic.value.path_length) == (True, True, 0)
    assert (usage.critical, usage.value.key_cert_sign) == (True, True)
    assert not usage.value.digital_signature


def test_the_leaf_serves_and_is_no_ca() -> None:
    extensions = leaf().extensions
    assert not extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    purposes = extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(purposes) == [ExtendedKeyUsageOID.SERVER_AUTH]
    usage = extensions.get_extension_for_class(x509.KeyUsage).value
    assert usage.digital_signature
    assert not usage.key_cert_sign


def test_the_leaf_names_the_key_of_its_ca() -> None:
    authority = leaf().extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value
    own = OURS.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    assert authority.key_identifier == own.digest


def test_no_two_cas_share_subject_key_or_serial() -> None:
    first, second = Authority.make(NOW).certificate, Authority.make(NOW).certificate
    assert first.subject != second.subject
    assert first.serial_number != second.serial_number
    assert first.public_key() != second.public_key()
    assert leaf().serial_number != leaf().serial_number


def test_keys_are_ecdsa_p256() -> None:
    for certificate in (OURS.certificate, leaf()):
        key = certificate.public_key()
        assert isinstance(key, ec.EllipticCurvePublicKey)
        assert isinstance(key.curve, ec.SECP256R1)


def test_both_are_valid_from_an_hour_back_for_their_life() -> None:
    for certificate, life in ((OURS.certificate, 1825 * DAY), (leaf(), 90 * DAY)):
        assert certificate.not_valid_before_utc == NOW - timedelta(hours=1)
        assert certificate.not_valid_after_utc == NOW + life


def test_a_leaf_does_not_outlive_its_ca() -> None:
    ca = Authority.make(NOW, 10 * DAY)
    made = certificates(ca.leaf(NOW).cert_pem)[0]
    assert made.not_valid_after_utc == ca.certificate.not_valid_after_utc


def test_renewal_is_due_at_two_thirds_of_the_life() -> None:
    certificate = leaf(life=timedelta(hours=2))
    assert renew_at(certificate) == NOW + timedelta(hours=1)


def test_the_names_are_the_services_and_further_ones_each_once() -> None:
    names = server_names("hook", "ns", "corp.local", ["127.0.0.1", "hook", "::1", "127.0.0.1"])
    assert names[0] == "hook.ns.svc"
    assert set(names) == {
        "hook",
        "hook.ns",
        "hook.ns.svc",
        "hook.ns.svc.corp.local",
        "127.0.0.1",
        "::1",
    }
    assert len(names) == 6
    certificate = leaf(names=names)
    assert set(leaf_names(certificate)) == set(names)
    sans = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert sans.get_values_for_type(x509.IPAddress) == [
        ipaddress.ip_address("127.0.0.1"),
        ipaddress.ip_address("::1"),
    ]


@pytest.mark.parametrize(
    "name", ["", "a b", "a..b", "-a", "a-", "a_b", "x" * 64, "ä.de", "https://a", "1.2.3.4/8"]
)
def test_what_is_no_name_is_a_users_mistake(name: str) -> None:
    with pytest.raises(ConfigError, match="neither a DNS name nor an IP address"):
        check_name(name)


def test_a_long_service_name_does_not_break_the_subject() -> None:
    names = server_names("s" * 63, "n" * 63, "cluster.local")
    assert set(leaf_names(leaf(names=names))) == set(names)


@pytest.mark.parametrize("name", [*NAMES, "127.0.0.1"])
def test_openssl_verifies_the_leaf_strictly_for_each_name(name: str) -> None:
    pair = OURS.leaf(NOW, names=(*NAMES, "127.0.0.1"))
    serving = ServingContext(clock=FakeClock(NOW))
    assert serving.offer(pair.cert_pem, pair.key_pem) is None
    trusting = client_context([OURS.certificate])
    assert handshake(serving.context, trusting, name) == certificates(pair.cert_pem)[0]


def test_openssl_refuses_it_under_another_ca() -> None:
    pair = OURS.leaf(NOW)
    serving = ServingContext(clock=FakeClock(NOW))
    serving.offer(pair.cert_pem, pair.key_pem)
    other = client_context([Authority.make(NOW).certificate])
    with pytest.raises(Exception, match="CERTIFICATE_VERIFY_FAILED"):
        handshake(serving.context, other, NAMES[0])


def test_a_ca_that_is_loaded_again_signs_on() -> None:
    signer = signer_of(issue_ca(NOW, DAY))
    made = certificates(issue_leaf(signer.certificate, signer.key, NAMES, NOW, DAY).cert_pem)[0]
    made.verify_directly_issued_by(signer.certificate)
