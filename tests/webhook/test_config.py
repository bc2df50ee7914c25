"""Settings of the webhook."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kube.errors import ConfigError
from kube.options import load_settings
from tests.webhook.site import MANIFESTS
from webhook.config import WebhookConfig, admission_settings
from webhook.sets import set_kinds


def load(file: Path | None = None, **more: object) -> WebhookConfig:
    return load_settings(WebhookConfig, file=file, environ={}, flags=more)


def test_the_rules_take_what_the_file_says(tmp_path: Path) -> None:
    file = tmp_path / "webhook.yaml"
    file.write_text(
        "namespace: stamps\n"
        "setKinds: [Fleet.example.org]\n"
        "fencedDeleters: {users: [a], groups: [b, c]}\n"
    )
    settings = admission_settings(load(file))
    assert settings.kinds == set_kinds(["Fleet.example.org"])
    assert settings.excluded_namespaces == {"kube-system", "stamps"}
    assert settings.fenced_users == {"a"}
    assert settings.fenced_groups == {"b", "c"}


def test_defaults_fence_nobody() -> None:
    settings = admission_settings(load())
    assert not settings.fenced_users
    assert not settings.fenced_groups
    assert settings.excluded_namespaces == {"kube-system", "podstamp-system"}


def test_every_option_also_comes_from_the_environment(tmp_path: Path) -> None:
    environ = {"PODSTAMP_CERT_DIR": str(tmp_path), "PODSTAMP_HEALTH_PORT": "0"}
    config = load_settings(WebhookConfig, file=None, environ=environ, flags={"port": 1})
    assert (config.cert_dir, config.health_port, config.port) == (str(tmp_path), 0, 1)


def test_a_set_kind_that_is_no_kind_and_group_is_told() -> None:
    with pytest.raises(ConfigError, match=r"setKinds: 'PodSet' is not written as Kind\.group"):
        admission_settings(load(set_kinds=["PodSet"]))


def test_the_settings_of_the_manifests_are_valid() -> None:
    file = MANIFESTS / "overlays" / "fenced-deleters" / "webhook.yaml"
    assert admission_settings(load(file)).fenced_users
    assert os.environ.get("PODSTAMP_CONFIG") is None
