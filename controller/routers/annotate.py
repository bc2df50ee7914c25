"""Kind `annotate`: routers with their own discovery, which read adapters again when a pod changes.

Invariant: a stamp is touched only when an engine's adapters changed while its stamp did not, at
most once for each change, and under the incarnation in which that was seen.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping

import msgspec

from controller.routers.desired import Backend, Desired
from controller.routers.kinds import Difference, Target
from controller.routers.metrics import RouterMetrics
from controller.routers.record import Record
from kube import paths
from kube.client import ApiClient
from kube.clock import Clock
from kube.errors import Conflict, Invalid, NotFound
from kube.events import ObjectReference
from webhook import stamps

_KEY = "adapters"


class Seen(msgspec.Struct, frozen=True, array_like=True):
    """The stamp of an incarnation, and a digest of the adapters seen under it."""

    lora_modified_ns: int | None
    digest: str


def seen_of(backend: Backend) -> Seen:
    """As this backend is now."""
    text = ",".join(sorted(backend.adapters))
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return Seen(backend.engine.key.lora_modified_ns, digest)


def compare(desired: Desired, seen: Mapping[str, Seen]) -> Difference:
    """`change`: adapters changed under one stamp. `claim`: seen for the first time, or stamped
    by somebody else since, so that the router has heard of it. Keys are UIDs."""
    change, claim = [], []
    for backend in desired.backends.values():
        if not backend.asked:
            # What is known was said before the stamp: wait for the answer.
            continue
        uid, now = backend.engine.uid, seen_of(backend)
        before = seen.get(uid)
        if before is None or before.lora_modified_ns != now.lora_modified_ns:
            claim.append(uid)
        elif before.digest != now.digest:
            change.append(uid)
    return Difference(change=tuple(change), claim=tuple(claim))


class Annotator:
    """The stamps of one router's engines, as one target."""

    label = "lora-modified"
    regarding: ObjectReference | None = None

    def __init__(
        self,
        router: str,
        *,
        record: Record,
        client: ApiClient,
        clock: Clock,
        metrics: RouterMetrics,
        latest: Callable[[], Desired],
    ) -> None:
        self._router = router
        self._record = record
        self._client = client
        self._clock = clock
        self._metrics = metrics
        self._latest = latest
        self._seen: dict[str, Seen] = {}

    async def load(self) -> None:
        await self._record.load()
        self._seen = _decode(self._record.get(_KEY))

    def targets(self) -> Mapping[str, Target]:
        return {"": self}

    async def settle(self, desired: Desired) -> None:
        """Forget incarnations that are no more."""
        alive = {engine.uid for engine in desired.addressed}
        alive |= {backend.engine.uid for backend in desired.backends.values()}
        if self._seen.keys() - alive:
            await self._store({uid: seen for uid, seen in self._seen.items() if uid in alive})

    def applied_urls(self) -> frozenset[str]:
        return frozenset()

    async def aclose(self) -> None:
        return

    async def observe(self) -> None:
        return

    def observed(self) -> tuple[str, ...]:
        return tuple(sorted(self._seen))

    def difference(self, desired: Desired) -> Difference:
        return compare(desired, self._seen)

    async def apply(self, desired: Desired, difference: Difference) -> None:
        by_uid = {backend.engine.uid: backend for backend in desired.backends.values()}
        updates = {uid: seen_of(by_uid[uid]) for uid in difference.claim}
        for uid in difference.change:
            touched = await self._touch(by_uid[uid])
            if touched is not None:
                updates[uid] = Seen(touched, seen_of(by_uid[uid]).digest)
        await self._store({**self._seen, **updates})

    async def _touch(self, backend: Backend) -> int | None:
        """Write a newer stamp; the instant written, or None if the incarnation is no more.

        The UID and the fence both name it: the fence is judged by the webhook (409), the UID by
        the API server (409, or 422 for metadata.uid).
        """
        engine = backend.engine
        latest = self._latest().backends.get(engine.url)
        if latest is None or latest.engine.uid != engine.uid:
            self._metrics.superseded.labels(self._router, "annotate").inc()
            return None
        now_ns = int(self._clock.now().timestamp() * 1e6) * 1000
        instant = max(now_ns, (engine.key.lora_modified_ns or 0) + 1)
        annotations = {stamps.LORA_MODIFIED: stamps.format_instant(instant)}
        if engine.incarnation:
            annotations[stamps.IF_INCARNATION] = engine.incarnation
        body = {"metadata": {"uid": engine.uid, "annotations": annotations}}
        try:
            await self._client.patch(paths.pod(engine.namespace, engine.name), body)
        except (NotFound, Conflict, Invalid) as error:
            if isinstance(error, Invalid) and "metadata.uid" not in str(error):
                raise
            self._metrics.superseded.labels(self._router, "annotate").inc()
            return None
        self._metrics.actions.labels(self._router, "annotate", "done").inc()
        return instant

    async def _store(self, seen: dict[str, Seen]) -> None:
        text = msgspec.json.encode(seen, order="sorted").decode()
        await self._record.update(lambda data: {**data, _KEY: text})
        self._seen = seen


def _decode(text: str) -> dict[str, Seen]:
    try:
        return msgspec.json.decode(text or "{}", type=dict[str, Seen])
    except msgspec.DecodeError:
        # Whatever is seen next is taken as what the router knows.
        return {}
