"""A TCP balancer on one address: what a Service is to several replicas of the webhook.

New connections go to the backends in turn; one that does not accept is passed over. Connections
that are open stay with their backend, as they do behind a Service.
"""

import asyncio
import threading
from types import TracebackType
from typing import Self

TIMEOUT_S = 10.0
CHUNK = 1 << 16


class Balancer:
    """Serves from a thread of its own; `backends` (ports on loopback) may be set at any time."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.backends: tuple[int, ...] = ()
        self._turn = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._tasks: set[asyncio.Task[None]] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        starting = asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self._server = asyncio.run_coroutine_threadsafe(starting, self._loop).result(TIMEOUT_S)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(TIMEOUT_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(TIMEOUT_S)
        self._loop.close()

    async def _close(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._carry(reader, writer)
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in self.backends:
            self._turn += 1
            port = self.backends[self._turn % len(self.backends)]
            try:
                inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                continue
            try:
                async with asyncio.TaskGroup() as both:
                    both.create_task(_pump(reader, inner_writer))
                    both.create_task(_pump(inner_reader, writer))
            finally:
                inner_writer.close()
            return


async def _pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    try:
        while data := await source.read(CHUNK):
            target.write(data)
            await target.drain()
    except ConnectionError:
        target.transport.abort()
    else:
        target.close()
