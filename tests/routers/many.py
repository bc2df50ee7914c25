"""Very many engines and one router, in a process of their own, for measurements.

python -m tests.routers.many ENGINES DEAD: prints the ports as JSON, serves until stdin ends.
Dead engines take a connection and never say a word.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import unquote

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

MODELS = {"object": "list", "data": [{"id": "base", "parent": None}]}


class Ports(NamedTuple):
    """Where they listen, all on 127.0.0.1."""

    answering: list[int]
    dead: list[int]
    router: int


@contextmanager
def serving(answering: int, dead: int) -> Iterator[Ports]:
    """They run meanwhile."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.routers.many", str(answering), str(dead)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        try:
            yield Ports(*json.loads(process.stdout.readline()))
        finally:
            process.stdin.close()
            process.wait(10)


class Everybody:
    """Engines that answer, and a router in the way of vllm-router, as one ASGI application."""

    def __init__(self) -> None:
        self.urls: dict[str, None] = {}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        answer = json.dumps(self._answer(scope["method"], scope["path"], body)).encode()
        headers = [(b"content-length", str(len(answer)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    def _answer(self, method: str, path: str, body: bytes) -> Any:
        match method, path:
            case "GET", "/v1/models":
                return MODELS
            case "GET", "/workers":
                return {"workers": [{"url": url} for url in self.urls]}
            case "POST", "/workers":
                self.urls[json.loads(body)["url"]] = None
            case "DELETE", _:
                self.urls.pop(unquote(path.removeprefix("/workers/")), None)
        return {}


async def _serve(answering: int, dead: int) -> None:
    loop = asyncio.get_running_loop()
    config = uvicorn.Config(Everybody(), log_level="critical", access_log=False, lifespan="off")
    config.load()
    state = ServerState()

    def http() -> asyncio.Protocol:
        return HttpToolsProtocol(config=config, server_state=state, app_state={})

    async def ports(factory: Callable[[], asyncio.Protocol], count: int) -> list[int]:
        servers = [await loop.create_server(factory, "127.0.0.1", 0) for _ in range(count)]
        return [server.sockets[0].getsockname()[1] for server in servers]

    engines, silent = await ports(http, answering), await ports(asyncio.Protocol, dead)
    print(json.dumps(Ports(engines, silent, *await ports(http, 1))), flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), int(sys.argv[2])))
