"""Several replicas over one API: who wins, what a death leaves behind, who is cut off (nobody)."""

import asyncio
from base64 import b64decode
from datetime import UTC, datetime, timedelta
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from certs.secret import ROTATE
from certs.settings import CertSettings
from certs.validity import certificates, fingerprint, inspect
from tests.certs.crowd import Crowd, look
from tests.certs.memory import REPLICAS, SECRET, Death, MemoryApi
from tests.certs.world import (
    DAY,
    NAMES,
    SETTLE_S,
    Fleet,
    bundles,
    install,
    served_without_a_break,
    wipe,
)
from tests.clock import FakeClock

pytestmark = pytest.mark.anyio

NOW = datetime(2026, 1, 1, tzinfo=UTC)
KINDS = ("leaf", "ca")


def fleet_of(*names: str, config: CertSettings | None = None) -> Fleet:
    fleet = Fleet(MemoryApi(), FakeClock(NOW), config or CertSettings())
    install(fleet.api)
    for name in names:
        fleet.start(name)
    return fleet


def ask(fleet: Fleet, what: str) -> None:
    stored = fleet.api.objects[SECRET]
    metadata = stored["metadata"] | {"annotations": {ROTATE: what}}
    fleet.api.put(SECRET, stored | {"metadata": metadata})


def secret(fleet: Fleet) -> dict[str, bytes]:
    return {k: b64decode(v) for k, v in fleet.api.objects[SECRET]["data"].items()}


def cas(fleet: Fleet) -> list[str]:
    return [fingerprint(ca) for ca in certificates(secret(fleet)["ca.crt"])]


def leaf(fleet: Fleet) -> str:
    return fingerprint(certificates(secret(fleet)["tls.crt"])[0])


@pytest.mark.parametrize("seed", range(12))
async def test_of_three_replicas_that_start_at_once_one_makes_the_ca(seed: int) -> None:
    fleet = fleet_of("a", "b", "c")
    made = []
    fleet.api.written = lambda path: made.append(cas(fleet)) if path == SECRET else None
    fleet.api.hold()
    looks = [asyncio.create_task(keeper.look()) for keeper in fleet.keepers.values()]
    await fleet.api.serve(Random(seed))
    await asyncio.gather(*looks)
    fleet.api.hold(False)
    await fleet.settle()
    assert len(made) == 1, "the Secret was written more than once"
    assert {context.fingerprint for context in fleet.contexts.values()} == {leaf(fleet)}
    for entry, trusted in bundles(fleet.api).items():
        assert [fingerprint(ca) for ca in trusted] == cas(fleet), entry


@pytest.mark.parametrize("order", ["ahead first", "behind first"])
@pytest.mark.parametrize("hours", [1, 2])
async def test_replicas_whose_clocks_disagree_agree_on_a_pair_that_is_valid_now(
    order: str, hours: int
) -> None:
    fleet = fleet_of()
    names = ("ahead", "behind") if order == "ahead first" else ("behind", "ahead")
    for name in names:
        off = timedelta(hours=hours if name == "ahead" else -hours)
        await fleet.start(name, off).look()
    fleet.start("right")
    await fleet.settle(3 * SETTLE_S)
    version = fleet.api.objects[SECRET]["metadata"]["resourceVersion"]
    await fleet.settle(300, step_s=60)
    assert fleet.api.objects[SECRET]["metadata"]["resourceVersion"] == version
    assert inspect(secret(fleet), NAMES, fleet.clock.now()).problems == ()
    assert {context.fingerprint for context in fleet.contexts.values()} == {leaf(fleet)}
    assert fleet.untrusted(bundles(fleet.api)) == []


async def test_a_leaf_is_renewed_at_two_thirds_of_its_life_by_the_same_ca() -> None:
    fleet = fleet_of("a", "b")
    await fleet.settle(SETTLE_S)
    first, ca = leaf(fleet), cas(fleet)
    with served_without_a_break(fleet):
        await fleet.clock.advance((59 * DAY).total_seconds())
        await fleet.settle()
        assert leaf(fleet) == first
        await fleet.clock.advance((1.1 * DAY).total_seconds())
        await fleet.settle()
    assert leaf(fleet) != first
    assert cas(fleet) == ca
    assert {context.fingerprint for context in fleet.contexts.values()} == {leaf(fleet)}


async def test_a_ca_is_replaced_at_two_thirds_of_its_life() -> None:
    fleet = fleet_of("a", "b", config=CertSettings(ca_days=150))
    await fleet.settle(SETTLE_S)
    old = cas(fleet)
    with served_without_a_break(fleet):
        for _ in range(4):
            await fleet.clock.advance((24 * DAY).total_seconds())
            await fleet.settle(2 * SETTLE_S)
        assert cas(fleet) == old
        await fleet.clock.advance((5 * DAY).total_seconds())
        await fleet.settle(2 * SETTLE_S)
    assert len(cas(fleet)) == 1
    assert cas(fleet) != old


