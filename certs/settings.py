"""Settings of certificates: the part `certs:` of webhook.yaml, and the defaults of the commands.

Invariant: names and lives that pass here can be issued.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, Literal

import msgspec
import yaml

from certs.issue import check_name, server_names
from kube import paths
from kube.client import ApiClient
from kube.errors import ConfigError, NotFound
from kube.yamltext import load_yaml

SECRET = "podstamp-webhook-cert"
REPLICAS = "podstamp-webhook-replicas"
CONFIGURATION = "podstamp"
NAMESPACE = "podstamp-system"
CONFIG = "podstamp-config"
CONFIG_KEY = "webhook.yaml"

Days = Annotated[int, msgspec.Meta(ge=1, le=36500)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=86400)]


class CertSettings(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"
):
    """`mode: self` issues, publishes and rotates; `mode: files` only serves what is mounted.

    A new certificate is served `settle_seconds` after the last change of a caBundle, so that every
    API server has seen it. A replica whose confirmation did not move for `lost_seconds` is dead.
    """

    mode: Literal["self", "files"] = "self"
    secret: str = SECRET
    service: str = "podstamp-webhook"
    cluster_domain: str = "cluster.local"
    extra_sans: tuple[str, ...] = ()
    leaf_days: Days = 90
    ca_days: Days = 1825
    settle_seconds: Seconds = 10.0
    confirm_seconds: Annotated[float, msgspec.Meta(gt=0, le=3600)] = 30.0
    lost_seconds: Annotated[float, msgspec.Meta(gt=0, le=86400)] = 150.0

    def __post_init__(self) -> None:
        for name in self.extra_sans:
            check_name(name)

    def names(self, namespace: str) -> tuple[str, ...]:
        """What the serving certificate must bear in that namespace."""
        return server_names(self.service, namespace, self.cluster_domain, self.extra_sans)

    @property
    def leaf_life(self) -> timedelta:
        return timedelta(days=self.leaf_days)

    @property
    def ca_life(self) -> timedelta:
        return timedelta(days=self.ca_days)


async def cluster_settings(
    client: ApiClient, namespace: str, flags: Mapping[str, Any]
) -> CertSettings:
    """What the webhook replicas go by, from the ConfigMap of the cluster, under `flags`.

    A command that went by other names than the replicas would issue against them. `flags` are
    camelCase; None means not given.
    """
    try:
        stored: dict[str, Any] = await client.get(paths.configmap(namespace, CONFIG))
    except NotFound:
        stored = {}
    text = (stored.get("data") or {}).get(CONFIG_KEY) or ""
    try:
        webhook = load_yaml(text) or {}
        certs = webhook.get("certs") or {}
        given = {name: value for name, value in flags.items() if value is not None}
        return msgspec.convert({**certs, **given}, CertSettings)
    except (yaml.YAMLError, AttributeError, TypeError, msgspec.ValidationError) as error:
        place = f"ConfigMap {namespace}/{CONFIG}, {CONFIG_KEY}, certs"
        raise ConfigError(f"{place} or a flag: {' '.join(str(error).split())}") from None
