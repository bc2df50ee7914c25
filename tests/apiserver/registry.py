"""Writes: what happens between a request's body and the store, for every resource alike.

The order is the real server's: mutating admission, system fields, object validation, validating
admission, the check for an existing name or version, the store. Between reading an object and
storing it nothing awaits unseen: a write that came between starts the update anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from tests.apiserver import errors, pods
from tests.apiserver.admission.attributes import Attributes, Operation
from tests.apiserver.errors import Cause, StatusError
from tests.apiserver.kinds import Kinds, Object, Resource
from tests.apiserver.metadata import (
    check_metadata,
    check_metadata_update,
    fill_created,
    generated_name,
    invalid_value,
    keep_system_fields,
    now_text,
    tidy,
)
from tests.apiserver.schema import WrongType, copy
from tests.apiserver.storage import Record, Storage

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"
IMMORTAL_NAMESPACES = ("default", "kube-system", "kube-public")


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


class Admission(Protocol):
    """What the admission chain offers."""

    async def mutate(
        self, attributes: Attributes, obj: Object | None, old: Object | None
    ) -> Object | None: ...

    async def validate(
        self, attributes: Attributes, obj: Object | None, old: Object | None
    ) -> None: ...


class Objects:
    """The stored objects as admission reads them."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def objects(self, group: str, resource: str, namespace: str | None = None) -> Iterable[Object]:
        key = errors.qualified(group, resource)
        return [record.object for record in self._storage.each(key, namespace)]

    def namespace(self, name: str) -> Object | None:
        record = self._storage.get("namespaces", "", name)
        return None if record is None else record.object

    def revision(self, group: str, resource: str) -> int:
        return self._storage.resource_revision(errors.qualified(group, resource))


