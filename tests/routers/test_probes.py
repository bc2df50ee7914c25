"""What engines say of themselves, and when they are asked."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from prometheus_client import CollectorRegistry
from pytest_httpx import HTTPXMock

from controller.routers.config import Probe
from controller.routers.engines import Engine
from controller.routers.metrics import RouterMetrics
from controller.routers.probes import Facts, Prober, carried_over, parse_models, parse_sleeping
from controller.routers.transport import Connector, RefusedError
from tests.clock import FakeClock
from tests.routers.fleet import engine

URL = "http://10.0.0.1:8000"
E1 = engine("e1", URL)
E2 = engine("e2", "http://10.0.0.2:8000")
PROBE = Probe(timeout_seconds=1.0, retry_seconds=1.0, max_retry_seconds=8.0)


def models(*names: str, adapters: tuple[str, ...] = ()) -> dict[str, Any]:
    data = [{"id": name, "parent": None} for name in names]
    return {"data": [*data, *({"id": name, "parent": names[0]} for name in adapters)]}


@pytest.mark.parametrize(
    ("body", "bases", "adapters"),
    [
        pytest.param(models("base"), ("base",), (), id="one model"),
        pytest.param(
            models("base", "alias", adapters=("a", "b")),
            ("base", "alias"),
            ("a", "b"),
            id="every entry",
        ),
        pytest.param(
            {"data": [{"id": "a", "parent": "base"}, {"id": "base"}]},
            ("base",),
            ("a",),
            id="adapter first",
        ),
        pytest.param({"data": [{"id": "x"}, {"id": "x"}]}, ("x",), (), id="twice the same"),
        pytest.param(
            {"data": [{"id": ""}, {}, {"id": "x"}]}, ("x",), (), id="entries without a name"
        ),
        pytest.param({"data": []}, (), (), id="none"),
    ],
)
def test_all_entries_are_read_and_adapters_told_by_their_parent(
    body: dict[str, Any], bases: tuple[str, ...], adapters: tuple[str, ...]
) -> None:
    assert parse_models(msgspec.json.encode(body)) == (bases, adapters)


@pytest.mark.parametrize("body", [b"", b"<html>", b"{}", b'{"data":null}', b'{"data":[1]}', b"[]"])
def test_what_is_no_list_of_models_is_refused(body: bytes) -> None:
    with pytest.raises(RefusedError):
        parse_models(body)


def test_sleep_is_read_and_nonsense_refused() -> None:
    assert parse_sleeping(b'{"is_sleeping":true}')
    assert not parse_sleeping(b'{"is_sleeping":false}')
    with pytest.raises(RefusedError):
        parse_sleeping(b"{}")


KNOWN = Facts(("base",), ("a",))


@pytest.mark.parametrize(
    ("now", "left"),
    [
        pytest.param(engine("e1", URL, lora_modified_ns=7), KNOWN, id="a stamp: all of it"),
        pytest.param(engine("e1", URL, model_label="x"), KNOWN, id="a label: all of it"),
        pytest.param(engine("e1", URL, restarts=1), Facts(("base",)), id="a restart: no adapter"),
        pytest.param(engine("e1", URL, uid="B"), None, id="another incarnation: nothing"),
        pytest.param(engine("e1", "http://10.0.0.9:8000"), None, id="another URL: nothing"),
    ],
)
def test_what_was_said_holds_until_the_key_says_otherwise(now: Engine, left: Facts | None) -> None:
    assert carried_over(E1.key, KNOWN, now.key) == left
    assert carried_over(E1.key, None, now.key) is None


class Asked:
    """A prober on a fake clock."""

    def __init__(self, clock: FakeClock, group: asyncio.TaskGroup, probe: Probe, refresh_s: float):
        self.clock = clock
        self.changes = 0
        self.registry = CollectorRegistry()
        self.prober = Prober(
            "chat",
            probe,
            connector=Connector(https=False, ca_file="", timeout_s=1.0),
            clock=clock,
            random=random.Random(1),
            metrics=RouterMetrics(self.registry),
            on_change=self._changed,
            spawn=group.create_task,
            refresh_s=refresh_s,
        )

    def _changed(self) -> None:
        self.changes += 1

    def track(self, *engines: Engine) -> None:
        self.prober.track({e.url: e for e in engines})

    def count(self, name: str, **labels: str) -> float:
        name = f"podstamp_router_{name}"
        return self.registry.get_sample_value(name, {"router": "chat", **labels}) or 0.0


@asynccontextmanager
async def asking(
    clock: FakeClock, probe: Probe = PROBE, refresh_s: float = 0.0
) -> AsyncIterator[Asked]:
    async with asyncio.TaskGroup() as group:
        made = Asked(clock, group, probe, refresh_s)
        try:
            yield made
        finally:
            made.track()
            for task in asyncio.all_tasks():
                if task.get_coro().__qualname__.startswith("Prober."):  # type: ignore[union-attr]  # coroutines have one
                    task.cancel()


def answer(mock: HTTPXMock, url: str, body: Mapping[str, Any], **options: Any) -> None:
    mock.add_response(url=f"{url}/health", **options)
    mock.add_response(url=f"{url}/v1/models", json=body, **options)


@pytest.mark.anyio
async def test_each_engine_is_asked_once(httpx_mock: HTTPXMock, clock: FakeClock) -> None:
    answer(httpx_mock, E1.url, models("base", adapters=("a",)))
    answer(httpx_mock, E2.url, models("other"))
    async with asking(clock) as made:
        made.track(E1, E2)
        assert made.prober.facts(E1) is None
        await clock.settle()
        assert made.prober.facts(E1) == Facts(("base",), ("a",))
        assert made.prober.facts(E2) == Facts(("other",))
        made.track(E1, E2)
        made.track(E1)
        await clock.advance(3600)
        assert len(httpx_mock.get_requests()) == 4
        assert made.changes == 2


@pytest.mark.anyio
async def test_an_engine_that_fails_is_asked_again_without_an_event_ever_more_slowly(
    httpx_mock: HTTPXMock, clock: FakeClock
) -> None:
    httpx_mock.add_response(url=f"{E1.url}/health", status_code=503)
    httpx_mock.add_exception(httpx.ConnectError("refused"), url=f"{E1.url}/health")
    answer(httpx_mock, E1.url, models("base"))
    async with asking(clock) as made:
        made.track(E1)
        await clock.settle()
        assert made.prober.asked(E1)
        assert "503" in made.prober.error(E1)
        assert made.prober.facts(E1) is None
        await clock.advance(1.01)
        assert len(httpx_mock.get_requests()) == 2
        await clock.advance(2.01)
        assert made.prober.facts(E1) == Facts(("base",))
        assert made.prober.error(E1) == ""
        assert made.count("probes_total", outcome="failed") == 2


@pytest.mark.anyio
@pytest.mark.parametrize(
    "successor",
    [
        pytest.param(engine("e1", URL, uid="B"), id="another incarnation at the address"),
        pytest.param(engine("e1", URL, restarts=1), id="the restarted container"),
        pytest.param(None, id="nobody"),
    ],
)
async def test_an_answer_that_comes_late_is_not_taken_for_the_successors(
    httpx_mock: HTTPXMock, clock: FakeClock, successor: Engine | None
) -> None:
    late = asyncio.Event()

    async def slowly(request: httpx.Request) -> httpx.Response:
        await late.wait()
        return httpx.Response(200)

    httpx_mock.add_callback(slowly, url=f"{URL}/health")
    httpx_mock.add_response(url=f"{URL}/v1/models", json=models("old", adapters=("a",)))
    if successor is not None:
        httpx_mock.add_response(url=f"{URL}/health", status_code=503, is_reusable=True)
    async with asking(clock) as made:
        made.track(E1)
        await clock.settle()
        made.track(*([successor] if successor else []))
        late.set()
        await clock.settle()
        assert made.count("superseded_total", work="probe") == 1
        assert made.prober.facts(E1) is None
        if successor is not None:
            assert made.prober.facts(successor) is None


@pytest.mark.anyio
async def test_no_more_than_the_bound_are_asked_at_once(
    httpx_mock: HTTPXMock, clock: FakeClock
) -> None:
    waiting, most = 0, 0
    go = asyncio.Event()

    async def health(request: httpx.Request) -> httpx.Response:
        nonlocal waiting, most
        waiting += 1
        most = max(most, waiting)
        await go.wait()
        waiting -= 1
        return httpx.Response(200)

    httpx_mock.add_callback(health, is_reusable=True)
    probe = msgspec.structs.replace(PROBE, concurrency=3, models_path="")
    engines = [engine(f"e{n}", f"http://10.0.0.{n}:8000") for n in range(1, 9)]
    async with asking(clock, probe) as made:
        made.track(*engines)
        await clock.settle()
        assert waiting == 3
        go.set()
        await clock.settle()
        assert most == 3
        assert all(made.prober.facts(e) == Facts() for e in engines)


@pytest.mark.anyio
async def test_a_reread_asks_the_named_pods_alone(httpx_mock: HTTPXMock, clock: FakeClock) -> None:
    answer(httpx_mock, E1.url, models("base"))
    answer(httpx_mock, E2.url, models("base"))
    answer(httpx_mock, E2.url, models("base", adapters=("a",)))
    async with asking(clock) as made:
        made.track(E1, E2)
        await clock.settle()
        made.prober.reread([("models", "e2"), ("elsewhere", "e1")])
        await clock.settle()
        assert made.prober.facts(E2) == Facts(("base",), ("a",))
        assert len(httpx_mock.get_requests()) == 6
        assert made.changes == 3


@pytest.mark.anyio
async def test_a_sleeping_engine_is_asked_until_it_wakes(
    httpx_mock: HTTPXMock, clock: FakeClock
) -> None:
    for sleeping in (True, True, False):
        answer(httpx_mock, E1.url, models("base"))
        httpx_mock.add_response(url=f"{E1.url}/is_sleeping", json={"is_sleeping": sleeping})
    probe = msgspec.structs.replace(PROBE, sleeping_path="/is_sleeping")
    async with asking(clock, probe) as made:
        made.track(E1)
        await clock.settle()
        assert made.prober.facts(E1) == Facts(("base",), sleeping=True)
        await clock.advance(20)
        assert made.prober.facts(E1) == Facts(("base",))
        await clock.advance(60)
        assert len(httpx_mock.get_requests()) == 9


@pytest.mark.anyio
async def test_with_a_refresh_an_engine_is_asked_for_ever(
    httpx_mock: HTTPXMock, clock: FakeClock
) -> None:
    answer(httpx_mock, E1.url, models("base"), is_reusable=True)
    async with asking(clock, refresh_s=10.0) as made:
        made.track(E1)
        await clock.advance(35)
        assert 6 <= len(httpx_mock.get_requests()) <= 10
        assert made.changes == 1


@pytest.mark.anyio
async def test_a_token_is_sent_and_read_again(
    httpx_mock: HTTPXMock, clock: FakeClock, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text("one\n")
    for token in ("one", "two"):
        headers = {"authorization": f"Bearer {token}"}
        httpx_mock.add_response(url=f"{E1.url}/health", match_headers=headers)
        httpx_mock.add_response(
            url=f"{E1.url}/v1/models", json=models("base"), match_headers=headers
        )
    async with asking(clock, msgspec.structs.replace(PROBE, token_file=str(file))) as made:
        made.track(E1)
        await clock.settle()
        file.unlink()
        file.write_text("two\n")
        made.prober.reread([("models", "e1")])
        await clock.settle()
        assert len(httpx_mock.get_requests()) == 4


@pytest.mark.anyio
async def test_a_token_file_that_is_not_there_is_said_and_tried_again(
    httpx_mock: HTTPXMock, clock: FakeClock, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    answer(httpx_mock, E1.url, models("base"))
    async with asking(clock, msgspec.structs.replace(PROBE, token_file=str(file))) as made:
        made.track(E1)
        await clock.settle()
        assert str(file) in made.prober.error(E1)
        file.write_text("here")
        await clock.advance(2)
        assert made.prober.facts(E1) == Facts(("base",))
