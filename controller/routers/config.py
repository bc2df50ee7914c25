"""The `routers:` list of controller.yaml: one struct for each kind, chosen by its `kind`.

Invariant: a value that decodes, and passes `check_routers`, can be run; everything that a
user can get wrong is refused here, with the path of the field.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, TypeAlias
from urllib.parse import urlsplit

from msgspec import Meta, Struct, field

from kube.errors import ConfigError

Name: TypeAlias = Annotated[str, Meta(pattern=r"^[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?$")]
Port: TypeAlias = Annotated[int, Meta(ge=1, le=65535)]
PortName: TypeAlias = Annotated[str, Meta(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")]
Namespace: TypeAlias = Annotated[str, Meta(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")]
AnyNamespace: TypeAlias = Annotated[str, Meta(pattern=r"^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)?$")]
ObjectName: TypeAlias = Annotated[str, Meta(pattern=r"^[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?$")]
Seconds: TypeAlias = Annotated[float, Meta(gt=0, le=600)]
HttpPath: TypeAlias = Annotated[str, Meta(pattern=r"^(/.*)?$")]
RoutingLogic: TypeAlias = Literal[
    "roundrobin",
    "session",
    "kvaware",
    "prefixaware",
    "disaggregated_prefill",
    "disaggregated_prefill_orchestrated",
]


class EngineSource(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Which objects are engines, and how their URL is made."""

    source: Literal["pods", "services"] = "pods"
    namespace: AnyNamespace = ""
    selector: dict[str, str] = field(default_factory=dict)
    port: Port | PortName = 8000
    scheme: Literal["http", "https"] = "http"
    address_family: Literal["primary", "IPv4", "IPv6"] = "primary"
    service_address: Literal["dns", "clusterIP"] = "dns"
    model_label: str = "model"
    sleeping_label: str = "sleeping"
    container: str = ""
    indexes: tuple[Annotated[int, Meta(ge=0)], ...] = ()


