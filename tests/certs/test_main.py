"""The commands on an API server: what they do, print and answer to mistakes."""

import json
import ssl
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from certs.__main__ import main
from certs.validity import certificates
from tests.apiserver import EmbeddedCluster
from tests.certs.memory import MUTATING, REPLICAS, SECRET, VALIDATING

WEBHOOKS = Path(__file__).parent.parent.parent / "manifests" / "base" / "webhooks.yaml"
NAMESPACES = "/api/v1/namespaces"


class Server:
    """Raw calls as the administrator, and our command."""

    def __init__(self, cluster: EmbeddedCluster, capsys: pytest.CaptureFixture[str]) -> None:
        self.cluster = cluster
        self.capsys = capsys
        ca = cluster.kubeconfig.parent / "ca.pem"
        ca.write_text(cluster.ca_pem)
        self.http = httpx.Client(
            base_url=cluster.url,
            verify=ssl.create_default_context(cafile=str(ca)),
            headers={"authorization": f"Bearer {cluster.token}"},
            trust_env=False,
        )

    def get(self, path: str) -> Any:
        return self.http.get(path).raise_for_status().json()

    def post(self, path: str, body: Any) -> None:
        self.http.post(path, json=body).raise_for_status()

    def patch(self, path: str, body: Any) -> None:
        kind = {"content-type": "application/merge-patch+json"}
        self.http.patch(path, content=json.dumps(body), headers=kind).raise_for_status()

    def install(self) -> None:
        self.post(NAMESPACES, {"metadata": {"name": "podstamp-system"}})
        for document in yaml.safe_load_all(WEBHOOKS.read_text()):
            path = MUTATING if document["kind"].startswith("Mutating") else VALIDATING
            self.post(path.rsplit("/", 1)[0], document)

    def certs(self, *arguments: str) -> tuple[int, str, str]:
        """Exit code, stdout and stderr."""
        self.capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([*arguments, "--kubeconfig", str(self.cluster.kubeconfig)])
        out, err = self.capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, out, err

    def bundles(self) -> list[str]:
        return [
            entry["clientConfig"].get("caBundle", "")
            for path in (MUTATING, VALIDATING)
            for entry in self.get(path)["webhooks"]
        ]

    def secret(self) -> dict[str, bytes]:
        return {key: b64decode(value) for key, value in self.get(SECRET)["data"].items()}


@pytest.fixture
def server(embedded: EmbeddedCluster, capsys: pytest.CaptureFixture[str]) -> Iterator[Server]:
    made = Server(embedded, capsys)
    yield made
    made.http.close()


@pytest.fixture
def installed(server: Server) -> Server:
    server.install()
    return server


def test_issue_makes_the_secret_and_fills_every_entry(installed: Server) -> None:
    code, out, err = installed.certs("issue")
    assert code == 0, err
    secret = installed.secret()
    assert set(secret) == {"ca.crt", "ca.key", "tls.crt", "tls.key"}
    assert len(installed.bundles()) == 6
    assert set(installed.bundles()) == {b64encode(secret["ca.crt"]).decode()}
    assert "podstamp-webhook.podstamp-system.svc" in out
    assert out.count(" ok") == 6


def test_issue_again_changes_nothing(installed: Server) -> None:
    installed.certs("issue")
    before = [installed.get(path) for path in (SECRET, MUTATING, VALIDATING)]
    code, _, err = installed.certs("issue")
    assert (code, err) == (0, "")
    assert [installed.get(path) for path in (SECRET, MUTATING, VALIDATING)] == before


def test_issue_before_the_configurations_says_to_run_it_again(server: Server) -> None:
    server.post(NAMESPACES, {"metadata": {"name": "podstamp-system"}})
    code, out, err = server.certs("issue")
    assert code == 0
    assert "published nowhere" in out
    assert "run this again" in err


def test_issue_adds_names_and_writes_files(installed: Server, tmp_path: Path) -> None:
    installed.certs("issue")
    ca = installed.secret()["ca.crt"]
    folder = tmp_path / "certs"
    names = ("--extra-san", "127.0.0.1", "--extra-san", "localhost")
    code, out, _ = installed.certs("issue", *names, "--cert-dir", str(folder))
    assert code == 0
    assert "127.0.0.1" in out
    secret = installed.secret()
    assert secret["ca.crt"] == ca
    for name in ("ca.crt", "tls.crt", "tls.key"):
        assert (folder / name).read_bytes() == secret[name]
    assert installed.certs("issue")[0] == 0
    assert installed.secret() == secret, "a run without the names does not take them away"


