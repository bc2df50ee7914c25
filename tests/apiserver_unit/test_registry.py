"""Writes that meet another write half-way, and what admission can do to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.apiserver.admission.attributes import Attributes
from tests.apiserver.call import Call, DeleteOptions, Target
from tests.apiserver.deletion import Deletion
from tests.apiserver.errors import StatusError
from tests.apiserver.kinds import Kinds, builtin_resources
from tests.apiserver.registry import Registry
from tests.apiserver.storage import Storage
from tests.contract.api import pod

pytestmark = pytest.mark.anyio

Object = dict[str, Any]


class Admission:
    """Calls `between` once, in the middle of the next write, and replaces what it mutates."""

    def __init__(self) -> None:
        self.between: Callable[[], object] | None = None
        self.replacement: Object | None = None
        self.seen: list[tuple[str, Object | None, Object | None]] = []

    async def mutate(
        self, attributes: Attributes, obj: Object | None, old: Object | None
    ) -> Object | None:
        return obj if self.replacement is None else self.replacement

    async def validate(
        self, attributes: Attributes, obj: Object | None, old: Object | None
    ) -> None:
        self.seen.append((attributes.operation, obj, old))
        if self.between is not None:
            between, self.between = self.between, None
            between()


class Server:
    def __init__(self) -> None:
        self.storage = Storage()
        self.admission = Admission()
        self.registry = Registry(self.storage, Kinds(builtin_resources()), self.admission)
        self.deletion = Deletion(self.storage, self.admission)
        namespace = {"metadata": {"name": "ns"}}
        self.storage.put("namespaces", "", "ns", namespace)

    def target(self, name: str = "") -> Target:
        resource = self.registry.kinds.find("", "v1", "pods")
        assert resource is not None
        return Target(resource, "ns", name)

    async def create(self, **metadata: Any) -> Object:
        return (await self.registry.create(Call(), self.target(), pod("a", **metadata))).object

    def relabel(self, **labels: str) -> None:
        """Another writer's change."""
        record = self.storage.get("pods", "ns", "a")
        assert record is not None
        metadata = {**record.object["metadata"], "labels": labels}
        self.storage.put("pods", "ns", "a", {**record.object, "metadata": metadata})


@pytest.fixture
def server() -> Server:
    return Server()


async def test_a_patch_is_applied_anew_to_what_came_between(server: Server) -> None:
    await server.create()
    server.admission.between = lambda: server.relabel(other="1")

    def apply(obj: Object) -> Object:
        labels = {**obj["metadata"].get("labels", {}), "mine": "1"}
        return {**obj, "metadata": {**obj["metadata"], "labels": labels}}

    record = await server.registry.patch(Call(), server.target("a"), apply)
    assert record.object["metadata"]["labels"] == {"other": "1", "mine": "1"}
    assert [operation for operation, _, _ in server.admission.seen] == ["CREATE", *["UPDATE"] * 2]


async def test_an_update_that_read_before_it_is_a_conflict(server: Server) -> None:
    read = await server.create()
    server.admission.between = lambda: server.relabel(other="1")
    with pytest.raises(StatusError) as caught:
        await server.registry.update(Call(), server.target("a"), read)
    assert caught.value.code == 409


async def test_a_delete_judges_its_preconditions_anew(server: Server) -> None:
    made = (await server.create())["metadata"]
    server.admission.between = lambda: server.relabel(other="1")
    options = DeleteOptions(resource_version=made["resourceVersion"])
    with pytest.raises(StatusError) as caught:
        await server.deletion.delete(Call(), server.target("a"), options)
    assert caught.value.code == 409
    assert server.storage.get("pods", "ns", "a") is not None


async def test_a_name_that_is_taken_in_between_already_exists(server: Server) -> None:
    server.admission.between = lambda: server.storage.put(
        "pods", "ns", "a", {"metadata": {"name": "a", "uid": "u"}}
    )
    with pytest.raises(StatusError) as caught:
        await server.create()
    assert caught.value.reason == "AlreadyExists"


async def test_a_namespace_that_goes_in_between_takes_no_more(server: Server) -> None:
    going = {"metadata": {"name": "ns", "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    server.admission.between = lambda: server.storage.put("namespaces", "", "ns", going)
    with pytest.raises(StatusError) as caught:
        await server.create()
    assert caught.value.code == 403
    assert server.storage.list("pods") == []


async def test_validation_sees_the_uid_that_is_stored(server: Server) -> None:
    made = await server.create()
    (_, seen, old) = server.admission.seen[0]
    assert seen is not None
    assert seen["metadata"]["uid"] == made["metadata"]["uid"]
    assert old is None


async def test_a_delete_shows_the_old_object_alone(server: Server) -> None:
    made = await server.create()
    await server.deletion.delete(Call(), server.target("a"), DeleteOptions())
    assert server.admission.seen[-1] == ("DELETE", None, made)


async def test_an_object_that_admission_broke_is_an_error(server: Server) -> None:
    server.admission.replacement = {"metadata": {"name": "a"}, "spec": {"containers": "x"}}
    with pytest.raises(StatusError) as caught:
        await server.create()
    assert (caught.value.code, caught.value.reason) == (500, "InternalError")
    assert server.storage.list("pods") == []
