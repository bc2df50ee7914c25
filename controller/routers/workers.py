"""Kind `workers`: routers that are driven by their HTTP worker API, each replica by itself.

Invariant: only entries that are claimed as ours are ever removed, never while the desired set
holds them; an add is claimed before it is sent, and believed once the list shows it.
"""

from __future__ import annotations

import asyncio
import random as random_module
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta

from controller.routers.config import WorkersRouter
from controller.routers.desired import Desired
from controller.routers.dialects import (
    DIALECTS,
    Entry,
    Observed,
    Outcome,
    Request,
    base_url,
    engine_url,
    entries_of,
    is_adapter_url,
)
from controller.routers.kinds import Difference, Target
from controller.routers.metrics import RouterMetrics
from controller.routers.ownership import Claim, Ownership
from controller.routers.record import Record
from controller.routers.replicas import Replica, replicas_of
from controller.routers.transport import (
    Answer,
    Connector,
    RefusedError,
    RouterError,
    TokenFile,
)
from controller.routers.wake import Spawn, backoff_s
from controller.routers.worker_difference import compare
from kube.clock import Clock
from kube.errors import ConfigError
from kube.events import ObjectReference
from kube.logs import get_logger
from kube.pod import Pod
from kube.store import Store

_log = get_logger(__name__)

# Calls to one replica at a time: enough for a blind period's worth of changes, and no flood.
_CONCURRENT_CALLS = 32
_RETRY_FIRST_S = 1.0
_RETRY_LIMIT_S = 30.0
# How long an add may still surface in a router that does not queue: an answer that was lost.
_SURFACE_S = 10.0


class Workers:
    """All replicas of one router, which share the claims."""

    def __init__(
        self,
        config: WorkersRouter,
        *,
        record: Record,
        pods: Store[Pod] | None,
        clock: Clock,
        random: random_module.Random,
        metrics: RouterMetrics,
        latest: Callable[[], Desired],
        wake: Callable[[], None],
        spawn: Spawn,
    ) -> None:
        """`latest` is the desired set at the moment of asking; `wake` asks for another look."""
        self.config = config
        self.ownership = Ownership(record)
        self.dialect = DIALECTS[config.dialect]
        self.clock = clock
        self.random = random
        self.metrics = metrics
        self.wake = wake
        self.spawn = spawn
        self.token = TokenFile(config.replicas.api_key_file)
        self._latest = latest
        self._pods = pods
        self._replicas: dict[str, WorkerReplica] = {}
        self._entries: tuple[Desired | None, dict[str, Entry]] = (None, {})
        self.connector = Connector(
            https=config.replicas.https,
            ca_file=config.replicas.ca_file,
            timeout_s=config.replicas.timeout_seconds,
        )

    async def load(self) -> None:
        await self.ownership.load()

    def targets(self) -> Mapping[str, Target]:
        current = {r.key: r for r in replicas_of(self.config.replicas, self._pods)}
        for key in self._replicas.keys() - current.keys():
            self._replicas.pop(key).stop()
        for key, replica in current.items():
            known = self._replicas.get(key)
            if known is None or known.replica.url != replica.url:
                if known is not None:
                    known.stop()
                self._replicas[key] = WorkerReplica(self, replica)
        return dict(self._replicas)

    async def settle(self, desired: Desired) -> None:
        """Release claims whose entries no replica lists and no queued add can bring back."""
        wanted = self.entries(desired)
        gone = {
            url: claim
            for url, claim in self.ownership.claims.items()
            if url not in wanted
            and engine_url(url) not in desired.undecided
            and all(r.is_rid_of(url) for r in self._replicas.values())
        }
        if gone and self._replicas:
            await self.ownership.release(gone)

    def applied_urls(self) -> frozenset[str]:
        return frozenset(url for url in self.ownership.claims if not is_adapter_url(url))

    async def aclose(self) -> None:
        for replica in self._replicas.values():
            await replica.peer.aclose()

    def entries(self, desired: Desired) -> dict[str, Entry]:
        """The workers that each replica should list; computed once for each desired set."""
        if self._entries[0] is not desired:
            found = entries_of(desired, self.dialect, self.config.adapter_workers)
            self._entries = (desired, found)
        return self._entries[1]

    def latest_entry(self, url: str) -> Entry | None:
        """Who holds this URL now, whatever was desired when a call was decided on."""
        return self.entries(self._latest()).get(url)

    @property
    def surface_s(self) -> float:
        """Until how long after it was asked for an add may still appear."""
        return self.config.startup_timeout_seconds if self.dialect.queues else _SURFACE_S


