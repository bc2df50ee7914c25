"""Makes the kind of a router from its configuration.

Invariant: one case for each kind; what kinds have in common is made by the caller, once.
"""

from __future__ import annotations

import random as random_module
from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

from controller.routers.annotate import Annotator
from controller.routers.config import (
    AnnotateRouter,
    DynamicConfigRouter,
    EndpointSliceRouter,
    Replicas,
    RouterConfig,
    WebhookUrlRouter,
    WorkerFileRouter,
    WorkersRouter,
)
from controller.routers.desired import Desired
from controller.routers.document import document_of
from controller.routers.document_kind import DocumentKind, Format
from controller.routers.dynamic_config import DynamicConfig
from controller.routers.endpointslice import EndpointSlices
from controller.routers.kinds import Kind
from controller.routers.metrics import RouterMetrics
from controller.routers.record import Record
from controller.routers.transport import Connector
from controller.routers.wake import Spawn
from controller.routers.webhook_url import WebhookUrl
from controller.routers.worker_file import WorkerFile
from controller.routers.workers import Workers
from kube.client import ApiClient
from kube.clock import Clock
from kube.pod import Pod
from kube.store import Store


@dataclass(frozen=True, slots=True)
class Parts:
    """What a kind is made from. `replicas` are the router's own pods, where they are chosen."""

    client: ApiClient
    record: Record
    replicas: Store[Pod] | None
    clock: Clock
    random: random_module.Random
    metrics: RouterMetrics
    latest: Callable[[], Desired]
    wake: Callable[[], None]
    spawn: Spawn


def make_kind(config: RouterConfig, parts: Parts) -> Kind:
    """ConfigError: a CA file cannot be read."""
    match config:
        case WorkersRouter():
            return Workers(
                config,
                record=parts.record,
                pods=parts.replicas,
                clock=parts.clock,
                random=parts.random,
                metrics=parts.metrics,
                latest=parts.latest,
                wake=parts.wake,
                spawn=parts.spawn,
            )
        case WorkerFileRouter():
            return _document_kind(config, WorkerFile(adapters=config.adapter_workers), parts)
        case DynamicConfigRouter():
            return _document_kind(config, DynamicConfig(config), parts)
        case EndpointSliceRouter():
            return EndpointSlices(config, client=parts.client, latest=parts.latest)
        case AnnotateRouter():
            return Annotator(
                config.name,
                record=parts.record,
                client=parts.client,
                clock=parts.clock,
                metrics=parts.metrics,
                latest=parts.latest,
            )
        case WebhookUrlRouter():
            return WebhookUrl(config, record=parts.record, clock=parts.clock, metrics=parts.metrics)
        case _:
            assert_never(config)


def check_files(config: RouterConfig) -> None:
    """ConfigError: a CA file of this router cannot be read."""
    engines, replicas = config.engines, replicas_config(config)
    used = [(engines.scheme == "https", config.probe.ca_file)]
    if replicas is not None:
        used.append((replicas.https, replicas.ca_file))
    if isinstance(config, WebhookUrlRouter):
        used.append((config.url.startswith("https:"), config.ca_file))
    for https, ca_file in used:
        Connector(https=https, ca_file=ca_file, timeout_s=1.0)


def replicas_config(config: RouterConfig) -> Replicas | None:
    """Where the API of the router's replicas is, for the kinds that use it."""
    match config:
        case WorkersRouter() | WorkerFileRouter() | DynamicConfigRouter():
            return config.replicas
        case _:
            return None


def refresh_s(config: RouterConfig) -> float:
    """How often engines are asked although nothing changed; 0 is never."""
    if isinstance(config, AnnotateRouter):
        return config.poll_seconds
    return config.probe.refresh_seconds


def _document_kind(
    config: WorkerFileRouter | DynamicConfigRouter, format: Format, parts: Parts
) -> DocumentKind:
    replicas = config.replicas
    return DocumentKind(
        document_of(parts.client, config.file, config.config_map),
        format,
        replicas=replicas,
        pickup_s=config.pickup_seconds,
        connector=Connector(
            https=replicas.https, ca_file=replicas.ca_file, timeout_s=replicas.timeout_seconds
        ),
        pods=parts.replicas,
        clock=parts.clock,
        router=config.name,
        wake=parts.wake,
    )