class Registry:
    def __init__(self, storage: Storage, kinds: Kinds, admission: Admission) -> None:
        self.storage = storage
        self.kinds = kinds
        self._admission = admission

    # reading

    def get(self, target: Target) -> Record:
        """404 when it is not there."""
        resource = target.resource
        record = self.storage.get(resource.storage, target.namespace, target.name)
        if record is None:
            raise errors.not_found(resource.group, resource.plural, target.name)
        return record

    # writing

    async def create(self, call: Call, target: Target, body: Object) -> Record:
        resource = target.resource
        self._check_namespace(target, body)
        obj = self._decode(call, resource, body)
        resource.strategy.default(obj)
        attributes = self._attributes(call, target, "CREATE", obj, "CreateOptions")
        obj = await self._mutate(call, resource, attributes, obj, None)
        metadata = obj["metadata"]
        if metadata.get("resourceVersion") not in (None, "", "0"):
            raise StatusError(500, "", "resourceVersion should not be set on objects to be created")
        generated = not metadata.get("name") and bool(metadata.get("generateName"))
        if generated:
            metadata["name"] = generated_name(metadata["generateName"])
            resource.strategy.default(obj)
        fill_created(metadata, target.namespace if resource.namespaced else "")
        resource.strategy.prepare_create(obj)
        if resource.strategy.generation:
            metadata["generation"] = 1
        tidy(metadata)
        self._validate(resource, obj, None)
        await self._admission.validate(attributes, obj, None)
        namespace, name = metadata.get("namespace", ""), metadata["name"]
        self._check_namespace_lives(target)
        if self.storage.get(resource.storage, namespace, name) is not None:
            raise errors.already_exists(resource.group, resource.plural, name)
        if call.dry_run:
            return self.storage.preview(namespace, name, obj)
        return self.storage.put(resource.storage, namespace, name, obj)

    async def update(self, call: Call, target: Target, body: Object) -> tuple[Record, bool]:
        """PUT; the flag says that the object is new."""
        resource = target.resource
        metadata = body.get("metadata")
        name = metadata.get("name") if isinstance(metadata, dict) else None
        if not name:
            raise errors.bad_request(
                "the name of the object (based on reflection) was undeterminable: "
                "name must be provided"
            )
        if name != target.name:
            raise errors.bad_request(
                f"the name of the object ({name}) does not match the name on the URL "
                f"({target.name})"
            )
        self._check_namespace(target, body)
        current = self.storage.get(resource.storage, target.namespace, target.name)
        if current is None and resource.create_on_update and not target.subresource:
            return await self.create(call, target, body), True
        record = await self._change(call, target, lambda _: body, replaces=True)
        return record, False

    async def patch(self, call: Call, target: Target, apply: Callable[[Object], Object]) -> Record:
        """PATCH; `apply` gives the patched copy of the stored (served) object."""
        return await self._change(call, target, apply, replaces=False)

    async def _change(
        self,
        call: Call,
        target: Target,
        make: Callable[[Object], Object],
        *,
        replaces: bool,
        internal: Callable[[Object], Object] | None = None,
    ) -> Record:
        resource = target.resource
        while True:
            current = self.get(target)
            old = current.object
            served = old if resource.from_storage is None else resource.from_storage(old)
            obj = self._decode(call, resource, make(served))
            resource.strategy.default(obj)
            if replaces:
                self._check_uid_precondition(target, obj, old)
            attributes = self._attributes(call, target, "UPDATE", obj, "UpdateOptions")
            obj = await self._mutate(call, resource, attributes, obj, old)
            self._check_version(target, obj, current)
            self._prepare(target, obj, old)
            self._validate(resource, obj, old, target.subresource)
            await self._admission.validate(attributes, obj, old)
            if self.storage.get(resource.storage, target.namespace, target.name) is not current:
                continue
            return self._store_change(call, target, obj, current)

    def _store_change(self, call: Call, target: Target, obj: Object, current: Record) -> Record:
        storage = target.resource.storage
        obj["metadata"]["resourceVersion"] = current.object["metadata"]["resourceVersion"]
        if call.dry_run:
            return self.storage.preview(target.namespace, target.name, obj)
        if obj == current.object:
            return current
        if _ends_with(storage, obj, current.object):
            self.storage.remove(storage, target.namespace, target.name)
            return self.storage.preview(target.namespace, target.name, obj)
        return self.storage.put(storage, target.namespace, target.name, obj)

    def _prepare(self, target: Target, obj: Object, old: Object) -> None:
        strategy, metadata = target.resource.strategy, obj["metadata"]
        match target.subresource:
            case "":
                strategy.prepare_update(obj, old)
            case "status":
                strategy.prepare_status(obj, old)
            case "ephemeralcontainers":
                pods.prepare_ephemeral(obj, old)
            case "resize":
                pods.prepare_resize(obj, old)
            case "finalize":
                finalizers = (obj.get("spec") or {}).get("finalizers")
                obj.clear()
                obj.update(copy(old))
                obj["spec"] = {"finalizers": finalizers} if finalizers else {}
        metadata = obj["metadata"]
        keep_system_fields(metadata, old["metadata"])
        tidy(metadata)
        if strategy.generation and target.subresource != "status" and _spec_differs(obj, old):
            metadata["generation"] = old["metadata"].get("generation", 0) + 1

    def _validate(
        self, resource: Resource, obj: Object, old: Object | None, subresource: str = ""
    ) -> None:
        causes = check_metadata(resource.storage, obj["metadata"])
        if old is not None:
            causes += check_metadata_update(obj["metadata"], old["metadata"])
        if subresource == "ephemeralcontainers" and old is not None:
            causes += pods.validate_ephemeral(obj, old)
        elif subresource in ("", "status"):
            causes += resource.strategy.validate(obj)
            if old is not None:
                causes += resource.strategy.validate_update(obj, old)
            else:
                causes += resource.strategy.validate_create(obj)
        if causes:
            name = obj["metadata"].get("name") or ""
            raise errors.invalid(resource.group, resource.kind, name, causes)

    def _check_version(self, target: Target, obj: Object, current: Record) -> None:
        resource, version = target.resource, obj["metadata"].get("resourceVersion")
        if version in (None, "", "0"):
            if resource.unconditional_update:
                return
            cause = invalid_value("metadata.resourceVersion", 0, "must be specified for an update")
            raise errors.invalid(resource.group, resource.kind, target.name, [cause])
        if version != str(current.version):
            raise errors.conflict(resource.group, resource.plural, target.name, errors.MODIFIED)

    def _check_uid_precondition(self, target: Target, obj: Object, old: Object) -> None:
        wanted, found = obj["metadata"].get("uid"), old["metadata"]["uid"]
        if wanted and wanted != found:
            raise errors.conflict(
                target.resource.group,
                target.resource.plural,
                target.name,
                f"Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}",
            )

    # deleting

    async def delete(
        self, call: Call, target: Target, options: DeleteOptions
    ) -> tuple[Record, bool]:
        """The object as it is now, and whether it is gone."""
        resource = target.resource
        while True:
            current = self.get(target)
            old = current.object
            _check_delete_preconditions(resource, target.name, old["metadata"], options)
            attributes = self._attributes(call, target, "DELETE", old, "DeleteOptions")
            attributes.options = {
                "kind": "DeleteOptions",
                "apiVersion": "meta.k8s.io/v1",
                **options.raw,
            }
            if resource.storage == "namespaces" and target.name in IMMORTAL_NAMESPACES:
                raise errors.forbidden(
                    "", "namespaces", target.name, "this namespace may not be deleted"
                )
            await self._admission.mutate(attributes, None, old)
            await self._admission.validate(attributes, None, old)
            if self.storage.get(resource.storage, target.namespace, target.name) is not current:
                continue
            return self._delete_now(call, target, current, options)

    def _delete_now(
        self, call: Call, target: Target, current: Record, options: DeleteOptions
    ) -> tuple[Record, bool]:
        resource, storage = target.resource, target.resource.storage
        marked = _marked(resource, current.object, options)
        if marked is None:  # a graceful deletion is under way, and this one does not shorten it
            return current, False
        remains = bool(marked["metadata"].get("finalizers")) or bool(
            marked["metadata"].get("deletionGracePeriodSeconds")
        )
        if storage == "namespaces":
            remains = bool((marked.get("spec") or {}).get("finalizers")) or remains
        graceful = resource.strategy.grace_seconds is not None
        if call.dry_run:
            shown = marked if remains else current.object
            return self.storage.preview(target.namespace, target.name, shown), not remains
        if remains or graceful:
            if marked != current.object:
                current = self.storage.put(storage, target.namespace, target.name, marked)
            if remains:
                return current, False
        return self.storage.remove(storage, target.namespace, target.name), True

    # pods' own subresources

    async def bind(
        self, call: Call, target: Target, binding: Object, *, legacy: bool = False
    ) -> None:
        """POST pods/binding or (legacy) bindings: 409 when it is bound or going."""
        pod = self.get(target)
        node = (binding.get("target") or {}).get("name")
        if not node:
            cause = Cause("FieldValueRequired", "Required value", "target.name")
            raise errors.invalid("", "Binding", target.name, [cause])
        attributes = self._attributes(call, target, "CREATE", binding, "CreateOptions")
        attributes.kind, attributes.kind_group, attributes.kind_version = "Binding", "", "v1"
        if legacy:
            attributes.resource, attributes.subresource = "bindings", ""
        admitted = await self._admission.mutate(attributes, binding, None)
        await self._admission.validate(attributes, admitted, None)
        pod = self.get(target)
        why = ""
        if pod.object["metadata"].get("deletionTimestamp"):
            why = f"pod {target.name} is being deleted, cannot be assigned to a host"
        elif pod.object["spec"].get("nodeName"):
            assigned = pod.object["spec"]["nodeName"]
            why = f'pod {target.name} is already assigned to node "{assigned}"'
        elif pod.object["spec"].get("schedulingGates"):
            why = f"pod {target.name} has non-empty .spec.schedulingGates"
        if why:
            raise errors.conflict("", "pods/binding", target.name, why)
        if not call.dry_run:
            bound = pods.bind(pod.object, node, admitted or binding)
            self.storage.put("pods", target.namespace, target.name, bound)

    async def evict(
        self, call: Call, target: Target, eviction: Object, options: DeleteOptions
    ) -> None:
        """POST pods/eviction: a delete that a PodDisruptionBudget may hold back with 429."""
        pod = self.get(target).object
        attributes = self._attributes(call, target, "CREATE", eviction, "CreateOptions")
        attributes.kind, attributes.kind_group, attributes.kind_version = (
            "Eviction",
            "policy",
            "v1",
        )
        admitted = await self._admission.mutate(attributes, eviction, None)
        await self._admission.validate(attributes, admitted, None)
        phase = (pod.get("status") or {}).get("phase")
        exempt = phase in (*pods.TERMINAL, "Pending") or pod["metadata"].get("deletionTimestamp")
        if not exempt:
            self._check_budgets(target, pod)
        await self.delete(call, target, options)

    def _check_budgets(self, target: Target, pod: Object) -> None:
        from tests.apiserver.admission.selectors import selects

        labels = pod["metadata"].get("labels") or {}
        for record in self.storage.list("poddisruptionbudgets.policy", target.namespace):
            budget = record.object
            if not selects((budget.get("spec") or {}).get("selector"), labels):
                continue
            status = budget.get("status") or {}
            if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
                why = f"The disruption budget {record.name} is still being processed by the server."
                raise errors.too_many_requests(
                    "Cannot evict pod as it would violate the pod's disruption budget.",
                    10,
                    [Cause("DisruptionBudget", why)],
                )
            if status.get("disruptionsAllowed", 0) <= 0:
                why = (
                    f"The disruption budget {record.name} needs "
                    f"{status.get('desiredHealthy', 0)} healthy pods and has "
                    f"{status.get('currentHealthy', 0)} currently"
                )
                raise errors.too_many_requests(
                    "Cannot evict pod as it would violate the pod's disruption budget.",
                    0,
                    [Cause("DisruptionBudget", why)],
                )

    # parts of a write

    async def _mutate(
        self,
        call: Call,
        resource: Resource,
        attributes: Attributes,
        obj: Object,
        old: Object | None,
    ) -> Object:
        mutated = await self._admission.mutate(attributes, obj, old)
        if mutated is obj or mutated is None:
            return obj
        try:
            decoded = self._decode(call, resource, mutated)
        except StatusError as error:
            raise errors.internal(f"admission plugin changed the object: {error}") from error
        resource.strategy.default(decoded)
        return decoded

    def _decode(self, call: Call, resource: Resource, body: Object) -> Object:
        """An owned copy in the stored shape; 400 for a wrong type, or in strict validation."""
        for wanted, key in ((resource.api_version, "apiVersion"), (resource.kind, "kind")):
            if body.get(key, wanted) != wanted and not (resource.to_storage and body[key] == "v1"):
                raise errors.bad_request(
                    f'{body.get("kind")} in version "{body.get("apiVersion")}" cannot be handled '
                    f"as a {resource.kind}: the data is of another kind or version than the "
                    f"expected {resource.kind} ({resource.api_version})"
                )
        unknown: list[str] = []
        try:
            obj = resource.decode(body, "", unknown)
        except WrongType as error:
            raise errors.bad_request(_cannot(resource, str(error))) from error
        if unknown and call.field_validation == "Strict":
            listed = ", ".join(f'unknown field "{name}"' for name in unknown)
            raise errors.bad_request(_cannot(resource, f"strict decoding error: {listed}"))
        if call.field_validation == "Warn":
            call.warnings += [f'unknown field "{name}"' for name in unknown]
        if not isinstance(obj.get("metadata"), dict):
            if obj.get("metadata") is not None:
                raise errors.bad_request(_cannot(resource, "metadata is no object"))
            obj["metadata"] = {}
        for key in ("apiVersion", "kind"):
            obj.pop(key, None)
        obj = {"apiVersion": resource.api_version, "kind": resource.kind, **obj}
        return obj if resource.to_storage is None else resource.to_storage(obj)

    def _attributes(
        self, call: Call, target: Target, operation: Operation, obj: Object, options: str
    ) -> Attributes:
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

    def _check_namespace(self, target: Target, body: Object) -> None:
        metadata = body.get("metadata")
        given = metadata.get("namespace") if isinstance(metadata, dict) else None
        if given and target.resource.namespaced and given != target.namespace:
            raise errors.bad_request(
                "the namespace of the provided object does not match the namespace sent on the "
                "request"
            )
        self._check_namespace_lives(target)

    def _check_namespace_lives(self, target: Target) -> None:
        """Nothing is created in a namespace that is not there or is going."""
        if not target.resource.namespaced or target.name:
            return
        record = self.storage.get("namespaces", "", target.namespace)
        if record is None:
            raise errors.not_found("", "namespaces", target.namespace)
        if record.object["metadata"].get("deletionTimestamp"):
            why = (
                f"unable to create new content in namespace {target.namespace} because it is "
                "being terminated"
            )
            cause = Cause(
                "NamespaceTerminating",
                f"namespace {target.namespace} is being terminated",
                "metadata.namespace",
            )
            raise errors.forbidden(
                target.resource.group, target.resource.plural, target.name, why, [cause]
            )


