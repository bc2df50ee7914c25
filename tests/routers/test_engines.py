"""Which pods are engines, and what makes one new to a router."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from controller.routers.config import EngineSource
from controller.routers.engines import (
    Engine,
    Excluded,
    Fleet,
    Reason,
    engine_of,
    fleet_of,
    selects,
)
from kube.pod import Pod
from tests.routers.fleet import pod

SOURCE = EngineSource(namespace="models", selector={"app": "vllm"})


def fleet(*pods: Pod, source: EngineSource = SOURCE) -> Fleet:
    return fleet_of(engine_of(p, source) for p in pods if selects(p, source))


def only(*pods: Pod, source: EngineSource = SOURCE) -> Engine:
    found = fleet(*pods, source=source)
    assert len(found.serving) == 1, found.excluded
    return next(iter(found.serving.values()))


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        pytest.param({"ready": False}, Reason.NOT_READY, id="not ready"),
        pytest.param({"ready": "Unknown"}, Reason.NOT_READY, id="ready unknown: a lost node"),
        pytest.param({"terminating": True}, Reason.TERMINATING, id="terminating, still ready"),
        pytest.param({"phase": "Failed"}, Reason.TERMINAL, id="failed, still ready"),
        pytest.param({"phase": "Succeeded"}, Reason.TERMINAL, id="succeeded"),
        pytest.param({"phase": "Failed", "ip": ""}, Reason.TERMINAL, id="evicted: no address left"),
        pytest.param({"ip": ""}, Reason.NO_ADDRESS, id="no address yet"),
        pytest.param({"ip": "10.0.0.999"}, Reason.NO_ADDRESS, id="an address that is none"),
        pytest.param({"labels": {"sleeping": "true"}}, Reason.SLEEPING, id="sleeping label"),
        pytest.param({"gates": {"lb/ready": "False"}}, Reason.NOT_READY, id="a gate is false"),
        pytest.param({"gates": {"lb/ready": ""}}, Reason.NOT_READY, id="a gate nobody wrote"),
        pytest.param(
            {"gates": {"lb/ready": "True", "net/ready": "False"}},
            Reason.NOT_READY,
            id="the second gate is false",
        ),
    ],
)
def test_a_pod_that_cannot_serve_is_left_out_and_its_sibling_stays(
    changed: dict[str, Any], reason: Reason
) -> None:
    found = fleet(pod("bad", **changed), pod("good", "10.0.0.2"))
    assert list(found.serving) == ["http://10.0.0.2:8000"]
    assert [(e.name, e.reason) for e in found.excluded] == [("bad", reason)]


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param(
            {"gates": {"lb/ready": "True", "net/ready": "True"}}, id="both gates are true"
        ),
        pytest.param({"labels": {"sleeping": "false"}}, id="sleeping label says no"),
        pytest.param({"phase": "SomethingNew"}, id="an unknown phase is not terminal"),
    ],
)
def test_a_pod_that_can_serve_is_an_engine(changed: dict[str, Any]) -> None:
    assert only(pod("p", **changed)).url == "http://10.0.0.1:8000"


@pytest.mark.parametrize(
    ("ips", "family", "url"),
    [
        pytest.param(["10.0.0.1"], "primary", "http://10.0.0.1:8000", id="IPv4"),
        pytest.param(["fd00::1"], "primary", "http://[fd00::1]:8000", id="IPv6 in brackets"),
        pytest.param(
            ["10.0.0.1", "fd00::1"], "primary", "http://10.0.0.1:8000", id="dual, IPv4 first"
        ),
        pytest.param(
            ["fd00::1", "10.0.0.1"], "primary", "http://[fd00::1]:8000", id="dual, IPv6 first"
        ),
        pytest.param(
            ["10.0.0.1", "fd00::1"], "IPv6", "http://[fd00::1]:8000", id="dual, IPv6 asked"
        ),
        pytest.param(
            ["fd00::1", "10.0.0.1"], "IPv4", "http://10.0.0.1:8000", id="dual, IPv4 asked"
        ),
        pytest.param(["fd00:0:0::0001"], "primary", "http://[fd00::1]:8000", id="one spelling"),
    ],
)
def test_the_url_is_made_of_the_chosen_address(ips: list[str], family: Any, url: str) -> None:
    source = EngineSource(namespace="models", address_family=family)
    assert only(pod("p", ips[0], ips=ips), source=source).url == url


def test_a_pod_without_the_asked_family_has_no_address() -> None:
    source = EngineSource(namespace="models", address_family="IPv6")
    assert fleet(pod("p"), source=source).excluded[0].reason is Reason.NO_ADDRESS


@pytest.mark.parametrize(
    ("port", "container", "url"),
    [
        pytest.param(9000, "", "http://10.0.0.1:9000", id="a number needs no declaration"),
        pytest.param("http", "", "http://10.0.0.1:8000", id="by name"),
        pytest.param("metrics", "", "http://10.0.0.1:9100", id="the second declared port"),
        pytest.param("http", "engine", "http://10.0.0.1:8000", id="in the named container"),
    ],
)
def test_the_port_is_found_by_number_or_name(port: Any, container: str, url: str) -> None:
    source = EngineSource(namespace="models", port=port, container=container)
    made = pod("p", ports=(("http", 8000), ("metrics", 9100)))
    assert only(made, source=source).url == url


@pytest.mark.parametrize(
    ("port", "container"), [("grpc", ""), ("http", "sidecar")], ids=["unknown", "other container"]
)
def test_a_port_name_that_nobody_declares_leaves_the_pod_out(port: str, container: str) -> None:
    source = EngineSource(namespace="models", port=port, container=container)
    assert fleet(pod("p"), source=source).excluded[0].reason is Reason.NO_PORT


@pytest.mark.parametrize(
    ("labels", "namespace", "selected"),
    [
        pytest.param({}, "models", True, id="namespace and labels fit"),
        pytest.param({"app": "other"}, "models", False, id="another label"),
        pytest.param({}, "elsewhere", False, id="another namespace"),
        pytest.param({"podstamp.dev/podset-index": "0"}, "models", True, id="any index"),
    ],
)
def test_namespace_and_labels_select(
    labels: dict[str, str], namespace: str, selected: bool
) -> None:
    assert selects(pod("p", labels=labels, namespace=namespace), SOURCE) is selected


@pytest.mark.parametrize(
    ("index", "selected"),
    [("0", True), ("2", True), ("1", False), ("", False), ("x", False), ("00", True)],
)
def test_only_the_wanted_indexes_of_a_set_serve(index: str, selected: bool) -> None:
    source = EngineSource(namespace="models", indexes=(0, 2))
    made = pod("p", labels={"podstamp.dev/podset-index": index} if index else {})
    assert selects(made, source) is selected


BASE: dict[str, Any] = {"labels": {"model": "llama"}}


@pytest.mark.parametrize(
    ("changed", "same"),
    [
        pytest.param({}, True, id="the same"),
        pytest.param({"version": "9"}, True, id="another resourceVersion"),
        pytest.param({"uid": "uid-2"}, False, id="UID"),
        pytest.param({"ip": "10.0.0.9"}, False, id="URL"),
        pytest.param({"restarts": 1}, False, id="container restart"),
        pytest.param({"labels": {"model": "qwen"}}, False, id="model label"),
        pytest.param(
            {"labels": {"model": "llama", "sleeping": "true"}}, False, id="sleeping label"
        ),
        pytest.param(
            {"annotations": {"lora-modified": "2026-01-01T00:00:00Z"}}, False, id="lora-modified"
        ),
        pytest.param({"labels": {"model": "llama", "team": "x"}}, True, id="another label"),
    ],
)
def test_an_engine_is_new_only_by_what_a_router_cares_for(
    changed: dict[str, Any], same: bool
) -> None:
    before = engine_of(pod("p", **BASE), SOURCE)
    after = engine_of(pod("p", **{**BASE, **changed}), SOURCE)
    assert isinstance(before, Engine)
    assert isinstance(after, Engine)
    assert (before.key == after.key) is same


def test_a_stamp_is_compared_as_an_instant_and_not_as_text() -> None:
    texts = ["2026-03-01T12:00:00.5Z", "2026-03-01T14:00:00.500000000+02:00"]
    keys = {only(pod("p", annotations={"lora-modified": text})).key for text in texts}
    assert len(keys) == 1


def test_a_sidecar_that_restarts_makes_no_new_engine() -> None:
    declared = EngineSource(namespace="models", port="http")
    key = only(pod("p"), source=declared).key
    assert [name for name, _, _ in key.containers] == ["engine"]


def test_without_a_declared_port_any_restart_counts() -> None:
    key = only(pod("p"), source=EngineSource(namespace="models", port=9999)).key
    assert [name for name, _, _ in key.containers] == ["engine", "sidecar"]


OLD = {"name": "old", "uid": "A", "age_s": 0.0}
NEW = {"name": "new", "uid": "B", "age_s": 60.0}
THIRD = {"name": "third", "uid": "C", "ip": "10.0.0.3"}


@pytest.mark.parametrize("order", list(permutations([OLD, NEW, THIRD])))
def test_a_reused_address_belongs_to_the_newest_in_every_order(order: Any) -> None:
    found = fleet(*(pod(**kwargs) for kwargs in order))
    assert {url: engine.uid for url, engine in found.serving.items()} == {
        "http://10.0.0.1:8000": "B",
        "http://10.0.0.3:8000": "C",
    }
    assert [(e.uid, e.reason) for e in found.excluded] == [("A", Reason.SUPERSEDED)]
    assert {engine.uid for engine in found.addressed} == {"B", "C"}


@pytest.mark.parametrize("swapped", [False, True])
def test_a_reused_address_is_not_served_while_its_newest_owner_is_not_ready(swapped: bool) -> None:
    pods = [pod(**OLD), pod(**{**NEW, "ready": False})]
    found = fleet(*(reversed(pods) if swapped else pods))
    assert not found.serving


@pytest.mark.parametrize("swapped", [False, True])
def test_a_terminating_pod_never_holds_an_address_against_a_live_one(swapped: bool) -> None:
    pods = [pod(**OLD), pod(**{**NEW, "terminating": True})]
    found = fleet(*(reversed(pods) if swapped else pods))
    assert [engine.uid for engine in found.serving.values()] == ["A"]
    assert [engine.uid for engine in found.addressed] == ["A"]


def test_incarnations_of_one_second_are_told_apart_by_their_stamps() -> None:
    stamps = {
        "first": "019b76da-a800-7000-8000-000000000001",
        "second": "019b76da-a801-7000-8000-000000000000",
    }
    pods = [
        pod(name, uid=f"z-{name[::-1]}", annotations={"podstamp.dev/incarnation": stamp})
        for name, stamp in stamps.items()
    ]
    assert [engine.name for engine in fleet(*pods).serving.values()] == ["second"]


def test_a_pod_that_is_not_ready_or_terminating_is_addressed_all_the_same() -> None:
    found = fleet(
        pod("a", "10.0.0.1", ready=False), pod("b", "10.0.0.2", terminating=True), pod("c", "")
    )
    assert [(e.name, e.ready, e.terminating) for e in found.addressed] == [
        ("a", False, False),
        ("b", True, True),
    ]


def test_one_pod_without_anything_is_isolated() -> None:
    found = fleet(Pod(), pod("good"), source=EngineSource(selector={}))
    assert list(found.serving) == ["http://10.0.0.1:8000"]
    assert found.excluded == (Excluded("", "", "", Reason.NO_ADDRESS),)
