"""Services as engines."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from controller.routers.config import EngineSource
from controller.routers.engines import Engine, Reason, fleet_of
from controller.routers.services import service_candidates
from kube.service import EndpointSlice, Service

SOURCE = EngineSource(source="services", namespace="models", selector={"role": "engine"}, port=80)


def service(name: str, **changed: Any) -> Service:
    labels = changed.pop("labels", {"role": "engine"})
    metadata = {"name": name, "namespace": "models", "uid": f"uid-{name}", "labels": labels}
    metadata |= changed.pop("metadata", {})
    spec = {
        "clusterIP": "10.96.0.1",
        "ports": [{"name": "http", "port": 80}, {"name": "metrics", "port": 9100}],
        **changed,
    }
    return msgspec.convert({"metadata": metadata, "spec": spec}, Service, strict=False)


def slice_of(name: str, *ready: bool | None, addresses: bool = True) -> EndpointSlice:
    body = {
        "metadata": {
            "name": f"{name}-x",
            "namespace": "models",
            "uid": f"uid-{name}-x",
            "labels": {"kubernetes.io/service-name": name},
        },
        "addressType": "IPv4",
        "endpoints": [
            {"addresses": ["10.0.0.1"] if addresses else [], "conditions": {"ready": r}}
            for r in ready
        ],
    }
    return msgspec.convert(body, EndpointSlice)


def urls(*services: Service, slices: tuple[EndpointSlice, ...], source: Any = SOURCE) -> list[str]:
    return list(fleet_of(service_candidates(services, slices, source)).serving)


def test_a_service_with_a_ready_endpoint_is_an_engine_by_name() -> None:
    found = urls(
        service("a"), service("b"), slices=(slice_of("a", False, True), slice_of("b", None))
    )
    assert found == ["http://a.models.svc:80", "http://b.models.svc:80"]


@pytest.mark.parametrize(
    ("bad", "its_slices", "reason"),
    [
        pytest.param({"clusterIP": "None"}, (True,), Reason.HEADLESS, id="headless"),
        pytest.param(
            {"type": "ExternalName", "externalName": "x.example", "clusterIP": ""},
            (True,),
            Reason.EXTERNAL_NAME,
            id="ExternalName",
        ),
        pytest.param({}, (), Reason.NO_ENDPOINT, id="no endpoint"),
        pytest.param({}, (False, False), Reason.NO_ENDPOINT, id="no ready endpoint"),
        pytest.param({"clusterIP": ""}, (True,), Reason.NO_ADDRESS, id="no address yet"),
        pytest.param({"ports": [{"port": 81}]}, (True,), Reason.NO_PORT, id="another port"),
        pytest.param(
            {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}},
            (True,),
            Reason.TERMINATING,
            id="terminating",
        ),
        pytest.param(
            {"labels": {"role": "engine", "sleeping": "true"}},
            (True,),
            Reason.SLEEPING,
            id="sleeping",
        ),
    ],
)
def test_a_service_that_cannot_serve_is_isolated(
    bad: dict[str, Any], its_slices: tuple[bool, ...], reason: Reason
) -> None:
    slices = (slice_of("bad", *its_slices), slice_of("good", True))
    found = fleet_of(service_candidates([service("bad", **bad), service("good")], slices, SOURCE))
    assert list(found.serving) == ["http://good.models.svc:80"]
    assert [(e.name, e.reason) for e in found.excluded] == [("bad", reason)]


def test_an_endpoint_without_addresses_does_not_count() -> None:
    assert urls(service("a"), slices=(slice_of("a", True, addresses=False),)) == []


def test_readiness_comes_from_the_second_slice_too() -> None:
    assert urls(service("a"), slices=(slice_of("a", False), slice_of("a", True))) != []


def test_the_slices_of_another_service_do_not_count() -> None:
    assert urls(service("a"), slices=(slice_of("b", True),)) == []


def test_a_service_of_other_labels_is_not_selected() -> None:
    assert urls(service("a", labels={}), slices=(slice_of("a", True),)) == []


def test_a_port_by_name_and_an_address_by_cluster_ip() -> None:
    source = msgspec.structs.replace(SOURCE, port="metrics", service_address="clusterIP")
    assert urls(service("a"), slices=(slice_of("a", True),), source=source) == [
        "http://10.96.0.1:9100"
    ]


def test_adapters_are_not_compared() -> None:
    [found] = service_candidates([service("a")], [slice_of("a", True)], SOURCE)
    assert isinstance(found, Engine)
    assert found.key.lora_modified_ns is None
    assert found.key.containers == ()
