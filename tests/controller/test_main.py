"""python -m controller and kubectl-podstamp as processes: bad input, signals, port files."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import httpx
import pytest
import yaml

from controller.__main__ import command as controller
from controller.kubectl import command as plugin
from controller.term import check_usable
from kube.console import run_command
from kube.errors import ConfigError
from tests.apiserver import EmbeddedCluster
from tests.controller.running import LIVE, config_of
from tests.e2e.waiting import eventually
from tests.launch import clean_environment, launch_controller


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as made:
        yield made


def call(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """The controller, which is expected to end by itself."""
    return subprocess.run(
        [sys.executable, "-m", "controller", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
        env=clean_environment() | environ,
    )


class Here:
    """Commands run in this process, with the exit that run_command gives them."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(
        self, command: Callable[[Sequence[str]], int], *arguments: str
    ) -> subprocess.CompletedProcess[str]:
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            run_command(lambda: command(arguments))
        out, err = self._capsys.readouterr()
        code = ended.value.code
        assert isinstance(code, int)
        return subprocess.CompletedProcess(arguments, code, out, err)


@pytest.fixture
def here(capsys: pytest.CaptureFixture[str]) -> Here:
    return Here(capsys)


def with_token(server: EmbeddedCluster, folder: Path, token: str, url: str = "") -> Path:
    """The administrator's kubeconfig with another token or server."""
    config = yaml.safe_load(server.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token}
    if url:
        config["clusters"][0]["cluster"]["server"] = url
    file = folder / "kubeconfig"
    file.write_text(yaml.safe_dump(config))
    return file