async def test_a_new_ca_comes_in_three_steps_each_after_the_settle_time() -> None:
    fleet = fleet_of("a", "b")
    await fleet.settle(SETTLE_S)
    (old_ca,), old_leaf = cas(fleet), leaf(fleet)
    with served_without_a_break(fleet):
        ask(fleet, "ca")
        await fleet.settle()
        new_ca = cas(fleet)[0]
        assert cas(fleet) == [new_ca, old_ca]
        assert leaf(fleet) == old_leaf
        await fleet.settle(SETTLE_S - 1, step_s=1)
        assert leaf(fleet) == old_leaf, "served before every API server knew its CA"
        await fleet.settle(1, step_s=1)
        assert leaf(fleet) != old_leaf
        assert cas(fleet) == [new_ca, old_ca]
        await fleet.settle(SETTLE_S, step_s=1)
    assert cas(fleet) == [new_ca]
    for trusted in bundles(fleet.api).values():
        assert [fingerprint(ca) for ca in trusted] == [new_ca]
    assert ROTATE not in fleet.api.objects[SECRET]["metadata"]["annotations"]


async def test_the_old_ca_stays_while_one_replica_still_serves_its_leaf() -> None:
    fleet = fleet_of("a", "slow", "c")
    await fleet.settle(SETTLE_S)
    (old_ca,) = cas(fleet)
    slow = fleet.keepers.pop("slow")  # it serves, but neither looks nor confirms
    with served_without_a_break(fleet):
        ask(fleet, "ca")
        await fleet.settle(12 * SETTLE_S)
        assert old_ca in cas(fleet)
        fleet.keepers["slow"] = slow
        await fleet.settle(2 * SETTLE_S)
    assert old_ca not in cas(fleet)


async def test_a_replica_that_died_holds_the_old_ca_only_until_it_counts_as_lost() -> None:
    fleet = fleet_of("a", "b")
    await fleet.settle(SETTLE_S)
    (old_ca,) = cas(fleet)
    fleet.kill("b")
    ask(fleet, "ca")
    await fleet.settle(fleet.settings.lost_seconds - SETTLE_S)
    assert old_ca in cas(fleet)
    await fleet.settle(3 * SETTLE_S)
    assert old_ca not in cas(fleet)
    assert list(fleet.api.objects[REPLICAS]["data"]) == ["a"]


async def test_a_replica_that_stopped_cleanly_holds_nothing_up() -> None:
    fleet = fleet_of("a", "b")
    await fleet.settle(SETTLE_S)
    (old_ca,) = cas(fleet)
    await fleet.keepers["b"].stop()
    fleet.kill("b")
    ask(fleet, "ca")
    await fleet.settle(4 * SETTLE_S)
    assert old_ca not in cas(fleet)


async def test_wiped_confirmations_are_not_taken_for_a_fleet_that_is_gone() -> None:
    fleet = fleet_of("a", "slow")
    await fleet.settle(SETTLE_S)
    (old_ca,) = cas(fleet)
    slow = fleet.keepers.pop("slow")
    with served_without_a_break(fleet):
        ask(fleet, "ca")
        await fleet.settle(3 * SETTLE_S)
        fleet.api.put(REPLICAS, {"data": {}})
        await fleet.settle(step_s=1)
        assert old_ca in cas(fleet), "dropped at once, although it may only have been wiped"
        assert list(fleet.api.objects[REPLICAS]["data"]) == ["a"], "whoever looks confirms again"
        fleet.keepers["slow"] = slow
        await fleet.settle(3 * SETTLE_S)
    assert old_ca not in cas(fleet)


async def test_an_expired_old_leaf_no_longer_holds_the_old_ca() -> None:
    fleet = fleet_of("a", "slow", config=CertSettings(lost_seconds=86400, leaf_days=1))
    await fleet.settle(SETTLE_S)
    (old_ca,) = cas(fleet)
    fleet.keepers.pop("slow")
    ask(fleet, "ca")
    await fleet.settle(5 * SETTLE_S)
    assert old_ca in cas(fleet)
    await fleet.clock.advance(86400 - 8 * SETTLE_S)
    await fleet.settle(9 * SETTLE_S)
    assert old_ca not in cas(fleet)


