"""The serving process: what it needs, what it tells, how it stops."""

from __future__ import annotations

import signal
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import msgspec
import pytest
import yaml

from kube.errors import ConfigError, KubeError, Unauthorized, Unreachable
from tests.apiserver import EmbeddedCluster
from tests.launch import Launched, launch_webhook
from tests.webhook.builders import encode, pod, review
from tests.webhook.site import write_pair
from webhook.__main__ import run
from webhook.app import MAX_BODY_BYTES
from webhook.config import WebhookConfig

BODY = encode(review("CREATE", pod()))
JSON = {"content-type": "application/json"}
API_SERVER_IDLE_S = 90


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as server:
        yield server


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certs")
    write_pair(folder)
    return folder


@pytest.fixture
def launch(
    cluster: EmbeddedCluster, certs: Path, tmp_path: Path
) -> Iterator[Callable[[float], Launched]]:
    """Starts the webhook with that many seconds of draining; killed at the end."""
    launched: list[Launched] = []

    def start(drain_s: float) -> Launched:
        config = tmp_path / "webhook.yaml"
        config.write_text(yaml.safe_dump({"drainSeconds": drain_s, "stopSeconds": 60}))
        launched.append(launch_webhook(cluster.kubeconfig, tmp_path, cert_dir=certs, config=config))
        return launched[-1]

    yield start
    for process in launched:
        process.kill()


def client(certs: Path, webhook: Launched) -> httpx.Client:
    context = ssl.create_default_context(cafile=certs / "ca.crt")
    return httpx.Client(base_url=f"https://127.0.0.1:{webhook.ports.port}", verify=context)


def ready(webhook: Launched) -> int:
    return httpx.get(f"{webhook.health_url}/readyz").status_code


def until(holds: Callable[[], bool], within_s: float = 60.0) -> None:
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_it_serves_and_counts_what_it_serves(
    launch: Callable[[float], Launched], certs: Path
) -> None:
    webhook = launch(0)
    assert ready(webhook) == 200
    with client(certs, webhook) as http:
        answer = http.post("/mutate?timeout=5s", content=BODY, headers=JSON)
        assert msgspec.json.decode(answer.content)["response"]["allowed"]
        assert http.post("/validate", content=b"{}", headers=JSON).status_code == 400
        other = {"content-type": "text/plain"}
        assert http.post("/validate", content=BODY, headers=other).status_code == 415
    head = b"POST /mutate HTTP/1.1\r\nHost: w\r\nContent-Type: application/json\r\n"
    with _connect(certs, webhook) as tls:
        tls.sendall(head + b"Content-Length: %d\r\n\r\n" % (MAX_BODY_BYTES + 1))
        assert tls.recv(1000).startswith(b"HTTP/1.1 413 ")
    metrics = httpx.get(f"{webhook.health_url}/metrics").text
    assert 'podstamp_admission_reviews_total{endpoint="mutate",operation="CREATE"' in metrics
    for code in (400, 413, 415):
        assert f'podstamp_admission_failures_total{{code="{code}"}} 1.0' in metrics
    assert "podstamp_admission_store_age_seconds" in metrics
    assert "podstamp_certificate_not_after_timestamp_seconds" in metrics
    assert httpx.get(f"{webhook.health_url}/healthz").status_code == 200


def test_an_api_server_that_has_not_read_its_roles_yet_is_asked_again(
    cluster: EmbeddedCluster, launch: Callable[[float], Launched]
) -> None:
    refusal = cluster.faults.fail(403, verb="list", path="/api/v1/pods", times=1)
    assert ready(launch(0)) == 200
    assert refusal.hits == 1


def test_a_stop_drains_before_it_ends(launch: Callable[[float], Launched], certs: Path) -> None:
    webhook = launch(4.0)
    halves = _half_a_review(certs, webhook)
    with client(certs, webhook) as http, _connect(certs, webhook) as idle:
        assert "connection" not in http.post("/mutate", content=BODY, headers=JSON).headers
        webhook.signal(signal.SIGTERM)
        until(lambda: ready(webhook) == 503)
        # Unready, but still there: on the old connection and on new ones.
        for _ in range(2):
            answer = http.post("/mutate", content=BODY, headers=JSON)
            assert answer.status_code == 200
            assert answer.headers["connection"] == "close"
        until(lambda: _refuses(webhook))
        assert webhook.exit_code is None
        # The review that began before the stop is still answered.
        assert _other_half(halves).startswith(b"HTTP/1.1 200 OK")
        # An idle connection is closed, and not waited for.
        assert idle.recv(1) == b""
        assert webhook.wait(50) == 0


