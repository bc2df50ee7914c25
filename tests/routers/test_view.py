"""What a person sees of the routers."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml

from controller.routers.view import render

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def engine(name: str, **changed: Any) -> dict[str, Any]:
    return {
        "namespace": "models",
        "name": name,
        "uid": f"uid-{name}",
        "incarnation": f"inc-{name}",
        "created": "2026-01-01T11:58:00Z",
        "url": f"http://{name}:8000",
        "state": "serving",
        "models": ["base"],
        "adapters": [],
        "error": "",
        **changed,
    }


def target(**changed: Any) -> dict[str, Any]:
    difference: dict[str, list[str]] = {"add": [], "remove": [], "change": [], "pending": []}
    return {
        "target": "http://router:8000",
        "reachable": True,
        "error": "",
        "observed": ["http://p1:8000"],
        "difference": {**difference, **changed.pop("difference", {})},
        "settledAt": None,
        **changed,
    }


def router(**changed: Any) -> dict[str, Any]:
    return {
        "name": "chat",
        "kind": "workers",
        "fresh": True,
        "error": "",
        "desired": ["http://p1:8000"],
        "unconfirmed": [],
        "engines": [engine("p1", adapters=["a", "b"]), engine("p2", state="not ready")],
        "targets": [target()],
        **changed,
    }


def table(*routers: dict[str, Any], **options: Any) -> str:
    return render(routers, output="table", now=NOW, **options)


def test_a_table_shows_each_engine_and_each_target() -> None:
    text = table(router())
    assert text == (
        "chat (workers): 1 desired\n"
        "  TARGET               STATE     OBSERVED   MISSING   TOO MANY   OUT OF DATE   PENDING\n"
        "  http://router:8000   in step   1          0         0          0             0\n"
        "  ENGINE      STATE       URL              INCARNATION   AGE    ADAPTERS\n"
        "  models/p1   serving     http://p1:8000   inc-p1        2m0s   a,b\n"
        "  models/p2   not ready   http://p2:8000   inc-p2        2m0s   -\n"
    )


def test_a_difference_is_shown_entry_by_entry() -> None:
    many = [f"http://p{n}:8000" for n in range(5)]
    text = table(router(targets=[target(difference={"add": many, "remove": ["http://ghost:1"]})]))
    assert "differs   1          5         1" in text
    assert "missing: http://p0:8000, http://p1:8000, http://p2:8000 and 2 more" in text
    assert "too many: http://ghost:1" in text


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"fresh": False}, "the API server is not answering"),
        ({"error": "router record cannot be read"}, "error: router record cannot be read"),
        (
            {"unconfirmed": ["http://p1:8000"]},
            "waiting for a second list before removing: http://p1",
        ),
        ({"targets": [target(reachable=False, error="no answer in time")]}, "no answer in time"),
        ({"engines": [engine("p1", state="not answering", error="503")]}, "not answering (503)"),
    ],
)
def test_what_is_wrong_is_said(changed: dict[str, Any], words: str) -> None:
    assert words in table(router(**changed))


def test_without_routers_that_is_said() -> None:
    assert table() == "no routers are configured\n"


def test_a_namespace_limits_the_engines() -> None:
    both = router(engines=[engine("p1"), engine("p2", namespace="other")])
    text = table(both, namespace="other")
    assert "other/p2" in text
    assert "models/p1" not in text


@pytest.mark.parametrize(
    ("age", "text"),
    [
        (timedelta(seconds=-5), "0s"),
        (timedelta(seconds=119), "119s"),
        (timedelta(seconds=125), "2m5s"),
        (timedelta(minutes=59), "59m"),
        (timedelta(hours=30), "30h"),
        (timedelta(days=3), "3d"),
    ],
)
def test_ages_are_short(age: timedelta, text: str) -> None:
    created = (NOW - age).isoformat()
    assert f"   {text}   " in table(router(engines=[engine("p1", created=created)]))


def test_data_is_the_leaders_own() -> None:
    assert json.loads(render([router()], output="json", now=NOW)) == [router()]
    assert yaml.safe_load(render([router()], output="yaml", now=NOW)) == [router()]
