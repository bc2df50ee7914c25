"""Writes: what happens between a request's body and the store, for every resource alike.

The order is the real server's: mutating admission, system fields, object validation, validating
admission, the check for an existing name or version, the store. Between reading an object and
storing it nothing awaits unseen: a write that came between starts the update anew.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.apiserver import errors, pods
from tests.apiserver.admission.attributes import Attributes
from tests.apiserver.call import Call, Target, attributes_of, stored
from tests.apiserver.decoding import decode, decode_patched
from tests.apiserver.errors import Cause, StatusError
from tests.apiserver.gate import Admission
from tests.apiserver.kinds import Kinds, Object, Resource
from tests.apiserver.metadata import (
    check_metadata,
    check_metadata_update,
    fill_created,
    generated_name,
    invalid_value,
    keep_system_fields,
    tidy,
)
from tests.apiserver.schema import copy
from tests.apiserver.storage import Record, Storage

OTHER_NAMESPACE = (
    "the namespace of the provided object does not match the namespace sent on the request"
)


class Registry:
    def __init__(self, storage: Storage, kinds: Kinds, admission: Admission) -> None:
        self.storage = storage
        self.kinds = kinds
        self._admission = admission

    # reading

    def get(self, target: Target) -> Record:
        """404 when it is not there."""
        return stored(self.storage, target)

    # writing

    async def create(self, call: Call, target: Target, body: Object) -> Record:
        resource = target.resource
        self._check_namespace(target, body)
        obj = decode(call, resource, body)
        _place(target, obj["metadata"])
        resource.strategy.default(obj)
        attributes = attributes_of(call, target, "CREATE", obj, "CreateOptions")
        obj = await self._mutate(call, resource, attributes, obj, None)
        metadata = obj["metadata"]
        if metadata.get("resourceVersion") not in (None, "", "0"):
            raise StatusError(500, "", "resourceVersion should not be set on objects to be created")
        generated = not metadata.get("name") and bool(metadata.get("generateName"))
        if generated:
            metadata["name"] = generated_name(metadata["generateName"])
            resource.strategy.default(obj)
        fill_created(metadata)
        resource.strategy.prepare_create(obj)
        if resource.strategy.generation:
            metadata["generation"] = 1
        tidy(metadata)
        self._validate(resource, obj, None)
        await self._admission.validate(attributes, obj, None)
        namespace, name = metadata.get("namespace", ""), metadata["name"]
        self._check_namespace_lives(target)
        holder = self.storage.get(resource.storage, namespace, name)
        if holder is not None:
            going = "deletionTimestamp" in holder.object["metadata"]
            raise errors.already_exists(resource.group, resource.plural, name, going)
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
            if replaces:
                obj = decode(call, resource, make(served))
            else:
                obj = decode_patched(call, resource, make(served))
                _check_place(target, obj["metadata"])
            _place(target, obj["metadata"])
            resource.strategy.default(obj)
            if replaces:
                self._check_uid_precondition(target, obj, old)
            attributes = attributes_of(call, target, "UPDATE", obj, "UpdateOptions")
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
                f"StorageError: invalid object, Code: 4, Key: /registry/{target.resource.plural}/"
                f"{target.namespace + '/' if target.namespace else ''}{target.name}, "
                "ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: "
                f"{wanted}, UID in object meta: {found}",
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
            decoded = decode(call, resource, mutated)
        except StatusError as error:
            raise errors.internal(f"admission plugin changed the object: {error}") from error
        resource.strategy.default(decoded)
        return decoded

    def _check_namespace(self, target: Target, body: Object) -> None:
        metadata = body.get("metadata")
        given = metadata.get("namespace") if isinstance(metadata, dict) else None
        if given and target.resource.namespaced and given != target.namespace:
            raise errors.bad_request(OTHER_NAMESPACE)
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


def _place(target: Target, metadata: Object) -> None:
    """Admission sees the namespace of the request in the object."""
    if target.resource.namespaced:
        metadata["namespace"] = target.namespace
    else:
        metadata.pop("namespace", None)


def _check_place(target: Target, metadata: Object) -> None:
    """A patch cannot move an object."""
    name, namespace = metadata.get("name"), metadata.get("namespace")
    if name and name != target.name:
        raise errors.bad_request(
            f"the name of the object ({name}) does not match the name on the URL ({target.name})"
        )
    if namespace and namespace != target.namespace:
        raise errors.bad_request(OTHER_NAMESPACE)


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
