"""A controller that behaves as AIBrix's PodSet controller does, with its faults.

It acts on events of sets and of their pods, and never polls. A create that meets AlreadyExists
is skipped in silence; any other refusal ends the pass, which is repeated with backoff.
"""

import asyncio
from collections import Counter
from contextlib import suppress
from functools import partial
from pathlib import Path

from kube import paths
from kube.client import ApiClient
from kube.clock import Clock, SystemClock
from kube.credentials import load_credentials
from kube.errors import AlreadyExists, NotFound
from tests.standins.following import Following, Json, key_of
from tests.standins.passes import Passes
from tests.standins.podsets import (
    FINALIZER,
    GROUP,
    KIND,
    PLURAL,
    SET_LABEL,
    VERSION,
    make_pod,
    plan,
    status_of,
)

Key = tuple[str, str]


class SetController:
    """`created` and `skipped` count creates by pod name; `errors` are those that ended a pass."""

    def __init__(
        self,
        kubeconfig: Path,
        *,
        clock: Clock | None = None,
        first_backoff_s: float = 0.005,
        longest_backoff_s: float = 1000.0,
    ) -> None:
        self.ready = asyncio.Event()
        self.created: Counter[str] = Counter()
        self.skipped: Counter[str] = Counter()
        self._kubeconfig = kubeconfig
        self._clock = clock or SystemClock()
        self._first_s = first_backoff_s
        self._longest_s = longest_backoff_s
        self._synced: set[Following] = set()

    @property
    def errors(self) -> list[str]:
        return [str(error) for error in self._passes.errors]

    @property
    def passes(self) -> int:
        """How many passes ended, whatever came of them."""
        return self._passes.done

    async def run(self) -> None:
        """Until cancelled."""
        self._client = ApiClient(load_credentials(self._kubeconfig))
        async with self._client, asyncio.TaskGroup() as group:
            self._passes: Passes[Key] = Passes(
                self._reconcile, self._clock, group, self._first_s, self._longest_s
            )
            sets = paths.custom(GROUP, VERSION, PLURAL)
            self._sets = Following(self._client, sets, self._clock, self._heard_set)
            self._pods = Following(self._client, paths.pods(), self._clock, self._heard_pod)
            for following in (self._pods, self._sets):
                listed = partial(self._listed, following)
                group.create_task(following.run(listed))

    def _listed(self, following: Following) -> None:
        # Work begins when both are listed, as informers sync before workers start.
        self._synced.add(following)
        if len(self._synced) == 2 and not self.ready.is_set():
            self.ready.set()
            for key in self._sets.objects:
                self._passes.add(key)

    def _heard_set(self, event: str, podset: Json) -> None:
        if self.ready.is_set():
            self._passes.add(key_of(podset))

    def _heard_pod(self, event: str, pod: Json) -> None:
        if not self.ready.is_set():
            return
        for owner in pod["metadata"].get("ownerReferences") or ():
            if owner.get("controller") and owner["kind"] == KIND:
                self._passes.add((pod["metadata"]["namespace"], owner["name"]))

    async def _reconcile(self, key: Key) -> bool:
        podset = self._sets.objects.get(key)
        if podset is None:
            return False
        path = paths.custom(GROUP, VERSION, PLURAL, *key)
        finalizers = podset["metadata"].get("finalizers") or []
        if podset["metadata"].get("deletionTimestamp"):
            return await self._finalize(podset, path)
        if FINALIZER not in finalizers:
            metadata = {**podset["metadata"], "finalizers": [*finalizers, FINALIZER]}
            await self._client.replace(path, {**podset, "metadata": metadata})
            return False
        await self._step(podset)
        status = status_of(podset, self._pods_of(podset))
        if any((podset.get("status") or {}).get(name) != value for name, value in status.items()):
            merged = {**podset, "status": {**(podset.get("status") or {}), **status}}
            await self._client.replace(f"{path}/status", merged)
        return False

    async def _step(self, podset: Json) -> None:
        namespace = podset["metadata"]["namespace"]
        steps = plan(podset, self._pods_of(podset))
        for name in steps.delete:
            # By name alone, as the real one: it may hit a successor.
            await self._client.delete(paths.pod(namespace, name))
        for index in steps.create:
            pod = make_pod(podset, index)
            name = pod["metadata"]["name"]
            try:
                await self._client.create(paths.pods(namespace), pod)
            except AlreadyExists:
                self.skipped[name] += 1
            else:
                self.created[name] += 1

    async def _finalize(self, podset: Json, path: str) -> bool:
        pods = self._pods_of(podset)
        for pod in pods:
            with suppress(NotFound):
                await self._client.delete(paths.pod(*key_of(pod)))
        if pods:
            return True
        metadata = podset["metadata"]
        if FINALIZER in (metadata.get("finalizers") or ()):
            left = [each for each in metadata["finalizers"] if each != FINALIZER]
            await self._client.replace(
                path, {**podset, "metadata": {**metadata, "finalizers": left}}
            )
        return False

    def _pods_of(self, podset: Json) -> list[Json]:
        namespace, name = key_of(podset)
        return [
            pod
            for (where, _), pod in self._pods.objects.items()
            if where == namespace and (pod["metadata"].get("labels") or {}).get(SET_LABEL) == name
        ]
