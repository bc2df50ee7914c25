"""The configuration in force follows its file; a wrong one changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from controller.config import load_config
from controller.configfile import LiveConfig
from controller.metrics import ReaperMetrics
from tests.clock import FakeClock

pytestmark = pytest.mark.anyio

DRY, LIVE = "terminal: {dryRun: true}", "terminal: {dryRun: false}"


@asynccontextmanager
async def watched(
    file: Path, clock: FakeClock, registry: CollectorRegistry | None = None
) -> AsyncIterator[LiveConfig]:
    write(file, DRY)
    metrics = ReaperMetrics(registry or CollectorRegistry())
    live = LiveConfig(load_config(file, {}, {}), lambda: load_config(file, {}, {}), metrics)
    watching = asyncio.ensure_future(live.watch(file, clock))
    await poll(clock)
    try:
        yield live
        assert not watching.done()
    finally:
        watching.cancel()


def write(file: Path, text: str) -> None:
    file.write_text(text)


async def poll(clock: FakeClock) -> None:
    """Let one poll pass, with the threads that read the file."""
    await clock.advance(2)
    for _ in range(10_000):
        await asyncio.sleep(0.001)
        if clock.sleepers:
            return


async def test_a_changed_file_is_in_force_and_whoever_waits_hears_of_it(
    clock: FakeClock, tmp_path: Path
) -> None:
    file = tmp_path / "controller.yaml"
    async with watched(file, clock) as live:
        old = live.current
        waiting = asyncio.ensure_future(live.changed_from(old))
        await poll(clock)
        assert not waiting.done()
        file.write_text(LIVE)
        await poll(clock)
        assert not live.current.terminal.dry_run
        await asyncio.wait_for(waiting, 1)


async def test_a_bad_file_keeps_the_old_and_says_so_once_until_it_is_mended(
    clock: FakeClock, tmp_path: Path
) -> None:
    file = tmp_path / "controller.yaml"
    registry = CollectorRegistry()
    async with watched(file, clock, registry) as live:
        old = live.current
        file.write_text("terminal: {dryRun: perhaps}")
        for _ in range(3):
            await poll(clock)
        assert live.current is old
        assert "terminal.dryRun" in str(live.problem)
        refused = registry.get_sample_value("podstamp_config_reloads_total", {"result": "refused"})
        assert refused == 1
        file.write_text(LIVE)
        await poll(clock)
        assert live.problem is None
        assert not live.current.terminal.dry_run


async def test_a_file_that_vanishes_keeps_the_old(clock: FakeClock, tmp_path: Path) -> None:
    file = tmp_path / "controller.yaml"
    async with watched(file, clock) as live:
        old = live.current
        file.unlink()
        await poll(clock)
        assert live.current is old
        assert live.problem is not None


async def test_a_swap_of_links_is_a_change_as_in_a_mounted_config_map(
    clock: FakeClock, tmp_path: Path
) -> None:
    for name, text in (("v1", DRY), ("v2", LIVE)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "controller.yaml").write_text(text)
    (tmp_path / "..data").symlink_to("v1")
    link = tmp_path / "controller.yaml"
    link.symlink_to("..data/controller.yaml")
    async with watched(link, clock) as live:
        (tmp_path / "..new").symlink_to("v2")
        (tmp_path / "..new").rename(tmp_path / "..data")
        await poll(clock)
        assert not live.current.terminal.dry_run
