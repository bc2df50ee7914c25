"""The resources that the server knows: a table of the built-in ones, and lookup by path.

Invariant: a (group, version, plural) names one Resource; two versions of one thing share its
storage key (events are stored once and served in two shapes).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.apiserver.events import from_core, to_core
from tests.apiserver.schema import Decoder, decoder
from tests.apiserver.strategies import Strategy, strategy_for

Object = dict[str, Any]

NAMES_ONLY = {"metadata.name": "metadata.name"}
NAMESPACED_NAMES = {"metadata.name": "metadata.name", "metadata.namespace": "metadata.namespace"}


@dataclass(frozen=True, slots=True)
class Resource:
    """One served version of one resource."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    storage: str
    strategy: Strategy
    decode: Decoder
    model: str = ""
    singular: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    fields: dict[str, str] = field(default_factory=dict)
    verbs: tuple[str, ...] = (
        "create",
        "delete",
        "deletecollection",
        "get",
        "list",
        "patch",
        "update",
        "watch",
    )
    create_on_update: bool = False
    unconditional_update: bool = True
    returns_deleted: bool = False
    definition: Object | None = None  # the CRD's version entry of a custom resource
    to_storage: Callable[[Object], Object] | None = None
    from_storage: Callable[[Object], Object] | None = None

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def custom(self) -> bool:
        return self.definition is not None

    @property
    def has_status(self) -> bool:
        return "status" in self.subresources


def _builtin(
    group: str,
    version: str,
    plural: str,
    kind: str,
    *,
    short: str = "",
    categories: str = "",
    subresources: str = "",
    namespaced: bool = True,
    fields: dict[str, str] | None = None,
    model: str = "",
    **more: Any,
) -> Resource:
    model = model or f"{version.capitalize()}{kind}"
    storage = f"{plural}.{group}" if group else plural
    names = NAMESPACED_NAMES if namespaced else NAMES_ONLY
    more.setdefault("storage", storage)
    return Resource(
        group,
        version,
        plural,
        kind,
        namespaced,
        strategy=strategy_for(storage),
        decode=decoder(model),
        model=model,
        singular=kind.lower(),
        short_names=tuple(short.split()),
        categories=tuple(categories.split()),
        subresources=tuple(subresources.split()),
        fields={**names, **(fields or {})},
        **more,
    )


def _same(*paths: str) -> dict[str, str]:
    return {path: path for path in paths}


_OBJECT_FIELDS = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
_ADMISSION = "admissionregistration.k8s.io"
_RBAC = "rbac.authorization.k8s.io"


