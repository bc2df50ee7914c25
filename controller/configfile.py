"""The configuration that is in force, and the file that it is read from again when it changes.

A new file that is wrong is told once and changes nothing: the old configuration stays in force.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kube.errors import ConfigError
from kube.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from controller.config import ControllerConfig
    from controller.metrics import ReaperMetrics
    from kube.clock import Clock

log = get_logger("controller.configfile")

POLL_S = 2.0


class LiveConfig:
    """Holds one valid configuration at any time."""

    def __init__(
        self,
        current: ControllerConfig,
        load: Callable[[], ControllerConfig],
        metrics: ReaperMetrics,
    ) -> None:
        """`load` reads file, environment and flags anew; ConfigError if they are wrong."""
        self.current = current
        self.problem: str | None = None
        self._load = load
        self._metrics = metrics
        self._changed = asyncio.Event()

    async def changed_from(self, known: ControllerConfig) -> None:
        """Return as soon as another configuration than `known` is in force."""
        while self.current == known:
            self._changed.clear()
            await self._changed.wait()

    def reload(self) -> None:
        """Read anew; a wrong file is logged and counted, and remembered in `problem`."""
        try:
            new = self._load()
        except ConfigError as error:
            self.problem = str(error)
            self._metrics.config_reloads.labels("refused").inc()
            log.error("new configuration refused; the old one stays in force", error=self.problem)
            return
        self.problem = None
        if new != self.current:
            self.current = new
            self._metrics.config_reloads.labels("applied").inc()
            log.info("new configuration in force")
            self._changed.set()

    async def watch(self, file: Path, clock: Clock) -> None:
        """Reload whenever the file's content is another; until cancelled.

        Content, not times: a mounted ConfigMap changes by a swap of symbolic links.
        """
        seen = await asyncio.to_thread(_content, file)
        self.reload()  # It may have changed since it was read at the start.
        while True:
            await clock.sleep(POLL_S)
            content = await asyncio.to_thread(_content, file)
            if content != seen:
                seen = content
                self.reload()


def _content(file: Path) -> bytes | None:
    """None while the file cannot be read; reload then says why."""
    try:
        return file.read_bytes()
    except OSError:
        return None
