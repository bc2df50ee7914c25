"""One request together with its objects, as selectors and expressions see it.

Made anew each time a webhook changes the object. What is costly (the namespace, the
conversion of the objects for CEL) is done when it is first asked for, and once.
"""

from collections.abc import Iterable
from functools import cached_property
from typing import Protocol

from tests.apiserver.admission.attributes import Attributes, Json
from tests.apiserver.admission.expressions import Scope
from tests.apiserver.errors import not_found


class ObjectSource(Protocol):
    """The stored objects, live: they must not be changed."""

    def objects(self, group: str, resource: str, namespace: str | None = None) -> Iterable[Json]:
        """All objects of a resource, in one namespace or in all."""

    def namespace(self, name: str) -> Json | None:
        """The stored Namespace."""

    def revision(self, group: str, resource: str) -> int:
        """A number that grows with each change of that resource."""


class Subject:
    def __init__(
        self, attributes: Attributes, obj: Json | None, old: Json | None, source: ObjectSource
    ) -> None:
        self.attributes = attributes
        self.obj = obj
        self.old = old
        self._source = source

    def with_object(self, obj: Json) -> "Subject":
        return Subject(self.attributes, obj, self.old, self._source)

    @cached_property
    def namespace(self) -> Json | None:
        """The stored namespace of the request, None if it has none; 404 if it does not exist."""
        name = self.attributes.namespace
        if not name or self.attributes.resource == "namespaces":
            return None
        found = self._source.namespace(name)
        if found is None:
            raise not_found("", "namespaces", name)
        return found

    @cached_property
    def namespace_labels(self) -> dict[str, str]:
        """The labels that a namespaceSelector asks; those in the body for a written Namespace."""
        attributes = self.attributes
        namespace = self.namespace
        if attributes.resource == "namespaces":
            written = attributes.operation in ("CREATE", "UPDATE") and not attributes.subresource
            namespace = self.obj if written else self._source.namespace(attributes.namespace)
            if namespace is None:
                raise not_found("", "namespaces", attributes.namespace)
        labels: dict[str, str] = ((namespace or {}).get("metadata") or {}).get("labels") or {}
        return labels

    @cached_property
    def scope(self) -> Scope:
        return Scope(
            {
                "object": self.obj,
                "oldObject": self.old,
                "request": self.attributes.request(),
            }
        )
