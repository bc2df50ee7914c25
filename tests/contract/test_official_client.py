"""The official Python client cannot tell the servers apart, as far as podstamp's users need it."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import kubernetes
import pytest

from tests.cluster import Cluster
from tests.contract.api import pod

client: Any = kubernetes.client  # its models are typed as if every field could be None
config: Any = kubernetes.config
watch: Any = kubernetes.watch
dynamic: Any = importlib.import_module("kubernetes.dynamic")


@pytest.fixture(scope="module")
def official(cluster: Cluster) -> Iterator[Any]:
    configuration = client.Configuration()
    config.load_kube_config(str(cluster.kubeconfig), client_configuration=configuration)
    with client.ApiClient(configuration) as api_client:
        yield api_client


def test_typed_calls(official: Any, namespace: str) -> None:
    core = client.CoreV1Api(official)
    made = core.create_namespaced_pod(namespace, pod("web", labels={"app": "web"}))
    assert made.metadata.uid
    assert made.status.phase == "Pending"
    core.patch_namespaced_pod("web", namespace, {"metadata": {"annotations": {"a": "1"}}})
    listed = core.list_namespaced_pod(namespace, label_selector="app=web")
    assert [item.metadata.annotations for item in listed.items] == [{"a": "1"}]
    with pytest.raises(client.ApiException) as caught:
        core.create_namespaced_pod(namespace, pod("web"))
    assert (caught.value.status, caught.value.reason) == (409, "Conflict")
    options = client.V1DeleteOptions(preconditions=client.V1Preconditions(uid=made.metadata.uid))
    core.delete_namespaced_pod("web", namespace, body=options)
    assert core.list_namespaced_pod(namespace).items == []


def test_events_have_typed_times(official: Any, namespace: str) -> None:
    events = client.EventsV1Api(official)
    event = {
        "metadata": {"name": "web.1"},
        "eventTime": "2026-01-02T03:04:05.678901Z",
        "type": "Normal",
        "reason": "R",
        "action": "A",
        "reportingController": "podstamp.dev/c",
        "reportingInstance": "i",
        "regarding": {"kind": "Pod", "name": "web", "namespace": namespace},
    }
    events.create_namespaced_event(namespace, event)
    read = events.read_namespaced_event("web.1", namespace)
    assert read.event_time.microsecond == 678901


def test_watch(official: Any, namespace: str) -> None:
    core = client.CoreV1Api(official)
    version = core.list_namespaced_pod(namespace).metadata.resource_version
    for name in ("a", "b"):
        core.create_namespaced_pod(namespace, pod(name))
    watcher = watch.Watch()
    seen = []
    for event in watcher.stream(
        core.list_namespaced_pod, namespace, resource_version=version, timeout_seconds=10
    ):
        seen.append((event["type"], event["object"].metadata.name))
        if len(seen) == 2:
            watcher.stop()
    assert seen == [("ADDED", "a"), ("ADDED", "b")]


def test_the_dynamic_client_discovers(official: Any, namespace: str) -> None:
    found = dynamic.DynamicClient(official)
    leases = found.resources.get(api_version="coordination.k8s.io/v1", kind="Lease")
    body = {"metadata": {"name": "l"}, "spec": {"holderIdentity": "me"}}
    leases.create(body=body, namespace=namespace)
    assert leases.get(name="l", namespace=namespace).spec.holderIdentity == "me"