def _cannot(resource: Resource, why: str) -> str:
    version = resource.api_version
    return f'{resource.kind} in version "{version}" cannot be handled as a {resource.kind}: {why}'


def _spec_differs(obj: Object, old: Object) -> bool:
    ignored = ("metadata", "status", "apiVersion", "kind")
    return any(obj.get(k) != old.get(k) for k in {*obj, *old} if k not in ignored)


def _ends_with(storage: str, obj: Object, old: Object) -> bool:
    """This update took away the last thing that kept a deleted object."""
    metadata = old["metadata"]
    if "deletionTimestamp" not in metadata or obj["metadata"].get("finalizers"):
        return False
    if storage == "namespaces":
        return not (obj.get("spec") or {}).get("finalizers")
    return metadata.get("deletionGracePeriodSeconds") in (None, 0)


def _check_delete_preconditions(
    resource: Resource, name: str, metadata: Object, options: DeleteOptions
) -> None:
    if options.uid is not None and options.uid != metadata["uid"]:
        why = (
            f"the UID in the precondition ({options.uid}) does not match the UID in record "
            f"({metadata['uid']}). The object might have been deleted and then recreated"
        )
        raise errors.conflict(resource.group, resource.kind, name, why)
    version = metadata["resourceVersion"]
    if options.resource_version is not None and options.resource_version != version:
        why = (
            f"the ResourceVersion in the precondition ({options.resource_version}) does not match "
            f"the ResourceVersion in record ({version}). The object might have been modified"
        )
        raise errors.conflict(resource.group, resource.kind, name, why)


