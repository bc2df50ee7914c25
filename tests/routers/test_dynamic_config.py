"""The dynamic configuration of the production-stack router."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.routers.config import DynamicConfigRouter
from controller.routers.desired import Desired
from controller.routers.dynamic_config import PLACEHOLDER_URL, DynamicConfig, rejection
from controller.routers.transport import Answer, RefusedError, RouterError
from tests.routers.fleet import backend, desired
from tests.standins.routers.production_stack import _parse, _workers

A, B = "http://10.0.0.1:8000", "http://10.0.0.2:8000"


def made(**settings: Any) -> DynamicConfig:
    return DynamicConfig(DynamicConfigRouter(name="ps", file="/x", **settings))


PLAIN = made()


def test_a_backend_for_each_model_and_adapter() -> None:
    rendered = PLAIN.render(
        desired(backend("e2", B, models=("llama",)), backend("e1", A, adapters=("x",))), {}
    )
    assert json.loads(rendered.content) == {
        "service_discovery": "static",
        "routing_logic": "roundrobin",
        "static_backends": f"{A},{A},{B}",
        "static_models": "base,x,llama",
    }
    assert rendered.entries == {A: ("", "base", "x"), B: ("", "llama")}


def test_model_labels_are_written_once_one_engine_has_one() -> None:
    rendered = PLAIN.render(
        desired(backend("e1", A, model_label="prefill", adapters=("x",)), backend("e2", B)), {}
    )
    assert json.loads(rendered.content)["static_model_labels"] == "prefill,prefill,"


def test_an_empty_set_is_a_placeholder_and_counts_as_empty() -> None:
    rendered = PLAIN.render(desired(), {})
    config = json.loads(rendered.content)
    assert (config["static_backends"], config["static_models"]) == (PLACEHOLDER_URL, "none")
    assert rendered.entries == {}
    assert PLAIN.parse(rendered.content) == {}


def test_settings_are_passed_on() -> None:
    config = json.loads(
        made(
            routing_logic="disaggregated_prefill",
            session_key="x-user",
            prefill_model_labels="p",
            decode_model_labels="d",
        )
        .render(desired(), {})
        .content
    )
    assert config["routing_logic"] == "disaggregated_prefill"
    assert config["session_key"] == "x-user"
    assert (config["prefill_model_labels"], config["decode_model_labels"]) == ("p", "d")


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        pytest.param(backend("bad", "http://[fd00::1]:8000"), "IPv4", id="IPv6"),
        pytest.param(backend("bad", B, models=()), "no model", id="no model"),
        pytest.param(backend("bad", B, models=("a,b",)), "comma", id="a comma in a model"),
        pytest.param(backend("bad", B, adapters=("a", "x,y")), "comma", id="a comma in an adapter"),
    ],
)
def test_an_engine_that_cannot_be_expressed_is_left_out_alone(bad: Any, why: str) -> None:
    rendered = PLAIN.render(desired(bad, backend("e1", A)), {})
    assert rendered.entries == {A: ("", "base")}
    assert list(rendered.left_out) == [bad.engine.url]
    assert why in rendered.left_out[bad.engine.url]


GOOD = {
    "service_discovery": "static",
    "routing_logic": "roundrobin",
    "static_backends": f"{A},{B}",
    "static_models": "base,base",
}


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        pytest.param({}, "", id="as it should be"),
        pytest.param({"static_model_labels": "a,b"}, "", id="labels for each"),
        pytest.param({"healthcheck": True}, "unknown key healthcheck", id="unknown key"),
        pytest.param({"routing_logic": None}, "routing_logic is missing", id="no logic"),
        pytest.param({"service_discovery": ""}, "service_discovery is missing", id="no discovery"),
        pytest.param({"static_backends": ""}, "empty", id="empty set"),
        pytest.param({"static_backends": None}, "empty", id="null set"),
        pytest.param({"static_backends": f"{A},http://[fd00::1]:1"}, "no URL", id="IPv6"),
        pytest.param({"static_backends": f"{A},http://engine:1"}, "no URL", id="one label"),
        pytest.param({"static_models": "base"}, "not as many", id="too few models"),
        pytest.param({"static_models": None}, "not as many", id="no models"),
        pytest.param({"static_model_labels": "a"}, "not as many", id="too few labels"),
        pytest.param({"static_model_types": "chat"}, "not as many", id="too few types"),
    ],
)
def test_what_the_router_would_reject_is_known_beforehand(
    changed: dict[str, Any], why: str
) -> None:
    found = rejection({**GOOD, **changed})
    assert bool(found) is bool(why)
    assert why in found


names = st.text(min_size=1, max_size=8)


@given(
    st.lists(
        st.tuples(st.integers(1, 250), st.lists(names, max_size=2), st.lists(names, max_size=2)),
        max_size=4,
    )
)
def test_whatever_engines_are_named_the_router_takes_what_is_written(engines: Any) -> None:
    backends = [
        backend(f"e{n}", f"http://10.0.0.{n}:8000", models=models, adapters=adapters)
        for n, models, adapters in engines
    ]
    rendered = PLAIN.render(desired(*backends), {})
    workers = _workers(_parse(rendered.content))
    kept = {b.engine.url for b in backends} - rendered.left_out.keys()
    assert {w.url for w in workers if w.url != PLACEHOLDER_URL} == kept
    assert PLAIN.parse(rendered.content) == rendered.entries


@pytest.mark.parametrize("status", [200, 503])
def test_the_configuration_in_force_is_read_back(status: int) -> None:
    body = {"status": "x", "dynamic_config": {**GOOD, "k8s_port": None, "callbacks": None}}
    report = PLAIN.parse_report(Answer(status, json.dumps(body).encode()))
    assert report == {A: ("", "base"), B: ("", "base")}


@pytest.mark.parametrize("body", [b"", b"<html>", b'{"status":"healthy"}', b"[]"])
def test_a_health_that_shows_no_configuration_is_refused(body: bytes) -> None:
    with pytest.raises(RefusedError, match="health"):
        PLAIN.parse_report(Answer(200, body))


def test_a_truncated_file_says_nothing() -> None:
    assert PLAIN.parse(msgspec.json.encode(GOOD)[:-9]) is None


def test_what_is_undecided_stays_as_it_is_written() -> None:
    present = {A: ("prefill", "base", "x"), B: ("", "llama")}
    rendered = PLAIN.render(Desired({}, (), frozenset({A})), present)
    assert rendered.entries == {A: ("prefill", "base", "x")}
    assert json.loads(rendered.content)["static_model_labels"] == "prefill,prefill"


def test_a_document_that_would_be_rejected_is_never_rendered() -> None:
    with pytest.raises(RouterError, match="routing_logic is missing"):
        made(routing_logic="").render(desired(backend("e1", A)), {})
