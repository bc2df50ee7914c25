"""Deletes: preconditions, grace, finalizers, and what propagation adds to them.

Follows the real server: an object that something holds is only marked, and a graceful kind is
marked before it goes, so that watchers see both steps.
"""

from __future__ import annotations

from tests.apiserver import errors
from tests.apiserver.call import Call, DeleteOptions, Target, attributes_of, stored
from tests.apiserver.gate import Admission
from tests.apiserver.kinds import Object, Resource
from tests.apiserver.metadata import later, now_text
from tests.apiserver.storage import Record, Storage

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"
IMMORTAL_NAMESPACES = ("default", "kube-system", "kube-public")


class Deletion:
    def __init__(self, storage: Storage, admission: Admission) -> None:
        self._storage = storage
        self._admission = admission

    async def delete(
        self, call: Call, target: Target, options: DeleteOptions
    ) -> tuple[Record, bool]:
        """The object as it is now, and whether it is gone."""
        resource = target.resource
        while True:
            current = stored(self._storage, target)
            old = current.object
            _check_delete_preconditions(resource, target.name, old["metadata"], options)
            attributes = attributes_of(call, target, "DELETE", old, "DeleteOptions")
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
            if self._storage.get(resource.storage, target.namespace, target.name) is not current:
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
            shown = marked if remains or graceful else current.object
            return self._storage.preview(target.namespace, target.name, shown), not remains
        if remains or graceful:
            if marked != current.object:
                current = self._storage.put(storage, target.namespace, target.name, marked)
            if remains:
                return current, False
        return self._storage.remove(storage, target.namespace, target.name), True


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
    asked = options.grace_period_s
    if "deletionTimestamp" in metadata:
        if not pending:
            return {**old, "metadata": metadata}
        if asked is None or asked >= pending:
            return None
        period = asked
        metadata["deletionTimestamp"] = later(metadata["deletionTimestamp"], period - pending)
    else:
        grace = resource.strategy.grace_seconds
        period = 0 if grace is None else grace(old, asked)
        if metadata.get("generation"):
            metadata["generation"] += 1
        metadata["deletionTimestamp"] = now_text(period)
    metadata["deletionGracePeriodSeconds"] = period
    marked = {**old, "metadata": metadata}
    if resource.storage == "namespaces":
        marked["status"] = {**(old.get("status") or {}), "phase": "Terminating"}
        del metadata["deletionGracePeriodSeconds"]
    return marked
