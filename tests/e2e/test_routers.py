"""Routers that the controller, with its own account's token, drives from a real API server.

The real routers are in tests/e2e/routers; here a stand-in shows the way from the API server to the
list, and the roles for the kinds that write objects are bound as the manifests say.
"""

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest

from tests.controlplane import ControlPlane
from tests.e2e.installation import LIVE, SYSTEM, Installation
from tests.e2e.pods import Manifest, open_definition, pod
from tests.e2e.status import report
from tests.e2e.steps import create
from tests.e2e.waiting import eventually
from tests.kubectl import Kubectl
from tests.standins.engine import Engine
from tests.standins.hosting import Hosted
from tests.standins.routers.vllm import VllmRouter

Start = Callable[..., None]
ADDRESSES = ("127.0.0.21", "127.0.0.22", "127.0.0.23")
# In a documentation range: EndpointSlices refuse loopback, and nothing is asked there.
DOCUMENTED = ("192.0.2.21", "192.0.2.22", "192.0.2.23")
UNASKED = {"healthPath": "", "modelsPath": ""}


@pytest.fixture
def engines(kubectl: Kubectl, namespace: str) -> Iterator[dict[str, Hosted[Engine]]]:
    """Three ready pods, engine-0 to engine-2, and what they stand for, all on one port."""
    port = 0
    found = {}
    with ExitStack() as stack:
        for number, host in enumerate(ADDRESSES):
            hosted = stack.enter_context(Hosted(partial(Engine, "engine", host=host, port=port)))
            port = hosted.it.port
            found[f"engine-{number}"] = hosted
        for name, hosted in found.items():
            start_pod(kubectl, namespace, name, hosted.it.host)
        yield found


def start_pod(kubectl: Kubectl, namespace: str, name: str, address: str) -> None:
    made = pod(name, namespace, labels={"app": "chat", "model": "base"})
    create(kubectl, made)
    ready = [{"type": "Ready", "status": "True"}]
    report(
        *(kubectl, namespace, name),
        phase="Running",
        podIP=address,
        podIPs=[{"ip": address}],
        conditions=ready,
    )


@pytest.fixture
def route(podstamp: Installation, namespace: str) -> Iterator[Start]:
    """`route("workers", …)` starts the controller anew with this one router."""

    def start(kind: str, **settings: Any) -> None:
        podstamp.stop_controller()
        router = {
            "name": namespace,
            "kind": kind,
            "engines": {"namespace": namespace, "selector": {"app": "chat"}, "port": 8000},
            "periodSeconds": 1,
        }
        podstamp.start_controller(LIVE | {"routers": [router | settings]})

    yield start
    podstamp.stop_controller()
    podstamp.start_controller()


def source(namespace: str, engines: dict[str, Hosted[Engine]]) -> dict[str, Any]:
    port = engines["engine-0"].it.port
    return {"namespace": namespace, "selector": {"app": "chat"}, "port": port}


def drifts(kubectl: Kubectl, router: str) -> int:
    """How often the one event about this router's drift has been seen."""
    events = kubectl.json("get", "events.events.k8s.io", "-n", SYSTEM)["items"]
    found = [
        event
        for event in events
        if event["reason"] == "RouterDrifted" and router in event["regarding"]["name"]
    ]
    assert len(found) <= 1
    counts: list[int] = [event.get("series", {}).get("count", 1) for event in found]
    return sum(counts)


def bind(kubectl: Kubectl, namespace: str, role: str) -> None:
    kubectl(
        *("create", "rolebinding", role, "--namespace", namespace, "--clusterrole", role),
        *("--serviceaccount", f"{SYSTEM}:podstamp-controller"),
    )


