"""Objects that say where adapters are loaded, and the re-reads that they call for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from controller.routers.adapter_objects import (
    RESOURCES,
    LoraAdapter,
    ModelAdapter,
    pods_named,
    pods_to_reread,
)
from kube import paths
from kube.store import Change
from tests.apiserver import EmbeddedCluster
from tests.routers.rig import NAMESPACE, Rig, config_of, rigged
from tests.standins.routers.smg import SmgRouter
from tests.standins_tests.running import running, until


def lora(*pods: str, **status: Any) -> LoraAdapter:
    loaded = [
        {
            "name": "a",
            "path": "/a",
            "status": "loaded",
            "podAssignments": {"podName": pod, "namespace": "models"},
        }
        for pod in pods
    ]
    body = {
        "metadata": {"name": "a", "namespace": "apps"},
        "status": {"loadedAdapters": loaded, "phase": "Ready", **status},
    }
    return msgspec.convert(body, LoraAdapter)


def model(*pods: str, phase: str = "Running") -> ModelAdapter:
    body = {
        "metadata": {"name": "a", "namespace": "models"},
        "status": {"phase": phase, "instances": list(pods)},
    }
    return msgspec.convert(body, ModelAdapter)


def test_pods_are_named_by_each_kind_in_its_way() -> None:
    both = {("models", "p1"), ("models", "p2")}
    assert pods_named(lora("p1", "p2")) == both
    assert pods_named(model("p1", "p2")) == both
    assert pods_named(None) == frozenset()


def test_an_assignment_without_a_namespace_is_in_the_objects_own() -> None:
    body = {
        "metadata": {"namespace": "apps"},
        "status": {"loadedAdapters": [{"podAssignments": {"podName": "p"}}, {}]},
    }
    assert pods_named(msgspec.convert(body, LoraAdapter)) == {("apps", "p")}


@pytest.mark.parametrize(
    ("old", "new", "pods"),
    [
        pytest.param(None, model("p1"), {"p1"}, id="made"),
        pytest.param(model("p1"), None, {"p1"}, id="deleted"),
        pytest.param(model("p1"), model("p2", "p3"), {"p1", "p2", "p3"}, id="moved"),
        pytest.param(model("p1"), model("p1"), set(), id="says the same"),
        pytest.param(model("p1", phase="Bound"), model("p1"), {"p1"}, id="another phase"),
        pytest.param(lora("p1"), lora(), {"p1"}, id="unloaded"),
    ],
)
def test_a_change_is_a_reason_to_read_who_was_or_is_named(
    old: Any, new: Any, pods: set[str]
) -> None:
    assert pods_to_reread(Change(old, new)) == {("models", pod) for pod in pods}


@pytest.fixture
async def rig(embedded: EmbeddedCluster) -> AsyncIterator[Rig]:
    async with rigged(embedded) as made:
        yield made


KINDS = {"loraadapters": "LoraAdapter", "modeladapters": "ModelAdapter"}


async def define(rig: Rig, group: str, plural: str) -> None:
    kind = KINDS[plural]
    names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1alpha1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
    }
    body = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [version]},
    }
    await rig.client.create(
        paths.custom("apiextensions.k8s.io", "v1", "customresourcedefinitions"), body
    )


def status_of(plural: str, pod: str) -> dict[str, Any]:
    if plural == "modeladapters":
        return {"instances": [pod]}
    return {"loadedAdapters": [{"podAssignments": {"podName": pod, "namespace": NAMESPACE}}]}


@pytest.mark.anyio
@pytest.mark.parametrize("resource", RESOURCES, ids=[r.plural for r in RESOURCES])
async def test_an_object_makes_the_named_engine_be_read_again_and_no_other(
    rig: Rig, resource: Any
) -> None:
    await define(rig, resource.group, resource.plural)
    first, second = await rig.engine("e1"), await rig.engine("e2")
    await rig.start("p1", first)
    await rig.start("p2", second)
    async with running(SmgRouter()) as router:
        config = config_of("workers", dialect="smg", replicas={"urls": [router.url]})
        async with rig.leading(config):
            await until(lambda: len(router.urls) == 2)
            path = paths.custom(resource.group, "v1alpha1", resource.plural)
            await until(lambda: ("watch", path, "admin") in rig.server.requests())
            asked = second.requests["/v1/models"]
            first.adapters["a"] = None
            collection = paths.custom(resource.group, "v1alpha1", resource.plural, NAMESPACE)
            body = {
                "apiVersion": f"{resource.group}/v1alpha1",
                "kind": KINDS[resource.plural],
                "metadata": {"name": "a", "namespace": NAMESPACE},
                "status": status_of(resource.plural, "p1"),
            }
            await rig.client.create(collection, body)
            await until(lambda: f"{first.url}/a/.." in router.urls)
            first.adapters.clear()
            await rig.client.delete(f"{collection}/a")
            await until(lambda: router.status(f"{first.url}/a/..") in (None, "draining"))
            assert second.requests["/v1/models"] == asked


@pytest.mark.anyio
async def test_without_the_kinds_nothing_is_asked_of_them(rig: Rig) -> None:
    engine = await rig.engine("e1")
    await rig.start("p1", engine)
    async with running(SmgRouter()) as router:
        config = config_of("workers", dialect="smg", replicas={"urls": [router.url]})
        async with rig.leading(config):
            await until(lambda: router.urls == [engine.url])
    assert not any(
        resource.plural in path for resource in RESOURCES for _, path, _ in rig.server.requests()
    )
