"""Custom resources: served as soon as their definition is stored, gone with it."""

from __future__ import annotations

from tests.apiserver.kinds import NAMES_ONLY, NAMESPACED_NAMES, Kinds, Object, Resource
from tests.apiserver.storage import Change, Storage
from tests.apiserver.strategies import custom_strategy
from tests.apiserver.structural import pruner, validator

DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"


class CustomResources:
    def __init__(self, storage: Storage, kinds: Kinds) -> None:
        self._storage = storage
        self._kinds = kinds

    def follow(self, storage: str, change: Change) -> None:
        """A change of a definition changes what is served at once."""
        if storage != DEFINITIONS:
            return
        definition = change.new.object
        gone = change.type == "DELETED"
        served = [] if gone else resources_of(definition)
        self._kinds.replace_custom(change.new.name, served)
        if gone:
            for record in self._storage.list(change.new.name):
                self._storage.remove(change.new.name, record.namespace, record.name)
            self._storage.close_subscriptions(change.new.name)


def resources_of(definition: Object) -> list[Resource]:
    spec = definition["spec"]
    names, group = spec["names"], spec["group"]
    namespaced = spec["scope"] == "Namespaced"
    found = []
    for version in sorted(spec["versions"], key=lambda v: not v.get("storage")):
        if not version.get("served"):
            continue
        has_status = "status" in (version.get("subresources") or {})
        fields = dict(NAMESPACED_NAMES if namespaced else NAMES_ONLY)
        for selectable in version.get("selectableFields") or ():
            path = selectable["jsonPath"].lstrip(".")
            fields[path] = path
        schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
        found.append(
            Resource(
                group,
                version["name"],
                names["plural"],
                names["kind"],
                namespaced,
                storage=f"{names['plural']}.{group}",
                strategy=custom_strategy(has_status, validator(schema)),
                decode=pruner(schema),
                singular=names["singular"],
                short_names=tuple(names.get("shortNames") or ()),
                categories=tuple(names.get("categories") or ()),
                subresources=("status",) if has_status else (),
                fields=fields,
                unconditional_update=False,
                definition=version,
            )
        )
    return found