class Probe(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """What an engine is asked before a router hears of it; an empty path is not asked."""

    health_path: HttpPath = "/health"
    models_path: HttpPath = "/v1/models"
    sleeping_path: HttpPath = ""
    token_file: str = ""
    ca_file: str = ""
    timeout_seconds: Seconds = 3.0
    concurrency: Annotated[int, Meta(ge=1, le=2048)] = 128
    retry_seconds: Seconds = 1.0
    max_retry_seconds: Seconds = 15.0
    refresh_seconds: Annotated[float, Meta(ge=0, le=86400)] = 0.0


class Guard(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """When a removal needs a second, consistent list of the API server."""

    max_removal_share: Annotated[float, Meta(ge=0, le=1)] = 0.5
    confirm_after_seconds: Annotated[float, Meta(ge=0, le=60)] = 0.25


class ReplicaPods(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The pods of a router; each is addressed by its own IP, never through a Service."""

    namespace: Namespace
    selector: Annotated[dict[str, str], Meta(min_length=1)]
    port: Port | PortName
    scheme: Literal["http", "https"] = "http"


class Replicas(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Where a router's own HTTP API is: URLs, pods, or both."""

    urls: tuple[str, ...] = ()
    pods: ReplicaPods | None = None
    api_key_file: str = ""
    ca_file: str = ""
    timeout_seconds: Seconds = 5.0

    @property
    def https(self) -> bool:
        """Whether any replica is spoken to over TLS."""
        return any(url.startswith("https:") for url in self.urls) or (
            self.pods is not None and self.pods.scheme == "https"
        )


class ConfigMapKey(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """One key of a ConfigMap that a router mounts."""

    namespace: Namespace
    name: ObjectName
    key: Annotated[str, Meta(pattern=r"^[-._a-zA-Z0-9]{1,253}$")]


class EventObject(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The object on which events about this router are recorded."""

    api_version: str
    kind: str
    name: str
    namespace: AnyNamespace = ""


class _Router(Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    name: Name
    engines: EngineSource = EngineSource()
    probe: Probe = Probe()
    guard: Guard = Guard()
    period_seconds: Annotated[float, Meta(ge=1, le=300)] = 15.0
    object: EventObject | None = None


class WorkersRouter(_Router, frozen=True, tag="workers", tag_field="kind"):
    """The HTTP worker API of vllm-router, sglang-router and smg.

    `startupTimeoutSeconds` is the router's own limit for an add that it has only queued: until
    then such an add can still appear after it was deleted.
    """

    dialect: Literal["vllm", "sglang", "smg", "legacy"]
    replicas: Replicas
    startup_timeout_seconds: Annotated[float, Meta(gt=0, le=7200)] = 60.0
    adapter_workers: bool = True


class WorkerFileRouter(_Router, frozen=True, tag="worker-file", tag_field="kind"):
    """The discovery file of smg, as a ConfigMap key or a file."""

    file: str = ""
    config_map: ConfigMapKey | None = None
    replicas: Replicas = Replicas()
    pickup_seconds: Seconds = 120.0
    adapter_workers: bool = True


class DynamicConfigRouter(_Router, frozen=True, tag="dynamic-config", tag_field="kind"):
    """The dynamic configuration of the production-stack router."""

    file: str = ""
    config_map: ConfigMapKey | None = None
    replicas: Replicas = Replicas()
    pickup_seconds: Seconds = 120.0
    routing_logic: RoutingLogic = "roundrobin"
    session_key: str = ""
    prefill_model_labels: str = ""
    decode_model_labels: str = ""


class EndpointSliceRouter(_Router, frozen=True, tag="endpointslice", tag_field="kind"):
    """EndpointSlices of a Service that has no selector."""

    namespace: Namespace
    service: ObjectName
    port_name: Annotated[str, Meta(pattern=r"^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)?$")] = ""
    max_endpoints: Annotated[int, Meta(ge=1, le=1000)] = 1000
    zones: bool = True


class AnnotateRouter(_Router, frozen=True, tag="annotate", tag_field="kind"):
    """A router with its own discovery, told of adapters by touching `lora-modified`."""

    poll_seconds: Annotated[float, Meta(ge=1, le=86400)] = 30.0


class WebhookUrlRouter(_Router, frozen=True, tag="webhook-url", tag_field="kind"):
    """Anything else: a signed POST of the whole desired set."""

    url: str
    secret_file: Annotated[str, Meta(min_length=1)]
    ca_file: str = ""
    timeout_seconds: Seconds = 5.0
    repeat_seconds: Annotated[float, Meta(ge=0, le=86400)] = 300.0


RouterConfig: TypeAlias = (
    WorkersRouter
    | WorkerFileRouter
    | DynamicConfigRouter
    | EndpointSliceRouter
    | AnnotateRouter
    | WebhookUrlRouter
)


def kind_of(config: RouterConfig) -> str:
    """The `kind` that this struct is written with."""
    return str(config.__struct_config__.tag)


def check_routers(configs: Sequence[RouterConfig]) -> None:
    """Refuse what the types alone cannot.

    Raises ConfigError: `routers[1].name: "chat" is taken by routers[0]; give each its own`.
    """
    taken: dict[str, int] = {}
    for index, config in enumerate(configs):
        where = f"routers[{index}]"
        if (first := taken.setdefault(config.name, index)) != index:
            raise ConfigError(
                f'{where}.name: "{config.name}" is taken by routers[{first}]; give each its own'
            )
        _check_engines(where, config)
        match config:
            case WorkersRouter():
                if not config.replicas.urls and config.replicas.pods is None:
                    raise ConfigError(f"{where}.replicas: give urls, pods, or both")
                _check_urls(f"{where}.replicas.urls", config.replicas.urls)
            case WorkerFileRouter() | DynamicConfigRouter():
                if bool(config.file) == (config.config_map is not None):
                    raise ConfigError(f"{where}: give either file or configMap")
                _check_urls(f"{where}.replicas.urls", config.replicas.urls)
            case WebhookUrlRouter():
                _check_urls(f"{where}.url", (config.url,), path=True)
            case EndpointSliceRouter() | AnnotateRouter():
                if config.engines.source != "pods":
                    raise ConfigError(
                        f"{where}.engines.source: {kind_of(config)} works with pods only"
                    )
        if isinstance(config, DynamicConfigRouter):
            _check_dynamic(where, config)


def _check_engines(where: str, config: RouterConfig) -> None:
    if not config.engines.namespace and not config.engines.selector:
        raise ConfigError(
            f"{where}.engines: give a namespace, a selector, or both: without them every "
            "managed pod of the cluster would be an engine of this router"
        )
    if config.probe.max_retry_seconds < config.probe.retry_seconds:
        raise ConfigError(f"{where}.probe.maxRetrySeconds: must not be less than retrySeconds")


def _check_urls(where: str, urls: Sequence[str], *, path: bool = False) -> None:
    for url in urls:
        try:
            parts = urlsplit(url)
            valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:
            valid = False
        if not valid or (not path and (parts.path not in ("", "/") or parts.query)):
            raise ConfigError(f'{where}: "{url}" is no URL such as http://host:port')


def _check_dynamic(where: str, config: DynamicConfigRouter) -> None:
    if config.routing_logic == "session" and not config.session_key:
        raise ConfigError(f"{where}.sessionKey: routingLogic session needs it")
    if config.routing_logic.startswith("disaggregated") and not (
        config.prefill_model_labels and config.decode_model_labels
    ):
        raise ConfigError(
            f"{where}.prefillModelLabels, decodeModelLabels: "
            f"routingLogic {config.routing_logic} needs both"
        )
