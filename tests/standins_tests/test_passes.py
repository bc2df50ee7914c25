"""The work queue of stand-ins: one pass at a time, and backoff by key."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from kube.errors import KubeError
from tests.clock import FakeClock
from tests.standins.passes import Passes

pytestmark = pytest.mark.anyio


class Recorder:
    """Work whose outcome a test sets: an exception, or whether to be asked again."""

    def __init__(self) -> None:
        self.passes: list[str] = []
        self.outcome: Exception | bool = False
        self.gate: asyncio.Event | None = None

    async def work(self, key: str) -> bool:
        self.passes.append(key)
        if self.gate is not None:
            await self.gate.wait()
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


@asynccontextmanager
async def queue(
    work: Callable[[str], Awaitable[bool]], clock: FakeClock, longest_s: float = 1000.0
) -> AsyncIterator[Passes[str]]:
    async with asyncio.TaskGroup() as group:
        passes: Passes[str] = Passes(work, clock, group, first_s=1, longest_s=longest_s)
        yield passes
        await clock.advance(10_000)


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


async def test_keys_added_during_their_pass_get_one_more(
    recorder: Recorder, clock: FakeClock
) -> None:
    recorder.gate = asyncio.Event()
    async with queue(recorder.work, clock) as passes:
        passes.add("a")
        await clock.settle()
        for _ in range(3):
            passes.add("a")
        passes.add("b")
        await clock.settle()
        assert recorder.passes == ["a", "b"]
        recorder.gate.set()
        await clock.settle()
        assert recorder.passes == ["a", "b", "a"]


@pytest.mark.parametrize("outcome", [KubeError("no"), True], ids=["error", "repeat"])
async def test_waits_double_up_to_the_longest_and_start_anew_after_success(
    recorder: Recorder, clock: FakeClock, outcome: Exception | bool
) -> None:
    recorder.outcome = outcome
    async with queue(recorder.work, clock, longest_s=4) as passes:
        passes.add("a")
        await clock.settle()
        waits = []
        for _ in range(4):
            assert clock.next_wake_s is not None
            waits.append(clock.next_wake_s)
            await clock.advance(clock.next_wake_s)
        assert waits == [1, 2, 4, 4]
        recorder.outcome = False
        await clock.advance(4)
        assert clock.sleepers == 0
        recorder.outcome = outcome
        passes.add("a")
        await clock.settle()
        assert clock.next_wake_s == 1
        recorder.outcome = False


async def test_a_key_added_in_its_backoff_has_its_pass_at_once_and_one_wait(
    recorder: Recorder, clock: FakeClock
) -> None:
    recorder.outcome = True
    async with queue(recorder.work, clock) as passes:
        passes.add("a")
        await clock.settle()
        passes.add("a")
        await clock.settle()
        assert recorder.passes == ["a", "a"]
        assert (clock.sleepers, clock.next_wake_s) == (1, 2)
        recorder.outcome = False


async def test_keys_back_off_on_their_own(recorder: Recorder, clock: FakeClock) -> None:
    async def work(key: str) -> bool:
        await recorder.work(key)
        if key == "bad" and recorder.passes.count("bad") < 3:
            raise KubeError("no")
        return False

    async with queue(work, clock) as passes:
        passes.add("bad")
        passes.add("good")
        await clock.advance(3)
    assert recorder.passes == ["bad", "good", "bad", "bad"]
    assert [str(error) for error in passes.errors] == ["no", "no"]
    assert passes.done == 4


async def test_an_error_of_another_kind_ends_everything(
    recorder: Recorder, clock: FakeClock
) -> None:
    recorder.outcome = ValueError("a fault of the stand-in")
    with pytest.raises(ExceptionGroup) as caught:
        async with queue(recorder.work, clock) as passes:
            passes.add("a")
    assert caught.group_contains(ValueError)