async def test_a_lost_secret_leaves_a_silent_replica_trusted() -> None:
    """The one that makes the new CA serves nothing itself: it goes by the silent one's word."""
    fleet = fleet_of("silent")
    await fleet.settle(SETTLE_S)
    silent = fleet.keepers.pop("silent")
    with served_without_a_break(fleet):
        del fleet.api.objects[SECRET]
        fleet.start("fresh")
        await fleet.settle(5 * SETTLE_S)
        assert fleet.contexts["fresh"].ready() is None
        assert len(cas(fleet)) == 2
        fleet.keepers["silent"] = silent
        await fleet.settle(2 * SETTLE_S)
    assert len(cas(fleet)) == 1


async def test_a_lost_secret_is_restored_from_memory_so_that_new_replicas_start_at_once() -> None:
    fleet = fleet_of("a")
    await fleet.settle(SETTLE_S)
    before = leaf(fleet)
    with served_without_a_break(fleet):
        del fleet.api.objects[SECRET]
        await fleet.keepers["a"].look()
        await fleet.start("b").look()
        assert fleet.contexts["b"].fingerprint == before
        await fleet.settle(3 * SETTLE_S)
    assert leaf(fleet) != before, "nobody holds the key of its CA any more"


async def test_a_secret_lost_while_a_replica_takes_up_its_leaf_cuts_it_off_from_nobody() -> None:
    """Its confirmation still names the old CA when a fresh replica fills the bundles."""
    fleet = fleet_of("slow", "a")
    await fleet.settle(SETTLE_S)
    old_leaf = leaf(fleet)
    api = fleet.api
    with served_without_a_break(fleet):
        ask(fleet, "ca")
        while leaf(fleet) == old_leaf:
            await fleet.keepers["slow"].look()
            await fleet.keepers["a"].look()
            await fleet.clock.advance(SETTLE_S)
        new_leaf = leaf(fleet)
        api.hold()
        taking = asyncio.create_task(fleet.keepers["slow"].look())
        await api.serve(Random(1), calls=3)
        api.freeze("slow")
        api.hold(False)
        await fleet.clock.settle()
        assert api.calls[-1] == ("slow", "GET", SECRET)
        await fleet.keepers["a"].stop()
        fleet.kill("a")
        del api.objects[SECRET]
        fresh = fleet.start("fresh")
        while await fresh.look() == 0:
            pass
        api.thaw("slow")
        await taking
        assert fleet.contexts["slow"].fingerprint == new_leaf
        await fleet.settle(6 * SETTLE_S)
    assert len(cas(fleet)) == 1


async def test_a_lost_secret_of_a_fleet_that_is_gone_is_made_anew_without_waiting() -> None:
    fleet = fleet_of("a")
    await fleet.settle(SETTLE_S)
    old_cas = cas(fleet)
    with served_without_a_break(fleet):
        await fleet.keepers["a"].stop()
        fleet.kill("a")
        del fleet.api.objects[SECRET]
        fleet.start("b")
        await fleet.settle()
    assert fleet.contexts["b"].ready() is None, "it waited although nobody served"
    assert set(cas(fleet)).isdisjoint(old_cas)


async def test_a_bundle_that_was_reset_and_repaired_unseen_starts_the_settle_time_again() -> None:
    fleet = fleet_of("a", "b")
    await fleet.settle(SETTLE_S)
    before = leaf(fleet)
    ask(fleet, "ca")
    await fleet.keepers["a"].look()
    await fleet.keepers["a"].look()
    await fleet.clock.advance(SETTLE_S - 1)
    wipe(fleet.api)
    while await fleet.keepers["b"].look() == 0:
        pass
    await fleet.clock.advance(1)
    await fleet.keepers["a"].look()
    assert leaf(fleet) == before, "an API server may still see the wiped bundle"
    await fleet.clock.advance(SETTLE_S)
    await fleet.keepers["a"].look()
    assert leaf(fleet) != before


async def test_a_pair_that_expired_in_service_protects_nobody_and_is_not_restored() -> None:
    fleet = fleet_of("a")
    await fleet.settle(SETTLE_S)
    before = leaf(fleet)
    await fleet.clock.advance((91 * DAY).total_seconds())
    del fleet.api.objects[SECRET]
    await fleet.settle()
    assert fleet.contexts["a"].ready() is None, "it waited although nothing could be cut off"
    assert leaf(fleet) != before


async def test_a_confirmation_that_is_refused_is_tried_again_in_seconds() -> None:
    fleet = fleet_of("a")
    fleet.api.refuse = lambda method, path: 403 if (method, path) == ("PATCH", REPLICAS) else None
    await fleet.settle()
    assert fleet.contexts["a"].ready() is None
    assert "cannot confirm" in (fleet.keepers["a"].notice() or "")
    before = len(fleet.api.calls)
    await fleet.settle(2, step_s=0.1)
    tries = [call for call in fleet.api.calls[before:] if call[1:] == ("PATCH", REPLICAS)]
    assert len(tries) <= 2, "in a hurry"
    fleet.api.refuse = lambda method, path: None
    await fleet.settle(2, step_s=1)
    assert list(fleet.api.objects[REPLICAS]["data"]) == ["a"]
    assert fleet.keepers["a"].notice() is None


