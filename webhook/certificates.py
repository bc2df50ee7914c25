"""Where the serving certificate comes from: kept by podstamp itself, or files of somebody else.

Invariant: either way each replica says which certificate it serves, until it stops cleanly.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from certs.confirmations import Confirmations, Confirmer, Served
from certs.rotation import Keeper
from certs.serving import read_directory, watch_directory
from certs.settings import REPLICAS
from kube.errors import ConfigError
from kube.events import EventRecorder

if TYPE_CHECKING:
    from certs.metrics import CertMetrics
    from kube.client import ApiClient
    from kube.clock import Clock
    from webhook.config import WebhookConfig
    from webhook.tls import ServingContext


class Certificates(Protocol):
    """Offers pairs to a `ServingContext` for as long as `run` runs."""

    async def run(self) -> None: ...
    async def stop(self) -> None:
        """After the drain, and after `run` was cancelled."""

    def notice(self) -> str | None:
        """What people should know although all works."""


class OwnCertificates:
    """Issued, published and rotated by podstamp."""

    def __init__(
        self,
        config: WebhookConfig,
        client: ApiClient,
        serving: ServingContext,
        *,
        identity: str,
        clock: Clock,
        metrics: CertMetrics,
    ) -> None:
        self._recorder = EventRecorder(
            client,
            instance=identity,
            clock=clock,
            random=random.Random(),
            controller="podstamp.dev/webhook",
        )
        self._keeper = Keeper(
            client,
            serving,
            namespace=config.namespace,
            settings=config.certs,
            identity=identity,
            clock=clock,
            random=random.Random(),
            recorder=self._recorder,
            metrics=metrics,
        )

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._recorder.run())
            group.create_task(self._keeper.run())

    async def stop(self) -> None:
        await self._keeper.stop()

    def notice(self) -> str | None:
        return self._keeper.notice()


class FileCertificates:
    """Read from a folder, and again when its content changes."""

    def __init__(
        self,
        folder: Path,
        namespace: str,
        client: ApiClient,
        serving: ServingContext,
        *,
        identity: str,
        clock: Clock,
    ) -> None:
        """ConfigError: what is there now cannot be served."""
        refused = serving.take(*read_directory(folder))
        if refused is not None:
            raise ConfigError(f"{folder}: the certificate cannot be served: {refused}")
        self._folder = folder
        self._serving = serving
        self._clock = clock
        self._confirmer = Confirmer(
            Confirmations(client, namespace, REPLICAS),
            self._served,
            identity=identity,
            clock=clock,
        )

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(watch_directory(self._folder, self._serving.offer, clock=self._clock))
            group.create_task(self._confirmer.run())

    async def stop(self) -> None:
        await self._confirmer.stop()

    def notice(self) -> str | None:
        return None

    def _served(self) -> Served | None:
        leaf, end = self._serving.fingerprint, self._serving.not_after
        return Served(leaf, "", end) if leaf is not None and end is not None else None


def open_certificates(
    config: WebhookConfig,
    client: ApiClient,
    serving: ServingContext,
    *,
    identity: str,
    clock: Clock,
    metrics: CertMetrics,
) -> Certificates:
    """The source that the settings name. ConfigError: files that cannot be served."""
    if config.cert_dir:
        return FileCertificates(
            Path(config.cert_dir),
            config.namespace,
            client,
            serving,
            identity=identity,
            clock=clock,
        )
    if config.certs.mode == "files":
        raise ConfigError("certs.mode is files: say where they are with --cert-dir")
    return OwnCertificates(config, client, serving, identity=identity, clock=clock, metrics=metrics)