def test_the_names_of_the_configuration_in_the_cluster_count(installed: Server) -> None:
    text = "certs: {clusterDomain: corp.local, leafDays: 7}"
    body = {"metadata": {"name": "podstamp-config"}, "data": {"webhook.yaml": text}}
    installed.post(f"{NAMESPACES}/podstamp-system/configmaps", body)
    code, out, _ = installed.certs("issue")
    assert code == 0
    assert "podstamp-webhook.podstamp-system.svc.corp.local" in out
    [leaf] = certificates(installed.secret()["tls.crt"])
    assert (leaf.not_valid_after_utc - leaf.not_valid_before_utc).days == 7


@pytest.mark.parametrize("text", ["certs: {leafDays: 0}", "certs: [", "certs: {x: 1}", "- a"])
def test_a_broken_configuration_in_the_cluster_is_named(installed: Server, text: str) -> None:
    body = {"metadata": {"name": "podstamp-config"}, "data": {"webhook.yaml": text}}
    installed.post(f"{NAMESPACES}/podstamp-system/configmaps", body)
    code, _, err = installed.certs("issue")
    assert code == 2
    assert err.startswith("error: ConfigMap podstamp-system/podstamp-config, webhook.yaml")
    assert err.count("\n") == 1


@pytest.mark.parametrize("kind", ["leaf", "ca"])
def test_rotate_follows_the_rotation_to_its_end(
    installed: Server, kind: str, tmp_path: Path
) -> None:
    installed.certs("issue")
    before = installed.secret()
    flags = ["--ca"] if kind == "ca" else []
    folder = ("--cert-dir", str(tmp_path))
    code, out, err = installed.certs("rotate", *flags, "--settle-seconds", "0", *folder)
    assert code == 0, err
    after = installed.secret()
    assert after["tls.crt"] != before["tls.crt"]
    assert (after["ca.crt"] != before["ca.crt"]) == (kind == "ca")
    assert len(certificates(after["ca.crt"])) == 1
    assert set(installed.bundles()) == {b64encode(after["ca.crt"]).decode()}
    assert (tmp_path / "tls.crt").read_bytes() == after["tls.crt"]
    steps = {"leaf": ["RenewLeaf"], "ca": ["PublishNewCA", "ServeNewLeaf", "DropOldCA"]}[kind]
    places = [err.index(step) for step in (*steps, "done")]
    assert places == sorted(places)
    assert "asked for" not in out


def test_rotate_gives_up_when_a_replica_does_not_follow_and_names_it(installed: Server) -> None:
    installed.certs("issue")
    record = '{"leaf":"x","ca":"y","notAfter":"2100-01-01T00:00:00Z","seen":"2026-01-01T00:00:00Z"}'
    body = {"metadata": {"name": REPLICAS.rsplit("/", 1)[1]}, "data": {"webhook-x": record}}
    installed.post(REPLICAS.rsplit("/", 1)[0], body)
    flags = ("--settle-seconds", "0", "--timeout", "0")
    code, _, err = installed.certs("rotate", "--ca", *flags)
    assert code == 1
    assert err.splitlines()[-1].startswith("error: not done within 0 s: ")
    code, _, err = installed.certs("rotate", "--ca", *flags[:2], "--timeout", "3")
    assert code == 1
    assert "waiting for webhook-x" in err.splitlines()[-1]


