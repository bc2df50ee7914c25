"""The production-stack stand-in: what its file must look like, and what a bad one does."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from tests.clock import FakeClock
from tests.standins.engine import Engine
from tests.standins.routers.production_stack import ProductionStackRouter, RejectedError
from tests.standins_tests.running import running

pytestmark = pytest.mark.anyio

A, B = "http://127.0.0.2:8000", "http://127.0.0.3:8000"


def config(backends: Any = A, models: Any = "base", **fields: Any) -> dict[str, Any]:
    return {
        "service_discovery": "static",
        "routing_logic": "roundrobin",
        "static_backends": backends,
        "static_models": models,
        **fields,
    }


def write(path: Path, content: Any) -> None:
    path.write_bytes(content if isinstance(content, bytes) else msgspec.json.encode(content))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "config.json"
    write(path, config())
    return path


@pytest.fixture
async def router(path: Path, clock: FakeClock) -> AsyncIterator[ProductionStackRouter]:
    async with running(ProductionStackRouter(path, clock=clock)) as router:
        yield router


async def test_a_change_is_taken_over_at_the_next_poll_and_told_by_health(
    client: httpx.AsyncClient, router: ProductionStackRouter, path: Path, clock: FakeClock
) -> None:
    wanted = config(f"{A},{B}", "base,base")
    write(path, wanted)
    await clock.advance(9.9)
    assert router.urls == [A]
    await clock.advance(0.1)
    assert router.urls == [A, B]
    told = (await client.get(f"{router.url}/health")).json()
    assert told["dynamic_config"] == wanted


REJECTED: dict[str, tuple[Any, str]] = {
    "unknown-key": (config(B, note="x"), "unknown key note"),
    "no-logic": ({"service_discovery": "static"}, "routing_logic is missing"),
    "truncated": (b'{"service_discovery": "st', "no JSON object"),
    "empty-object": ({}, "service_discovery is missing"),
    "empty-set": (config("", ""), "must name something"),
    "null-set": (config(None, None), "must name something"),
    "lengths-differ": (config(f"{A},{B}", "base"), "differ in length"),
    "labels-differ": (config(B, static_model_labels="a,b"), "differ in length"),
    "single-label-host": (config("http://engine:8000"), "invalid URL"),
    "ipv6": (config("http://[::1]:8000"), "invalid URL"),
}


@pytest.mark.parametrize(("content", "why"), REJECTED.values(), ids=REJECTED.keys())
async def test_a_file_against_the_rules_leaves_the_backends_as_they_are(
    router: ProductionStackRouter, path: Path, clock: FakeClock, content: Any, why: str
) -> None:
    write(path, content)
    await clock.advance(20)
    assert router.urls == [A]
    assert router.config == config()
    assert len(router.rejected) == 1
    assert why in router.rejected[0]


@pytest.mark.parametrize("content", [{}, b"", config("", "")], ids=["keys", "none", "empty-set"])
def test_it_does_not_start_with_such_a_file(path: Path, content: Any) -> None:
    write(path, content)
    with pytest.raises(RejectedError):
        ProductionStackRouter(path)


async def test_a_bad_routing_logic_switches_the_backends_all_the_same(
    router: ProductionStackRouter, path: Path, clock: FakeClock
) -> None:
    write(path, config(B, routing_logic="other"))
    await clock.advance(10)
    assert router.urls == [B]
    assert router.config == config()
    assert len(router.rejected) == 1


async def test_with_health_checks_a_reload_takes_longer(path: Path, clock: FakeClock) -> None:
    write(path, config(static_backend_health_checks=True))
    async with running(ProductionStackRouter(path, clock=clock)) as router:
        write(path, config(B))
        await clock.advance(10)
        assert router.urls == [A]
        await clock.advance(14.9)
        assert router.urls == [A]
        await clock.advance(0.1)
        assert router.urls == [B]


async def test_requests_go_by_model_and_a_ghost_is_a_500(
    client: httpx.AsyncClient, path: Path, clock: FakeClock
) -> None:
    async with running(Engine("a", adapters=["x"])) as engine:
        write(path, config(f"{engine.url},{engine.url},{A}", "base,x,ghost"))
        async with running(ProductionStackRouter(path, clock=clock)) as router:
            codes = []
            for model in ("base", "x", "ghost", "other"):
                url = f"{router.url}/v1/completions"
                codes.append((await client.post(url, json={"model": model})).status_code)
    assert codes == [200, 200, 500, 404]
    assert engine.completions == {"base": 1, "x": 1}


async def test_a_restart_reads_the_file_anew(router: ProductionStackRouter, path: Path) -> None:
    write(path, config(B))
    router.restart()
    assert router.urls == [B]
