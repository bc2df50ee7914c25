"""Who serves what, and who counts as gone."""

from datetime import UTC, datetime, timedelta

import pytest

from certs.confirmations import (
    Confirmations,
    Confirmer,
    Records,
    Roll,
    Served,
    replica_key,
)
from kube.errors import Conflict
from tests.certs.memory import REPLICAS, MemoryApi, MemoryClient
from tests.certs.tasks import running
from tests.clock import FakeClock

pytestmark = pytest.mark.anyio

NOW = datetime(2026, 1, 1, tzinfo=UTC)
FIRST = Served("leaf-1", "ca-1", NOW + timedelta(days=1))
SECOND = Served("leaf-2", "ca-2", NOW + timedelta(days=2))


def confirmations(api: MemoryApi, user: str = "a") -> Confirmations:
    return Confirmations(MemoryClient(api, user), "podstamp-system", "podstamp-webhook-replicas")


async def test_each_replica_writes_its_own_key_and_sees_all() -> None:
    api = MemoryApi()
    assert await confirmations(api).read() == Records()
    await confirmations(api).confirm("a", FIRST, NOW)
    seen = await confirmations(api, "b").confirm("b", SECOND, NOW)
    assert [(r.name, r.leaf, r.ca) for r in seen.replicas] == [
        ("a", "leaf-1", "ca-1"),
        ("b", "leaf-2", "ca-2"),
    ]
    assert seen.seen == {"a": NOW, "b": NOW}


async def test_a_key_that_cannot_be_read_counts_as_a_replica_that_serves_nobody_knows_what() -> (
    None
):
    api = MemoryApi()
    api.put(REPLICAS, {"data": {"x": "not json", "y": '{"leaf": 3}'}})
    seen = await confirmations(api).read()
    assert [(r.name, r.leaf, r.ca) for r in seen.replicas] == [("x", "", ""), ("y", "", "")]
    assert all(r.not_after > NOW + timedelta(days=36500) for r in seen.replicas)


async def test_a_key_is_not_taken_away_when_somebody_wrote_meanwhile() -> None:
    api = MemoryApi()
    old = await confirmations(api).confirm("a", FIRST, NOW)
    await confirmations(api).confirm("a", SECOND, NOW)
    with pytest.raises(Conflict):
        await confirmations(api).remove(["a"], old.version)
    assert [r.name for r in (await confirmations(api).read()).replicas] == ["a"]
    await confirmations(api).remove(["a"])
    assert (await confirmations(api).read()).replicas == ()


def text(served: Served, seen: datetime) -> str:
    return (
        f'{{"leaf":"{served.leaf}","ca":"{served.ca}","notAfter":"{served.not_after.isoformat()}",'
        f'"seen":"{seen.isoformat()}"}}'
    )


def test_a_replica_is_lost_when_its_key_has_not_moved_by_our_clock() -> None:
    """Its own clock may be an hour off, which must not matter."""
    roll = Roll(lost_s=150, linger_s=10)
    wrong = NOW - timedelta(hours=1)
    for at in (0, 100, 149):
        records = Records(
            "1", {"a": text(FIRST, wrong), "b": text(FIRST, NOW + timedelta(seconds=at))}
        )
        roll.observe(records, at)
        assert roll.lost(at) == []
    assert roll.lost(150) == ["a"]
    roll.observe(Records("2", {"a": text(FIRST, NOW), "b": text(FIRST, NOW)}), 150)
    assert roll.lost(299) == []


def test_a_replica_whose_key_vanished_counts_for_a_while_unless_it_is_known_to_be_gone() -> None:
    roll = Roll(lost_s=150, linger_s=10)
    both = Records("1", {"a": text(FIRST, NOW), "b": text(FIRST, NOW)})
    roll.observe(both, 0)
    roll.observe(Records("2", {}), 10)
    assert [r.name for r in roll.replicas()] == ["a", "b"]
    roll.forget(["a"])
    assert [r.name for r in roll.replicas()] == ["b"]
    roll.observe(Records("2", {}), 10.1)
    assert roll.replicas() == ()


async def test_the_confirmer_tells_changes_at_once_and_beats() -> None:
    api, clock = MemoryApi(), FakeClock(NOW)
    serves: list[Served | None] = [None]
    confirmer = Confirmer(confirmations(api), lambda: serves[0], identity="a", clock=clock)
    async with running(confirmer.run()):
        await clock.advance(5)
        assert REPLICAS not in api.objects
        serves[0] = FIRST
        await clock.advance(1)
        assert [r.leaf for r in (await confirmations(api).read()).replicas] == ["leaf-1"]
        serves[0] = SECOND
        await clock.advance(1)
        assert [r.leaf for r in (await confirmations(api).read()).replicas] == ["leaf-2"]
        before = (await confirmations(api).read()).seen["a"]
        await clock.advance(31)
        assert (await confirmations(api).read()).seen["a"] >= before + timedelta(seconds=30)
    await confirmer.stop()
    assert (await confirmations(api).read()).replicas == ()


async def test_the_confirmer_survives_a_server_that_refuses_and_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    api, clock = MemoryApi(), FakeClock(NOW)
    api.refuse = lambda method, path: 403
    confirmer = Confirmer(confirmations(api), lambda: FIRST, identity="a", clock=clock)
    async with running(confirmer.run()):
        await clock.advance(100)
        assert [r.getMessage() for r in caplog.records] == ["cannot confirm what is served"]
        api.refuse = lambda method, path: None
        await clock.advance(31)
        assert [r.name for r in (await confirmations(api).read()).replicas] == ["a"]


def test_any_name_of_a_replica_becomes_a_key() -> None:
    assert replica_key("podstamp-webhook-5d-x") == "podstamp-webhook-5d-x"
    assert replica_key("a/b c:d") == "a-b-c-d"
    assert len(replica_key("x" * 300)) == 253