def test_show_tells_what_is_stored_published_and_served(installed: Server) -> None:
    installed.certs("issue")
    served = installed.certs("show", "-o", "json")
    record = json.dumps(
        {
            "leaf": json.loads(served[1])["serving"]["fingerprint"],
            "ca": "y",
            "notAfter": "2100-01-01T00:00:00Z",
            "seen": "2026-01-01T00:00:00Z",
        }
    )
    body = {"metadata": {"name": REPLICAS.rsplit("/", 1)[1]}, "data": {"webhook-x": record}}
    installed.post(REPLICAS.rsplit("/", 1)[0], body)
    webhooks = installed.get(VALIDATING)["webhooks"]
    webhooks[1]["clientConfig"]["caBundle"] = ""
    installed.patch(VALIDATING, {"webhooks": webhooks})

    code, out, err = installed.certs("show", "-o", "json")
    assert (code, err) == (0, "")
    told = json.loads(out)
    assert told["problems"] == []
    assert told["serving"]["names"][0] == "podstamp-webhook.podstamp-system.svc"
    assert [ca["signs"] for ca in told["cas"]] == [True]
    assert [entry["state"] for entry in told["published"]].count("empty") == 1
    assert told["replicas"] == [
        {
            "name": "webhook-x",
            "serves": told["serving"]["fingerprint"],
            "ca": "y",
            "current": True,
            "seen": "2026-01-01T00:00:00Z",
        }
    ]
    assert yaml.safe_load(installed.certs("show", "-o", "yaml")[1])["replicas"] == told["replicas"]
    table = installed.certs("show")[1]
    assert "webhook-x" in table
    assert "empty" in table
    assert installed.bundles().count("") == 1, "show changes nothing"


def test_show_of_nothing_says_how_to_begin(server: Server) -> None:
    code, out, err = server.certs("show")
    assert (code, err) == (0, "")
    assert "python -m certs issue" in out
    assert "problem: nothing is stored" in out


def test_show_names_a_problem(installed: Server) -> None:
    installed.certs("issue")
    installed.patch(SECRET, {"data": {"tls.key": installed.get(SECRET)["data"]["ca.key"]}})
    assert "problem: tls.key is not the key of tls.crt" in installed.certs("show")[1]


def _cert_manager_secret(server: Server) -> None:
    server.certs("issue")
    note = {"cert-manager.io/certificate-name": "podstamp-webhook"}
    server.patch(SECRET, {"metadata": {"annotations": note}})


def _cert_manager_bundles(server: Server) -> None:
    note = {"cert-manager.io/inject-ca-from": "podstamp-system/podstamp-webhook"}
    server.patch(MUTATING, {"metadata": {"annotations": note}})


@pytest.mark.parametrize("command", ["issue", "rotate"])
@pytest.mark.parametrize("arrange", [_cert_manager_secret, _cert_manager_bundles])
def test_nothing_is_written_against_cert_manager(
    installed: Server, arrange: Callable[[Server], None], command: str
) -> None:
    arrange(installed)
    before = [installed.get(path) for path in (MUTATING, VALIDATING)]
    code, _, err = installed.certs(command)
    assert code == 1
    assert err.startswith("error: cert-manager ")
    assert [installed.get(path) for path in (MUTATING, VALIDATING)] == before


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("issue",), 1, 'namespaces "podstamp-system" not found; apply podstamp\'s manifests'),
        (("rotate",), 1, "nothing to rotate; make certificates with `python -m certs issue`"),
        (("issue", "--leaf-days", "x"), 2, "invalid int value: 'x'; see `python -m certs issue"),
        (("issue", "--leaf-days", "0"), 2, "leafDays"),
        (("issue", "--extra-san", "a b"), 2, "'a b' is neither a DNS name nor an IP address"),
        (("nonsense",), 2, "invalid choice: 'nonsense'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_mistake_is_told_in_one_line(
    server: Server, arguments: tuple[str, ...], code: int, said: str
) -> None:
    got, out, err = server.certs(*arguments)
    assert (got, out) == (code, "")
    assert said in err.splitlines()[-1]
    assert err.splitlines()[-1].startswith("error: ")
    assert "Traceback" not in err


def test_no_command_is_a_mistake_too(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([])
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("error: the following arguments are required: issue|")


def test_a_server_that_is_not_there_is_told_in_one_line(
    embedded: EmbeddedCluster, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for kubeconfig, code in ((str(tmp_path / "none"), 2), (str(embedded.kubeconfig), 1)):
        if code == 1:
            embedded.faults.block()
        with pytest.raises(SystemExit) as ended:
            main(["show", "--kubeconfig", kubeconfig])
        assert ended.value.code == code
        err = capsys.readouterr().err
        assert err.startswith("error: ")
        assert err.count("\n") == 1
