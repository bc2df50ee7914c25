"""Leader election on one Lease (coordination.k8s.io/v1).

Invariant: a leader stops acting `renew_deadline_s` after its last good renewal began, by its own
monotonic clock; nobody else starts before the record stood unchanged for the lease's duration.
"""

import random as random_module
from collections.abc import Awaitable, Callable

from kube.client import ApiClient
from kube.clock import Clock


class LeaderElector:
    """Joins, leads, and joins again. `identity` must differ in every process (pod name and UID)."""

    def __init__(
        self,
        client: ApiClient,
        namespace: str,
        name: str,
        identity: str,
        *,
        clock: Clock,
        random: random_module.Random,
        duration_s: float = 15.0,
        renew_deadline_s: float = 10.0,
        retry_period_s: float = 2.0,
    ) -> None:
        raise NotImplementedError

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Join; run `lead()` while the lease is held; on loss cancel it, await it and join again.

        An error of `lead()`, or its return, releases the lease and ends `run` likewise.
        On cancel: `lead()` is stopped first, then the lease is released.
        """
        raise NotImplementedError

    @property
    def is_leader(self) -> bool:
        """Whether the lease is held, as far as this process knows."""
        raise NotImplementedError

    def may_act(self) -> bool:
        """Whether leadership is certain right now; ask before each delete."""
        raise NotImplementedError
