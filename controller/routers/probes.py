"""What an engine says of itself: healthy, its models and adapters, asleep.

Invariant: an engine is asked only when its key is new, a re-read was called for, or the last
attempt failed; an answer counts only if its incarnation still owns the key when it arrives.
"""

from __future__ import annotations

import asyncio
import random as random_module
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

import msgspec

from controller.routers.config import Probe
from controller.routers.engines import Engine, EngineKey
from controller.routers.metrics import RouterMetrics
from controller.routers.transport import (
    Connector,
    Peer,
    RefusedError,
    RouterError,
    TokenFile,
    short,
)
from controller.routers.wake import Spawn, backoff_s, jittered_s
from kube.clock import Clock
from kube.errors import ConfigError
from kube.logs import get_logger

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Facts:
    """One answer. `models` are served by name without adapter; `adapters` name a parent."""

    models: tuple[str, ...] = ()
    adapters: tuple[str, ...] = ()
    sleeping: bool = False


class _Model(msgspec.Struct):
    id: str = ""
    parent: str | None = None


class _Models(msgspec.Struct):
    data: list[_Model]


class _Sleeping(msgspec.Struct):
    is_sleeping: bool


def parse_models(body: bytes) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of base models and of adapters, from every entry of `/v1/models`, in their order.

    An entry with a `parent` is an adapter. RefusedError: it is no list of models.
    """
    try:
        entries = msgspec.json.decode(body, type=_Models).data
    except msgspec.DecodeError as error:
        raise RefusedError(f"/v1/models: {error}") from error
    models = dict.fromkeys(entry.id for entry in entries if entry.id and not entry.parent)
    adapters = dict.fromkeys(entry.id for entry in entries if entry.id and entry.parent)
    return tuple(models), tuple(adapters)


def parse_sleeping(body: bytes) -> bool:
    """`{"is_sleeping": true}`. RefusedError: anything else."""
    try:
        return msgspec.json.decode(body, type=_Sleeping).is_sleeping
    except msgspec.DecodeError as error:
        raise RefusedError(f"/is_sleeping: {error}") from error


def carried_over(old: EngineKey, facts: Facts | None, new: EngineKey) -> Facts | None:
    """What still holds of `facts` once the key has changed and until the engine has been asked.

    Another incarnation or URL: nothing. A container that restarted has lost its adapters, which
    lived in its process, so they go at once; its model stays. A changed stamp: all of it.
    """
    if facts is None or (old.uid, old.url) != (new.uid, new.url):
        return None
    if old.containers != new.containers:
        return replace(facts, adapters=())
    return facts


class _Tracked:
    __slots__ = ("asked", "engine", "error", "facts", "task")

    def __init__(self, engine: Engine, facts: Facts | None) -> None:
        self.engine = engine
        self.facts = facts
        self.asked = False
        self.error = ""
        self.task: asyncio.Task[None] | None = None


class Prober:
    """The engines of one router, each asked by a task of its own, `concurrency` at a time."""

    def __init__(
        self,
        router: str,
        probe: Probe,
        *,
        connector: Connector,
        clock: Clock,
        random: random_module.Random,
        metrics: RouterMetrics,
        on_change: Callable[[], None],
        spawn: Spawn,
        refresh_s: float = 0.0,
    ) -> None:
        """`refresh_s`: ask again so often although nothing changed; 0 is never."""
        self._router = router
        self._probe = probe
        self._connector = connector
        self._clock = clock
        self._random = random
        self._metrics = metrics
        self._on_change = on_change
        self._spawn = spawn
        self._refresh_s = refresh_s
        self._token = TokenFile(probe.token_file)
        self._slots = asyncio.Semaphore(probe.concurrency)
        self._tracked: dict[str, _Tracked] = {}

    def track(self, serving: Mapping[str, Engine]) -> None:
        """Ask the engines whose key is new, and forget those that are gone. Starts no request
        for one that is known; returns at once."""
        for url in self._tracked.keys() - serving.keys():
            del self._tracked[url]
        for url, engine in serving.items():
            known = self._tracked.get(url)
            if known is not None and known.engine.key == engine.key:
                known.engine = engine
                continue
            facts = None
            if known is not None:
                facts = carried_over(known.engine.key, known.facts, engine.key)
            self._tracked[url] = _Tracked(engine, facts)
            self._start(url)

    def facts(self, engine: Engine) -> Facts | None:
        """What is known of this very engine; None until it has answered."""
        known = self._tracked.get(engine.url)
        return known.facts if known is not None and known.engine.key == engine.key else None

    def error(self, engine: Engine) -> str:
        """Why it has not answered yet; empty if it has, or was not asked."""
        known = self._tracked.get(engine.url)
        return known.error if known is not None and known.engine.key == engine.key else ""

    def asked(self, engine: Engine) -> bool:
        """Whether this very engine has answered, or failed to, at least once."""
        known = self._tracked.get(engine.url)
        return known is not None and known.engine.key == engine.key and known.asked

    def reread(self, pods: Collection[tuple[str, str]]) -> None:
        """Ask the engines of these pods (namespace, name) again."""
        for url, known in self._tracked.items():
            if (known.engine.namespace, known.engine.name) in pods:
                self._start(url)

    def _start(self, url: str) -> None:
        known = self._tracked[url]
        known.task = self._spawn(self._follow(known.engine))

    async def _follow(self, engine: Engine) -> None:
        """Ask until it has answered, as long as nobody else took over; then, if so wished, on."""
        failures = 0
        while (known := self._owned(engine)) is not None:
            try:
                async with self._slots:
                    facts = await self._ask(engine)
            except (RouterError, ConfigError) as error:
                self._metrics.probes.labels(self._router, "failed").inc()
                failures += 1
                if failures == 1:
                    self._first_failure(engine, error)
                wait_s = backoff_s(
                    failures,
                    first_s=self._probe.retry_seconds,
                    limit_s=self._probe.max_retry_seconds,
                    random=self._random,
                )
            else:
                failures = 0
                known = self._owned(engine)
                if known is None:
                    self._metrics.superseded.labels(self._router, "probe").inc()
                    return
                self._metrics.probes.labels(self._router, "answered").inc()
                self._keep(known, facts)
                if facts.sleeping:
                    wait_s = jittered_s(self._probe.max_retry_seconds, self._random)
                elif self._refresh_s:
                    wait_s = jittered_s(self._refresh_s, self._random)
                else:
                    return
            await self._clock.sleep(wait_s)

    def _owned(self, engine: Engine) -> _Tracked | None:
        """The record of this incarnation, if it still holds the key and this task is its newest."""
        known = self._tracked.get(engine.url)
        if known is None or known.engine.key != engine.key:
            return None
        return known if known.task is asyncio.current_task() else None

    def _keep(self, known: _Tracked, facts: Facts) -> None:
        changed = known.facts != facts or not known.asked
        known.facts, known.asked, known.error = facts, True, ""
        if changed:
            self._on_change()

    def _first_failure(self, engine: Engine, error: Exception) -> None:
        known = self._owned(engine)
        if known is None:
            return
        known.asked, known.error = True, str(error)
        _log.info(
            "engine does not answer yet",
            router=self._router,
            namespace=engine.namespace,
            pod=engine.name,
            uid=engine.uid,
            incarnation=engine.incarnation,
            error=error,
        )
        self._on_change()

    async def _ask(self, engine: Engine) -> Facts:
        """All questions within one time-out. RouterError: no, not yet, or not understood."""
        started = self._clock.monotonic()
        try:
            async with asyncio.timeout(self._probe.timeout_seconds):
                async with self._connector.peer() as peer:
                    facts = await self._questions(peer, engine.url)
        except TimeoutError as error:
            raise RefusedError(f"{engine.url}: no answer in time") from error
        self._metrics.probe_seconds.labels(self._router).observe(self._clock.monotonic() - started)
        return facts

    async def _questions(self, peer: Peer, url: str) -> Facts:
        probe = self._probe
        if probe.health_path:
            await self._get(peer, url + probe.health_path)
        models: tuple[str, ...] = ()
        adapters: tuple[str, ...] = ()
        if probe.models_path:
            models, adapters = parse_models(await self._get(peer, url + probe.models_path))
        sleeping = False
        if probe.sleeping_path:
            sleeping = parse_sleeping(await self._get(peer, url + probe.sleeping_path))
        return Facts(models, adapters, sleeping)

    async def _get(self, peer: Peer, url: str) -> bytes:
        answer = await peer.call("GET", url, headers=self._token.headers())
        if answer.status != 200:
            raise RefusedError(f"GET {url}: {answer.status} {short(answer.body)}")
        return answer.body
