"""Runs a stand-in in a thread with an event loop of its own, for tests and scripts without one."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar


class StandIn(Protocol):
    """`run` works until it is cancelled; `ready` is set once others may rely on it."""

    ready: asyncio.Event

    async def run(self) -> None: ...


S = TypeVar("S", bound=StandIn)
R = TypeVar("R")


class Hosted(Generic[S]):
    """`with Hosted(lambda: Kubelet(kubeconfig)) as hosted: hosted.do(lambda k: k.fail("ns", "p"))`.

    Enters when the stand-in is ready; an error that ends its `run` before is raised here, a
    later one at exit. `it` is the stand-in itself; only `do` may call its coroutines.
    """

    it: S

    def __init__(self, make: Callable[[], S], timeout_s: float = 20.0) -> None:
        self._make = make
        self._timeout_s = timeout_s
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self.do_in_loop(self._start())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.do_in_loop(self._stop())
        finally:
            self._end()

    def do(self, act: Callable[[S], Awaitable[R]]) -> R:
        """Run `act` on the stand-in, in its loop, and wait for what it returns."""

        async def acted() -> R:
            return await act(self.it)

        return self.do_in_loop(acted())

    def do_in_loop(self, coroutine: Awaitable[R]) -> R:
        """Run a coroutine in the stand-in's loop and wait for it."""

        async def awaited() -> R:
            return await coroutine

        return asyncio.run_coroutine_threadsafe(awaited(), self._loop).result(self._timeout_s)

    async def _start(self) -> None:
        self.it = self._make()
        self._task = asyncio.ensure_future(self.it.run())
        ready = asyncio.ensure_future(self.it.ready.wait())
        await asyncio.wait({self._task, ready}, return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        if self._task.done():
            await self._task

    async def _stop(self) -> None:
        if not self._task.done():
            self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(self._timeout_s)
        self._loop.close()
