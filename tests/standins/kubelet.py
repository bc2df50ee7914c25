"""A kubelet and a scheduler in one: binds pods to its node, runs them, and lets them stop.

Containers are only told of, in the shape that a real kubelet writes. What happens to a pod after
its start is up to the test: `fail`, `succeed`, `evict`, `restart_container`, `set_ready`.
"""

import asyncio
import ipaddress
from collections.abc import Callable, Collection
from contextlib import suppress
from itertools import count
from pathlib import Path

import msgspec

from kube import paths
from kube.client import ApiClient
from kube.clock import Clock, SystemClock
from kube.credentials import load_credentials
from kube.errors import AlreadyExists, NotFound
from kube.requests import Call
from tests.standins import pod_status
from tests.standins.following import Following, Json, uid_of
from tests.standins.passes import Passes
from tests.standins.pod_status import Start

ADDRESS = "standin/address"
"""Annotation of a pod: where the engine that it stands for really listens."""

_FIRST_ADDRESS = int(ipaddress.IPv4Address("127.64.0.1"))
_HOST = "127.0.0.1"
_STRATEGIC = "application/strategic-merge-patch+json"


class _Client(ApiClient):
    async def remove_now(self, path: str, uid: str) -> None:
        """What only a kubelet may say: the pod has stopped, its object can go."""
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "gracePeriodSeconds": 0,
            "preconditions": {"uid": uid},
        }
        await self._call(Call("DELETE", path, {}, msgspec.json.encode(options)), None)


