"""What a pod's Node says about containers that the pod still shows as running.

Only a Node that does not exist, or that an administrator has declared out of service, proves that
nothing runs there; NotReady alone does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from controller.verdict import NodeStanding
from kube import paths
from kube.errors import KubeError, NotFound
from kube.logs import get_logger
from kube.meta import ObjectMeta

if TYPE_CHECKING:
    from kube.client import ApiClient
    from kube.pod import Pod

log = get_logger("controller.node")

OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
TIMEOUT_S = 3.0


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


async def ask_node(client: ApiClient, pod: Pod) -> NodeStanding:
    """A fresh GET of the pod's Node; NOT_ASKED if it names none or the answer is no answer."""
    name = pod.spec.node_name
    if not name:
        return NodeStanding.NOT_ASKED
    try:
        return standing(await client.get(paths.node(name), type=Node, timeout_s=TIMEOUT_S))
    except NotFound:
        return NodeStanding.GONE
    except KubeError as error:
        log.warning("node could not be read", node=name, error=str(error))
        return NodeStanding.NOT_ASKED
