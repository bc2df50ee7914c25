"""Runs stand-ins in a test's own event loop."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TypeVar

from tests.standins.hosting import S

T = TypeVar("T")


@asynccontextmanager
async def running(stand_in: S) -> AsyncIterator[S]:
    """The stand-in, ready; cancelled at the end. An early end of its `run` is raised."""
    task = asyncio.ensure_future(stand_in.run())
    ready = asyncio.ensure_future(stand_in.ready.wait())
    try:
        await asyncio.wait({task, ready}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            await task
        yield stand_in
    finally:
        ready.cancel()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def until(holds: Callable[[], bool], timeout_s: float = 10.0) -> None:
    """Wait for what the network brings; TimeoutError if it does not come."""
    async with asyncio.timeout(timeout_s):
        while True:
            if holds():
                return
            await asyncio.sleep(0.001)


async def eventually(ask: Callable[[], Awaitable[T]], wanted: T, timeout_s: float = 10.0) -> None:
    """Ask until the answer is `wanted`; AssertionError with the last one if it never is."""
    answer = await ask()
    try:
        async with asyncio.timeout(timeout_s):
            while answer != wanted:
                await asyncio.sleep(0.005)
                answer = await ask()
    except TimeoutError:
        raise AssertionError(f"{answer!r} is not {wanted!r}") from None
