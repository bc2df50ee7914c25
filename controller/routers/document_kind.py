"""What `worker-file` and `dynamic-config` share: one document, and replicas that read it.

Invariant: the document is written only if it says something else, and only if the router would
take it; whether each replica took it is read back from its own API, a lane for each.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

from controller.routers.config import Replicas
from controller.routers.desired import Desired
from controller.routers.document import Document
from controller.routers.kinds import Difference, Target
from controller.routers.replicas import Replica, replicas_of
from controller.routers.transport import Answer, Connector, RouterError, TokenFile
from kube.clock import Clock
from kube.events import ObjectReference
from kube.logs import get_logger
from kube.pod import Pod
from kube.store import Store

_log = get_logger(__name__)
V = TypeVar("V")


Entries: TypeAlias = Mapping[str, tuple[str, ...]]
"""What a document says, by entry; what the words mean is the format's affair."""


class Rendered(NamedTuple):
    """A document: its bytes, what it says by entry, and the engines that it cannot express."""

    content: bytes
    entries: Entries
    left_out: Mapping[str, str]


class Format(Protocol):
    """One kind of document; pure. An entry that has left the document is not written again for
    `absence_s`, where the router would not see that it is back."""

    absence_s: float

    def render(self, desired: Desired, present: Entries, absent: Collection[str] = ()) -> Rendered:
        """Equal sets make equal bytes; entries in `present` of engines that are undecided are
        taken over, those in `absent` left out. RouterError: the router would reject it."""

    def parse(self, content: bytes) -> Entries | None:
        """What a document says by entry; None: the router would not take it."""

    def engines(self, entries: Collection[str]) -> list[str]:
        """The URLs of engines among entries."""

    def report_path(self) -> str:
        """Where a replica tells what it has."""

    def parse_report(self, answer: Answer) -> Entries:
        """What a replica has, by entry. RefusedError: it does not say."""


class DocumentKind:
    """The document is one target; each replica that can be asked is another."""

    def __init__(
        self,
        document: Document,
        format: Format,
        *,
        replicas: Replicas,
        pickup_s: float,
        connector: Connector,
        pods: Store[Pod] | None,
        clock: Clock,
        router: str,
        wake: Callable[[], None],
    ) -> None:
        """`pickup_s`: how long a replica may take to read a new document."""
        self._target = DocumentTarget(document, format, clock=clock, router=router, wake=wake)
        self._format = format
        self._config = replicas
        self._pickup_s = pickup_s
        self._connector = connector
        self._token = TokenFile(replicas.api_key_file)
        self._pods = pods
        self._clock = clock
        self._replicas: dict[str, ReportTarget] = {}

    async def load(self) -> None:
        await self._target.observe()

    def targets(self) -> Mapping[str, Target]:
        current = {r.key: r for r in replicas_of(self._config, self._pods)}
        for key in self._replicas.keys() - current.keys():
            del self._replicas[key]
        for key, replica in current.items():
            known = self._replicas.get(key)
            if known is None or known.replica.url != replica.url:
                self._replicas[key] = ReportTarget(
                    self._target,
                    self._format,
                    replica,
                    pickup_s=self._pickup_s,
                    connector=self._connector,
                    token=self._token,
                    clock=self._clock,
                )
        return {"": self._target, **self._replicas}

    async def settle(self, desired: Desired) -> None:
        return

    def applied_urls(self) -> frozenset[str]:
        return frozenset(self._format.engines(self._target.observed()))

    async def aclose(self) -> None:
        return


