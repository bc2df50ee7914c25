"""The webhook's own store as the rules see it, and the one fresh read that may refuse.

Invariant: nothing is refused on the word of the store; a read that fails or is late allows.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from kube import paths
from kube.errors import KubeError, NotFound
from kube.pod import Pod, controller_of
from webhook import stamps
from webhook.judge import Verdict, denied, with_warning
from webhook.neighbours import confirmed_conflict, unconfirmed_conflict

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from kube.client import ApiClient
    from kube.store import Store
    from webhook.case import Suspicion
    from webhook.metrics import Tally

CONFIRM_S: Final = 1.0
"""The most that one confirming read may take."""

_INDEX: Final = "webhook-set-index"
_RULE: Final = "index-conflict"


class PodView:
    """`StoreView` over a store of managed pods."""

    def __init__(self, store: Store[Pod]) -> None:
        self._store = store
        store.add_index(_INDEX, _place)

    @property
    def synced(self) -> bool:
        return self._store.synced

    def holder(self, namespace: str, name: str) -> Pod | None:
        return self._store.get(namespace, name)

    def at_index(self, namespace: str, owner_uid: str, index: str) -> Iterable[Pod]:
        return self._store.by_index(_INDEX, (namespace, owner_uid, index))


def _place(pod: Pod) -> Hashable | None:
    """Where a pod stands: namespace, UID of its controller, index."""
    index = pod.metadata.labels.get(stamps.PODSET_INDEX)
    owner = controller_of(pod) if index is not None else None
    return (pod.metadata.namespace, owner.uid, index) if owner is not None else None


class Confirmer:
    """Decides a suspicion by reading the suspect once."""

    def __init__(self, client: ApiClient, tally: Tally) -> None:
        self._client = client
        self._tally = tally

    async def decide(self, verdict: Verdict, suspicion: Suspicion, budget_s: float) -> Verdict:
        """The final verdict, after at most `budget_s` and never more than a second."""
        bound_s = min(CONFIRM_S, budget_s)
        try:
            async with asyncio.timeout(bound_s):
                fresh: Pod | None = await self._client.get(
                    paths.pod(suspicion.namespace, suspicion.name), type=Pod, timeout_s=bound_s
                )
        except NotFound:
            fresh = None
        except (KubeError, TimeoutError):
            self._tally.confirmed("unknown")
            return with_warning(verdict, unconfirmed_conflict(suspicion))
        denial = confirmed_conflict(suspicion, fresh)
        if denial is None:
            self._tally.confirmed("free")
            return with_warning(verdict, unconfirmed_conflict(suspicion))
        self._tally.confirmed("held")
        return denied(_RULE, denial, verdict.warnings)
