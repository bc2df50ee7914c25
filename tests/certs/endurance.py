"""Two webhook processes under steady admission, while certificates rotate and processes die.

For any API server: it needs podstamp's configurations, which call the address of the balancer, and
an enabled namespace. What the API server itself refuses while a bundle is wiped nobody can prevent:
writers then do as controllers do, and try again; the time is measured and bounded.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

from certs.bundles import BundleStore
from certs.secret import Secret, SecretStore
from certs.settings import CONFIGURATION, NAMESPACE, SECRET
from certs.validity import certificates, fingerprint
from kube import paths
from kube.client import ApiClient
from kube.errors import KubeError, ServerError
from tests.e2e.balancer import Balancer
from tests.launch import Launched, launch_webhook

SETTINGS = {
    "settleSeconds": 0.2,
    "confirmSeconds": 2,
    "lostSeconds": 10,
    "extraSans": ["127.0.0.1"],
}
# At the end nothing is on its way, and pooled idle connections never answer a goodbye.
STOP = {"drainSeconds": 0, "stopSeconds": 0.2}
WRITERS = 2
PAUSE_S = 0.03
LOOK_S = 0.02
LIMIT_S = 60.0
# An API server that has not yet noticed that an idle connection was closed writes into it.
NOTICED_S = 0.2

Moment = Literal["asked", "CA added", "bundles filled", "leaf renewed", "served", "CA dropped"]


_LEAF_DEATHS: tuple[Moment, ...] = ("leaf renewed",)
_CA_DEATHS: tuple[Moment, ...] = (
    "asked",
    "CA added",
    "bundles filled",
    "leaf renewed",
    "served",
    "CA dropped",
)
ROTATIONS = 10


@dataclass
class Traffic:
    """Steady dry-run creates. `failures`: what a client saw fail; `refused`: while wiped."""

    client: ApiClient
    namespace: str
    answers: int = 0
    refused: int = 0
    failures: list[str] = field(default_factory=list)
    wiped: bool = False
    _open: asyncio.Event = field(default_factory=asyncio.Event)
    _idle: asyncio.Event = field(default_factory=asyncio.Event)
    _busy: int = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        self._open.set()
        writers = [asyncio.create_task(self._write(number)) for number in range(WRITERS)]
        try:
            yield
        finally:
            for writer in writers:
                writer.cancel()
            await asyncio.gather(*writers, return_exceptions=True)

    @asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        """Nothing is on its way, so that a process can die without taking reviews with it."""
        self._open.clear()
        await self._idle.wait()
        yield
        self._open.set()

    async def more(self, count: int) -> None:
        """Return after so many further answers."""
        wanted = self.answers + count
        await until(lambda: self.answers >= wanted, f"{count} more creates")

    async def _write(self, number: int) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"engine-{number}"},
            "spec": {"containers": [{"name": "engine", "image": "vllm/vllm-openai"}]},
        }
        while True:
            await self._open.wait()
            self._count(1)
            wiped = self.wiped
            try:
                made: dict[str, Any] = await self.client.create(
                    paths.pods(self.namespace), body, params={"dryRun": "All"}
                )
            except ServerError as error:
                if wiped or self.wiped:
                    self.refused += 1
                else:
                    self.failures.append(str(error))
            except KubeError as error:
                self.failures.append(str(error))
            else:
                if "podstamp.dev/incarnation" not in made["metadata"].get("annotations", {}):
                    self.failures.append("a pod without stamps")
            finally:
                self._count(-1)
            self.answers += 1
            await asyncio.sleep(PAUSE_S)

    def _count(self, change: int) -> None:
        self._busy += change
        if self._busy:
            self._idle.clear()
        else:
            self._idle.set()


class Endurance:
    """The replicas `a` and `b` behind one address, and what to do to them."""

    def __init__(
        self, admin: ApiClient, account: Path, balancer: Balancer, namespace: str, folder: Path
    ) -> None:
        self.traffic = Traffic(admin, namespace)
        self.repairs_s: list[float] = []
        self.kills = 0
        self._secrets = SecretStore(admin, NAMESPACE, SECRET)
        self._bundles = BundleStore(admin, CONFIGURATION)
        self._admin = admin
        self._account = account
        self._balancer = balancer
        self._folder = folder
        self._config = folder / "webhook.yaml"
        self._config.write_text(yaml.safe_dump(STOP | {"certs": SETTINGS}))
        self._running: dict[str, Launched] = {}

    async def start(self, name: str) -> None:
        """Start that replica; it gets connections once it is ready."""
        self._running[name] = await asyncio.to_thread(
            launch_webhook,
            self._account,
            self._folder,
            config=self._config,
            name=f"webhook-{name}",
            env={"POD_NAME": f"webhook-{name}"},
        )
        self._balance()

    async def kill(self, name: str) -> None:
        """It dies on the spot, and another one of its name starts."""
        async with self.traffic.paused():
            await asyncio.to_thread(self._running.pop(name).kill)
            self._balance()
            await asyncio.sleep(NOTICED_S)
        self.kills += 1
        await self.start(name)

    def stop(self) -> None:
        for process in self._running.values():
            process.stop()
        self._running.clear()

    async def rotate(self, what: Literal["leaf", "ca"], kill_at: Moment | None = None) -> None:
        """A whole rotation; one replica dies at `kill_at`, and it goes on from there."""
        before = await self._stored()
        old_leaf, old_cas = leaf_of(before), cas_of(before)
        await self._secrets.ask(what)
        victim = "ab"[self.kills % 2]
        moments: list[tuple[Moment, Callable[[Secret], Awaitable[bool]]]] = [
            ("asked", _always),
            ("CA added", _now(lambda secret: cas_of(secret) != old_cas)),
            ("bundles filled", self._bundles_filled),
            ("leaf renewed", _now(lambda secret: leaf_of(secret) != old_leaf)),
            ("served", self._served),
            ("CA dropped", _now(lambda secret: len(cas_of(secret)) == 1)),
        ]
        for moment, reached in moments:
            if what == "leaf" and moment not in ("asked", "leaf renewed", "served"):
                continue
            await self._until(reached, f"{moment} in a rotation of the {what}")
            if moment == kill_at:
                await self.kill(victim)
        await self._until(self._bundles_filled, "bundles as stored")

    async def wipe(self, text: str) -> None:
        """Reset every caBundle, as an apply of a manifest that carries one does."""
        stored = await self._stored()
        self.traffic.wiped = True
        began = time.monotonic()
        for configuration in await self._bundles.read():
            patch = [
                {
                    "op": "replace",
                    "path": f"/webhooks/{entry.index}/clientConfig/caBundle",
                    "value": text,
                }
                for entry in configuration.entries
            ]
            await self._bundles.patch(configuration, patch)
        await self._until(self._bundles_filled, "bundles repaired")
        self.repairs_s.append(time.monotonic() - began)
        # Creates that were on their way; an API server takes a moment to see the change, too.
        await self.traffic.more(10 * WRITERS)
        self.traffic.wiped = False
        assert cas_of(await self._stored()) == cas_of(stored)

    def _balance(self) -> None:
        self._balancer.backends = tuple(p.ports.port for p in self._running.values())

    async def _stored(self) -> Secret:
        secret = await self._secrets.read()
        assert secret is not None
        return secret

    async def _until(self, reached: Callable[[Secret], Awaitable[bool]], what: str) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not await reached(await self._stored()):
            assert time.monotonic() < deadline, f"not in {LIMIT_S:g} s: {what}"
            await asyncio.sleep(LOOK_S)

    async def _bundles_filled(self, secret: Secret) -> bool:
        wanted = cas_of(secret)
        return all(
            [fingerprint(ca) for ca in entry.bundle] == wanted
            for configuration in await self._bundles.read()
            for entry in configuration.entries
        )

    async def _served(self, secret: Secret) -> bool:
        found: dict[str, Any] = await self._admin.get(
            paths.configmap(NAMESPACE, "podstamp-webhook-replicas")
        )
        texts = list(found["data"].values())
        return len(texts) == len(self._running) and all(leaf_of(secret) in t for t in texts)


def cas_of(secret: Secret) -> list[str]:
    return [fingerprint(ca) for ca in certificates((secret.data or {})["ca.crt"])]


def leaf_of(secret: Secret) -> str:
    return fingerprint(certificates((secret.data or {})["tls.crt"])[0])


async def until(reached: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not reached():
        assert time.monotonic() < deadline, f"not in {LIMIT_S:g} s: {what}"
        await asyncio.sleep(LOOK_S)


async def _always(_secret: Secret) -> bool:
    return True


def _now(holds: Callable[[Secret], bool]) -> Callable[[Secret], Awaitable[bool]]:
    async def reached(secret: Secret) -> bool:
        return holds(secret)

    return reached


def _ten_times(deaths: tuple[Moment, ...]) -> tuple[Moment | None, ...]:
    return (*deaths, *(None for _ in range(ROTATIONS - len(deaths))))


async def endure(
    admin: ApiClient, account: Path, port: int, namespace: str, folder: Path
) -> Endurance:
    """Ten rotations of the leaf and ten of the CA, a death at each step, two wiped bundles."""
    with Balancer(port) as balancer:
        test = Endurance(admin, account, balancer, namespace, folder)
        try:
            await test.start("a")
            await test.start("b")
            async with test.traffic.running():
                await test.traffic.more(10)
                for kill_at in _ten_times(_LEAF_DEATHS):
                    await test.rotate("leaf", kill_at)
                await test.wipe("")
                for kill_at in _ten_times(_CA_DEATHS):
                    await test.rotate("ca", kill_at)
                await test.wipe("Cg==")
                await test.traffic.more(10)
        finally:
            await asyncio.to_thread(test.stop)
    return test


def by_url(text: str, port: int) -> list[dict[str, Any]]:
    """The configurations of the manifests, with the address of the balancer for the Service."""
    documents: list[dict[str, Any]] = list(yaml.safe_load_all(text))
    for document in documents:
        for webhook in document["webhooks"]:
            path = webhook["clientConfig"].pop("service")["path"]
            webhook["clientConfig"]["url"] = f"https://127.0.0.1:{port}{path}"
    return documents
