"""The TLS side of credentials: what is trusted, and which certificate is shown.

Invariant: a context is built once and never changed; new material makes a new context.
"""

import os
import ssl
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from kube.credentials import Credentials
from kube.errors import ConfigError


@dataclass(frozen=True, slots=True)
class TlsMaterial:
    """PEM bytes as they are now; two equal ones make the same context. None: the system's CAs."""

    ca: bytes | None
    cert: bytes | None = field(repr=False)
    key: bytes | None = field(repr=False)


def read_material(credentials: Credentials) -> TlsMaterial:
    """The material that `credentials` name, files read now. ConfigError: one cannot be read."""
    return TlsMaterial(
        _pem(credentials.ca_pem, credentials.ca_file, "CA"),
        _pem(credentials.client_cert_pem, credentials.client_cert_file, "client certificate"),
        _pem(credentials.client_key_pem, credentials.client_key_file, "client key"),
    )


def build_context(material: TlsMaterial, *, insecure: bool) -> ssl.SSLContext:
    """A client context. ConfigError: the material is no PEM, or certificate and key differ."""
    try:
        if material.ca is None:
            context = ssl.create_default_context()
        else:
            # Loaded apart: given an empty text, the function above would trust the whole web.
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.load_verify_locations(cadata=material.ca.decode("ascii"))
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(f"the cluster's CA certificate cannot be used: {error}") from error
    # Python 3.13 asks for extensions that the CAs of many clusters (kubeadm's) do not have.
    context.verify_flags &= ~ssl.VerifyFlags.VERIFY_X509_STRICT
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if material.cert is not None and material.key is not None:
        _load_pair(context, material.cert, material.key)
    return context


def plain_context() -> ssl.SSLContext:
    """For a server without TLS, such as `kubectl proxy`: trusts nobody and is never used."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def _load_pair(context: ssl.SSLContext, cert: bytes, key: bytes) -> None:
    # OpenSSL loads pairs from files only; mkstemp makes this one readable by us alone.
    handle, name = tempfile.mkstemp(prefix="podstamp-", suffix=".pem")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(cert + b"\n" + key)
        context.load_cert_chain(name, password=lambda: "")
    except ssl.SSLError as error:
        raise ConfigError(f"the client certificate and key cannot be used: {error}") from error
    finally:
        Path(name).unlink()


def _pem(text: str | None, file: Path | None, what: str) -> bytes | None:
    if text is not None:
        return text.encode()
    if file is None:
        return None
    try:
        return file.read_bytes()
    except OSError as error:
        raise ConfigError(f"{file}: cannot read the {what}: {error.strerror}") from error
