"""Where the API server is and how to speak to it: a kubeconfig, or the pod's service account.

Invariant: reads files only, unless the kubeconfig names a plugin.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from kube.errors import ConfigError
from kube.kubeconfig import Resolved, decode_pem, resolve
from kube.plugins import run_plugin

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


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
    kubeconfig: str | Path | None = None,
    context: str | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
    home: Path | None = None,
    service_account: Path = SERVICE_ACCOUNT,
) -> Credentials:
    """Credentials in the usual order: `kubeconfig`, $KUBECONFIG, ~/.kube/config, service account.

    ConfigError, in one line, if what is named is absent, unreadable or incomplete.
    """
    if kubeconfig is not None:
        return _from_kubeconfig([Path(kubeconfig).expanduser()], context)
    named = [Path(p).expanduser() for p in environ.get("KUBECONFIG", "").split(os.pathsep) if p]
    if named:
        # kubectl skips files that are not there, as long as one is.
        present = [path for path in named if path.exists()]
        return _from_kubeconfig(present or named, context)
    usual = (home or Path.home()) / ".kube" / "config"
    if usual.exists():
        return _from_kubeconfig([usual], context)
    host = environ.get("KUBERNETES_SERVICE_HOST", "")
    if host:
        port = environ.get("KUBERNETES_SERVICE_PORT", "") or "443"
        return _from_service_account(host, port, service_account)
    raise ConfigError(
        f"no cluster is configured: pass --kubeconfig, set KUBECONFIG, create {usual},"
        " or run in a pod with a service account"
    )


def _from_service_account(host: str, port: str, folder: Path) -> Credentials:
    token, ca = folder / "token", folder / "ca.crt"
    for path in (token, ca):
        if not path.is_file():
            raise ConfigError(f"{path}: the service account is not mounted in this pod")
    namespace = "default"
    if (folder / "namespace").is_file():
        namespace = (folder / "namespace").read_text("utf-8").strip() or namespace
    shown = f"[{host}]" if ":" in host else host
    return Credentials(
        server=f"https://{shown}:{port}", namespace=namespace, ca_file=ca, token_file=token
    )


def _from_kubeconfig(paths: Sequence[Path], context: str | None) -> Credentials:
    resolved = resolve(paths, context)
    cluster, user = resolved.cluster, resolved.user
    if not cluster.server.startswith(("https://", "http://")):
        raise ConfigError(
            f"{paths[0]}: server {cluster.server!r} must begin with https:// or http://"
        )
    # Of a file and its `-data` twin the data counts, as in kubectl.
    ca_pem, ca_file = _material(
        cluster.certificate_authority_data,
        cluster.certificate_authority,
        resolved.cluster_folder,
        "certificate-authority",
    )
    cert_pem, cert_file = _material(
        user.client_certificate_data,
        user.client_certificate,
        resolved.user_folder,
        "client-certificate",
    )
    key_pem, key_file = _material(
        user.client_key_data, user.client_key, resolved.user_folder, "client-key"
    )
    _, token_file = _material("", user.token_file, resolved.user_folder, "tokenFile")
    if bool(cert_pem or cert_file) != bool(key_pem or key_file):
        raise ConfigError(
            f"{paths[0]}: user {resolved.context.user!r} needs both a client certificate and a key"
        )
    credentials = Credentials(
        server=cluster.server.rstrip("/"),
        namespace=resolved.context.namespace or "default",
        ca_file=ca_file,
        ca_pem=ca_pem,
        insecure=cluster.insecure_skip_tls_verify,
        tls_server_name=cluster.tls_server_name or None,
        client_cert_file=cert_file,
        client_key_file=key_file,
        client_cert_pem=cert_pem,
        client_key_pem=key_pem,
        token=user.token or None,
        token_file=token_file,
    )
    return _with_plugin(credentials, resolved, paths) if user.needs_plugin else credentials


def _with_plugin(
    credentials: Credentials, resolved: Resolved, paths: Sequence[Path]
) -> Credentials:
    issued = run_plugin(resolved, paths)
    if issued.token is None:
        return replace(
            credentials,
            client_cert_pem=issued.client_cert_pem,
            client_key_pem=issued.client_key_pem,
        )
    return replace(
        credentials,
        token=issued.token,
        fetch_token=lambda: run_plugin(resolved, paths).token,
    )


def _material(
    data: str, file: str, folder: Path, what: str
) -> tuple[str, None] | tuple[None, Path | None]:
    if data:
        return decode_pem(data, f"{what}-data"), None
    if not file:
        return None, None
    path = folder / file
    if not path.is_file():
        raise ConfigError(f"{path}: the {what} that the kubeconfig names is not there")
    return None, path
