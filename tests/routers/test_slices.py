"""How engines are laid out in EndpointSlices."""

from __future__ import annotations

import msgspec
import pytest

from controller.routers.config import EndpointSliceRouter, EngineSource
from controller.routers.desired import Desired
from controller.routers.engines import Engine
from controller.routers.slices import (
    Conditions,
    Endpoint,
    Plan,
    Service,
    ServiceMetadata,
    ServiceSpec,
    Slice,
    endpoints_of,
    plan_slices,
)
from tests.routers.fleet import backend, engine

SERVICE = Service(ServiceMetadata("chat", "svc-uid"), ServiceSpec())
CONFIG = EndpointSliceRouter(name="chat", namespace="models", service="chat", max_endpoints=2)


def engines(count: int, **fields: object) -> list[Engine]:
    return [engine(f"e{n}", f"http://10.0.0.{n}:8000", **fields) for n in range(1, count + 1)]  # type: ignore[arg-type]  # the builder's own keywords


def desired(*made: Engine, serving: bool = True) -> Desired:
    backends = {e.url: backend(e.name, e.url) for e in made if serving}
    return Desired(backends, made)


def plan(
    wanted: Desired,
    existing: tuple[Slice, ...] = (),
    service: Service = SERVICE,
    config: EndpointSliceRouter = CONFIG,
    zones: dict[str, str] | None = None,
) -> Plan:
    groups = endpoints_of(wanted, service, config, zones or {})
    return plan_slices(groups, existing, service, config)


def stored(*slices: Slice) -> tuple[Slice, ...]:
    """As they come back from the server."""
    return tuple(
        msgspec.structs.replace(
            s, metadata=msgspec.structs.replace(s.metadata, uid=f"u{n}", resource_version=f"{n}")
        )
        for n, s in enumerate(slices)
    )


def addresses(*slices: Slice) -> list[list[str]]:
    return [[a for e in s.endpoints for a in e.addresses] for s in slices]


def test_a_slice_says_whose_it_is_and_what_it_holds() -> None:
    [made] = plan(
        desired(*engines(1)), config=msgspec.structs.replace(CONFIG, port_name="http")
    ).create
    assert msgspec.to_builtins(made) == {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": "chat-podstamp-ipv4-8000-0",
            "namespace": "models",
            "labels": {
                "kubernetes.io/service-name": "chat",
                "endpointslice.kubernetes.io/managed-by": "routers.podstamp.dev",
            },
            "ownerReferences": (
                {
                    "apiVersion": "v1",
                    "kind": "Service",
                    "name": "chat",
                    "uid": "svc-uid",
                    "controller": True,
                },
            ),
        },
        "addressType": "IPv4",
        "ports": ({"name": "http", "port": 8000, "protocol": "TCP"},),
        "endpoints": (
            {
                "addresses": ("10.0.0.1",),
                "conditions": {"ready": True, "serving": True, "terminating": False},
                "targetRef": {
                    "kind": "Pod",
                    "namespace": "models",
                    "name": "e1",
                    "uid": "uid-e1",
                },
                "nodeName": None,
                "zone": None,
            },
        ),
    }


@pytest.mark.parametrize(
    ("fields", "serving", "conditions"),
    [
        pytest.param({}, True, Conditions(True, True, False), id="ready"),
        pytest.param({}, False, Conditions(False, True, False), id="ready, has not answered"),
        pytest.param({"ready": False}, False, Conditions(False, False, False), id="not ready"),
        pytest.param(
            {"terminating": True}, False, Conditions(False, True, True), id="terminating, serving"
        ),
        pytest.param(
            {"terminating": True, "ready": False},
            False,
            Conditions(False, False, True),
            id="terminating, not serving",
        ),
    ],
)
def test_conditions_are_published(
    fields: dict[str, bool], serving: bool, conditions: Conditions
) -> None:
    groups = endpoints_of(desired(*engines(1, **fields), serving=serving), SERVICE, CONFIG, {})
    assert [e.conditions for e in groups["IPv4", 8000]] == [conditions]


def test_what_is_retained_until_a_second_list_stays_published() -> None:
    gone = backend("gone", "http://10.0.0.9:8000")
    groups = endpoints_of(Desired({gone.engine.url: gone}), SERVICE, CONFIG, {})
    assert [e.conditions.ready for e in groups["IPv4", 8000]] == [True]


def test_zones_come_from_the_pod_or_its_node() -> None:
    one, two = engine("e1", zone="a", node="n1"), engine("e2", "http://10.0.0.2:8000", node="n2")
    found = endpoints_of(desired(one, two), SERVICE, CONFIG, {"n1": "x", "n2": "b"})
    assert [(e.zone, e.node_name) for e in found["IPv4", 8000]] == [("a", "n1"), ("b", "n2")]


