"""Where the API server is and how to speak to it: a kubeconfig, or the pod's service account.

Invariant: reads files only; `kubernetes` is imported only where an exec or auth plugin needs it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a client needs. PEM texts are held as given; files are read again by the client."""

    server: str
    namespace: str = "default"
    ca_file: Path | None = None
    ca_pem: str | None = None
    insecure: bool = False
    tls_server_name: str | None = None
    client_cert_file: Path | None = None
    client_key_file: Path | None = None
    client_cert_pem: str | None = field(default=None, repr=False)
    client_key_pem: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    token_file: Path | None = None
    # Blocking: asks a plugin for a token; called in a thread.
    fetch_token: Callable[[], str | None] | None = None


def load_credentials(
    kubeconfig: str | Path | None = None, context: str | None = None
) -> Credentials:
    """Credentials in the usual order: `kubeconfig`, $KUBECONFIG, ~/.kube/config, service account.

    ConfigError, in one line, if what is named is absent, unreadable or incomplete.
    """
    raise NotImplementedError
