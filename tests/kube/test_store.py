import asyncio
import itertools
import math

import pytest

from kube.pod import Pod, PodMetadata, PodStatus
from kube.store import Change, Store
from tests.clock import FakeClock

pytestmark = pytest.mark.anyio


def pod(name: str, uid: str, version: str = "1", phase: str = "Running") -> Pod:
    meta = PodMetadata(name=name, namespace="ns", uid=uid, resource_version=version)
    return Pod(metadata=meta, status=PodStatus(phase=phase))


class Watched:
    """A store and the changes that it told."""

    def __init__(self, clock: FakeClock | None = None) -> None:
        self.store: Store[Pod] = Store(clock or FakeClock())
        self.changes: list[Change[Pod]] = []
        self.store.subscribe(self.changes.append)

    def told(self) -> list[tuple[str | None, str | None]]:
        """UID before and after of each change, and forget them."""
        told = [
            (c.old.metadata.uid if c.old else None, c.new.metadata.uid if c.new else None)
            for c in self.changes
        ]
        self.changes.clear()
        return told


async def test_objects_are_found_by_name_and_by_uid() -> None:
    store = Watched().store
    store.replace([pod("a", "A"), pod("b", "B")])
    assert len(store) == 2
    a, b = store.get("ns", "a"), store.by_uid("B")
    assert a is not None
    assert b is not None
    assert (a.metadata.uid, b.metadata.name) == ("A", "b")
    assert store.get("other", "a") is None
    assert store.by_uid("C") is None
    assert {p.metadata.name for p in store.values()} == {"a", "b"}


async def test_a_change_names_what_was_and_what_is() -> None:
    watched = Watched()
    old, new = pod("a", "A", "1"), pod("a", "A", "2")
    watched.store.put(old)
    watched.store.put(new)
    watched.store.remove("A")
    assert watched.changes == [Change(None, old), Change(old, new), Change(new, None)]


async def test_a_replay_of_a_known_version_changes_nothing() -> None:
    watched = Watched()
    watched.store.put(pod("a", "A", "7"))
    watched.told()
    watched.store.put(pod("a", "A", "7", phase="Failed"))
    assert watched.told() == []
    kept = watched.store.by_uid("A")
    assert kept is not None
    assert kept.status.phase == "Running"


async def test_versions_are_opaque_so_a_smaller_one_counts() -> None:
    watched = Watched()
    watched.store.put(pod("a", "A", "100"))
    watched.store.put(pod("a", "A", "20"))
    kept = watched.store.by_uid("A")
    assert kept is not None
    assert kept.metadata.resource_version == "20"


async def test_a_list_adds_updates_and_removes_by_uid() -> None:
    watched = Watched()
    watched.store.replace([pod("a", "A"), pod("b", "B"), pod("c", "C")])
    watched.told()
    watched.store.replace([pod("b", "B", "2"), pod("c", "C"), pod("d", "D"), pod("e", "E")])
    assert watched.told() == [("A", None), ("B", "B"), (None, "D"), (None, "E")]


async def test_an_empty_list_is_honoured() -> None:
    watched = Watched()
    watched.store.replace([pod("a", "A"), pod("b", "B")])
    watched.told()
    watched.store.replace([])
    assert sorted(watched.told(), key=str) == [("A", None), ("B", None)]
    assert len(watched.store) == 0


async def test_a_list_with_a_recreated_name_is_a_deletion_then_an_addition() -> None:
    watched = Watched()
    watched.store.replace([pod("a", "A"), pod("b", "B")])
    watched.told()
    watched.store.replace([pod("a", "A2"), pod("b", "B2")])
    told = watched.told()
    assert told[:2] == [("A", None), ("B", None)]
    assert told[2:] == [(None, "A2"), (None, "B2")]
    held = watched.store.get("ns", "a")
    assert held is not None
    assert held.metadata.uid == "A2"


async def test_an_event_of_a_recreated_name_is_a_deletion_then_an_addition() -> None:
    watched = Watched()
    watched.store.put(pod("a", "A"))
    watched.told()
    watched.store.put(pod("a", "B"))
    assert watched.told() == [("A", None), (None, "B")]
    assert watched.store.by_uid("A") is None


EVENTS = ["added A", "modified A", "deleted A"]


@pytest.mark.parametrize(
    "order",
    [order for n in (1, 2, 3) for order in itertools.permutations(EVENTS, n)],
    ids=", ".join,
)
async def test_no_late_event_of_a_predecessor_harms_its_successor(order: tuple[str, ...]) -> None:
    """In whatever order events of A arrive after A was known and B took its name."""
    watched = Watched()
    watched.store.put(pod("x", "A", "1"))
    watched.store.put(pod("x", "B", "5"))
    watched.told()
    for event in order:
        match event:
            case "added A":
                watched.store.put(pod("x", "A", "1"))
            case "modified A":
                watched.store.put(pod("x", "A", "3", phase="Failed"))
            case _:
                watched.store.remove("A")
        held = watched.store.get("ns", "x")
        assert held is not None
        assert held.metadata.uid == "B"
    assert watched.told() == []
    assert len(watched.store) == 1