def expect(done: subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    assert done.returncode == code, done.stderr
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, done.stderr
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in errors[0]


def test_a_missing_configuration_file_is_named(here: Here) -> None:
    expect(here(controller, "run", "--config", "/nonexistent.yaml"), 2, "/nonexistent.yaml")


def test_a_broken_configuration_is_told_with_its_path(
    server: EmbeddedCluster, tmp_path: Path
) -> None:
    file = tmp_path / "controller.yaml"
    file.write_text("terminal: {holdSeconds: 9999}")
    done = call("run", "--kubeconfig", str(server.kubeconfig), "--config", str(file))
    expect(done, 2, "controller.yaml", "terminal.holdSeconds", "9999", "3600")


@pytest.mark.parametrize(
    ("setting", "word"),
    [
        ("terminal.dryRun", "KEY=VALUE"),
        ("terminal.nothing=1", "terminal.nothing"),
        ("terminal.dryRun=perhaps", "dry"),
        ("terminal.dryRun=[", "YAML"),
        ("retired=1", "retired"),
    ],
)
def test_a_wrong_set_is_a_usage_error(here: Here, setting: str, word: str) -> None:
    expect(here(controller, "run", "--set", setting), 2, word)


def test_an_unknown_flag_and_no_command_exit_2(here: Here) -> None:
    expect(here(controller, "run", "--no-such-flag"), 2, "--no-such-flag", "--help")
    expect(here(controller), 2, "COMMAND")
    shown = here(controller, "run", "--help")
    assert shown.returncode == 0
    assert "--set" in shown.stdout


def test_a_missing_kubeconfig_is_named() -> None:
    expect(call("run", "--kubeconfig", "/nonexistent/config"), 2, "/nonexistent/config")


def test_an_api_server_that_does_not_answer_ends_it(
    server: EmbeddedCluster, tmp_path: Path
) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    url = f"https://127.0.0.1:{port}"
    file = with_token(server, tmp_path, "x", url)
    expect(call("run", "--kubeconfig", str(file), "--health-port", "0"), 1, url)


def test_a_token_that_is_refused_ends_it(server: EmbeddedCluster, tmp_path: Path) -> None:
    file = with_token(server, tmp_path, "wrong")
    expect(call("run", "--kubeconfig", str(file), "--health-port", "0"), 1, "nauthorized")


def test_a_port_in_use_is_told(server: EmbeddedCluster) -> None:
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = call("run", "--kubeconfig", str(server.kubeconfig), "--health-port", port)
    expect(done, 2, "--health-port", port)


def test_an_unknown_log_level_is_told(here: Here) -> None:
    expect(here(controller, "run", "--log-level", "loud"), 2, "loud")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly_with_exit_code_0(
    server: EmbeddedCluster, tmp_path: Path, number: signal.Signals
) -> None:
    config = tmp_path / "controller.yaml"
    config.write_text(LIVE)
    process = launch_controller(server.kubeconfig, tmp_path, config=config)
    answer = httpx.get(f"{process.health_url}/healthz", trust_env=False)
    assert answer.status_code == 200
    process.signal(number)
    assert process.wait(10) == 0
    assert "Traceback" not in process.log.read_text()


def test_a_loop_that_is_configured_anew_by_file_needs_no_restart_and_a_bad_file_is_told(
    server: EmbeddedCluster, tmp_path: Path
) -> None:
    config = tmp_path / "controller.yaml"
    config.write_text("retired: {enabled: false}")
    process = launch_controller(server.kubeconfig, tmp_path, config=config)

    def status() -> dict[str, object]:
        found: dict[str, object] = httpx.get(f"{process.health_url}/status", trust_env=False).json()
        return found

    try:
        assert status()["retired"] == {"enabled": False, "dryRun": True}
        config.write_text("retired: {enabled: 7}")
        eventually(lambda: "retired.enabled" in str(status()["configProblem"]), "the problem")
        config.write_text("retired: {enabled: true}")
        eventually(lambda: status()["retired"] == {"enabled": True, "dryRun": True}, "the change")
        assert status()["configProblem"] is None
    finally:
        assert process.stop() == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "retired: {enabled: true, source: postgres, postgres: {dsnFile: /nonexistent/dsn}}",
            "/nonexistent/dsn",
        ),
        (
            "routers: [{name: a, kind: workers, dialect: vllm, engines: {namespace: a},"
            " replicas: {urls: ['https://a'], caFile: /nonexistent/ca}}]",
            "/nonexistent/ca",
        ),
        (
            "routers: [{name: a, kind: webhook-url, url: 'https://a', secretFile: /a,"
            " caFile: /nonexistent/ca, engines: {namespace: a}}]",
            "/nonexistent/ca",
        ),
        (
            "routers: [{name: a, kind: endpointslice, namespace: a, service: a,"
            " engines: {namespace: a, scheme: https}, probe: {caFile: /nonexistent/ca}}]",
            "/nonexistent/ca",
        ),
    ],
)
def test_what_is_well_written_and_cannot_be_used_here_is_refused(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        check_usable(config_of(text))


def test_a_new_file_that_cannot_be_used_here_leaves_the_old_one_in_force(
    server: EmbeddedCluster, tmp_path: Path
) -> None:
    config = tmp_path / "controller.yaml"
    config.write_text(LIVE)
    process = launch_controller(server.kubeconfig, tmp_path, config=config)

    def problem() -> str:
        answer = httpx.get(f"{process.health_url}/status", trust_env=False).json()
        return str(answer["configProblem"])

    try:
        postgres = "source: postgres, postgres: {dsnFile: /nonexistent/dsn}"
        config.write_text(f"{LIVE}retired: {{enabled: true, {postgres}}}")
        eventually(lambda: "/nonexistent/dsn" in problem(), "the problem")
    finally:
        assert process.stop() == 0


def test_settings_come_from_the_environment_too(server: EmbeddedCluster, tmp_path: Path) -> None:
    config = tmp_path / "controller.yaml"
    config.write_text("terminal: {holdSeconds: 1}")
    environ = {"PODSTAMP_TERMINAL_DRY_RUN": "false", "PODSTAMP_LOG_FORMAT": "json"}
    process = launch_controller(server.kubeconfig, tmp_path, config=config, env=environ)
    status = httpx.get(f"{process.health_url}/status", trust_env=False).json()
    assert process.stop() == 0
    assert status["terminal"]["dryRun"] is False
    assert process.log.read_text().startswith("{")


def test_a_hanging_event_loop_ends_the_process_from_another_thread() -> None:
    program = (
        "import time\n"
        "from controller.__main__ import start_last_resort\n"
        "from controller.watchdog import Watchdog\n"
        "dog = Watchdog(time.monotonic, limit_s=0.1)\n"
        "start_last_resort(dog, period_s=0.05)\n"
        "dog.beat('event loop')\n"
        "time.sleep(20)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=15
    )
    assert done.returncode == 70
    assert done.stderr == "error: event loop hung: ending\n"


def test_the_console_script_is_a_kubectl_plugin() -> None:
    done = subprocess.run(
        [
            Path(sys.executable).with_name("kubectl-podstamp"),
            "plan",
            "--kubeconfig",
            "/nonexistent",
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
        env=clean_environment(),
    )
    expect(done, 2, "/nonexistent")


def test_the_plugin_tells_errors_in_one_line(
    server: EmbeddedCluster, tmp_path: Path, here: Here
) -> None:
    kubeconfig = ("--kubeconfig", str(server.kubeconfig))
    expect(here(plugin, "plan", "--config", "/nonexistent", *kubeconfig), 2, "/nonexistent")
    refused = with_token(server, tmp_path, "wrong")
    expect(here(plugin, "plan", "--kubeconfig", str(refused)), 1, "nauthorized")
    expect(here(plugin, "retire", "absent", "-n", "none", *kubeconfig), 1, "none")
    nowhere = ("--controller", "http://127.0.0.1:1")
    expect(here(plugin, "routers", *nowhere, *kubeconfig), 1, "127.0.0.1:1")
    expect(here(plugin), 2, "COMMAND")
    expect(here(plugin, "plan", "-o", "xml", *kubeconfig), 2, "xml", "plan --help")
    for url in ("http://127.0.0.1:99999", "127.0.0.1:8080", "ftp://a", "http://[::1"):
        expect(here(plugin, "status", "--controller", url, *kubeconfig), 2, url)
    for name in ("pod/", "..", "\udcff"):
        expect(here(plugin, "retire", name, "-n", "default", *kubeconfig), 2, "is no name")


@pytest.mark.parametrize("name", ["plan", "status", "retire", "adopt", "routers"])
def test_each_command_of_the_plugin_explains_itself(here: Here, name: str) -> None:
    shown = here(plugin, name, "--help")
    assert shown.returncode == 0
    assert f"kubectl podstamp {name}" in shown.stdout
    assert "--kubeconfig" in shown.stdout
