"""Objects that say where adapters are loaded: `LoraAdapter` (production-stack) and
`ModelAdapter` (AIBrix). A change of one is a reason to read the pods that it names again.

Invariant: pure; nothing is believed of what an object says is loaded, only where to look.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import msgspec

from kube.meta import ObjectMeta
from kube.store import Change


class LoadedPod(msgspec.Struct, frozen=True, rename="camel"):
    """`status.loadedAdapters[].podAssignments`."""

    pod_name: str = ""
    namespace: str = ""


class LoadedAdapter(msgspec.Struct, frozen=True, rename="camel"):
    """`status.loadedAdapters[]`: one adapter in one pod."""

    name: str = ""
    path: str = ""
    status: str = ""
    pod_assignments: LoadedPod = LoadedPod()


class LoraAdapterStatus(msgspec.Struct, frozen=True, rename="camel"):
    """`status` of a LoraAdapter."""

    loaded_adapters: tuple[LoadedAdapter, ...] = ()


class LoraAdapter(msgspec.Struct, frozen=True):
    """production-stack.vllm.ai/v1alpha1."""

    metadata: ObjectMeta = ObjectMeta()
    status: LoraAdapterStatus = LoraAdapterStatus()


class ModelAdapterStatus(msgspec.Struct, frozen=True):
    """`status` of a ModelAdapter: the names of the pods that have it."""

    phase: str = ""
    instances: tuple[str, ...] = ()


class ModelAdapter(msgspec.Struct, frozen=True):
    """model.aibrix.ai/v1alpha1."""

    metadata: ObjectMeta = ObjectMeta()
    status: ModelAdapterStatus = ModelAdapterStatus()


class AdapterObject(Protocol):
    """Either of the two."""

    @property
    def metadata(self) -> ObjectMeta: ...


class Resource(NamedTuple):
    """Where one kind of adapter object is found."""

    group: str
    version: str
    plural: str
    type: type[LoraAdapter] | type[ModelAdapter]


RESOURCES = (
    Resource("production-stack.vllm.ai", "v1alpha1", "loraadapters", LoraAdapter),
    Resource("model.aibrix.ai", "v1alpha1", "modeladapters", ModelAdapter),
)


def pods_named(entry: AdapterObject | None) -> frozenset[tuple[str, str]]:
    """Namespace and name of each pod that the object names."""
    match entry:
        case LoraAdapter():
            loaded = (adapter.pod_assignments for adapter in entry.status.loaded_adapters)
            own = entry.metadata.namespace
            return frozenset((pod.namespace or own, pod.pod_name) for pod in loaded if pod.pod_name)
        case ModelAdapter():
            return frozenset((entry.metadata.namespace, name) for name in entry.status.instances)
        case _:
            return frozenset()


def pods_to_reread(
    change: Change[LoraAdapter] | Change[ModelAdapter],
) -> frozenset[tuple[str, str]]:
    """The pods that it named or names now; none if it says the same as before."""
    old, new = change
    if old is not None and new is not None and old.status == new.status:
        return frozenset()
    return pods_named(old) | pods_named(new)