class WorkerReplica:
    """One replica: its list, the adds that are under way, and those that failed."""

    def __init__(self, router: Workers, replica: Replica) -> None:
        self.replica = replica
        self._router = router
        self._listed: list[Observed] | None = None
        self._current = False
        self._seen: set[str] = set()
        self._adding: dict[str, asyncio.Task[None]] = {}
        self._queued: dict[str, tuple[str, float]] = {}
        self._failed: dict[str, tuple[int, float]] = {}
        self._slots = asyncio.Semaphore(_CONCURRENT_CALLS)
        self.peer = router.connector.peer(connections=_CONCURRENT_CALLS + 4)

    @property
    def label(self) -> str:
        return self.replica.label

    @property
    def regarding(self) -> ObjectReference | None:
        return self.replica.regarding

    async def observe(self) -> None:
        router = self._router
        self._current = False
        for url in [url for url in self._adding if router.latest_entry(url) is None]:
            # vllm-router gives up an add when its client hangs up.
            self._adding.pop(url).cancel()
        answer = await self._call(router.dialect.list_request())
        self._listed = router.dialect.parse_list(answer.status, answer.body)
        # One that is listed as pending is still as good as queued: a removal may not cancel it.
        arrived = {base_url(worker.url) for worker in self._listed if not worker.pending}
        self._seen |= arrived
        for url in arrived:
            self._queued.pop(url, None)
            self._failed.pop(url, None)
        await self._follow_queued()
        self._current = True

    def observed(self) -> tuple[str, ...]:
        return tuple(sorted(worker.url for worker in self._listed or ()))

    def difference(self, desired: Desired) -> Difference:
        router = self._router
        entries = router.entries(desired)
        now = router.clock.monotonic()
        waiting = {
            *self._adding,
            *self._queued,
            *(url for url, (_, until) in self._failed.items() if until > now),
        }
        claims = router.ownership.claims
        return compare(
            entries,
            self._listed or (),
            claims,
            waiting={url for url in waiting if url in entries},
            limbo={url for url in claims if url not in entries and self._may_appear(url)},
            undecided=desired.undecided,
        )

    def is_rid_of(self, url: str) -> bool:
        """Whether it neither lists the entry nor can an add still bring it."""
        if not self._current or url in self._adding:
            return False
        present = any(base_url(worker.url) == url for worker in self._listed or ())
        return not present and not self._may_appear(url)

    async def apply(self, desired: Desired, difference: Difference) -> None:
        """Removals are awaited, adds are begun: one that hangs must not hold up a ghost's end."""
        router = self._router
        entries = router.entries(desired)
        results = await asyncio.gather(
            *(self._remove(url, replace=False) for url in difference.remove),
            *(self._remove(url, replace=True) for url in difference.change),
            return_exceptions=True,
        )
        wanted = [url for url in (*difference.claim, *difference.add) if url in entries]
        if wanted:
            now = router.clock.now()
            await router.ownership.claim(
                {url: Claim(entries[url].uid, entries[url].incarnation, now) for url in wanted},
                renew_after_s=router.surface_s,
            )
        for url in difference.add:
            self._adding[url] = router.spawn(self._add(entries[url]))
        _raise_first(results)

    def stop(self) -> None:
        """Give up the adds that are under way: this replica is no more."""
        for task in self._adding.values():
            task.cancel()
        self._router.spawn(self.peer.aclose())

    async def _add(self, entry: Entry) -> None:
        router = self._router
        outcome = "cancelled"
        try:
            async with self._slots:
                current = router.latest_entry(entry.url)
                if current != entry:
                    router.metrics.superseded.labels(router.config.name, "add").inc()
                    outcome = "superseded"
                    return
                self._seen.discard(entry.url)
                answer = await self._call(router.dialect.add_request(entry))
            verdict = router.dialect.judge_add(answer.status, answer.body)
            outcome = verdict.outcome.value
            match verdict.outcome:
                case Outcome.DONE:
                    self._failed.pop(entry.url, None)
                case Outcome.QUEUED:
                    deadline = router.clock.monotonic() + router.surface_s
                    self._queued[entry.url] = (verdict.id, deadline)
                case Outcome.FAILED:
                    self._note_failure(entry.url, verdict.reason)
        except (RouterError, ConfigError) as error:
            outcome = "failed"
            self._note_failure(entry.url, str(error))
        finally:
            if self._adding.get(entry.url) is asyncio.current_task():
                del self._adding[entry.url]
            router.metrics.actions.labels(router.config.name, "add", outcome).inc()
            router.wake()

    async def _remove(self, url: str, *, replace: bool) -> None:
        """Remove every worker at this URL, unless its address has a new owner by now."""
        router = self._router
        if not replace and router.latest_entry(url) is not None:
            router.metrics.superseded.labels(router.config.name, "remove").inc()
            return
        workers = [w for w in self._listed or () if base_url(w.url) == url and not w.draining]
        requests = dict.fromkeys(
            (request.method, request.path)
            for request in map(router.dialect.remove_request, workers)
        )
        for method, path in requests:
            async with self._slots:
                answer = await self._call(Request(method, path))
            verdict = router.dialect.judge_remove(answer.status, answer.body)
            action = "replace" if replace else "remove"
            router.metrics.actions.labels(router.config.name, action, verdict.outcome.value).inc()
            if verdict.outcome is Outcome.FAILED:
                raise RefusedError(f"{self.replica.url}: {url} stays: {verdict.reason}")
        self._queued.pop(url, None)
        self._failed.pop(url, None)

    async def _follow_queued(self) -> None:
        """Notice queued adds that failed, so that they are asked for again before their limit."""
        router = self._router
        now = router.clock.monotonic()
        for url, (id, deadline) in list(self._queued.items()):
            if router.latest_entry(url) is None:
                del self._queued[url]
            elif deadline <= now:
                del self._queued[url]
                self._note_failure(url, "was queued and never appeared")
            elif id:
                answer = await self._call(router.dialect.job_request(id))
                verdict = router.dialect.judge_job(answer.status, answer.body)
                if verdict.outcome is Outcome.FAILED:
                    del self._queued[url]
                    self._note_failure(url, verdict.reason)

    def _may_appear(self, url: str) -> bool:
        """Whether an add of ours could still surface: a removal does not cancel a queued one,
        and one that a former controller sent is known by its claim alone."""
        claim = self._router.ownership.claims.get(url)
        if claim is None or url in self._seen:
            return False
        age = self._router.clock.now() - claim.at
        return age < timedelta(seconds=2 * self._router.surface_s)

    def _note_failure(self, url: str, reason: str) -> None:
        router = self._router
        count = self._failed.get(url, (0, 0.0))[0] + 1
        delay_s = backoff_s(
            count, first_s=_RETRY_FIRST_S, limit_s=_RETRY_LIMIT_S, random=router.random
        )
        self._failed[url] = (count, router.clock.monotonic() + delay_s)
        if count == 1:
            _log.warning(
                "router did not take a worker",
                router=router.config.name,
                target=self.label,
                worker=url,
                error=reason,
            )

    async def _call(self, request: Request) -> Answer:
        router = self._router
        return await self.peer.call(
            request.method,
            self.replica.url + request.path,
            headers=router.token.headers(),
            json=request.json,
        )


def _raise_first(results: Iterable[object]) -> None:
    """An expected error of one removal counts once all were tried; any other is a fault."""
    errors = [result for result in results if isinstance(result, BaseException)]
    for error in errors:
        if not isinstance(error, RouterError | ConfigError):
            raise error
    if errors:
        raise errors[0]
