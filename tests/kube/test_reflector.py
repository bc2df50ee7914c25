"""Each way in which a watch goes wrong. In process: an API in memory and a clock that is moved."""

import asyncio
import gc
import random
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import msgspec
import pytest

from kube.client import ApiClient
from kube.credentials import Credentials
from kube.errors import Forbidden, Gone, KubeError, Unreadable
from kube.pod import Pod
from kube.reflector import Reflector
from kube.store import Change, Store
from tests.clock import FakeClock

pytestmark = pytest.mark.anyio

Answer = Callable[[httpx.Request], Coroutine[None, None, httpx.Response]]
Body = bytes | httpx.Response | Exception


def pod(uid: str, version: str = "1", name: str | None = None, **status: Any) -> dict[str, Any]:
    meta = {"name": name or uid.lower(), "namespace": "ns", "uid": uid, "resourceVersion": version}
    return {"metadata": meta, "status": status}


def event(type: str, obj: Any) -> bytes:
    return msgspec.json.encode({"type": type, "object": obj}) + b"\n"


def bookmark(version: str) -> bytes:
    return event("BOOKMARK", {"metadata": {"resourceVersion": version}})


def status(code: int) -> dict[str, Any]:
    return {"kind": "Status", "code": code, "reason": "Expired", "message": f"code {code}"}


class Stream(httpx.AsyncByteStream):
    """The body of a watch: what a test puts in, until it ends or breaks it."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[bytes | Exception | None] = asyncio.Queue()

    def send(self, *lines: bytes | None) -> None:
        """Lines; None ends the body."""
        for line in lines:
            self._queue.put_nowait(line)

    def end(self) -> None:
        self.send(None)

    def fail(self, error: Exception) -> None:
        self._queue.put_nowait(error)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (item := await self._queue.get()) is not None:
            if isinstance(item, Exception):
                raise item
            yield item


class Api:
    """Objects in memory, what lists and watches answer, and what was asked."""

    def __init__(self) -> None:
        self.objects: list[Any] = []
        self.version = "90"
        self.lists: list[dict[str, str]] = []
        self.watches: list[dict[str, str]] = []
        self.streams: list[Stream] = []
        # What happens instead: the first entry is used up by the next call.
        self.list_faults: list[Body] = []
        self.watch_faults: list[Body] = []

    @property
    def stream(self) -> Stream:
        """The newest watch."""
        return self.streams[-1]

    async def handle(self, request: httpx.Request) -> httpx.Response:
        params = dict(request.url.params)
        if "watch" in params:
            self.watches.append(params)
            fault = self.watch_faults.pop(0) if self.watch_faults else None
            if fault is not None:
                return self._fault(fault)
            self.streams.append(Stream())
            return httpx.Response(200, stream=self.streams[-1])
        self.lists.append(params)
        if self.list_faults:
            return self._fault(self.list_faults.pop(0))
        start, limit = int(params.get("continue", 0)), int(params["limit"])
        end = start + limit
        meta = {"resourceVersion": self.version}
        if end < len(self.objects):
            meta["continue"] = str(end)
        return httpx.Response(200, json={"metadata": meta, "items": self.objects[start:end]})

    def _fault(self, fault: Body) -> httpx.Response:
        if isinstance(fault, Exception):
            raise fault
        return fault if isinstance(fault, httpx.Response) else httpx.Response(200, content=fault)


class Replaced(Store[Pod]):
    """A store that remembers the lists it was given."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self.replaced: list[list[Pod]] = []

    def replace(self, items: Iterable[Pod], *, unreadable: Collection[str] = ()) -> None:
        self.replaced.append(list(items))
        super().replace(self.replaced[-1], unreadable=unreadable)


class Running:
    """A reflector at work on an `Api`."""

    def __init__(
        self, api: Api, clock: FakeClock, page_size: int = 500, answer: Answer | None = None
    ) -> None:
        self.api = api
        self.clock = clock
        self.store = Replaced(clock)
        self.changes: list[Change[Pod]] = []
        self.errors: list[KubeError] = []
        self.store.subscribe(self.changes.append)
        client = ApiClient(
            Credentials("http://api"),
            clock=clock,
            transport=lambda _: httpx.MockTransport(answer or api.handle),
        )
        self.reflector = Reflector(
            client,
            "/api/v1/pods",
            Pod,
            self.store,
            label_selector="podstamp.dev/managed=true",
            clock=clock,
            random=random.Random(7),
            page_size=page_size,
            on_error=self.errors.append,
        )

    @property
    def uids(self) -> set[str]:
        return {p.metadata.uid for p in self.store.values()}

    def told(self) -> list[tuple[str | None, str | None]]:
        told = [
            (c.old.metadata.uid if c.old else None, c.new.metadata.uid if c.new else None)
            for c in self.changes
        ]
        self.changes.clear()
        return told


