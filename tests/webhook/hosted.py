"""The webhook in a test's own event loop, with a store that can be held back."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

from certs.serving import read_directory
from kube import paths
from kube.client import ApiClient
from kube.clock import SystemClock
from kube.credentials import load_credentials
from kube.pod import Pod
from kube.reflector import Reflector
from kube.store import Store
from webhook.app import AdmissionApp
from webhook.case import Settings
from webhook.config import WebhookConfig
from webhook.conflicts import Confirmer, PodView
from webhook.judge import Judge
from webhook.metrics import Tally
from webhook.server import AdmissionServer, Stop
from webhook.stamps import MANAGED
from webhook.tls import ServingContext


class HeldBack(Store[Pod]):
    """A store that learns of each change `delay_s` after it happened."""

    def __init__(self) -> None:
        super().__init__()
        self.delay_s = 0.0

    def put(self, item: Pod) -> None:
        if self.delay_s:
            asyncio.get_running_loop().call_later(self.delay_s, super().put, item)
        else:
            super().put(item)

    def remove(self, uid: str) -> None:
        if self.delay_s:
            asyncio.get_running_loop().call_later(self.delay_s, super().remove, uid)
        else:
            super().remove(uid)


class HostedWebhook:
    """A stand-in for the webhook's process; `port` is there once it is ready."""

    def __init__(self, kubeconfig: Path, certs: Path) -> None:
        self.ready = asyncio.Event()
        self.store = HeldBack()
        self.tally = Tally()
        self.port = 0
        self._kubeconfig = kubeconfig
        self._certs = certs

    async def run(self) -> None:
        """Until cancelled."""
        serving = ServingContext()
        assert serving.offer(*read_directory(self._certs)) is None
        clock = SystemClock()
        async with (
            ApiClient(load_credentials(self._kubeconfig)) as client,
            asyncio.TaskGroup() as group,
        ):
            app = AdmissionApp(
                Judge(Settings()),
                self.tally,
                view=PodView(self.store),
                confirmer=Confirmer(client, self.tally),
            )
            config = WebhookConfig(host="127.0.0.1", port=0, drain_seconds=0, stop_seconds=1)
            server = AdmissionServer(app, serving.context, config, Stop())
            self.port = server.bind()
            reflector = Reflector(
                client,
                paths.pods(),
                Pod,
                self.store,
                label_selector=f"{MANAGED}=true",
                clock=clock,
                random=random.Random(0),
            )
            group.create_task(reflector.run())
            group.create_task(server.run())
            await self.store.wait_synced()
            self.ready.set()