def test_each_family_of_the_service_has_slices_of_its_own() -> None:
    dual = [
        engine(f"e{n}", f"http://10.0.0.{n}:8000", more_addresses=(f"fd00::{n}",)) for n in (1, 2)
    ]
    both = Service(SERVICE.metadata, ServiceSpec(ip_families=("IPv4", "IPv6")))
    made = plan(desired(*dual), service=both).create
    assert [(s.address_type, a) for s, a in zip(made, addresses(*made), strict=True)] == [
        ("IPv4", ["10.0.0.1", "10.0.0.2"]),
        ("IPv6", ["fd00::1", "fd00::2"]),
    ]
    six = Service(SERVICE.metadata, ServiceSpec(ip_families=("IPv6",)))
    assert [s.address_type for s in plan(desired(*dual), service=six).create] == ["IPv6"]
    chosen = msgspec.structs.replace(CONFIG, engines=EngineSource(address_family="IPv4"))
    found = plan(desired(*dual), service=both, config=chosen).create
    assert [s.address_type for s in found] == ["IPv4"]


def test_engines_at_different_ports_have_slices_of_their_own() -> None:
    one, two = engine("e1", "http://10.0.0.1:8000"), engine("e2", "http://10.0.0.2:9000")
    made = plan(desired(one, two)).create
    assert [s.ports[0].port for s in made] == [8000, 9000]


def test_no_slice_holds_more_than_it_may() -> None:
    made = plan(desired(*engines(5))).create
    assert [len(s.endpoints) for s in made] == [2, 2, 1]
    assert len({s.metadata.name for s in made}) == 3
    assert len({a for found in addresses(*made) for a in found}) == 5


def test_what_is_right_is_not_written() -> None:
    wanted = desired(*engines(5))
    assert plan(wanted, stored(*plan(wanted).create)).empty


def test_a_change_of_one_engine_rewrites_its_slice_alone() -> None:
    before = engines(4)
    slices = stored(*plan(desired(*before)).create)
    after = [*before[:2], engine("e3", before[2].url, ready=False), before[3]]
    found = plan(
        Desired({e.url: backend(e.name, e.url) for e in before if e.name != "e3"}, tuple(after)),
        slices,
    )
    assert not found.create
    assert not found.delete
    [updated] = found.update
    assert updated.metadata == slices[1].metadata
    assert [e.conditions.ready for e in updated.endpoints] == [False, True]


def test_gaps_are_filled_before_a_slice_is_made() -> None:
    slices = stored(*plan(desired(*engines(4))).create)
    rest = engines(6)[2:5]
    found = plan(desired(engines(1)[0], *rest), slices)
    assert not found.create
    assert addresses(*found.update) == [["10.0.0.1", "10.0.0.5"]]


def test_an_empty_slice_goes_with_its_version_as_precondition() -> None:
    slices = stored(*plan(desired(*engines(3))).create)
    found = plan(desired(*engines(2)), slices)
    assert [s.metadata for s in found.delete] == [slices[1].metadata]
    assert not found.update
    assert plan(desired(), slices).delete == slices


def test_an_incarnation_that_reuses_an_address_is_another_endpoint() -> None:
    slices = stored(*plan(desired(engine("old", uid="A"))).create)
    [updated] = plan(desired(engine("new", uid="B")), slices).update
    [found] = updated.endpoints
    assert found.target_ref is not None
    assert found.target_ref.uid == "B"


def test_a_pod_that_is_in_two_slices_is_left_in_one() -> None:
    [one] = plan(desired(*engines(1))).create
    two = msgspec.structs.replace(
        one, metadata=msgspec.structs.replace(one.metadata, name="chat-again")
    )
    found = plan(desired(*engines(1)), stored(one, two))
    assert not found.update
    assert [s.metadata.name for s in found.delete] == ["chat-again"]


def test_a_service_that_was_made_anew_becomes_the_owner() -> None:
    slices = stored(*plan(desired(*engines(1))).create)
    again = Service(ServiceMetadata("chat", "other-uid"), ServiceSpec())
    [updated] = plan(desired(*engines(1)), slices, service=again).update
    assert [owner.uid for owner in updated.metadata.owner_references] == ["other-uid"]


def test_an_unknown_readiness_of_somebody_elses_hand_is_put_right() -> None:
    [made] = plan(desired(*engines(1))).create
    odd = msgspec.structs.replace(
        made, endpoints=(msgspec.structs.replace(made.endpoints[0], conditions=Conditions()),)
    )
    assert len(plan(desired(*engines(1)), stored(odd)).update) == 1


def test_a_slice_that_holds_too_many_loses_none() -> None:
    wide = msgspec.structs.replace(CONFIG, max_endpoints=10)
    slices = stored(*plan(desired(*engines(5)), config=wide).create)
    found = plan(desired(*engines(5)), slices)
    held = [a for s in (*found.update, *found.create) for e in s.endpoints for a in e.addresses]
    assert sorted(held) == [f"10.0.0.{n}" for n in range(1, 6)]
    assert isinstance(found.update[0].endpoints[0], Endpoint)


def test_what_a_former_leader_published_stays_ready_while_it_is_undecided() -> None:
    [one] = engines(1)
    [two] = engines(1, ready=False)
    for made, ready in ((one, True), (two, False)):
        undecided = Desired({}, (made,), frozenset({made.url}))
        groups = endpoints_of(undecided, SERVICE, CONFIG, {})
        assert [e.conditions.ready for e in groups["IPv4", 8000]] == [ready]
