"""Whatever the Secret holds, there is a working webhook in the end, and never a cut in between."""

from base64 import b64decode
from datetime import UTC, datetime

import pytest

from certs.validity import inspect
from tests.certs.memory import SECRET, MemoryApi
from tests.certs.states import State, states
from tests.certs.tls import client_context, handshake
from tests.certs.world import (
    NAMES,
    Authority,
    Fleet,
    bundles,
    encode,
    install,
    served_without_a_break,
    store,
    wipe,
)
from tests.clock import FakeClock

pytestmark = pytest.mark.anyio

# OpenSSL judges by the real time, so the clock starts from it.
NOW = datetime.now(UTC).replace(microsecond=0)
OURS = Authority.make(NOW)
GOOD = OURS.secret(OURS.leaf(NOW))
STATES = list(states(NOW, OURS, GOOD))
IDS = [state.name for state in STATES]


def put(api: MemoryApi, state: State) -> None:
    if state.data is None:
        api.objects.pop(SECRET, None)
        api.written(SECRET)
    else:
        api.put(SECRET, {"data": encode(state.data), "immutable": state.immutable})


def works(fleet: Fleet) -> None:
    """Each replica serves what is stored, and it holds in a real handshake at each entry."""
    secret = {k: b64decode(v) for k, v in fleet.api.objects[SECRET]["data"].items()}
    stored = inspect(secret, NAMES, fleet.clock.now())
    assert stored.problems == ()
    assert stored.leaf is not None
    [trusted] = set(map(tuple, bundles(fleet.api).values()))
    for name, served in fleet.contexts.items():
        shown = handshake(served.context, client_context(trusted), NAMES[0])
        assert shown == stored.leaf.certificate, name


@pytest.mark.parametrize("state", STATES, ids=IDS)
async def test_two_replicas_that_start_with_it_end_up_serving_a_trusted_pair(state: State) -> None:
    clock = FakeClock(NOW)
    fleet = Fleet(MemoryApi(), clock)
    install(fleet.api)
    put(fleet.api, state)
    fleet.start("a")
    fleet.start("b")
    await fleet.settle(40)
    works(fleet)
    version = fleet.api.objects[SECRET]["metadata"]["resourceVersion"]
    await fleet.settle(120, step_s=60)
    assert fleet.api.objects[SECRET]["metadata"]["resourceVersion"] == version, "it goes on writing"
    if state.good:
        assert fleet.api.objects[SECRET]["data"] == encode(state.data or {})


@pytest.mark.parametrize("wiped", [False, True], ids=["bundles intact", "bundles wiped"])
@pytest.mark.parametrize("state", STATES, ids=IDS)
async def test_when_it_comes_over_serving_replicas_nobody_is_cut_off(
    state: State, wiped: bool
) -> None:
    clock = FakeClock(NOW)
    fleet = Fleet(MemoryApi(), clock)
    install(fleet.api)
    store(fleet.api, GOOD)
    fleet.start("a")
    fleet.start("b")
    await fleet.settle(20)
    with served_without_a_break(fleet):
        if wiped:
            wipe(fleet.api)
        put(fleet.api, state)
        await fleet.settle(40)
    works(fleet)
