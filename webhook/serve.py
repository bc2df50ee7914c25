"""Composes the serving process: store, rules, certificates, listener and probes.

Invariant: it serves from the first pair of certificates on, whether or not its store is in sync;
the first task that fails ends the process.
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from prometheus_client import CollectorRegistry

from certs.metrics import CertMetrics
from kube import paths
from kube.client import ApiClient
from kube.clock import SystemClock
from kube.credentials import load_credentials
from kube.errors import ConfigError, Forbidden
from kube.health import HealthServer
from kube.logs import get_logger
from kube.pod import Pod
from kube.reflector import Reflector
from kube.store import Store
from webhook import stamps
from webhook.app import AdmissionApp
from webhook.certificates import open_certificates
from webhook.config import WebhookConfig, admission_settings
from webhook.conflicts import Confirmer, PodView
from webhook.judge import Judge
from webhook.metrics import Tally
from webhook.server import AdmissionServer, Stop
from webhook.tls import ServingContext

if TYPE_CHECKING:
    from collections.abc import Coroutine

log = get_logger(__name__)

_SELECTOR = f"{stamps.MANAGED}=true"
_ROLES_S = 10.0


async def serve(config: WebhookConfig) -> int:
    """Serve until SIGTERM. KubeError: what keeps it from starting."""
    settings = admission_settings(config)
    clock = SystemClock()
    registry = CollectorRegistry()
    stop = Stop()
    stop.install(asyncio.get_running_loop())
    async with ApiClient(load_credentials(config.kubeconfig or None)) as client:
        await _check_access(client, clock)
        store: Store[Pod] = Store(clock)
        tally = Tally(store.age_s)
        registry.register(tally)
        app = AdmissionApp(
            Judge(settings), tally, view=PodView(store), confirmer=Confirmer(client, tally)
        )
        metrics = CertMetrics(registry)
        serving = ServingContext(clock=clock, metrics=metrics)
        certificates = open_certificates(
            config,
            client,
            serving,
            identity=os.environ.get("POD_NAME") or f"{socket.gethostname()}-{os.getpid()}",
            clock=clock,
            metrics=metrics,
        )
        server = AdmissionServer(app, serving.context, config, stop)
        health = HealthServer(
            config.health_port,
            lambda: None,
            lambda: "stopping" if app.draining else serving.ready() or server.ready(),
            {},
            registry,
            host=config.host,
            notice=certificates.notice,
        )
        port = server.bind()
        try:
            await health.start()
            server.on_started = lambda: _announce(config.port_file, port, health.port)
            await _run_beside(
                [_reflect(client, store, clock), certificates.run(), health.run()],
                _admit(server, serving, stop),
            )
        finally:
            server.close()
        await certificates.stop()
    return 0


async def _check_access(client: ApiClient, clock: SystemClock) -> None:
    """A wrong server, token or role is told now, and not by a store that never fills."""
    give_up = clock.monotonic() + _ROLES_S
    while True:
        try:
            await client.get_raw(paths.pods(), params={"labelSelector": _SELECTOR, "limit": "1"})
            return
        except Forbidden:
            # An API server that has just started forbids all until it has read the roles.
            if clock.monotonic() > give_up:
                raise
        await clock.sleep(1)


def _reflect(
    client: ApiClient, store: Store[Pod], clock: SystemClock
) -> Coroutine[object, object, None]:
    return Reflector(
        client,
        paths.pods(),
        Pod,
        store,
        label_selector=_SELECTOR,
        clock=clock,
        random=random.Random(),
    ).run()


def _spare_the_collector() -> None:
    """What is there when serving begins stays; nothing is won by looking at it again."""
    gc.collect()
    gc.freeze()


async def _admit(server: AdmissionServer, serving: ServingContext, stop: Stop) -> None:
    """Serve as soon as there is a certificate, until the stop."""
    served = asyncio.ensure_future(serving.wait_served())
    stopped: asyncio.Future[Any] = asyncio.ensure_future(stop.requested.wait())
    await asyncio.wait({served, stopped}, return_when=asyncio.FIRST_COMPLETED)
    served.cancel()
    stopped.cancel()
    if not stop.requested.is_set():
        _spare_the_collector()
        await server.run()


def _announce(port_file: str, port: int, health_port: int) -> None:
    log.info("serving", port=port, health_port=health_port)
    if port_file:
        file = Path(port_file)
        partial = file.with_name(f"{file.name}.partial")
        try:
            partial.write_bytes(msgspec.json.encode({"port": port, "health_port": health_port}))
            partial.replace(file)
        except OSError as error:
            raise ConfigError(f"--port-file {file}: {error.strerror or error}") from None


async def _run_beside(
    tasks: list[Coroutine[object, object, None]],
    main: Coroutine[object, object, None],
) -> None:
    """Run `main` to its end, with `tasks` beside it; a task that fails ends it with its error."""
    running = [asyncio.ensure_future(task) for task in tasks]
    leading = asyncio.ensure_future(main)
    try:
        done, _ = await asyncio.wait({leading, *running}, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in (leading, *running):
            task.cancel()
        await asyncio.gather(leading, *running, return_exceptions=True)