async def test_a_predecessor_that_was_never_known_does_not_disturb_by_its_deletion() -> None:
    watched = Watched()
    watched.store.put(pod("x", "B"))
    watched.told()
    watched.store.remove("A")
    assert watched.told() == []


async def test_an_object_that_left_the_selector_may_come_back() -> None:
    watched = Watched()
    watched.store.put(pod("a", "A", "1"))
    watched.store.remove("A")
    watched.store.put(pod("a", "A", "3"))
    assert watched.told() == [(None, "A"), ("A", None), (None, "A")]


async def test_a_list_is_believed_even_about_what_seemed_superseded() -> None:
    watched = Watched()
    watched.store.put(pod("x", "A"))
    watched.store.put(pod("x", "B"))
    watched.store.replace([pod("x", "A", "9"), pod("y", "C")])
    held = watched.store.get("ns", "x")
    assert held is not None
    assert held.metadata.uid == "A"


async def test_what_a_list_could_not_read_stays_as_it_was() -> None:
    watched = Watched()
    watched.store.replace([pod("a", "A"), pod("b", "B"), pod("c", "C")])
    watched.told()
    watched.store.replace([pod("c", "C")], unreadable=["A"])
    assert watched.told() == [("B", None)]
    assert watched.store.by_uid("A") is not None


async def test_an_index_follows_every_change() -> None:
    store = Watched().store
    store.put(pod("a", "A", phase="Running"))
    store.add_index("phase", lambda p: p.status.phase or None)
    store.put(pod("b", "B", phase="Running"))
    store.put(pod("c", "C", phase=""))

    def uids(phase: str) -> set[str]:
        return {p.metadata.uid for p in store.by_index("phase", phase)}

    assert uids("Running") == {"A", "B"}
    store.put(pod("a", "A", "2", phase="Failed"))
    assert (uids("Running"), uids("Failed")) == ({"B"}, {"A"})
    store.put(pod("c", "C", "2", phase="Failed"))
    store.remove("A")
    assert uids("Failed") == {"C"}
    store.replace([])
    assert (uids("Running"), uids("Failed")) == (set(), set())


async def test_an_index_that_was_never_added_is_a_mistake_of_ours() -> None:
    with pytest.raises(KeyError):
        Watched().store.by_index("phase", "Running")


async def test_a_subscriber_sees_the_store_as_it_is_after_the_change() -> None:
    store = Watched().store
    seen: list[tuple[int, bool]] = []
    store.add_index("name", lambda p: p.metadata.name)
    store.subscribe(lambda _: seen.append((len(store), bool(store.by_index("name", "a")))))
    store.put(pod("a", "A"))
    store.remove("A")
    assert seen == [(1, True), (0, False)]


async def test_who_unsubscribed_hears_no_more_and_the_others_do() -> None:
    store = Watched().store
    first: list[object] = []
    second: list[object] = []
    end_first = store.subscribe(first.append)
    store.subscribe(second.append)
    store.put(pod("a", "A"))
    end_first()
    end_first()
    store.put(pod("b", "B"))
    assert (len(first), len(second)) == (1, 2)


async def test_a_subscriber_may_end_itself_while_it_is_told() -> None:
    store = Watched().store
    heard: list[object] = []

    def once(change: Change[Pod]) -> None:
        heard.append(change)
        end()

    end = store.subscribe(once)
    later: list[object] = []
    store.subscribe(later.append)
    store.put(pod("a", "A"))
    store.put(pod("b", "B"))
    assert (len(heard), len(later)) == (1, 2)


async def test_synced_means_a_full_list_and_wakes_who_waits() -> None:
    store = Watched().store
    store.put(pod("a", "A"))
    assert not store.synced
    waiting = asyncio.create_task(store.wait_synced())
    await asyncio.sleep(0)
    assert not waiting.done()
    store.replace([])
    await waiting
    assert store.synced


async def test_the_age_counts_from_the_last_proof_that_the_store_is_current() -> None:
    clock = FakeClock()
    store = Watched(clock).store
    assert store.age_s() == math.inf
    store.replace([])
    clock.set_forward(40)
    assert store.age_s() == 40
    store.put(pod("a", "A"))
    assert store.age_s() == 40, "only the reflector knows what proves it"
    store.touch()
    assert store.age_s() == 0


async def test_memory_for_superseded_uids_is_bounded() -> None:
    store = Watched().store
    for number in range(5000):
        store.put(pod("x", f"U{number}"))
    store.put(pod("x", "U4998", "2"))
    held = store.get("ns", "x")
    assert held is not None
    assert held.metadata.uid == "U4999", "a recent one is remembered"
    assert len(store._superseded) == 4096
