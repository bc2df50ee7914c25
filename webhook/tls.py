"""The TLS side of serving: one context for the listener, one inner context for each pair.

Invariant: what is served has completed a handshake on a context of its own before; a pair that
cannot do that changes nothing. Swapping the whole inner context, not loading into the live one,
also gets rid of the old certificate when the new key is of another type.
"""

import asyncio
import hashlib
import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from cryptography import x509

from certs.metrics import CertMetrics
from certs.validity import certificates, fingerprint
from kube.clock import Clock, SystemClock
from kube.logs import get_logger

log = get_logger(__name__)

_ROUNDS = 8  # a TLS handshake needs at most three turns on each side


class ServingContext:
    """`context` goes to the server; `offer` changes what new connections get.

    Connections that are open stay as they are.
    """

    def __init__(self, *, clock: Clock | None = None, metrics: CertMetrics | None = None) -> None:
        self.context = _server_context()
        self.context.sni_callback = self._choose  # runs for clients without SNI as well
        self.fingerprint: str | None = None
        self.not_after: datetime | None = None
        self._not_before: datetime | None = None
        self._clock = clock or SystemClock()
        self._metrics = metrics
        self._current: ssl.SSLContext | None = None
        self._served = asyncio.Event()
        self._refused: str | None = None

    def offer(self, cert_pem: bytes, key_pem: bytes) -> str | None:
        """Serve this pair (PEM) to new connections. None: done; else why not, in one line.

        One that is out of its dates is taken only while nothing better is served.
        """
        why = self.take(cert_pem, key_pem)
        if why is not None:
            self._tell(cert_pem, key_pem, why)
        return why

    def take(self, cert_pem: bytes, key_pem: bytes) -> str | None:
        """The same, but the caller is the one who tells about a refusal."""
        if not certificates(cert_pem):
            return "there is no certificate in it"
        if b"PRIVATE KEY-----" not in key_pem:
            return "there is no private key in it"
        trial = _server_context()
        try:
            with _as_file(cert_pem.rstrip() + b"\n" + key_pem) as path:
                trial.load_cert_chain(path, password=_no_password)
            _handshake(trial)
        except (ssl.SSLError, ValueError) as error:
            return f"it cannot serve: {_plain(error)}"
        certificate = certificates(cert_pem)[0]
        bad_dates = _out_of_dates(
            certificate.not_valid_before_utc, certificate.not_valid_after_utc, self._clock.now()
        )
        if bad_dates and self.ready() is None:
            return bad_dates
        self._serve(trial, certificate)
        return None

    def ready(self) -> str | None:
        """None while a certificate that is valid now is served; otherwise what is wrong."""
        if self._not_before is None or self.not_after is None:
            return "no serving certificate yet"
        bad_dates = _out_of_dates(self._not_before, self.not_after, self._clock.now())
        return f"the serving certificate is bad: {bad_dates}" if bad_dates else None

    async def wait_served(self) -> None:
        """Return once a first pair is served."""
        await self._served.wait()

    def _choose(self, tls: ssl.SSLObject, _name: str | None, _outer: ssl.SSLContext) -> int | None:
        if self._current is None:
            return ssl.ALERT_DESCRIPTION_INTERNAL_ERROR
        tls.context = self._current
        return None

    def _serve(self, trial: ssl.SSLContext, certificate: x509.Certificate) -> None:
        new = fingerprint(certificate)
        self._current = trial
        self._refused = None
        self._not_before = certificate.not_valid_before_utc
        self.not_after = certificate.not_valid_after_utc
        if new != self.fingerprint:
            self.fingerprint = new
            log.info("serving a new certificate", fingerprint=new, not_after=self.not_after)
        if self._metrics is not None:
            self._metrics.served(self.not_after)
        self._served.set()

    def _tell(self, cert_pem: bytes, key_pem: bytes, why: str) -> None:
        content = hashlib.sha256(cert_pem + b"\0" + key_pem).hexdigest()
        if content != self._refused:  # a source that keeps offering it is heard once
            self._refused = content
            if self._current is None:
                log.error("bad serving certificate, and there is none yet", why=why)
            else:
                log.error("bad serving certificate, the old one stays", why=why)
            if self._metrics is not None:
                self._metrics.refused()


def _server_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Without resumption every new connection shows the certificate that is served now.
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    return context


def _out_of_dates(begin: datetime, end: datetime, now: datetime) -> str | None:
    if now >= end:
        return f"it expired at {end:%Y-%m-%dT%H:%M:%SZ}"
    if now < begin:
        return f"it is not valid before {begin:%Y-%m-%dT%H:%M:%SZ}"
    return None


def _handshake(server: ssl.SSLContext) -> None:
    """A whole handshake in memory: a key that no client can use fails here, not in service."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_mode = ssl.CERT_NONE  # trust is the API server's to judge; here the pair is
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(_ROUNDS):
        for end in tuple(ends):
            try:
                end.do_handshake()
                ends.remove(end)
            except ssl.SSLWantReadError:
                continue
        if not ends:
            return
    raise ssl.SSLError("the handshake does not come to an end")


@contextmanager
def _as_file(pem: bytes) -> Iterator[str]:
    """A path with that content, which `load_cert_chain` insists on; in memory where possible."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("serving-pair", os.MFD_CLOEXEC)
        try:
            with os.fdopen(os.dup(descriptor), "wb") as file:
                file.write(pem)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
    else:
        with tempfile.NamedTemporaryFile() as file:  # only its owner may read it
            file.write(pem)
            file.flush()
            yield file.name


def _no_password() -> str:
    raise ValueError("the key is encrypted; store it without a password")


def _plain(error: Exception) -> str:
    return getattr(error, "reason", None) or " ".join(str(error).split())