def test_a_router_follows_the_pods_and_keeps_no_ghost(
    kubectl: Kubectl,
    namespace: str,
    plane: ControlPlane,
    podstamp: Installation,
    engines: dict[str, Hosted[Engine]],
    route: Start,
) -> None:
    urls = {name: hosted.it.url for name, hosted in engines.items()}
    with Hosted(VllmRouter) as router:

        def listed() -> set[str]:
            return set(router.it.urls)

        def start() -> None:
            route(
                "workers",
                dialect="vllm",
                replicas={"urls": [router.it.url]},
                engines=source(namespace, engines),
            )

        start()
        everyone = set(urls.values())
        eventually(lambda: listed() == everyone, "every engine is listed")

        def restarted_twice() -> bool:
            router.it.restart()
            eventually(lambda: listed() == everyone, "what it forgot is listed again")
            return drifts(kubectl, namespace) >= 2

        eventually(restarted_twice, "restarts are counted in one event")

        kubectl("delete", "pod", "engine-0", "-n", namespace)
        eventually(lambda: listed() == {urls["engine-1"], urls["engine-2"]}, "one left")

        # Blind: frozen, and then the API server has forgotten what happened meanwhile.
        assert podstamp.controller
        podstamp.controller.signal(signal.SIGSTOP)
        kubectl("delete", "pod", "engine-1", "-n", namespace)
        plane.compact_etcd()
        plane.restart_apiserver()
        podstamp.controller.signal(signal.SIGCONT)
        eventually(lambda: listed() == {urls["engine-2"]}, "the ghost left")

        # Gone while the controller was down: it knows from its record which workers are its own.
        podstamp.stop_controller()
        kubectl("delete", "pod", "engine-2", "-n", namespace)
        start_pod(kubectl, namespace, "engine-0", engines["engine-0"].it.host)
        start()
        eventually(lambda: listed() == {urls["engine-0"]}, "the ghost left, the new one came")


def test_slices_of_a_service_follow_the_pods(
    kubectl: Kubectl, namespace: str, podstamp: Installation, route: Start
) -> None:
    service: Manifest = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "chat", "namespace": namespace},
        "spec": {"ports": [{"name": "http", "port": 80, "targetPort": 8000}]},
    }
    create(kubectl, service)
    bind(kubectl, namespace, "podstamp-router-endpointslice")
    for number, address in enumerate(DOCUMENTED):
        start_pod(kubectl, namespace, f"engine-{number}", address)
    route(
        "endpointslice",
        namespace=namespace,
        service="chat",
        portName="http",
        maxEndpoints=2,
        probe=UNASKED,
    )

    def addresses() -> set[str]:
        found = kubectl.json(
            *("get", "endpointslices", "-n", namespace),
            *("-l", "kubernetes.io/service-name=chat"),
        )
        return {
            address
            for item in found["items"]
            for endpoint in item.get("endpoints") or []
            for address in endpoint["addresses"]
        }

    eventually(lambda: addresses() == set(DOCUMENTED), "every engine is an endpoint")
    kubectl("delete", "pod", "engine-1", "-n", namespace)
    eventually(lambda: addresses() == {DOCUMENTED[0], DOCUMENTED[2]}, "two are left")
    kubectl("delete", "pod", "engine-2", "-n", namespace)
    eventually(lambda: addresses() == {DOCUMENTED[0]}, "one is left")
    kubectl("delete", "service", "chat", "-n", namespace)
    eventually(lambda: not addresses(), "the slices left with their Service")


def test_a_config_map_of_a_router_follows_the_pods(
    kubectl: Kubectl, namespace: str, engines: dict[str, Hosted[Engine]], route: Start
) -> None:
    bind(kubectl, namespace, "podstamp-router-configmap")
    route(
        "dynamic-config",
        configMap={"namespace": namespace, "name": "router", "key": "dynamic.json"},
        engines=source(namespace, engines),
    )

    def written() -> set[str]:
        result = kubectl.run("get", "configmap", "router", "-n", namespace, "-o", "json")
        content = json.loads(result.out)["data"]["dynamic.json"] if result.code == 0 else ""
        return {name for name, hosted in engines.items() if hosted.it.url in content}

    eventually(lambda: written() == set(engines), "all are written")
    kubectl("delete", "pod", "engine-2", "-n", namespace)
    eventually(lambda: written() == {"engine-0", "engine-1"}, "two are left")