class Kubelet:
    """One node. All settings may be changed while it runs; they hold for what comes after.

    `address` says where a pod listens; None: its ADDRESS annotation, or else a fresh loopback
    address. `start` says what becomes of a new pod. `stop_delay_s` is how long one takes to stop.
    `binds` is off for the second of two nodes. `stalled` makes it do nothing, as a lost node.
    """

    def __init__(
        self,
        kubeconfig: Path,
        *,
        node: str = "node-1",
        address: Callable[[Json], str | None] = lambda pod: None,
        start: Callable[[Json], Start] = lambda pod: Start.RUN,
        stop_delay_s: float = 0.0,
        stop_exit_code: int = 0,
        binds: bool = True,
        clock: Clock | None = None,
    ) -> None:
        self.node = node
        self.address = address
        self.start = start
        self.stop_delay_s = stop_delay_s
        self.stop_exit_code = stop_exit_code
        self.binds = binds
        self.stalled = False
        self.ready = asyncio.Event()
        self._kubeconfig = kubeconfig
        self._clock = clock or SystemClock()
        self._addresses = map(ipaddress.IPv4Address, count(_FIRST_ADDRESS))
        self._begun: set[str] = set()
        self._removed: set[str] = set()

    async def run(self) -> None:
        """Until cancelled."""
        self._client = _Client(load_credentials(self._kubeconfig))
        async with self._client:
            await self._register()
            async with asyncio.TaskGroup() as group:
                self._passes: Passes[tuple[str, str]] = Passes(
                    self._sync, self._clock, group, longest_s=1.0
                )
                self._pods = Following(self._client, paths.pods(), self._clock, self._heard)
                await self._pods.run(self.ready.set)

    async def fail(
        self,
        namespace: str,
        name: str,
        *,
        exit_code: int = 1,
        reason: str = "",
        message: str = "",
        still_running: Collection[str] = (),
    ) -> None:
        """End the pod as Failed; containers named in `still_running` are left as they are."""
        await self._end(
            namespace,
            name,
            phase="Failed",
            exit_code=exit_code,
            reason=reason,
            message=message,
            still_running=still_running,
        )

    async def succeed(self, namespace: str, name: str) -> None:
        """End the pod as Succeeded."""
        await self._end(namespace, name, phase="Succeeded", exit_code=0)

    async def evict(self, namespace: str, name: str) -> None:
        """End the pod as a kubelet under pressure does: Failed, its address gone in one write."""
        await self._end(
            namespace, name, phase="Failed", exit_code=137, reason="Evicted", drop_address=True
        )

    async def restart_container(
        self, namespace: str, name: str, container: str | None = None
    ) -> None:
        """Restart one container, the first by default, in place."""
        pod = await self._get(namespace, name)
        container = container or pod["spec"]["containers"][0]["name"]
        await self._write(pod, pod_status.restarted(pod, container, self._clock.now()))

    async def set_ready(self, namespace: str, name: str, ready: bool) -> None:
        """What the readiness probe says from now on."""
        pod = await self._get(namespace, name)
        await self._write(pod, pod_status.ready(pod, ready, self._clock.now()))

    async def start_now(self, namespace: str, name: str) -> None:
        """Run a pod that `start` had left pending on this node."""
        await self._run(await self._get(namespace, name))

    def resume(self) -> None:
        """Work again after `stalled`, and catch up."""
        self.stalled = False
        for key in self._pods.objects:
            self._passes.add(key)

    async def _register(self) -> None:
        now = pod_status.instant(self._clock.now())
        ready = {
            "type": "Ready",
            "status": "True",
            "reason": "KubeletReady",
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        }
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self.node, "labels": {"kubernetes.io/hostname": self.node}},
            "status": {
                "conditions": [ready],
                "addresses": [{"type": "InternalIP", "address": _HOST}],
            },
        }
        with suppress(AlreadyExists):
            await self._client.create(paths.nodes(), node)

    def _heard(self, event: str, pod: Json) -> None:
        if event == "DELETED":
            self._begun.discard(uid_of(pod))
            self._removed.discard(uid_of(pod))
        else:
            self._passes.add((pod["metadata"]["namespace"], pod["metadata"]["name"]))

    async def _sync(self, key: tuple[str, str]) -> bool:
        pod = self._pods.objects.get(key)
        if pod is None or self.stalled:
            return False
        node = pod["spec"].get("nodeName")
        if not node:
            if self.binds and self.start(pod) is not Start.UNSCHEDULED:
                await self._bind(pod)
        elif node != self.node:
            pass
        elif pod["metadata"].get("deletionTimestamp"):
            await self._stop(pod)
        elif uid_of(pod) not in self._begun:
            await self._begin(pod)
        elif pod_status.containers_ready(pod) and (
            pod_status.is_ready(pod) != pod_status.gates_met(pod)
        ):
            await self._write(pod, pod_status.ready(pod, True, self._clock.now()))
        return False

    async def _bind(self, pod: Json) -> None:
        if pod["metadata"].get("deletionTimestamp"):
            return
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": namespace, "uid": uid_of(pod)},
            "target": {"apiVersion": "v1", "kind": "Node", "name": self.node},
        }
        await self._client.create(f"{paths.pod(namespace, name)}/binding", binding)

    async def _begin(self, pod: Json) -> None:
        if (pod.get("status") or {}).get("phase") in (None, "", "Pending"):
            match self.start(pod):
                case Start.RUN:
                    await self._run(pod)
                case Start.CREATING:
                    await self._write(pod, pod_status.creating(pod, _HOST, self._clock.now()))
                case Start.REJECTED:
                    await self._write(pod, pod_status.rejected(pod, self._clock.now()))
                case Start.UNSCHEDULED:
                    return
        self._begun.add(uid_of(pod))

    async def _run(self, pod: Json) -> None:
        annotations = pod["metadata"].get("annotations") or {}
        address = self.address(pod) or annotations.get(ADDRESS) or str(next(self._addresses))
        await self._write(pod, pod_status.running(pod, address, _HOST, self._clock.now()))

    async def _stop(self, pod: Json) -> None:
        uid = uid_of(pod)
        if uid in self._removed:
            return  # a finalizer holds the object; it is not for the kubelet to ask again
        if self.stop_delay_s:
            await self._clock.sleep(self.stop_delay_s)
        with suppress(NotFound):  # somebody forced it out before it stopped
            if (pod.get("status") or {}).get("phase") not in ("Failed", "Succeeded"):
                phase = "Failed" if self.stop_exit_code else "Succeeded"
                now = self._clock.now()
                ended = pod_status.terminal(pod, phase, self.stop_exit_code, now)
                await self._write(pod, ended)
            self._removed.add(uid)
            path = paths.pod(pod["metadata"]["namespace"], pod["metadata"]["name"])
            await self._client.remove_now(path, uid)

    async def _end(
        self,
        namespace: str,
        name: str,
        *,
        phase: str,
        exit_code: int,
        reason: str = "",
        message: str = "",
        still_running: Collection[str] = (),
        drop_address: bool = False,
    ) -> None:
        pod = await self._get(namespace, name)
        ended = pod_status.terminal(
            pod,
            phase,
            exit_code,
            self._clock.now(),
            reason=reason,
            message=message,
            still_running=still_running,
            drop_address=drop_address,
        )
        await self._write(pod, ended)

    async def _get(self, namespace: str, name: str) -> Json:
        return await self._client.get(paths.pod(namespace, name), type=Json)

    async def _write(self, pod: Json, patch: Json) -> None:
        path = paths.pod_status(pod["metadata"]["namespace"], pod["metadata"]["name"])
        await self._client.patch(path, patch, content_type=_STRATEGIC)