def _marked(resource: Resource, old: Object, options: DeleteOptions) -> Object | None:
    """The object as a delete leaves it at first; None when nothing is to change.

    Follows the real server's BeforeDelete: a pending grace period can only be shortened.
    """
    metadata = dict(old["metadata"])
    held = {"Foreground": FOREGROUND, "Orphan": ORPHAN}.get(options.propagation or "")
    if held and resource.storage != "namespaces":
        others = [f for f in metadata.get("finalizers") or () if f not in (FOREGROUND, ORPHAN)]
        metadata["finalizers"] = [*others, held]
    pending = metadata.get("deletionGracePeriodSeconds")
    grace = resource.strategy.grace_seconds
    period = 0 if grace is None else grace(old, options.grace_period_s)
    if "deletionTimestamp" in metadata:
        if pending in (None, 0):
            return {**old, "metadata": metadata}
        if options.grace_period_s is None or period >= pending:
            return None
    else:
        if metadata.get("generation"):
            metadata["generation"] += 1
    metadata["deletionTimestamp"] = now_text(period)
    metadata["deletionGracePeriodSeconds"] = period
    marked = {**old, "metadata": metadata}
    if resource.storage == "namespaces":
        marked["status"] = {**(old.get("status") or {}), "phase": "Terminating"}
        del metadata["deletionGracePeriodSeconds"]
    return marked
