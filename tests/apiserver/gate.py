"""What admission and the handlers need of each other: the chain's calls, and the stored objects."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from tests.apiserver.admission.attributes import Attributes
from tests.apiserver.errors import qualified
from tests.apiserver.kinds import Object
from tests.apiserver.storage import Storage


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
        key = qualified(group, resource)
        return [record.object for record in self._storage.each(key, namespace)]

    def namespace(self, name: str) -> Object | None:
        record = self._storage.get("namespaces", "", name)
        return None if record is None else record.object

    def revision(self, group: str, resource: str) -> int:
        return self._storage.resource_revision(qualified(group, resource))