@asynccontextmanager
async def running(
    clock: FakeClock,
    *objects: Any,
    page_size: int = 500,
    setup: Callable[[Api], None] | None = None,
) -> AsyncIterator[Running]:
    api = Api()
    api.objects = list(objects)
    if setup is not None:
        setup(api)
    run = Running(api, clock, page_size)
    task = asyncio.create_task(run.reflector.run())
    await clock.settle()
    try:
        yield run
    finally:
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            task.result()


async def test_a_list_is_followed_by_a_watch_from_its_own_version(clock: FakeClock) -> None:
    """Not from an item's: 50, 7 and 33 are older than the list."""
    async with running(clock, pod("A", "50"), pod("B", "7"), pod("C", "33")) as run:
        assert run.uids == {"A", "B", "C"}
        assert run.store.synced
        (watch,) = run.api.watches
        assert watch["resourceVersion"] == "90"
        assert watch["allowWatchBookmarks"] == "true"
        assert watch["labelSelector"] == run.api.lists[0]["labelSelector"]
        assert 240 <= int(watch["timeoutSeconds"]) <= 300


async def test_events_change_the_store_one_by_one(clock: FakeClock) -> None:
    async with running(clock, pod("A"), pod("B")) as run:
        run.told()
        run.api.stream.send(
            event("ADDED", pod("C", "91")),
            event("MODIFIED", pod("A", "92", phase="Failed")),
            event("DELETED", pod("B", "93")),
            event("DELETED", pod("X", "94")),
        )
        await clock.settle()
        assert run.told() == [(None, "C"), ("A", "A"), ("B", None)]
        assert run.uids == {"A", "C"}


async def test_a_clean_end_resumes_from_the_last_version_without_a_list(clock: FakeClock) -> None:
    async with running(clock, pod("A")) as run:
        run.api.stream.send(event("MODIFIED", pod("A", "7000")), bookmark("12"))
        await clock.advance(280)
        run.api.stream.end()
        await clock.advance(0.1)
        assert len(run.api.lists) == 1
        assert [w["resourceVersion"] for w in run.api.watches] == ["90", "12"]
        run.api.stream.send(event("DELETED", pod("A", "15")))
        await clock.advance(280)
        run.api.stream.end()
        await clock.advance(0.1)
        assert [w["resourceVersion"] for w in run.api.watches] == ["90", "12", "15"]
        assert run.errors == []


GAPS: dict[str, Callable[[Stream], None]] = {
    "410 as an event": lambda s: s.send(event("ERROR", status(410))),
    "500 as an event": lambda s: s.send(event("ERROR", status(500))),
    "429 as an event": lambda s: s.send(event("ERROR", status(429))),
    "a Status for a body": lambda s: s.send(msgspec.json.encode(status(410)) + b"\n"),
    "a line cut off": lambda s: s.send(b'{"type":"ADDED","obj', None),
    "a broken connection": lambda s: s.fail(httpx.RemoteProtocolError("cut")),
    "silence": lambda s: s.fail(httpx.ReadTimeout("no answer in time")),
    "something else": lambda s: s.send(b"<html>\n"),
}


@pytest.mark.parametrize("gap", GAPS.values(), ids=GAPS.keys())
async def test_after_a_gap_a_full_list_finds_what_was_missed(
    clock: FakeClock, gap: Callable[[Stream], None]
) -> None:
    """Deleted, added and recreated while the watch was blind: no event of it ever arrives."""
    async with running(clock, pod("A"), pod("B"), pod("C")) as run:
        run.told()
        run.api.stream.send(event("MODIFIED", pod("A", "91")))
        await clock.settle()
        run.told()
        run.api.objects = [pod("A", "91"), pod("C2", "95", name="c"), pod("D", "96")]
        run.api.version = "200"
        gap(run.api.stream)
        await clock.settle()
        assert run.uids == {"A", "B", "C"}, "nothing changes before the list has succeeded"
        await clock.advance(0.1)
        assert run.told() == [("B", None), ("C", None), (None, "C2"), (None, "D")]
        assert run.api.watches[-1]["resourceVersion"] == "200"
        assert "resourceVersion" not in run.api.lists[-1]
        assert len(run.errors) == 1