class DocumentTarget:
    """The document itself."""

    def __init__(
        self,
        document: Document,
        format: Format,
        *,
        clock: Clock,
        router: str,
        wake: Callable[[], None],
    ) -> None:
        self.written_at = clock.monotonic()
        self.retired: dict[str, float] = {}
        self._document = document
        self._format = format
        self._clock = clock
        self._router = router
        self._wake = wake
        self._content: bytes | None = None
        self._entries: Entries = {}
        self._left_out: frozenset[str] = frozenset()

    @property
    def label(self) -> str:
        return self._document.label

    @property
    def regarding(self) -> ObjectReference | None:
        return self._document.regarding

    async def observe(self) -> None:
        self._content = await self._document.read()
        self._entries = {}
        if self._content is not None:
            self._entries = self._format.parse(self._content) or {}

    def observed(self) -> tuple[str, ...]:
        return tuple(self._entries)

    def difference(self, desired: Desired) -> Difference:
        rendered = self.render(desired)
        waiting = self._absent() & self._format.render(desired, self._entries).entries.keys()
        found = Difference()
        if rendered.content != self._content:
            found = difference_of(rendered.entries, self._entries)
            if found.settled:
                # The same set in other words: nobody else should write, so it is put right.
                found = Difference(change=(self.label,))
        return replace(found, pending=tuple(sorted(waiting)))

    async def apply(self, desired: Desired, difference: Difference) -> None:
        rendered = self.render(desired)
        self._say_left_out(rendered.left_out)
        await self._document.write(rendered.content)
        now = self._clock.monotonic()
        self.written_at = now
        for entry in self._entries.keys() - rendered.entries.keys():
            self.retired[entry] = now
        for entry in rendered.entries:
            self.retired.pop(entry, None)
        self._wake()

    def render(self, desired: Desired) -> Rendered:
        """What it should say, given what it says now and what must not be back yet."""
        return self._format.render(desired, self._entries, self._absent())

    def _absent(self) -> set[str]:
        now = self._clock.monotonic()
        return {e for e, at in self.retired.items() if now - at < self._format.absence_s}

    def _say_left_out(self, left_out: Mapping[str, str]) -> None:
        for url in left_out.keys() - self._left_out:
            _log.warning(
                "router cannot express an engine; it is left out",
                router=self._router,
                engine=url,
                error=left_out[url],
            )
        self._left_out = frozenset(left_out)


class ReportTarget:
    """One replica, which is asked and never told."""

    def __init__(
        self,
        document: DocumentTarget,
        format: Format,
        replica: Replica,
        *,
        pickup_s: float,
        connector: Connector,
        token: TokenFile,
        clock: Clock,
    ) -> None:
        self.replica = replica
        self._document = document
        self._format = format
        self._pickup_s = pickup_s
        self._connector = connector
        self._token = token
        self._clock = clock
        self._entries: Entries = {}

    @property
    def label(self) -> str:
        return self.replica.label

    @property
    def regarding(self) -> ObjectReference | None:
        return self.replica.regarding

    async def observe(self) -> None:
        url = self.replica.url + self._format.report_path()
        async with self._connector.peer() as peer:
            answer = await peer.call("GET", url, headers=self._token.headers())
        self._entries = self._format.parse_report(answer)

    def observed(self) -> tuple[str, ...]:
        return tuple(self._entries)

    def difference(self, desired: Desired) -> Difference:
        """Entries that the document never held are somebody else's."""
        wanted = self._document.render(desired).entries
        ours = {e: v for e, v in self._entries.items() if e in wanted or self._was_ours(e)}
        found = difference_of(wanted, ours)
        if found.settled or self._overdue():
            return found
        return Difference(pending=(*found.add, *found.remove, *found.change))

    async def apply(self, desired: Desired, difference: Difference) -> None:
        raise RouterError(
            f"{self.label} has not taken the document for {self._pickup_s:g} s; "
            "check that it reads the file or key that is configured"
        )

    def _was_ours(self, entry: str) -> bool:
        return entry in self._document.retired

    def _overdue(self) -> bool:
        return self._clock.monotonic() - self._document.written_at > self._pickup_s


def difference_of(wanted: Mapping[str, V], found: Mapping[str, V]) -> Difference:
    """By entry: lacking, left over, and saying something else."""
    return Difference(
        add=tuple(entry for entry in wanted if entry not in found),
        remove=tuple(entry for entry in found if entry not in wanted),
        change=tuple(e for e in wanted if e in found and found[e] != wanted[e]),
    )
