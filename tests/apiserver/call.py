"""One request as the handlers pass it on: who asks, for what, with which options."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.apiserver.admission.attributes import Attributes, Operation
from tests.apiserver.errors import not_found
from tests.apiserver.kinds import Object, Resource
from tests.apiserver.storage import Record, Storage


@dataclass(frozen=True, slots=True)
class User:
    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: dict[str, list[str]] = field(default_factory=dict)


SYSTEM = User("system:apiserver", ("system:masters",))


@dataclass(slots=True)
class Call:
    """Who asks, and the request's options; warnings collect what goes into Warning headers."""

    user: User = SYSTEM
    dry_run: bool = False
    field_validation: str = "Warn"
    field_manager: str = ""
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Target:
    """What a path names; `namespace` is "" for cluster-scoped resources and all namespaces."""

    resource: Resource
    namespace: str = ""
    name: str = ""
    subresource: str = ""


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    grace_period_s: int | None = None
    uid: str | None = None
    resource_version: str | None = None
    propagation: str | None = None
    raw: Object = field(default_factory=dict)


def stored(storage: Storage, target: Target) -> Record:
    """The record that a target names; 404 when it is not there."""
    resource = target.resource
    record = storage.get(resource.storage, target.namespace, target.name)
    if record is None:
        raise not_found(resource.group, resource.plural, target.name)
    return record


def attributes_of(
    call: Call, target: Target, operation: Operation, obj: Object, options: str
) -> Attributes:
    """The request as admission sees it; `options` names the kind of its options."""
    resource = target.resource
    name = target.name or obj["metadata"].get("name") or ""
    listed: Object = {"kind": options, "apiVersion": "meta.k8s.io/v1"}
    if call.field_manager:
        listed["fieldManager"] = call.field_manager
    if call.dry_run:
        listed["dryRun"] = ["All"]
    return Attributes(
        operation=operation,
        group=resource.group,
        version=resource.version,
        resource=resource.plural,
        subresource=target.subresource,
        kind=resource.kind,
        namespace=name if resource.storage == "namespaces" else target.namespace,
        name=name,
        username=call.user.name,
        groups=call.user.groups,
        user_uid=call.user.uid,
        extra=call.user.extra,
        options=listed,
        dry_run=call.dry_run,
        warnings=call.warnings,
    )