async def test_410_on_opening_a_watch_lists_again(clock: FakeClock) -> None:
    async with running(clock, pod("A"), pod("B")) as run:
        run.api.watch_faults = [httpx.Response(410, json=status(410))]
        run.api.objects = [pod("A")]
        run.api.version = "200"
        await clock.advance(280)
        run.api.stream.end()
        await clock.advance(0.3)
        assert run.uids == {"A"}
        assert [w["resourceVersion"] for w in run.api.watches] == ["90", "90", "200"]
        assert isinstance(run.errors[0], Gone)


async def test_a_status_of_410_without_chunks_lists_again(clock: FakeClock) -> None:
    def setup(api: Api) -> None:
        api.watch_faults = [msgspec.json.encode(status(410))]

    async with running(clock, pod("A"), setup=setup) as run:
        await clock.advance(0.1)
        assert (len(run.api.lists), len(run.api.watches)) == (2, 2)
        assert isinstance(run.errors[0], Gone)


async def test_410_again_and_again_waits_longer_each_time(clock: FakeClock) -> None:
    def setup(api: Api) -> None:
        api.watch_faults = [httpx.Response(410, json=status(410))] * 1000

    async with running(clock, pod("A"), setup=setup) as run:
        await clock.advance(60)
        assert 30 < len(run.api.lists) < 75, "at most one list in a second, once backed off"
        assert run.uids == {"A"}


@pytest.mark.parametrize(
    "fault",
    [
        httpx.Response(500),
        httpx.Response(503, headers={"retry-after": "1"}),
        httpx.ConnectError("refused"),
        httpx.ReadTimeout("no answer in time"),
        httpx.Response(200, content=b'{"items":[{'),
        httpx.Response(200, json={"items": []}),
        httpx.Response(410, json=status(410)),
    ],
    ids=["500", "503", "refused", "timeout", "cut off", "no version", "410"],
)
async def test_while_lists_fail_the_last_known_objects_stay(clock: FakeClock, fault: Body) -> None:
    async with running(clock, pod("A"), pod("B")) as run:
        run.told()
        run.api.objects = []
        run.api.list_faults = [fault] * 5
        run.api.stream.fail(httpx.RemoteProtocolError("cut"))
        await clock.advance(1)
        assert run.uids == {"A", "B"}
        assert run.told() == []
        age_s = run.store.age_s()
        assert age_s == 1, "the store says how old it is"
        await clock.advance(9)
        assert run.uids == set(), "a list that succeeds is honoured, also an empty one"
        assert 5 <= len(run.errors) <= 6


async def test_a_list_that_breaks_off_between_pages_changes_nothing(clock: FakeClock) -> None:
    objects = [pod(uid) for uid in "ABCDE"]
    async with running(clock, *objects, page_size=2) as run:
        assert run.uids == set("ABCDE")
        assert [p.get("continue") for p in run.api.lists] == [None, "2", "4"]
        run.told()
        run.api.objects = [pod(uid) for uid in "VWXYZ"]
        first = httpx.Response(
            200,
            json={
                "metadata": {"resourceVersion": "99", "continue": "2"},
                "items": run.api.objects[:2],
            },
        )
        run.api.list_faults = [first, httpx.Response(410, json=status(410))]
        run.api.stream.fail(httpx.RemoteProtocolError("cut"))
        await clock.settle()
        await clock.advance(0.1)
        assert run.told() == []
        assert run.uids == set("ABCDE")
        await clock.advance(1)
        assert run.uids == set("VWXYZ")
        assert run.api.lists[5].get("continue") is None, "the list begins from the start"


async def test_a_watch_refused_for_load_waits_as_asked_and_misses_nothing(
    clock: FakeClock,
) -> None:
    async with running(clock, pod("A")) as run:
        run.api.watch_faults = [httpx.Response(429, headers={"retry-after": "5"})]
        await clock.advance(280)
        run.api.stream.end()
        await clock.advance(4.9)
        assert len(run.api.watches) == 2
        await clock.advance(0.2)
        assert [w["resourceVersion"] for w in run.api.watches] == ["90"] * 3
        assert len(run.api.lists) == 1


