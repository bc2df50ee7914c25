"""A real router as a process, and a client that never stops asking it."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from tests.controlplane.processes import Process, free_port
from tests.e2e.routers.install import install

_START_S = 30.0
_CLIENTS = 4
_PAUSE_S = 0.01

# No retries, and nothing of the router's own that would take a worker out meanwhile.
_COMMON = ("--policy", "round_robin", "--disable-retries", "--disable-circuit-breaker")
_COMMANDS = {
    "vllm-router": (),
    "sglang-router": ("launch",),
    "smg": ("launch",),
}


class RealRouter:
    """One router at a port of its own; `restart` loses what it knew, as a real restart does."""

    def __init__(self, name: str, folder: Path, options: Sequence[str] = ()) -> None:
        self.name = name
        self._folder = folder
        self._options = options
        self._port = free_port()
        self._process: Process | None = None
        self.client = httpx.AsyncClient(base_url=self.url, timeout=10, trust_env=False)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    async def start(self) -> None:
        """Returns once it answers."""
        argv = [str(install(self.name)), *_COMMANDS[self.name], "--host", "127.0.0.1"]
        argv += ["--port", str(self._port), "--prometheus-port", str(free_port())]
        argv += [*_COMMON, *self._options]
        # Nothing that a router would download, and nothing of this user's home.
        env = {"PATH": os.environ["PATH"], "HOME": str(self._folder), "HF_HUB_OFFLINE": "1"}
        self._process = Process(self.name, argv, self._folder / f"{self.name}.log", env=env)
        async with asyncio.timeout(_START_S):
            while True:
                assert self._process.exit_code is None, self._process.tail()
                try:
                    await self.urls()
                except (httpx.HTTPError, KeyError, ValueError):
                    await asyncio.sleep(0.05)
                else:
                    return

    def kill(self) -> None:
        """As a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    async def restart(self) -> None:
        self.kill()
        await self.start()

    async def aclose(self) -> None:
        self.kill()
        await self.client.aclose()

    async def workers(self) -> list[tuple[str, str]]:
        """(URL, status) of each worker that takes requests or will."""
        listed = (await self.client.get("/workers")).json()["workers"]
        return [
            (worker["url"], worker.get("status", "ready"))
            for worker in listed
            if worker.get("status") != "draining"
        ]

    async def urls(self) -> list[str]:
        return sorted(url for url, _ in await self.workers())

    async def until(self, *urls: str, timeout_s: float = 15.0) -> None:
        """Until exactly these are listed, and ready."""
        found: list[tuple[str, str]] = []
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    found = await self.workers()
                    listed = sorted(url for url, _ in found)
                    if listed == sorted(urls) and all(status == "ready" for _, status in found):
                        return
                    await asyncio.sleep(0.02)
        except TimeoutError as error:
            raise AssertionError(f"{self.name} lists {found}, not {sorted(urls)}") from error


@dataclass(slots=True)
class Traffic:
    """Requests without a pause; `failures` are those that did not succeed, by phase."""

    model: str = "base"
    phase: str = "start"
    sent: int = 0
    open: Counter[str] = field(default_factory=Counter)
    failures: dict[str, list[str]] = field(default_factory=dict)
    engines: set[str] = field(default_factory=set)

    def failed(self, phase: str, why: str) -> None:
        self.failures.setdefault(phase, []).append(why)


@asynccontextmanager
async def traffic(router: RealRouter, model: str = "base") -> AsyncIterator[Traffic]:
    """Completions through the router for as long as the block lasts."""
    told = Traffic(model)
    limits = httpx.Limits(max_connections=_CLIENTS)
    async with httpx.AsyncClient(
        base_url=router.url, timeout=10, limits=limits, trust_env=False
    ) as client:
        tasks = [asyncio.create_task(_ask(client, told)) for _ in range(_CLIENTS)]
        try:
            yield told
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _ask(client: httpx.AsyncClient, told: Traffic) -> None:
    while True:
        # What a request meets belongs to the phase in which it was sent.
        phase, model = told.phase, told.model
        told.sent += 1
        told.open[phase] += 1
        try:
            answer = await client.post("/v1/completions", json={"model": model, "prompt": "x"})
        except httpx.HTTPError as error:
            told.failed(phase, f"{type(error).__name__}: {error}")
        else:
            if answer.status_code == 200:
                told.engines.add(answer.json()["choices"][0]["text"])
            else:
                told.failed(phase, f"{answer.status_code} {answer.text[:200]}")
        told.open[phase] -= 1
        await asyncio.sleep(_PAUSE_S)