@pytest.mark.parametrize("text", ["", "Cg==", "!!", "c29tZXRoaW5nIGVsc2U="])
async def test_wiped_bundles_are_repaired_in_one_look(text: str) -> None:
    fleet = fleet_of("a", "b")
    await fleet.settle(SETTLE_S)
    before = bundles(fleet.api)
    wipe(fleet.api, text)
    await fleet.keepers["b"].look()
    assert bundles(fleet.api) == before


@pytest.mark.parametrize("death", ["before", "after"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("nth", range(1, 8))
async def test_whoever_dies_at_the_nth_write_is_followed_by_another(
    kind: str, nth: int, death: Death
) -> None:
    fleet = fleet_of("a", "b")
    await fleet.settle(SETTLE_S)
    old_leaf, old_cas = leaf(fleet), cas(fleet)
    writes: list[str] = []

    def at_nth(user: str) -> Death | None:
        writes.append(user)
        return death if len(writes) == nth else None

    deaths = 0
    with served_without_a_break(fleet):
        ask(fleet, kind)
        fleet.api.death = at_nth
        for _ in range(16):
            for name in list(fleet.keepers):
                deaths += await look(fleet, name)
            await fleet.clock.advance(SETTLE_S / 2)
    assert deaths == 1
    assert leaf(fleet) != old_leaf
    assert (cas(fleet) != old_cas) == (kind == "ca")
    assert len(cas(fleet)) == 1
    assert {context.fingerprint for context in fleet.contexts.values()} == {leaf(fleet)}


ACTIONS = ("look", "look", "look", "wait", "wait", "ask leaf", "ask ca", "kill", "stop")


@settings(
    max_examples=20, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
@given(
    actions=st.lists(st.sampled_from(ACTIONS), min_size=10, max_size=40),
    fault=st.sampled_from(["none", "wipe", "lose"]),
    seed=st.integers(0, 2**32),
    lag_s=st.floats(0, SETTLE_S - 0.5),
)
async def test_whatever_happens_no_leaf_is_served_that_an_api_server_refuses(
    actions: list[str], fault: str, seed: int, lag_s: float
) -> None:
    random = Random(seed)
    fleet = fleet_of("a", "b", "c")
    await fleet.settle(SETTLE_S)
    doomed: dict[str, Death] = {}
    fleet.api.death = lambda user: doomed.pop(user, None)
    crowd = Crowd(fleet, random)
    with served_without_a_break(fleet, lag_s) as servers:
        for action in actions:
            name = random.choice("abc")
            if action == "wait":
                await fleet.clock.advance(random.choice((0.5, 3.0, SETTLE_S, 40.0)))
            elif action.startswith("ask") and SECRET in fleet.api.objects:
                ask(fleet, action.removeprefix("ask "))
            elif action == "stop" and not crowd.busy(name) and name not in doomed:
                await fleet.keepers[name].stop()
                fleet.kill(name)
                fleet.start(name)
            elif action == "kill":
                doomed[name] = random.choice(("before", "after"))
            if fault == "wipe" and random.random() < 0.1:
                wipe(fleet.api)
            elif fault == "lose" and random.random() < 0.1:
                fleet.api.objects.pop(SECRET, None)
            await crowd.look()
            servers.check(action)
        doomed.clear()
        await crowd.calm_down()
        await fleet.settle(fleet.settings.lost_seconds + 4 * SETTLE_S, step_s=20)
    stored = inspect(secret(fleet), NAMES, fleet.clock.now())
    assert stored.problems == ()
    assert len(stored.cas) == 1, "the rotation did not come to an end"
    assert {context.fingerprint for context in fleet.contexts.values()} == {leaf(fleet)}
    for entry, trusted in bundles(fleet.api).items():
        assert trusted == list(stored.cas), entry


async def test_a_replica_that_freezes_is_busy_even_when_its_look_is_over() -> None:
    """A frozen one that was asked to stop would wait for ever."""
    fleet = fleet_of("a")
    await fleet.settle(SETTLE_S)
    crowd = Crowd(fleet, Random(1))
    times_frozen = 0
    for _ in range(100):
        await crowd.look()
        times_frozen += "a" in fleet.api.frozen
        assert crowd.busy("a") or "a" not in fleet.api.frozen
        await fleet.clock.advance(SETTLE_S)
    assert times_frozen > 10
    await crowd.calm_down()