async def test_a_missing_role_is_asked_for_slowly_and_said_once(
    clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    message = 'pods is forbidden: User "x" cannot list resource "pods"'
    refusal = httpx.Response(403, json=status(403) | {"message": message})

    def setup(api: Api) -> None:
        api.list_faults = [refusal] * 10

    async with running(clock, pod("A"), setup=setup) as run:
        await clock.advance(19)
        assert len(run.api.lists) == 10
        assert all(isinstance(e, Forbidden) for e in run.errors)
        said = [r for r in caplog.records if r.levelname == "WARNING"]
        assert len(said) == 1
        assert message in str(vars(said[0]))
        assert not run.store.synced
        await clock.advance(2)
        assert run.store.synced, "once the role is there, it works without a restart"


async def test_one_broken_object_never_stops_list_or_stream(
    clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    broken = {"metadata": {"name": "x", "namespace": "ns", "uid": "X"}, "spec": 7}
    async with running(clock, pod("A"), broken, {"metadata": {"name": "no-uid"}}) as run:
        assert run.uids == {"A"}
        for _ in range(3):
            run.api.stream.send(event("MODIFIED", broken))
        run.api.stream.send(
            event("MODIFIED", pod("A", "91") | {"spec": {"containers": "none"}}),
            event("PAUSED", pod("A", "92")),
            event("ADDED", pod("B", "93")),
            event("MODIFIED", broken),
        )
        await clock.settle()
        assert run.uids == {"A", "B"}
        kept = run.store.by_uid("A")
        assert kept is not None
        assert kept.metadata.resource_version == "1"
        assert len(run.api.watches) == 1
        assert [type(e) for e in run.errors] == [Unreadable] * 8
        said = [r for r in caplog.records if "cannot be read" in r.getMessage()]
        assert len(said) == 3, "once for each object, not for each event"
        await clock.advance(280)
        run.api.stream.end()
        await clock.advance(0.1)
        assert run.api.watches[-1]["resourceVersion"] == "93"


async def test_an_object_that_became_unreadable_stays_until_it_is_gone(clock: FakeClock) -> None:
    async with running(clock, pod("A"), pod("B")) as run:
        run.api.objects = [pod("A", "91") | {"spec": 7}]
        run.api.stream.fail(httpx.RemoteProtocolError("cut"))
        await clock.advance(0.1)
        assert run.uids == {"A"}
        run.api.stream.send(event("DELETED", pod("A", "92") | {"spec": 7}))
        await clock.settle()
        assert run.uids == set()


async def test_a_deletion_that_does_not_say_of_whom_lists_again(clock: FakeClock) -> None:
    async with running(clock, pod("A"), pod("B")) as run:
        run.api.objects = [pod("A")]
        run.api.stream.send(event("DELETED", {"metadata": 7}))
        await clock.advance(0.1)
        assert run.uids == {"A"}


async def test_replayed_history_changes_nothing(clock: FakeClock) -> None:
    async with running(clock, pod("A", "50"), pod("B", "7")) as run:
        run.told()
        run.api.stream.send(
            event("ADDED", pod("A", "50")),
            event("ADDED", pod("B", "7")),
            event("MODIFIED", pod("A", "50")),
        )
        await clock.settle()
        assert run.told() == []


async def test_a_relist_of_unchanged_objects_tells_nobody_and_keeps_the_objects(
    clock: FakeClock,
) -> None:
    async with running(clock, pod("A"), pod("B")) as run:
        run.told()
        before = run.store.by_uid("A")
        run.api.stream.fail(httpx.RemoteProtocolError("cut"))
        await clock.advance(0.1)
        assert len(run.api.lists) == 2
        assert run.told() == []
        assert run.store.by_uid("A") is before
        assert run.store.replaced[1][0] is before, "a second copy is not held through the list"


async def test_the_age_is_reset_by_list_event_and_bookmark_alone(clock: FakeClock) -> None:
    async with running(clock, pod("A")) as run:
        assert run.store.age_s() == 0
        await clock.advance(50)
        assert run.store.age_s() == 50
        run.api.stream.send(bookmark("91"))
        await clock.settle()
        assert run.store.age_s() == 0
        await clock.advance(20)
        run.api.stream.send(event("ADDED", pod("B", "92")))
        await clock.settle()
        assert run.store.age_s() == 0
        await clock.advance(280)
        run.api.stream.end()
        await clock.advance(0.1)
        assert run.store.age_s() > 280, "that a watch was opened proves nothing yet"


async def test_a_watch_that_ends_at_once_does_not_spin(clock: FakeClock) -> None:
    def setup(api: Api) -> None:
        api.watch_faults = [b""] * 1000

    async with running(clock, pod("A"), setup=setup) as run:
        await clock.advance(60)
        assert 30 < len(run.api.watches) < 75
        assert len(run.api.lists) == 1


async def test_after_an_outage_the_pace_is_quick_again(clock: FakeClock) -> None:
    def setup(api: Api) -> None:
        api.list_faults = [httpx.ConnectError("refused")] * 20

    async with running(clock, pod("A"), setup=setup) as run:
        await clock.advance(60)
        assert run.store.synced
        run.api.stream.send(bookmark("91"))
        await clock.settle()
        run.api.stream.fail(httpx.RemoteProtocolError("cut"))
        await clock.settle()
        assert clock.next_wake_s is not None
        assert clock.next_wake_s <= 0.1


async def test_no_wait_is_longer_than_two_seconds_in_an_outage(clock: FakeClock) -> None:
    def setup(api: Api) -> None:
        api.list_faults = [httpx.ConnectError("refused")] * 1000

    async with running(clock, setup=setup) as run:
        for _ in range(40):
            assert clock.next_wake_s is not None
            assert 0 < clock.next_wake_s <= 2
            await clock.advance(clock.next_wake_s)
        assert len(run.errors) == 41


async def test_an_outage_is_said_once_and_its_end_too(
    clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")

    def setup(api: Api) -> None:
        api.list_faults = [httpx.ConnectError("refused")] * 20

    async with running(clock, pod("A"), setup=setup) as run:
        await clock.advance(60)
        run.api.stream.send(bookmark("91"))
        await clock.settle()
        said = [r.getMessage() for r in caplog.records if r.name == "kube.reflector"]
        assert said == ["cannot list and watch", "the watch works again"]


async def test_a_subscriber_that_raises_is_not_swallowed(clock: FakeClock) -> None:
    run = Running(Api(), clock)
    run.api.objects = [pod("A")]

    def bad(_: object) -> None:
        raise ZeroDivisionError

    run.store.subscribe(bad)
    with pytest.raises(ZeroDivisionError):
        await run.reflector.run()


class Hurrying(FakeClock):
    """A clock on which every sleep is over at once, however long it was."""

    async def sleep(self, seconds: float) -> None:
        self.set_forward(max(0.0, seconds))
        await asyncio.sleep(0)


async def test_ten_thousand_reconnects_leave_memory_and_tasks_as_they_were(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("CRITICAL", logger="kube.reflector")
    endings = (
        lambda: httpx.Response(200, content=event("MODIFIED", pod("A", "1"))),
        lambda: httpx.Response(200, content=event("ERROR", status(410))),
        lambda: httpx.Response(200, content=b""),
        lambda: httpx.Response(410, json=status(410)),
        lambda: httpx.Response(200, content=event("ADDED", pod("C", "2"))),
        lambda: httpx.Response(429),
        lambda: httpx.Response(200, content=b'{"type":"ADD'),
        lambda: httpx.Response(200, content=event("DELETED", pod("C", "3"))),
    )
    sizes: list[tuple[int, int]] = []
    reconnects = 0
    done = asyncio.Event()
    api = Api()
    api.objects = [pod("A"), pod("B")]

    async def answer(request: httpx.Request) -> httpx.Response:
        nonlocal reconnects
        if "watch" not in request.url.params:
            return await api.handle(request)
        reconnects += 1
        if reconnects in (1000, 11_000):
            gc.collect()
            sizes.append((len(gc.get_objects()), len(asyncio.all_tasks())))
        if reconnects > 11_000:
            done.set()
        api.lists.clear()
        run.errors.clear()
        run.changes.clear()
        run.store.replaced.clear()
        return endings[reconnects % len(endings)]()

    run = Running(api, Hurrying(), answer=answer)
    task = asyncio.create_task(run.reflector.run())
    await done.wait()
    task.cancel()
    await asyncio.wait([task])
    (objects_before, tasks_before), (objects_after, tasks_after) = sizes
    assert tasks_after == tasks_before
    assert objects_after - objects_before < 200, "objects that stay after each reconnect"
