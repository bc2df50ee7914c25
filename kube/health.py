"""Plain HTTP for probes and metrics: /healthz, /readyz, /metrics and further JSON routes.

Invariant: answers from memory; no handler waits for the network.
"""

from collections.abc import Callable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry


class HealthServer:
    """`live` and `ready` say None for yes, or why not (then the answer is 503 with that text)."""

    def __init__(
        self,
        port: int,
        live: Callable[[], str | None],
        ready: Callable[[], str | None],
        routes: Mapping[str, Callable[[], Any]],
        registry: CollectorRegistry,
        *,
        host: str = "0.0.0.0",
    ) -> None:
        raise NotImplementedError

    @property
    def port(self) -> int:
        """The bound port; valid once `start` returned."""
        raise NotImplementedError

    async def start(self) -> None:
        """Bind. ConfigError: the port is in use or not allowed."""
        raise NotImplementedError

    async def run(self) -> None:
        """Serve until cancelled; starts first if need be."""
        raise NotImplementedError
