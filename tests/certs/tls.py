"""TLS handshakes in memory, judged as strictly as OpenSSL can."""

import ssl
from collections.abc import Iterable

from cryptography import x509

from certs.validity import to_pem

_ROUNDS = 8


def client_context(cas: Iterable[x509.Certificate]) -> ssl.SSLContext:
    """What a client that trusts only `cas` goes by."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    context.load_verify_locations(cadata=to_pem(cas).decode())
    return context


def blind_context() -> ssl.SSLContext:
    """A client that takes any certificate, to see which one it gets."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def handshake(
    server: ssl.SSLContext,
    client: ssl.SSLContext,
    name: str | None,
    version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3,
) -> x509.Certificate:
    """The certificate that the server showed; SSLError if the client refuses it."""
    client.maximum_version = version
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    mine = client.wrap_bio(to_client, to_server, server_hostname=name)
    ends = [mine, server.wrap_bio(to_server, to_client, server_side=True)]
    for _ in range(_ROUNDS):
        for end in tuple(ends):
            try:
                end.do_handshake()
                ends.remove(end)
            except ssl.SSLWantReadError:
                continue
    shown = mine.getpeercert(binary_form=True)
    assert shown is not None, "the handshake came to no end"
    return x509.load_der_x509_certificate(shown)
