"""Routers as a user writes them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from controller.routers.config import RouterConfig, WorkersRouter, check_routers, kind_of
from kube.errors import ConfigError

ENGINES = {"namespace": "models"}
CM = {"namespace": "gw", "name": "smg", "key": "workers.json"}
VALID: dict[str, dict[str, Any]] = {
    "workers": {"dialect": "vllm", "replicas": {"urls": ["http://router:8000"]}},
    "worker-file": {"file": "/run/workers.json"},
    "dynamic-config": {"configMap": CM},
    "endpointslice": {"namespace": "models", "service": "chat"},
    "annotate": {},
    "webhook-url": {"url": "https://hook.example/x?y=1", "secretFile": "/run/secret"},
}


def decode(kind: str, /, **changed: Any) -> RouterConfig:
    body = {"name": "chat", "kind": kind, "engines": ENGINES, **VALID[kind], **changed}
    config: RouterConfig = msgspec.convert(body, RouterConfig)
    return config


@pytest.mark.parametrize("kind", list(VALID))
def test_each_kind_is_chosen_by_its_word(kind: str) -> None:
    config = decode(kind)
    check_routers([config])
    assert kind_of(config) == kind


def test_replicas_may_be_chosen_by_labels() -> None:
    pods = {"namespace": "gw", "selector": {"app": "router"}, "port": "http"}
    config = decode("workers", replicas={"pods": pods})
    check_routers([config])
    assert isinstance(config, WorkersRouter)
    assert not config.replicas.https


@pytest.mark.parametrize(
    ("kind", "changed", "words"),
    [
        pytest.param("workers", {"kind": "haproxy"}, "kind", id="unknown kind"),
        pytest.param("workers", {"dialekt": "vllm"}, "dialekt", id="unknown key"),
        pytest.param("workers", {"dialect": "nginx"}, "dialect", id="unknown dialect"),
        pytest.param("workers", {"name": "Chat_1"}, "name", id="no DNS label"),
        pytest.param("workers", {"periodSeconds": 0}, "periodSeconds", id="too often"),
        pytest.param("workers", {"engines": {"port": 70000}}, "port", id="port out of range"),
        pytest.param(
            "workers", {"engines": {"addressFamily": "IPv5"}}, "addressFamily", id="family"
        ),
        pytest.param("workers", {"guard": {"maxRemovalShare": 1.5}}, "maxRemovalShare", id="share"),
        pytest.param("endpointslice", {"maxEndpoints": 1001}, "maxEndpoints", id="slice too large"),
        pytest.param("dynamic-config", {"routingLogic": "magic"}, "routingLogic", id="logic"),
        pytest.param("workers", {"engines": {"namespace": "../x"}}, "namespace", id="namespace"),
        pytest.param(
            "worker-file", {"file": "", "configMap": {**CM, "name": ".."}}, "name", id="map"
        ),
        pytest.param("endpointslice", {"service": "a b"}, "service", id="service"),
    ],
)
def test_what_does_not_fit_is_refused_by_its_path(
    kind: str, changed: dict[str, Any], words: str
) -> None:
    with pytest.raises(msgspec.ValidationError, match=words):
        decode(kind, **changed)


@pytest.mark.parametrize(
    ("kind", "changed", "words"),
    [
        pytest.param("workers", {"replicas": {}}, "give urls, pods, or both", id="no replica"),
        pytest.param("workers", {"engines": {}}, "namespace, a selector", id="every pod at all"),
        pytest.param("workers", {"replicas": {"urls": ["router:80"]}}, "no URL", id="no scheme"),
        pytest.param("workers", {"replicas": {"urls": ["http://r/x"]}}, "no URL", id="a path"),
        pytest.param("workers", {"replicas": {"urls": ["http://r:x"]}}, "no URL", id="no port"),
        pytest.param("worker-file", {"configMap": CM}, "either file or configMap", id="both"),
        pytest.param("worker-file", {"file": ""}, "either file or configMap", id="neither"),
        pytest.param("webhook-url", {"url": "ftp://x"}, "no URL", id="another scheme"),
        pytest.param(
            "annotate", {"engines": {**ENGINES, "source": "services"}}, "pods only", id="services"
        ),
        pytest.param("dynamic-config", {"routingLogic": "session"}, "sessionKey", id="session"),
        pytest.param(
            "dynamic-config",
            {"routingLogic": "disaggregated_prefill"},
            "prefillModelLabels",
            id="disaggregated",
        ),
        pytest.param(
            "workers", {"probe": {"retrySeconds": 9, "maxRetrySeconds": 3}}, "maxRetry", id="retry"
        ),
    ],
)
def test_what_the_types_cannot_say_is_refused_with_what_to_do(
    kind: str, changed: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        check_routers([decode("annotate", name="first"), decode(kind, **changed)])
    assert str(caught.value).startswith("routers[1]")


def test_two_routers_cannot_share_a_name() -> None:
    with pytest.raises(ConfigError, match=r'routers\[2\].name: "chat" is taken by routers\[0\]'):
        check_routers([decode("workers"), decode("annotate", name="other"), decode("annotate")])
