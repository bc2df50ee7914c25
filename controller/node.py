"""What a pod's Node says about containers that the pod still shows as running.

Only a Node that does not exist, or that an administrator has declared out of service, proves that
nothing runs there; NotReady alone does not.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from controller.verdict import NodeStanding
from kube import paths
from kube.errors import Forbidden, KubeError, NotFound
from kube.logs import get_logger
from kube.meta import ObjectMeta

if TYPE_CHECKING:
    from kube.client import ApiClient
    from kube.clock import Clock
    from kube.pod import Pod

log = get_logger("controller.node")

OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
TIMEOUT_S = 3.0
FORBIDDEN_PAUSE_S = 5.0
"""Short: an API server that has just started forbids everything until it has read the roles."""


class Taint(msgspec.Struct, frozen=True):
    """One taint of a Node."""

    key: str = ""


class NodeSpec(msgspec.Struct, frozen=True):
    """`spec`, as far as it is read."""

    taints: tuple[Taint, ...] = ()


class Node(msgspec.Struct, frozen=True):
    """A Node, as far as it is read."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()


def standing(node: Node) -> NodeStanding:
    """Whether the Node is declared out of service."""
    if any(taint.key == OUT_OF_SERVICE for taint in node.spec.taints):
        return NodeStanding.OUT_OF_SERVICE
    return NodeStanding.PRESENT


class NodeReader:
    """Asks for Nodes; a role that may not stops the asking for some minutes, and is told once."""

    def __init__(self, client: ApiClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._silent_until_s = -math.inf
        self._complained = False

    async def standing(self, pod: Pod) -> NodeStanding:
        """A fresh GET of the pod's Node; NOT_ASKED if it names none or there is no answer."""
        name = pod.spec.node_name
        if not name or self._clock.monotonic() < self._silent_until_s:
            return NodeStanding.NOT_ASKED
        try:
            node = await self._client.get(paths.node(name), type=Node, timeout_s=TIMEOUT_S)
        except NotFound:
            return NodeStanding.GONE
        except Forbidden as error:
            self._silent_until_s = self._clock.monotonic() + FORBIDDEN_PAUSE_S
            if not self._complained:
                self._complained = True
                log.error("role lacks a verb", verb="get", resource="nodes", error=str(error))
            return NodeStanding.NOT_ASKED
        except KubeError as error:
            log.warning("node could not be read", node=name, error=str(error))
            return NodeStanding.NOT_ASKED
        return standing(node)
