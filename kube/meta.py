"""Object metadata as far as it is read, and the shape that stores and reflectors ask of an object.

Invariant: structs are frozen and hold no cycles, so the garbage collector need not visit them.
"""

from datetime import datetime
from typing import Protocol

import msgspec


class OwnerReference(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """One entry of `metadata.ownerReferences`."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class ObjectMeta(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Metadata of an object whose annotations nobody reads."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    labels: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()


class Identified(Protocol):
    """The part of metadata by which a store tells objects apart."""

    @property
    def name(self) -> str: ...
    @property
    def namespace(self) -> str: ...
    @property
    def uid(self) -> str: ...
    @property
    def resource_version(self) -> str: ...


class KubeObject(Protocol):
    """Anything with metadata: what `Store` and `Reflector` hold."""

    @property
    def metadata(self) -> Identified: ...


class Identity(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Bare identity: what is read of an object that cannot be read in full."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


def identity_of(meta: Identified) -> Identity:
    """The identity alone of `meta`."""
    return Identity(meta.name, meta.namespace, meta.uid, meta.resource_version)


def controller_reference(references: tuple[OwnerReference, ...]) -> OwnerReference | None:
    """The owner that manages the object: at most one reference has `controller: true`."""
    for reference in references:
        if reference.controller:
            return reference
    return None
