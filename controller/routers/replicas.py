"""Where the HTTP API of each replica of a router is.

Invariant: each replica is addressed by itself; behind a Service one call would reach only one
of them, and the others would keep their ghosts.
"""

from __future__ import annotations

from typing import NamedTuple

from controller.routers.config import ReplicaPods, Replicas
from controller.routers.engines import address_of, port_of, url_of
from kube.events import ObjectReference
from kube.pod import Pod, is_live
from kube.store import Store


class Replica(NamedTuple):
    """One running router. `key` lasts as long as this incarnation of it."""

    key: str
    label: str
    url: str
    regarding: ObjectReference | None = None


def replicas_of(config: Replicas, pods: Store[Pod] | None) -> list[Replica]:
    """The fixed URLs, then the pods that live and have an address.

    Readiness is not asked for: vllm-router is not ready while any of its workers is bad, and
    that is when it most needs to be told.
    """
    found = [Replica(url, url, url.rstrip("/")) for url in config.urls]
    if config.pods is not None and pods is not None:
        ordered = sorted(pods.values(), key=lambda pod: pod.key)
        found.extend(
            replica for pod in ordered if (replica := _replica(pod, config.pods)) is not None
        )
    return found


def selector_text(labels: dict[str, str]) -> str:
    """As the API server wants it."""
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))


def _replica(pod: Pod, config: ReplicaPods) -> Replica | None:
    if not is_live(pod):
        return None
    address = address_of(pod, "primary")
    port = port_of(pod, config.port)
    if address is None or port is None:
        return None
    metadata = pod.metadata
    return Replica(
        key=metadata.uid,
        label=f"{metadata.namespace}/{metadata.name}",
        url=url_of(config.scheme, address, port),
        regarding=ObjectReference(
            "v1",
            "Pod",
            metadata.namespace,
            metadata.name,
            metadata.uid,
            metadata.resource_version,
        ),
    )
