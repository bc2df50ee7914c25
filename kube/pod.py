"""Pods, as far as podstamp reads them: a projection that skips the rest of the JSON.

Invariant: every field has a safe default, so an absent one never fails; unknown words
(phase, reason, condition) are kept as they are.
"""

from datetime import datetime

import msgspec
from msgspec.structs import force_setattr

from kube.meta import OwnerReference, controller_reference
from kube.sharing import shared

TERMINAL_PHASES = frozenset({"Failed", "Succeeded"})


class Annotations(msgspec.Struct, frozen=True, gc=False):
    """The annotations that podstamp reads; `None` is absent, an empty string is present."""

    incarnation: str | None = msgspec.field(default=None, name="podstamp.dev/incarnation")
    adapters: str | None = msgspec.field(default=None, name="podstamp.dev/adapters")
    adapters_digest: str | None = msgspec.field(default=None, name="podstamp.dev/adapters-digest")
    retired: str | None = msgspec.field(default=None, name="podstamp.dev/retired")
    retired_at: str | None = msgspec.field(default=None, name="podstamp.dev/retired-at")
    restore: str | None = msgspec.field(default=None, name="podstamp.dev/restore")
    lora_modified: str | None = msgspec.field(default=None, name="lora-modified")


class PodMetadata(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """`metadata`."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    finalizers: tuple[str, ...] = ()
    labels: dict[str, str] = {}
    annotations: Annotations = Annotations()
    owner_references: tuple[OwnerReference, ...] = ()


class ContainerPort(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """One port of a container."""

    name: str = ""
    container_port: int = 0


class Container(msgspec.Struct, frozen=True, gc=False):
    """One entry of `spec.containers`."""

    name: str = ""
    ports: tuple[ContainerPort, ...] = ()


class ReadinessGate(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """One entry of `spec.readinessGates`."""

    condition_type: str = ""


class PodSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """`spec`."""

    node_name: str = ""
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    ephemeral_containers: tuple[Container, ...] = ()
    readiness_gates: tuple[ReadinessGate, ...] = ()


class PodIP(msgspec.Struct, frozen=True, gc=False):
    """One entry of `status.podIPs`."""

    ip: str = ""


class Condition(msgspec.Struct, frozen=True, gc=False):
    """One entry of `status.conditions`; `status` is True, False or Unknown."""

    type: str = ""
    status: str = ""


class Waiting(msgspec.Struct, frozen=True, gc=False):
    """A container that has not started, or is between two starts."""

    reason: str = ""


class Running(msgspec.Struct, frozen=True, gc=False):
    """A container that runs."""


class Terminated(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A container that ended."""

    reason: str = ""
    exit_code: int = 0


class ContainerState(msgspec.Struct, frozen=True, gc=False):
    """At most one of the three is set; none of them means waiting (core/v1 ContainerState)."""

    waiting: Waiting | None = None
    running: Running | None = None
    terminated: Terminated | None = None


class ContainerStatus(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """One entry of the three lists of container statuses."""

    name: str = ""
    restart_count: int = 0
    container_id: str = msgspec.field(default="", name="containerID")
    started: bool | None = None
    state: ContainerState = ContainerState()


class PodStatus(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """`status`."""

    phase: str = ""
    reason: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")
    pod_ips: tuple[PodIP, ...] = msgspec.field(default=(), name="podIPs")
    conditions: tuple[Condition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    ephemeral_container_statuses: tuple[ContainerStatus, ...] = ()


class Pod(msgspec.Struct, frozen=True, gc=False):
    """One pod object; two pods of one name differ in `metadata.uid`."""

    metadata: PodMetadata = PodMetadata()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    def __post_init__(self) -> None:
        """Share what is the same in many pods: it is half of the memory of a store."""
        metadata, spec, status = self.metadata, self.spec, self.status
        if metadata.owner_references:
            force_setattr(metadata, "owner_references", shared(metadata.owner_references))
        if spec.containers:
            force_setattr(spec, "containers", shared(spec.containers))
        if status.conditions:
            force_setattr(status, "conditions", shared(status.conditions))
        labels = metadata.labels
        for key, value in labels.items():
            labels[key] = shared(value)

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return (self.metadata.namespace, self.metadata.name)


def is_terminal(pod: Pod) -> bool:
    """Phase Failed or Succeeded; an unknown phase is not terminal."""
    return pod.status.phase in TERMINAL_PHASES


def is_terminating(pod: Pod) -> bool:
    """Deletion was asked for; finalizers or the kubelet may still hold the object."""
    return pod.metadata.deletion_timestamp is not None


def is_live(pod: Pod) -> bool:
    """Neither terminal nor terminating."""
    return not is_terminal(pod) and not is_terminating(pod)


def condition(pod: Pod, type: str) -> Condition | None:
    """The condition of that type, if the pod reports it."""
    for entry in pod.status.conditions:
        if entry.type == type:
            return entry
    return None


def is_ready(pod: Pod) -> bool:
    """Condition Ready is True; the kubelet counts the readiness gates in (core/v1 PodCondition)."""
    ready = condition(pod, "Ready")
    return ready is not None and ready.status == "True"


def controller_of(pod: Pod) -> OwnerReference | None:
    """The owner reference with `controller: true`, if there is one."""
    return controller_reference(pod.metadata.owner_references)
