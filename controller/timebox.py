"""A time budget for a piece of work, on the clock that is given."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from kube.errors import KubeError

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from kube.clock import Clock

T = TypeVar("T")


class CutOff(KubeError):
    """The time was over before the work was."""


async def within(clock: Clock, seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`; after `seconds` it is cancelled and awaited, and CutOff raised."""
    task = asyncio.ensure_future(work)
    timer = asyncio.ensure_future(clock.sleep(seconds))
    try:
        await asyncio.wait({task, timer}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise CutOff(f"not done within {seconds:.0f} s")
    finally:
        for part in (task, timer):
            part.cancel()
        await asyncio.gather(task, timer, return_exceptions=True)
