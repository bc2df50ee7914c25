"""Stand-ins in a thread, for code without an event loop."""

import asyncio
import threading

import httpx
import pytest

from tests.standins.engine import Engine
from tests.standins.hosting import Hosted
from tests.standins.routers.vllm import VllmRouter
from tests.standins_tests.conftest import PLAIN


class Sick:
    """A stand-in whose run ends with an error, at once or when told."""

    def __init__(self, at_once: bool) -> None:
        self.ready = asyncio.Event()
        self.told = asyncio.Event()
        if at_once:
            self.told.set()
        else:
            self.ready.set()

    async def run(self) -> None:
        await self.told.wait()
        raise OSError("the port is taken")

    async def fall_ill(self) -> None:
        self.told.set()
        await asyncio.sleep(0)


def test_it_serves_and_obeys_and_leaves_no_thread_behind() -> None:
    before = threading.active_count()
    with Hosted(lambda: Engine("a")) as hosted:
        assert httpx.get(f"{hosted.it.url}/health", verify=PLAIN).status_code == 200

        async def load(engine: Engine) -> list[str]:
            engine.adapters["x"] = None
            return list(engine.adapters)

        assert hosted.do(load) == ["x"]
        url = hosted.it.url
    assert threading.active_count() == before
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/health", verify=PLAIN)


def test_an_error_before_it_is_ready_is_raised_on_entry() -> None:
    before = threading.active_count()
    with pytest.raises(OSError, match="the port is taken"):
        Hosted(lambda: Sick(at_once=True)).__enter__()
    assert threading.active_count() == before


def test_an_error_later_is_raised_at_exit() -> None:
    with pytest.raises(OSError, match="the port is taken"):
        with Hosted(lambda: Sick(at_once=False)) as hosted:
            hosted.do(Sick.fall_ill)


def test_a_port_in_use_is_told_on_entry() -> None:
    with Hosted(lambda: Engine("a")) as first:
        with pytest.raises(OSError, match="in use"):
            Hosted(lambda: Engine("b", port=first.it.port)).__enter__()
        with pytest.raises(OSError, match="in use"):
            Hosted(lambda: VllmRouter(port=first.it.port)).__enter__()
