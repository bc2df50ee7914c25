"""Keeps a store equal to the server: a full list, then a watch from where the list stood.

Invariant: a store changes only by a complete list, or by an event that follows one without a gap.
What the lines of a watch and its errors mean is decided in `kube.watch`.
"""

import random as random_module
from collections.abc import Callable
from contextlib import aclosing
from typing import Generic, TypeVar

from kube import watch
from kube.backoff import Backoff
from kube.client import ApiClient
from kube.clock import Clock
from kube.decode import Broken
from kube.errors import KubeError, Unreadable
from kube.logs import get_logger
from kube.meta import KubeObject, identity_of
from kube.store import Store

log = get_logger(__name__)

T = TypeVar("T", bound=KubeObject)

# A silent watch is given up this long after the server should have ended it.
_READ_GRACE_S = 5.0
# A watch that ended sooner, with nothing said, counts as a failure: nothing may spin.
_SHORT_WATCH_S = 1.0
_BROKEN_REMEMBERED = 1000


class Reflector(Generic[T]):
    """One kind of object, one selector, one store."""

    def __init__(
        self,
        client: ApiClient,
        path: str,
        type: type[T],
        store: Store[T],
        *,
        label_selector: str = "",
        field_selector: str = "",
        clock: Clock,
        random: random_module.Random,
        watch_timeout_s: float = 300.0,
        page_size: int = 500,
        on_error: Callable[[KubeError], None] | None = None,
    ) -> None:
        self.store = store
        self._client = client
        self._path = path
        self._type = type
        self._label_selector = label_selector
        self._field_selector = field_selector
        self._clock = clock
        self._random = random
        self._watch_timeout_s = watch_timeout_s
        self._page_size = page_size
        self._on_error = on_error
        self._backoff = Backoff(random)
        # Where the store stands; None: unknown, list first.
        self._resource_version: str | None = None
        self._heard = False
        self._last_error = ""
        self._broken_said: dict[str, None] = {}

    async def run(self) -> None:
        """List and watch until cancelled. `on_error` hears of each failure; none ends it."""
        while True:
            began_at = self._clock.monotonic()
            self._heard = False
            error: KubeError | None = None
            try:
                if self._resource_version is None:
                    await self._list()
                await self._watch(self._resource_version or "")
            except KubeError as caught:
                error = caught
                if watch.must_relist(error):
                    self._resource_version = None
                self._report(error)
            lasted = self._clock.monotonic() - began_at >= _SHORT_WATCH_S
            if self._heard or (error is None and lasted):
                self._backoff.reset()
            if error is not None:
                await self._clock.sleep(watch.pause_s(error, self._backoff.next_s()))
            elif not lasted:
                await self._clock.sleep(self._backoff.next_s())

    async def _list(self) -> None:
        """Replace the store's content; a list that breaks off changes nothing."""
        items: list[T] = []
        unreadable: list[str] = []
        version = ""
        pages = self._client.list_pages(
            self._path,
            type=self._type,
            label_selector=self._label_selector,
            field_selector=self._field_selector,
            page_size=self._page_size,
        )
        async with aclosing(pages):
            async for page in pages:
                version = page.resource_version
                for item in page.items:
                    meta = item.metadata
                    known = self.store.by_uid(meta.uid)
                    if not meta.uid:
                        self._report_broken(Broken(identity_of(meta), watch.NO_UID))
                    elif known is None or known.metadata.resource_version != meta.resource_version:
                        items.append(item)
                    else:
                        # The copy that is here already spares the memory of a second one.
                        items.append(known)
                for broken in page.broken:
                    unreadable.append(broken.identity.uid)
                    self._report_broken(broken)
        if not version:
            raise Unreadable(f"the list of {self._path} has no resourceVersion")
        self.store.replace(items, unreadable=unreadable)
        self._resource_version = version

    async def _watch(self, resource_version: str) -> None:
        """Follow events until the stream ends; an error, if it does not end as it should."""
        # Watches that began together should not end together.
        timeout_s = self._watch_timeout_s * self._random.uniform(0.8, 1.0)
        lines = self._client.watch(
            self._path,
            resource_version=resource_version,
            label_selector=self._label_selector,
            field_selector=self._field_selector,
            timeout_s=timeout_s,
            read_timeout_s=timeout_s + _READ_GRACE_S,
        )
        async with aclosing(lines):
            async for line in lines:
                self._apply(watch.read_event(line, self._type))

    def _apply(self, event: watch.Event[T]) -> None:
        match event:
            case watch.Failed(error):
                self._resource_version = None
                raise error
            case watch.Upsert(item):
                self._advance(item.metadata.resource_version)
                self.store.put(item)
            case watch.Removal(uid, resource_version):
                self._advance(resource_version)
                self.store.remove(uid)
            case watch.Bookmark(resource_version):
                self._advance(resource_version)
            case watch.Unfit(broken):
                self._advance(broken.identity.resource_version)
                self._report_broken(broken)

    def _advance(self, resource_version: str) -> None:
        if resource_version:
            self._resource_version = resource_version
        self.store.touch()
        self._heard = True
        if self._last_error:
            log.info("the watch works again", path=self._path)
            self._last_error = ""

    def _report(self, error: KubeError) -> None:
        if self._on_error is not None:
            self._on_error(error)
        # A lasting failure is said once, not at each attempt.
        if str(error) != self._last_error:
            self._last_error = str(error)
            log.warning("cannot list and watch", path=self._path, error=error)

    def _report_broken(self, broken: Broken) -> None:
        identity = broken.identity
        if self._on_error is not None:
            self._on_error(Unreadable(broken.error))
        who = identity.uid or f"{identity.namespace}/{identity.name}"
        if who in self._broken_said:
            return
        self._broken_said[who] = None
        if len(self._broken_said) > _BROKEN_REMEMBERED:
            del self._broken_said[next(iter(self._broken_said))]
        log.warning(
            "an object cannot be read and stays as it was",
            path=self._path,
            namespace=identity.namespace,
            name=identity.name,
            uid=identity.uid,
            error=broken.error,
        )