def test_adapters_that_changed_without_a_stamp_touch_lora_modified(
    kubectl: Kubectl,
    namespace: str,
    podstamp: Installation,
    engines: dict[str, Hosted[Engine]],
    route: Start,
) -> None:
    bind(kubectl, namespace, "podstamp-router-annotate")

    def modified() -> str | None:
        found = kubectl.json("get", "pod", "engine-0", "-n", namespace)["metadata"]
        stamp: str | None = found["annotations"].get("lora-modified")
        return stamp

    route(
        "annotate",
        engines=source(namespace, engines),
        pollSeconds=1,
    )
    asked = engines["engine-0"].it.requests
    eventually(lambda: asked["/v1/models"] > 1, "the engine's models are known")
    before = modified()
    engines["engine-0"].it.adapters["sql"] = None
    eventually(lambda: (modified() or "") > (before or ""), "lora-modified moved on")


def test_services_are_engines_while_they_have_endpoints(
    kubectl: Kubectl, namespace: str, route: Start
) -> None:
    bind(kubectl, namespace, "podstamp-router-services")
    bind(kubectl, namespace, "podstamp-router-configmap")
    service: Manifest = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "behind", "namespace": namespace, "labels": {"app": "chat"}},
        "spec": {"ports": [{"port": 8000}]},
    }
    endpoints: Manifest = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": "behind-1",
            "namespace": namespace,
            "labels": {"kubernetes.io/service-name": "behind"},
        },
        "addressType": "IPv4",
        "endpoints": [{"addresses": [DOCUMENTED[0]], "conditions": {"ready": True}}],
        "ports": [{"port": 8000}],
    }
    create(kubectl, service, endpoints)
    route(
        "worker-file",
        configMap={"namespace": namespace, "name": "router", "key": "workers.json"},
        engines={"source": "services", "namespace": namespace, "selector": {"app": "chat"}},
        probe=UNASKED,
    )

    def written() -> str:
        result = kubectl.run("get", "configmap", "router", "-n", namespace, "-o", "json")
        content: str = json.loads(result.out)["data"]["workers.json"] if result.code == 0 else ""
        return content

    eventually(lambda: f"behind.{namespace}.svc" in written(), "the Service is a worker")
    kubectl("delete", "service", "behind", "-n", namespace)
    eventually(lambda: f"behind.{namespace}.svc" not in written(), "it left")


def test_an_adapter_object_leads_to_a_second_look_at_its_pods(
    kubectl: Kubectl, namespace: str, engines: dict[str, Hosted[Engine]], route: Start
) -> None:
    kubectl(
        *("create", "clusterrolebinding", "podstamp-router-adapters"),
        *("--clusterrole", "podstamp-router-adapters"),
        *("--serviceaccount", f"{SYSTEM}:podstamp-controller"),
    )
    definitions = [
        open_definition("production-stack.vllm.ai", "LoraAdapter", "v1alpha1"),
        open_definition("model.aibrix.ai", "ModelAdapter", "v1alpha1"),
    ]
    create(kubectl, *definitions)
    for definition in definitions:
        name = definition["metadata"]["name"]
        kubectl("wait", "--for=condition=Established", "crd", name, "--timeout=20s")
    bind(kubectl, namespace, "podstamp-router-annotate")
    route("annotate", engines=source(namespace, engines), pollSeconds=86400)
    asked = {name: hosted.it.requests for name, hosted in engines.items()}
    eventually(lambda: all(each["/v1/models"] for each in asked.values()), "all are known")
    before = {name: each["/v1/models"] for name, each in asked.items()}
    adapters: list[Manifest] = [
        {
            "apiVersion": "production-stack.vllm.ai/v1alpha1",
            "kind": "LoraAdapter",
            "metadata": {"name": "sql", "namespace": namespace},
            "status": {
                "loadedAdapters": [
                    {
                        "name": "sql",
                        "podAssignments": {"podName": "engine-0", "namespace": namespace},
                    }
                ]
            },
        },
        {
            "apiVersion": "model.aibrix.ai/v1alpha1",
            "kind": "ModelAdapter",
            "metadata": {"name": "chat", "namespace": namespace},
            "status": {"phase": "Running", "instances": ["engine-1"]},
        },
    ]
    create(kubectl, *adapters)
    eventually(
        lambda: all(asked[name]["/v1/models"] > before[name] for name in ("engine-0", "engine-1")),
        "both pods are read again",
    )
    assert asked["engine-2"]["/v1/models"] == before["engine-2"]
