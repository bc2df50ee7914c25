"""Keeps a store equal to the server: a full list, then a watch from where the list stood.

Invariant: a store changes only by a complete list or by an event that follows one without a gap.
"""

import random as random_module
from collections.abc import Callable
from typing import Generic, TypeVar

from kube.client import ApiClient
from kube.clock import Clock
from kube.errors import KubeError
from kube.meta import KubeObject
from kube.store import Store

T = TypeVar("T", bound=KubeObject)


class Reflector(Generic[T]):
    """One kind of object, one selector, one store."""

    def __init__(
        self,
        client: ApiClient,
        path: str,
        type: type[T],
        store: Store[T],
        *,
        label_selector: str = "",
        field_selector: str = "",
        clock: Clock,
        random: random_module.Random,
        watch_timeout_s: float = 300.0,
        page_size: int = 500,
        on_error: Callable[[KubeError], None] | None = None,
    ) -> None:
        self.store = store

    async def run(self) -> None:
        """List and watch until cancelled. `on_error` hears of each failure; none ends it."""
        raise NotImplementedError
