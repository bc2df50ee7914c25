from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import Meta

from kube.errors import ConfigError
from kube.options import load_settings


class Section(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    hold_seconds: Annotated[float, Meta(ge=0, le=3600)] = 0
    dry_run: bool = True
    owner_kinds: tuple[str, ...] = ("PodSet",)
    limit: Annotated[int, Meta(ge=1)] = 120


class Workers(
    msgspec.Struct,
    frozen=True,
    rename="camel",
    forbid_unknown_fields=True,
    tag="workers",
    tag_field="kind",
):
    name: str
    dialect: Literal["vllm", "sglang"] = "vllm"


class Files(
    msgspec.Struct,
    frozen=True,
    rename="camel",
    forbid_unknown_fields=True,
    tag="file",
    tag_field="kind",
):
    name: str
    path: str
    every_seconds: Annotated[float, Meta(gt=0, lt=60)] = 1


class Settings(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    port: Annotated[int, Meta(ge=0, le=65535)] = 9443
    cert_dir: str | None = None
    log_level: str = "info"
    terminal: Section = Section()
    routers: list[Workers | Files] = []
    ratio: float = 0.5


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "controller.yaml"


def load(
    file: Path | None,
    text: str | None = None,
    environ: dict[str, str] | None = None,
    flags: dict[str, Any] | None = None,
) -> Settings:
    if file is not None and text is not None:
        file.write_text(text)
    return load_settings(Settings, file=file, environ=environ or {}, flags=flags or {})


def test_without_anything_the_defaults_hold(file: Path) -> None:
    assert load(None) == Settings()
    assert load(file, "") == Settings()
    assert load(file, "# nothing\n---\n") == Settings()
    assert load(file, "terminal:\nrouters:\nport:\n") == Settings()


def test_a_file_is_read_by_its_camel_case_names(file: Path) -> None:
    found = load(
        file,
        """
        port: 1
        certDir: /certs
        terminal: {holdSeconds: 2.5, dryRun: false, ownerKinds: [A, B]}
        routers:
        - {kind: workers, name: r, dialect: sglang}
        - {kind: file, name: f, path: /x}
        """,
    )
    assert (found.port, found.cert_dir) == (1, "/certs")
    assert found.terminal == Section(2.5, False, ("A", "B"))
    assert found.routers == [Workers("r", "sglang"), Files("f", "/x")]


def test_flags_win_over_the_environment_and_that_over_the_file(file: Path) -> None:
    text = "port: 1\nlogLevel: file\nterminal: {limit: 1, holdSeconds: 1}\nratio: 0.1"
    environ = {
        "PODSTAMP_PORT": "2",
        "PODSTAMP_LOG_LEVEL": "environment",
        "PODSTAMP_TERMINAL_LIMIT": "2",
        "PODSTAMP_ELSEWHERE": "not ours",
    }
    flags = {"port": 3, "terminal.limit": 3, "cert_dir": None}
    found = load(file, text, environ, flags)
    assert (found.port, found.log_level, found.ratio) == (3, "environment", 0.1)
    assert (found.terminal.limit, found.terminal.hold_seconds) == (3, 1)


@pytest.mark.parametrize(
    ("variable", "text", "expected"),
    [
        ("PODSTAMP_TERMINAL_DRY_RUN", "false", {"terminal": {"dryRun": False}}),
        ("PODSTAMP_TERMINAL_HOLD_SECONDS", "2.5", {"terminal": {"holdSeconds": 2.5}}),
        ("PODSTAMP_TERMINAL_HOLD_SECONDS", "3", {"terminal": {"holdSeconds": 3}}),
        ("PODSTAMP_TERMINAL_OWNER_KINDS", " A , B,", {"terminal": {"ownerKinds": ["A", "B"]}}),
        ("PODSTAMP_TERMINAL_OWNER_KINDS", "", {"terminal": {"ownerKinds": []}}),
        ("PODSTAMP_CERT_DIR", "123", {"certDir": "123"}),
        ("PODSTAMP_CERT_DIR", "true", {"certDir": "true"}),
        ("PODSTAMP_CERT_DIR", "", {}),
        ("PODSTAMP_LOG_LEVEL", "", {"logLevel": ""}),
        (
            "PODSTAMP_ROUTERS",
            "[{kind: workers, name: r}]",
            {"routers": [{"kind": "workers", "name": "r"}]},
        ),
    ],
)
def test_the_environment_is_text_that_becomes_what_the_field_wants(
    variable: str, text: str, expected: dict[str, Any]
) -> None:
    assert load(None, environ={variable: text}) == msgspec.convert(expected, Settings)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("port: 70000", "controller.yaml: port: 70000 is out of range (0 to 65535)"),
        ("port: -1", "controller.yaml: port: -1 is out of range (0 to 65535)"),
        (
            "terminal: {holdSeconds: 9999}",
            "controller.yaml: terminal.holdSeconds: 9999 is out of range (0 to 3600)",
        ),
        ("terminal: {limit: 0}", "controller.yaml: terminal.limit: 0 is out of range (at least 1)"),
        (
            "routers: [{kind: file, name: f, path: p, everySeconds: 60}]",
            "controller.yaml: routers[0].everySeconds: 60 is out of range"
            " (more than 0 to less than 60)",
        ),
        ("port: x", "controller.yaml: port: 'x' is not a whole number (0 to 65535)"),
        ("port: 1.5", "controller.yaml: port: 1.5 is not a whole number (0 to 65535)"),
        ("port: true", "controller.yaml: port: true is not a whole number (0 to 65535)"),
        (
            "routers: [{kind: file, name: f, path: p, everySeconds: .nan}]",
            "controller.yaml: routers[0].everySeconds: nan is not a number"
            " (more than 0 to less than 60)",
        ),
        (
            "routers: [{kind: file, name: f, path: p, everySeconds: -.inf}]",
            "controller.yaml: routers[0].everySeconds: -inf is out of range"
            " (more than 0 to less than 60)",
        ),
        ("ratio: [1]", "controller.yaml: ratio: [1] is not a number"),
        ("logLevel: 3", "controller.yaml: logLevel: 3 is not text; put it in quotes"),
        ("terminal: {dryRun: 1}", "controller.yaml: terminal.dryRun: 1 is neither true nor false"),
        ("terminal: 7", "controller.yaml: terminal: 7 is not a mapping of names to values"),
        (
            "terminal: {ownerKinds: PodSet}",
            "controller.yaml: terminal.ownerKinds: 'PodSet' is not a list",
        ),
        (
            "terminal: {ownerKinds: [A, 7]}",
            "controller.yaml: terminal.ownerKinds[1]: 7 is not text; put it in quotes",
        ),
        (
            "terminal: {holdSecond: 1}",
            "controller.yaml: terminal.holdSecond: unknown key;"
            " known here: holdSeconds, dryRun, ownerKinds, limit",
        ),
        (
            "ports: 1",
            "controller.yaml: ports: unknown key;"
            " known here: port, certDir, logLevel, terminal, routers, ratio",
        ),
        (
            "routers: [{kind: workers, name: a}, {kind: file, name: b, paths: c}]",
            "controller.yaml: routers[1].paths: unknown key; known here: name, path, everySeconds",
        ),
        (
            "routers: [{name: a, kind: nope}]",
            "controller.yaml: routers[0].kind: 'nope' is not one of workers, file",
        ),
        ("routers: [{kind: workers}]", "controller.yaml: routers[0].name: is missing"),
        (
            "routers: [{kind: workers, name: a, dialect: x}]",
            "controller.yaml: routers[0].dialect: 'x' is not one of sglang, vllm",
        ),
    ],
)
def test_a_mistake_in_the_file_is_told_with_place_value_and_range(
    file: Path, text: str, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(file, text)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("environ", "flags", "message"),
    [
        ({"PODSTAMP_PORT": "70000"}, {}, "PODSTAMP_PORT: 70000 is out of range (0 to 65535)"),
        ({"PODSTAMP_PORT": "x"}, {}, "PODSTAMP_PORT: 'x' is not a whole number (0 to 65535)"),
        (
            {"PODSTAMP_TERMINAL_DRY_RUN": "maybe"},
            {},
            "PODSTAMP_TERMINAL_DRY_RUN: 'maybe' is neither true nor false",
        ),
        (
            {"PODSTAMP_TERMINAL_HOLD_SECONDS": "5"},
            {"terminal.hold_seconds": -1},
            "--terminal-hold-seconds: -1 is out of range (0 to 3600)",
        ),
    ],
)
def test_a_mistake_elsewhere_names_the_variable_or_the_flag(
    file: Path, environ: dict[str, str], flags: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(file, "port: 1\nterminal: {holdSeconds: 5}", environ, flags)
    assert str(caught.value) == message


def test_a_flag_does_not_hide_a_section_that_is_wrong(file: Path) -> None:
    with pytest.raises(ConfigError, match=r"terminal: 7 is not a mapping"):
        load(file, "terminal: 7", flags={"terminal.limit": 3})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a: b: c", "not YAML in line 1: mapping values are not allowed here"),
        (b"port: 1\nport: 2", "not YAML in line 2: 'port' stands twice"),
        (b"terminal: {limit: 1, limit: 2}", "not YAML in line 1: 'limit' stands twice"),
        (b"- port", "settings are a mapping of names to values"),
        (b"\xff\xfe\xff", "not UTF-8 text"),
        (b"!!python/object:os.system x", "not YAML"),
        (b"port: 2024-13-45", "not YAML: a value cannot be read (month must be in 1..12)"),
        (b"terminal: &a {limit: *a}", "not YAML: it is nested too deeply, or an alias stands in"),
        (None, "cannot read the settings: No such file or directory"),
    ],
)
def test_a_file_that_is_no_settings_is_one_line_with_its_path(
    file: Path, content: bytes | None, message: str
) -> None:
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load(file)
    assert str(caught.value).startswith(f"{file}: {message}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["~: 1", "terminal: {~: 1}", "terminal: !!set {a}", "[]: 1"])
def test_a_key_or_value_of_an_odd_kind_is_refused(file: Path, text: str) -> None:
    with pytest.raises(ConfigError):
        load(file, text)


def test_a_name_that_no_setting_has_is_refused() -> None:
    with pytest.raises(ConfigError, match="there is no setting prot"):
        load(None, flags={"prot": 1})