def _connect(certs: Path, webhook: Launched) -> ssl.SSLSocket:
    context = ssl.create_default_context(cafile=certs / "ca.crt")
    raw = socket.create_connection(("127.0.0.1", webhook.ports.port), 10)
    return context.wrap_socket(raw, server_hostname="127.0.0.1")


def _half_a_review(certs: Path, webhook: Launched) -> ssl.SSLSocket:
    tls = _connect(certs, webhook)
    head = b"POST /mutate HTTP/1.1\r\nHost: w\r\nContent-Type: application/json\r\n"
    tls.sendall(head + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY[:100])
    return tls


def _other_half(tls: ssl.SSLSocket) -> bytes:
    with tls:
        tls.sendall(BODY[100:])
        answer = b""
        while chunk := tls.recv(65536):
            answer += chunk
    return answer


def _refuses(webhook: Launched) -> bool:
    try:
        socket.create_connection(("127.0.0.1", webhook.ports.port), 1).close()
    except OSError:
        return True
    return False


def test_a_second_signal_ends_it_at_once(launch: Callable[[float], Launched]) -> None:
    webhook = launch(3600.0)
    webhook.signal(signal.SIGTERM)
    until(lambda: ready(webhook) == 503)
    webhook.signal(signal.SIGTERM)
    assert webhook.wait(60) == 0


def test_connections_outlive_those_of_an_idle_api_server() -> None:
    assert WebhookConfig().keep_alive_seconds > API_SERVER_IDLE_S


def serve(*arguments: str) -> None:
    run(["serve", "--port", "0", "--health-port", "0", *arguments])


def test_a_port_in_use_is_told(cluster: EmbeddedCluster, certs: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        with pytest.raises(ConfigError, match=f"--port {port}: .*in use.*another port"):
            serve(
                *("--host", "127.0.0.1", "--port", port),
                *("--kubeconfig", str(cluster.kubeconfig), "--cert-dir", str(certs)),
            )


@pytest.mark.parametrize("host", ["nosuch.invalid", "192.0.2.1"])
def test_a_host_that_is_not_here_is_told(cluster: EmbeddedCluster, certs: Path, host: str) -> None:
    with pytest.raises(ConfigError, match=f"--host {host}: .*choose an address") as caught:
        serve(
            *("--host", host, "--kubeconfig", str(cluster.kubeconfig)),
            *("--cert-dir", str(certs)),
        )
    assert "port" not in str(caught.value)


def test_certificates_that_cannot_be_served_are_told_once(
    cluster: EmbeddedCluster,
    certs: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    kubeconfig = ("--kubeconfig", str(cluster.kubeconfig))
    with pytest.raises(ConfigError, match=r"tls\.crt"):
        serve(*kubeconfig, "--cert-dir", str(tmp_path))
    write_pair(tmp_path)
    (tmp_path / "tls.key").write_bytes((certs / "tls.key").read_bytes())
    with pytest.raises(ConfigError, match="cannot be served"):
        serve(*kubeconfig, "--cert-dir", str(tmp_path))
    assert "bad serving certificate" not in capfd.readouterr().err + caplog.text


def test_an_api_server_that_does_not_answer_is_told(
    cluster: EmbeddedCluster, certs: Path, tmp_path: Path
) -> None:
    text = cluster.kubeconfig.read_text()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    nobody = tmp_path / "nobody"
    nobody.write_text(text.replace(cluster.url, f"https://127.0.0.1:{port}"))
    with pytest.raises(Unreachable, match=str(port)):
        serve("--kubeconfig", str(nobody), "--cert-dir", str(certs))
    stranger = tmp_path / "stranger"
    stranger.write_text(text.replace(cluster.token, "wrong"))
    with pytest.raises(Unauthorized):
        serve("--kubeconfig", str(stranger), "--cert-dir", str(certs))


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"port": 70000}, "port"),
        ({"setKinds": ["PodSet"]}, "setKinds"),
        ({"certs": {"mode": "files"}}, "--cert-dir"),
        ({"drain": 5}, "drain"),
    ],
)
def test_a_wrong_setting_is_told(
    cluster: EmbeddedCluster, tmp_path: Path, settings: dict[str, object], says: str
) -> None:
    file = tmp_path / "webhook.yaml"
    file.write_text(yaml.safe_dump(settings))
    arguments = ["serve", "--kubeconfig", str(cluster.kubeconfig), "--config", str(file)]
    with pytest.raises(ConfigError, match=says):
        run(arguments)


def test_a_missing_kubeconfig_is_told(tmp_path: Path) -> None:
    with pytest.raises(KubeError, match="nowhere"):
        serve("--kubeconfig", str(tmp_path / "nowhere"))
