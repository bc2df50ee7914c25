"""Leader election on one Lease (coordination.k8s.io/v1), by the rules of client-go.

Invariant: a leader stops acting `renew_deadline_s` after its last good renewal began, by its own
monotonic clock; nobody else starts before the record stood unchanged for the lease's duration,
by theirs. Times that others wrote are never compared.
"""

import asyncio
import math
import random as random_module
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import msgspec

from kube import paths
from kube.client import ApiClient
from kube.clock import Clock, micro_time, within
from kube.errors import AlreadyExists, ConfigError, Conflict, KubeError, NotFound
from kube.logs import get_logger

log = get_logger(__name__)


class LeaseMeta(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """`metadata`."""

    name: str = ""
    namespace: str = ""
    resource_version: str = ""


class LeaseSpec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """`spec`; an empty holder means released."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(msgspec.Struct, frozen=True, rename="camel"):
    """One Lease object."""

    metadata: LeaseMeta
    spec: LeaseSpec = LeaseSpec()
    api_version: str = "coordination.k8s.io/v1"
    kind: str = "Lease"


@dataclass(frozen=True, slots=True)
class Observed:
    """A lease and when this process first saw it in this version."""

    lease: Lease
    seen_at_s: float


def may_take(observed: Observed, identity: str, now_s: float, duration_s: float) -> bool:
    """Whether `identity` may write itself into the lease: free, its own, or unchanged for long.

    `now_s` and `seen_at_s` are of this process' monotonic clock.
    """
    spec = observed.lease.spec
    if not spec.holder_identity or spec.holder_identity == identity:
        return True
    lasts_s = max(duration_s, float(spec.lease_duration_seconds or 0))
    return now_s >= observed.seen_at_s + lasts_s


def taken(spec: LeaseSpec, identity: str, now: str, duration_s: float) -> LeaseSpec:
    """`spec` as `identity` writes it at `now`: acquired, or renewed if it is its own already."""
    own = spec.holder_identity == identity
    first = spec.acquire_time is None
    transitions = spec.lease_transitions or 0
    return LeaseSpec(
        holder_identity=identity,
        # The API holds whole seconds: round up, so that others wait rather longer.
        lease_duration_seconds=math.ceil(duration_s),
        acquire_time=spec.acquire_time if own else now,
        renew_time=now,
        lease_transitions=transitions if own or first else transitions + 1,
    )


class LeaderElector:
    """Joins, leads, and joins again. `identity` must differ in every process (pod name and UID)."""

    def __init__(
        self,
        client: ApiClient,
        namespace: str,
        name: str,
        identity: str,
        *,
        clock: Clock,
        random: random_module.Random,
        duration_s: float = 15.0,
        renew_deadline_s: float = 10.0,
        retry_period_s: float = 2.0,
    ) -> None:
        """ConfigError unless retry period < renew deadline < duration."""
        if not 0 < retry_period_s < renew_deadline_s < duration_s:
            raise ConfigError(
                f"leadership: retry period ({retry_period_s:g} s) < renew deadline"
                f" ({renew_deadline_s:g} s) < lease duration ({duration_s:g} s) must hold"
            )
        self._client = client
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._clock = clock
        self._random = random
        self._duration_s = duration_s
        self._renew_deadline_s = renew_deadline_s
        self._retry_period_s = retry_period_s
        # Two renewals that hang still leave time for a third before the deadline.
        self._call_timeout_s = renew_deadline_s / 4
        self._observed: Observed | None = None
        self._leading = False
        self._renewed_at_s = -math.inf
        self._last_error = ""

    @property
    def is_leader(self) -> bool:
        """Whether the lease is held, as far as this process knows."""
        return self._leading

    def may_act(self) -> bool:
        """Whether leadership is certain right now; ask before each delete."""
        return self._leading and self._time_left_s() > 0

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Join; run `lead()` while the lease is held; on loss cancel it, await it and join again.

        An error of `lead()`, or its return, releases the lease and ends `run` likewise.
        On cancel: `lead()` is stopped first, then the lease is released.
        """
        while True:
            await self._acquire()
            log.info("leading", lease=self._name, identity=self._identity)
            try:
                if await self._hold(lead):
                    return
            finally:
                await self._release()
            log.warning("leadership lost", lease=self._name, identity=self._identity)

    async def _acquire(self) -> None:
        while not await self._attempt(self._take, self._call_timeout_s):
            await self._clock.sleep(self._pause_s())
        self._leading = True

    async def _hold(self, lead: Callable[[], Awaitable[None]]) -> bool:
        """Whether `lead` ended by itself; False: the lease was lost and `lead` was stopped."""

        async def work() -> None:
            await lead()

        worker = asyncio.create_task(work())
        keeper = asyncio.create_task(self._keep())
        try:
            await asyncio.wait((worker, keeper), return_when=asyncio.FIRST_COMPLETED)
            finished = worker.done()
        finally:
            # Renewal goes on until the work has stopped.
            worker.cancel()
            await asyncio.wait((worker,))
            keeper.cancel()
            await asyncio.wait((keeper,))
        if not keeper.cancelled():
            keeper.result()
        if not worker.cancelled():
            worker.result()
        return finished

    async def _keep(self) -> None:
        """Renew until the lease is lost."""
        renewed = True
        while self._leading:
            pause_s = self._pause_s() if renewed else self._pause_s() / 2
            await self._clock.sleep(min(pause_s, max(0.0, self._time_left_s())))
            left_s = self._time_left_s()
            if left_s <= 0:
                self._leading = False
            else:
                renewed = await self._attempt(self._renew, min(self._call_timeout_s, left_s))

    async def _attempt(self, call: Callable[[], Awaitable[bool]], limit_s: float) -> bool:
        async def bounded() -> bool:
            return await call()

        try:
            done = await within(self._clock, limit_s, bounded())
        except (KubeError, TimeoutError) as error:
            # Repeated until it works, but said once.
            if str(error) != self._last_error:
                self._last_error = str(error)
                log.warning("cannot reach the lease", lease=self._name, error=error)
            return False
        self._last_error = ""
        return done

    async def _take(self) -> bool:
        """One attempt to become the holder."""
        lease = await self._read()
        if lease is None:
            return await self._create()
        observed = self._observe(lease)
        if not may_take(observed, self._identity, self._clock.monotonic(), self._duration_s):
            return False
        return await self._write(lease)

    async def _renew(self) -> bool:
        """One attempt to stay the holder; another holder ends leadership at once."""
        assert self._observed is not None
        if await self._write(self._observed.lease):
            return True
        # Either a write of ours went through unheard, or somebody else wrote.
        lease = await self._read()
        if lease is None or lease.spec.holder_identity != self._identity:
            self._leading = False
            return False
        self._observe(lease)
        return await self._write(lease)

    async def _read(self) -> Lease | None:
        try:
            return await self._client.get(self._path, type=Lease)
        except NotFound:
            return None

    async def _create(self) -> bool:
        began_at_s = self._clock.monotonic()
        now = micro_time(self._clock.now())
        body = Lease(
            LeaseMeta(name=self._name, namespace=self._namespace),
            taken(LeaseSpec(), self._identity, now, self._duration_s),
        )
        try:
            stored = await self._client.create(paths.leases(self._namespace), body, type=Lease)
        except AlreadyExists:
            return False
        self._observe(stored)
        self._renewed_at_s = began_at_s
        return True

    async def _write(self, lease: Lease) -> bool:
        """Write ourselves over exactly `lease`. False: it has changed or gone."""
        began_at_s = self._clock.monotonic()
        now = micro_time(self._clock.now())
        try:
            stored = await self._patch(
                lease, taken(lease.spec, self._identity, now, self._duration_s)
            )
        except (Conflict, NotFound):
            return False
        self._observe(stored)
        self._renewed_at_s = began_at_s
        return True

    async def _release(self) -> None:
        """Give the lease up, if it is ours still, so that others need not wait."""
        if not self._leading or self._observed is None:
            return
        self._leading = False
        try:
            await within(self._clock, self._call_timeout_s, self._give_up(self._observed.lease))
        except (KubeError, TimeoutError) as error:
            log.warning("cannot release the lease; it expires", lease=self._name, error=error)

    async def _give_up(self, lease: Lease) -> None:
        now = micro_time(self._clock.now())
        spec = LeaseSpec(holder_identity="", lease_duration_seconds=1, renew_time=now)
        try:
            await self._patch(lease, spec)
        except Conflict:
            # The stop cut off a renewal that went through all the same, or another holds it.
            stored = await self._read()
            if stored is not None and stored.spec.holder_identity == self._identity:
                await self._patch(stored, spec)

    async def _patch(self, lease: Lease, spec: LeaseSpec) -> Lease:
        # A merge patch keeps what others put into the lease; with a resourceVersion it is guarded.
        body = {
            "metadata": {"resourceVersion": lease.metadata.resource_version},
            "spec": msgspec.to_builtins(spec),
        }
        return await self._client.patch(self._path, body, type=Lease)

    def _observe(self, lease: Lease) -> Observed:
        """Note `lease`, and the time if it is another version than before."""
        seen = self._observed
        version = lease.metadata.resource_version
        if seen is None or seen.lease.metadata.resource_version != version:
            seen = self._observed = Observed(lease, self._clock.monotonic())
        return seen

    @property
    def _path(self) -> str:
        return paths.lease(self._namespace, self._name)

    def _time_left_s(self) -> float:
        return self._renewed_at_s + self._renew_deadline_s - self._clock.monotonic()

    def _pause_s(self) -> float:
        return self._retry_period_s * self._random.uniform(0.8, 1.0)
