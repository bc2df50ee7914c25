"""Namespaces, Services and EndpointSlices as they are read."""

from typing import Any

import msgspec
import pytest

from kube.decode import decode_object
from kube.namespace import Namespace
from kube.service import EndpointSlice, Service


def read(content: Any, kind: Any) -> Any:
    return decode_object(msgspec.json.encode(content), kind)


@pytest.mark.parametrize("kind", [Namespace, Service, EndpointSlice])
@pytest.mark.parametrize(
    "content", [{}, {"metadata": {"labels": None}, "spec": None, "endpoints": None, "ports": None}]
)
def test_what_is_absent_or_null_has_a_safe_default(kind: Any, content: Any) -> None:
    assert read(content, kind) == kind()


def test_a_namespace_has_labels_and_a_phase() -> None:
    meta = {"name": "ns", "uid": "N", "labels": {"podstamp.dev/enabled": "true"}}
    found = read({"metadata": meta, "status": {"phase": "Terminating"}}, Namespace)
    assert (found.metadata.name, found.metadata.uid) == ("ns", "N")
    assert found.metadata.labels == {"podstamp.dev/enabled": "true"}
    assert found.status.phase == "Terminating"


@pytest.mark.parametrize(
    ("spec", "type", "ip"),
    [
        ({"clusterIP": "10.96.0.1"}, "ClusterIP", "10.96.0.1"),
        ({"clusterIP": "None"}, "ClusterIP", "None"),
        ({"type": "ExternalName", "externalName": "x.example.com"}, "ExternalName", ""),
    ],
    ids=["plain", "headless", "external"],
)
def test_a_service_tells_its_kind(spec: Any, type: str, ip: str) -> None:
    found = read({"metadata": {"name": "s", "namespace": "ns"}, "spec": spec}, Service)
    assert found.key == ("ns", "s")
    assert (found.spec.type, found.spec.cluster_ip) == (type, ip)
    assert found.spec.external_name == spec.get("externalName", "")


def test_a_target_port_is_a_number_or_a_name() -> None:
    ports = [{"name": "a", "port": 80, "targetPort": 8000}, {"port": 81, "targetPort": "http"}]
    found = read({"spec": {"ports": ports, "selector": {"app": "x"}}}, Service)
    assert [(p.name, p.port, p.target_port) for p in found.spec.ports] == [
        ("a", 80, 8000),
        ("", 81, "http"),
    ]
    assert found.spec.selector == {"app": "x"}


def test_an_endpoint_keeps_unknown_apart_from_no() -> None:
    found = read(
        {
            "metadata": {"labels": {"kubernetes.io/service-name": "s"}},
            "addressType": "IPv4",
            "endpoints": [
                {
                    "addresses": ["10.0.0.1"],
                    "conditions": {"ready": False, "serving": True, "terminating": True},
                    "targetRef": {"kind": "Pod", "namespace": "ns", "name": "a", "uid": "A"},
                },
                {"addresses": ["10.0.0.2"], "conditions": {"ready": None}},
                {"addresses": ["10.0.0.3"]},
            ],
            "ports": [{"name": "http", "port": 8000}, {"name": "any", "port": None}],
        },
        EndpointSlice,
    )
    assert found.service_name == "s"
    assert [e.conditions.ready for e in found.endpoints] == [False, None, None]
    assert found.endpoints[0].conditions.terminating is True
    assert found.endpoints[0].target_ref.uid == "A"
    assert found.endpoints[1].target_ref is None
    assert [p.port for p in found.ports] == [8000, None]
    assert EndpointSlice().service_name == ""