def builtin_resources() -> list[Resource]:
    """Every resource that is there from the start."""
    strict: dict[str, Any] = {"unconditional_update": False}
    upsert: dict[str, Any] = {"create_on_update": True}
    return [
        _builtin("", "v1", "namespaces", "Namespace", short="ns", namespaced=False,
                 subresources="status finalize", fields=_same("status.phase"),
                 verbs=("create", "delete", "get", "list", "patch", "update", "watch")),
        _builtin("", "v1", "pods", "Pod", short="po", categories="all",
                 subresources="status binding eviction ephemeralcontainers resize",
                 fields=_same("spec.nodeName", "spec.restartPolicy", "spec.schedulerName",
                              "spec.serviceAccountName", "spec.hostNetwork", "status.phase",
                              "status.podIP", "status.nominatedNodeName"),
                 returns_deleted=True),
        _builtin("", "v1", "events", "Event", short="ev", model="CoreV1Event",
                 fields=_same(*(f"involvedObject.{name}" for name in _OBJECT_FIELDS),
                              "reason", "reportingComponent", "source.component", "type")
                 | {"source": "source.component"}, **upsert),
        _builtin("events.k8s.io", "v1", "events", "Event", short="ev", model="EventsV1Event",
                 storage="events", to_storage=to_core, from_storage=from_core,
                 fields={f"regarding.{name}": f"involvedObject.{name}" for name in _OBJECT_FIELDS}
                 | {"reason": "reason", "type": "type",
                    "reportingController": "reportingComponent"}, **upsert),
        _builtin("", "v1", "secrets", "Secret", fields=_same("type")),
        _builtin("", "v1", "configmaps", "ConfigMap", short="cm"),
        _builtin("", "v1", "services", "Service", short="svc", categories="all",
                 subresources="status", fields=_same("spec.clusterIP", "spec.type"),
                 returns_deleted=True, **upsert),
        _builtin("", "v1", "serviceaccounts", "ServiceAccount", short="sa", subresources="token",
                 returns_deleted=True),
        _builtin("", "v1", "endpoints", "Endpoints", short="ep", **upsert),
        _builtin("", "v1", "nodes", "Node", short="no", namespaced=False, subresources="status",
                 fields=_same("spec.unschedulable")),
        _builtin("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", short="pvc",
                 subresources="status", returns_deleted=True),
        _builtin("", "v1", "resourcequotas", "ResourceQuota", short="quota",
                 subresources="status", returns_deleted=True),
        _builtin("", "v1", "limitranges", "LimitRange", short="limits", **upsert),
        _builtin("apps", "v1", "deployments", "Deployment", short="deploy", categories="all",
                 subresources="status"),
        _builtin("apps", "v1", "replicasets", "ReplicaSet", short="rs", categories="all",
                 subresources="status", fields=_same("status.replicas")),
        _builtin("apps", "v1", "statefulsets", "StatefulSet", short="sts", categories="all",
                 subresources="status"),
        _builtin("apps", "v1", "daemonsets", "DaemonSet", short="ds", categories="all",
                 subresources="status"),
        _builtin("batch", "v1", "jobs", "Job", categories="all", subresources="status",
                 fields=_same("status.successful")),
        _builtin("batch", "v1", "cronjobs", "CronJob", short="cj", categories="all",
                 subresources="status"),
        _builtin("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler",
                 short="hpa", categories="all", subresources="status"),
        _builtin("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", short="pdb",
                 subresources="status", **strict),
        _builtin("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", short="netpol"),
        _builtin("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice"),
        _builtin("coordination.k8s.io", "v1", "leases", "Lease",
                 unconditional_update=False, **upsert),
        _builtin("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", short="pc",
                 namespaced=False),
        _builtin(_RBAC, "v1", "roles", "Role", **upsert),
        _builtin(_RBAC, "v1", "rolebindings", "RoleBinding", **upsert),
        _builtin(_RBAC, "v1", "clusterroles", "ClusterRole", namespaced=False, **upsert),
        _builtin(_RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False,
                 **upsert),
        _builtin(_ADMISSION, "v1", "mutatingwebhookconfigurations",
                 "MutatingWebhookConfiguration", namespaced=False, categories="api-extensions",
                 **strict),
        _builtin(_ADMISSION, "v1", "validatingwebhookconfigurations",
                 "ValidatingWebhookConfiguration", namespaced=False, categories="api-extensions",
                 **strict),
        _builtin(_ADMISSION, "v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy",
                 namespaced=False, categories="api-extensions", subresources="status", **strict),
        _builtin(_ADMISSION, "v1", "validatingadmissionpolicybindings",
                 "ValidatingAdmissionPolicyBinding", namespaced=False,
                 categories="api-extensions", **strict),
        _builtin("apiextensions.k8s.io", "v1", "customresourcedefinitions",
                 "CustomResourceDefinition", short="crd crds", namespaced=False,
                 categories="api-extensions", subresources="status", **strict),
    ]  # fmt: skip


class Kinds:
    """The resources served now; custom ones come and go with their definitions."""

    def __init__(self, resources: Iterable[Resource]) -> None:
        self._by_path = {(r.group, r.version, r.plural): r for r in resources}
        self.revision = 1

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        return self._by_path.get((group, version, plural))

    def all(self) -> list[Resource]:
        return list(self._by_path.values())

    def by_storage(self, storage: str) -> Resource | None:
        """The resource in whose shape the objects of a table are stored."""
        for resource in self._by_path.values():
            if resource.storage == storage and resource.to_storage is None:
                return resource
        return None

    def replace_custom(self, storage: str, resources: Iterable[Resource]) -> None:
        """What a definition serves from now on; nothing when it is gone."""
        kept = {k: r for k, r in self._by_path.items() if r.storage != storage}
        kept.update({(r.group, r.version, r.plural): r for r in resources})
        self._by_path = kept
        self.revision += 1
