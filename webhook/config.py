"""Settings of the webhook: webhook.yaml, the environment, flags.

Invariant: settings that pass here can be served.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from certs.settings import CertSettings
from kube.errors import ConfigError
from webhook.case import Settings
from webhook.sets import SetKinds, set_kinds

if TYPE_CHECKING:
    from collections.abc import Iterable

Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=3600)]


class FencedDeleters(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"
):
    """Who may delete a pod only with a UID precondition. `python -m webhook fenced-deleters`
    prints the webhook entry that sends their deletes here."""

    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


class WebhookConfig(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"
):
    """`webhook.yaml`. Port 0 is a free one.

    On SIGTERM the webhook is unready at once, serves on for `drain_seconds` while its address
    leaves the Service, and then gives what is in flight `stop_seconds`.
    """

    host: str = "0.0.0.0"
    port: Port = 9443
    health_port: Port = 8081
    kubeconfig: str = ""
    namespace: str = "podstamp-system"
    cert_dir: str = ""
    port_file: str = ""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["text", "json"] = "text"
    set_kinds: tuple[str, ...] = ()
    fenced_deleters: FencedDeleters = FencedDeleters()
    drain_seconds: Seconds = 10.0
    stop_seconds: Seconds = 15.0
    # An API server closes an idle connection after 90 s; ours must not be the first to do so.
    keep_alive_seconds: Annotated[int, msgspec.Meta(ge=1, le=3600)] = 120
    certs: CertSettings = CertSettings()


def admission_settings(config: WebhookConfig) -> Settings:
    """What the rules take of it. ConfigError: a set kind that is not written as Kind.group."""
    return Settings(
        kinds=_kinds(config.set_kinds),
        excluded_namespaces=frozenset({"kube-system", config.namespace}),
        fenced_users=frozenset(config.fenced_deleters.users),
        fenced_groups=frozenset(config.fenced_deleters.groups),
    )


def _kinds(configured: Iterable[str]) -> SetKinds:
    try:
        return set_kinds(configured)
    except ValueError as error:
        raise ConfigError(f"setKinds: {error}") from None
