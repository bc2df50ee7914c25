"""controller.yaml: defaults, order of precedence, and what is refused with which words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.config import ControllerConfig, load_config
from controller.verdict import OwnerKind
from kube.errors import ConfigError
from tests.e2e.installation import MANIFESTS


def load(tmp_path: Path, text: str, environ: dict[str, str] | None = None, **flags: Any) -> Any:
    file = tmp_path / "controller.yaml"
    file.write_text(text)
    return load_config(file, environ or {}, {k.replace("__", "."): v for k, v in flags.items()})


def test_it_starts_dry_with_the_retired_loop_off() -> None:
    config = load_config(None, {}, {})
    assert config == ControllerConfig()
    assert config.terminal.enabled
    assert config.terminal.dry_run
    assert not config.retired.enabled
    assert config.retired.dry_run
    assert config.terminal.hold_seconds == 0
    assert config.retired.hold_seconds == 300
    assert config.terminal.kinds() == {OwnerKind("PodSet", "orchestration.aibrix.ai")}


def test_flags_win_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    text = "terminal: {dryRun: false, holdSeconds: 1}\nretired: {holdSeconds: 1}"
    environ = {"PODSTAMP_TERMINAL_HOLD_SECONDS": "2", "PODSTAMP_RETIRED_HOLD_SECONDS": "2"}
    config = load(tmp_path, text, environ, retired__hold_seconds=3)
    assert not config.terminal.dry_run
    assert config.terminal.hold_seconds == 2
    assert config.retired.hold_seconds == 3


def test_owner_kinds_are_written_with_or_for_well_known_ones_without_group(tmp_path: Path) -> None:
    config = load(tmp_path, "terminal: {ownerKinds: [PodSet, Job.batch, Foo.example.com]}")
    assert config.terminal.kinds() == {
        OwnerKind("PodSet", "orchestration.aibrix.ai"),
        OwnerKind("Job", "batch"),
        OwnerKind("Foo", "example.com"),
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("terminal: {holdSeconds: 9999}", ["terminal.holdSeconds", "9999", "3600"]),
        ("terminal: {holdSeconds: -1}", ["terminal.holdSeconds", "-1"]),
        ("terminal: {holdSeconds: soon}", ["terminal.holdSeconds", "soon"]),
        ("terminal: {dryRun: maybe}", ["terminal.dryRun", "maybe"]),
        ("terminal: {maxDeletesPerMinute: 121}", ["terminal.maxDeletesPerMinute", "120"]),
        ("retired: {passSeconds: 46}", ["retired.passSeconds", "45"]),
        ("retired: {source: mysql}", ["retired.source", "mysql"]),
        ("terminal: {backoff: {initialSecond: 1}}", ["terminal.backoff", "initialSecond"]),
        ("terminals: {}", ["terminals"]),
        ("store: {maxAgeSeconds: 1}", ["store.maxAgeSeconds"]),
        ("terminal: {ownerKinds: [Foo]}", ["terminal.ownerKinds[0]", "Foo.example.com"]),
        ("terminal: {ownerKinds: [PodSet, podsets]}", ["terminal.ownerKinds[1]", "podsets"]),
        ("retired: {enabled: true, source: postgres}", ["retired.postgres", "dsn"]),
        (
            "retired: {enabled: true, source: postgres,"
            " postgres: {dsn: 'host=a', query: SELECT 1}}",
            ["retired.postgres.query", "%(names)s"],
        ),
        ("leadership: {renewDeadlineSeconds: 20}", ["leadership", "renewDeadlineSeconds"]),
        ("- a list", ["mapping"]),
        ("terminal: {", ["YAML"]),
    ],
)
def test_mistakes_are_refused_with_the_path_and_what_is_allowed(
    tmp_path: Path, text: str, words: list[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message


def test_the_password_may_be_missing_where_only_the_controller_has_it(tmp_path: Path) -> None:
    file = tmp_path / "controller.yaml"
    file.write_text("retired: {enabled: true, source: postgres}")
    assert load_config(file, {}, {}, dsn_needed=False).retired.source == "postgres"
    environ = {"PODSTAMP_RETIRED_POSTGRES_DSN": "host=db"}
    assert load_config(file, environ, {}).retired.postgres.dsn == "host=db"


def test_the_configuration_that_is_shipped_shows_the_defaults(tmp_path: Path) -> None:
    document = yaml.safe_load((MANIFESTS / "base" / "config.yaml").read_text())
    assert load(tmp_path, document["data"]["controller.yaml"]) == ControllerConfig()
