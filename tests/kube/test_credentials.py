import base64
import json
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from kube.credentials import Credentials, load_credentials
from kube.errors import ConfigError

BASIC: dict[str, Any] = {
    "current-context": "one",
    "contexts": [
        {"name": "one", "context": {"cluster": "c", "user": "u"}},
        {"name": "two", "context": {"cluster": "d", "user": "v", "namespace": "team"}},
    ],
    "clusters": [
        {"name": "c", "cluster": {"server": "https://c:6443/"}},
        {
            "name": "d",
            "cluster": {
                "server": "https://d:6443",
                "insecure-skip-tls-verify": True,
                "tls-server-name": "api.internal",
            },
        },
    ],
    "users": [
        {"name": "u", "user": {"token": "secret"}},
        {"name": "v", "user": {}},
    ],
}


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def write(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return path


def with_user(**user: Any) -> dict[str, Any]:
    return BASIC | {"users": [{"name": "u", "user": user}]}


def with_cluster(**cluster: Any) -> dict[str, Any]:
    entry = {"name": "c", "cluster": {"server": "https://c:6443"} | cluster}
    return BASIC | {"clusters": [entry]}


def load(path: Path, content: Any, context: str | None = None) -> Credentials:
    return load_credentials(write(path / "config", content), context)


def test_the_current_context_gives_server_and_token(tmp_path: Path) -> None:
    found = load(tmp_path, BASIC)
    assert found == Credentials(server="https://c:6443", token="secret")


def test_another_context_is_chosen_by_name(tmp_path: Path) -> None:
    found = load(tmp_path, BASIC, "two")
    assert (found.server, found.namespace, found.insecure) == ("https://d:6443", "team", True)
    assert (found.tls_server_name, found.token) == ("api.internal", None)


def test_secrets_do_not_show_in_a_repr(tmp_path: Path) -> None:
    assert "secret" not in repr(load(tmp_path, BASIC))


def test_data_is_decoded_and_counts_before_a_file(tmp_path: Path) -> None:
    user = {
        "client-certificate-data": b64("CERT"),
        "client-certificate": "/nowhere",
        "client-key-data": b64("KEY"),
    }
    cluster = {"certificate-authority-data": b64("CA"), "certificate-authority": "/nowhere"}
    content = with_cluster(**cluster) | {"users": [{"name": "u", "user": user}]}
    found = load(tmp_path, content)
    assert (found.ca_pem, found.client_cert_pem, found.client_key_pem) == ("CA", "CERT", "KEY")
    assert (found.ca_file, found.client_cert_file) == (None, None)


def test_relative_files_are_beside_the_kubeconfig(tmp_path: Path) -> None:
    for name in ("ca.pem", "cert.pem", "key.pem", "token"):
        write(tmp_path / "keys" / name, "x")
    user = {
        "client-certificate": "keys/cert.pem",
        "client-key": "keys/key.pem",
        "tokenFile": "keys/token",
    }
    content = with_cluster(**{"certificate-authority": "keys/ca.pem"})
    found = load(tmp_path, content | {"users": [{"name": "u", "user": user}]})
    assert found.ca_file == tmp_path / "keys" / "ca.pem"
    assert found.client_cert_file == tmp_path / "keys" / "cert.pem"
    assert found.client_key_file == tmp_path / "keys" / "key.pem"
    assert found.token_file == tmp_path / "keys" / "token"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a: b: c", "not YAML in line 1"),
        ("- a", "not a kubeconfig"),
        ("", "no current-context"),
        (BASIC | {"current-context": ""}, "no current-context"),
        (BASIC | {"current-context": "three"}, "context 'three' is not there; it has one, two"),
        (BASIC | {"clusters": []}, "cluster 'c' is not there; it has none"),
        (BASIC | {"users": None}, "user 'u' is not there; it has none"),
        (BASIC | {"contexts": [{"name": "one"}]}, "context 'one' names no cluster"),
        (BASIC | {"contexts": 7}, "not a kubeconfig"),
        (with_cluster(server=""), "cluster 'c' has no server"),
        (with_cluster(server="c:6443"), "must begin with https:// or http://"),
        (with_cluster(**{"certificate-authority-data": "%%%"}), "certificate-authority-data"),
        (with_cluster(**{"certificate-authority": "ca.pem"}), "certificate-authority that the"),
        (with_user(**{"client-certificate-data": b64("C")}), "both a client certificate and a key"),
        (with_user(tokenFile="none"), "tokenFile that the kubeconfig names is not there"),
        (with_user(token=7), "not a kubeconfig"),
    ],
    ids=[
        "no yaml",
        "a list",
        "empty",
        "no current context",
        "unknown context",
        "unknown cluster",
        "unknown user",
        "context without cluster",
        "wrong type",
        "no server",
        "no scheme",
        "no base64",
        "no CA file",
        "certificate without key",
        "no token file",
        "token of a wrong type",
    ],
)
def test_a_mistake_is_one_line_that_names_file_and_fault(
    tmp_path: Path, content: Any, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, content)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["absent", "a folder", "not text"])
def test_a_kubeconfig_that_cannot_be_read_is_named(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "config"
    if kind == "a folder":
        path.mkdir()
    elif kind == "not text":
        path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match=f"{path}: "):
        load_credentials(path)


def test_files_of_the_environment_are_merged_and_the_first_wins(tmp_path: Path) -> None:
    write(
        tmp_path / "a" / "config",
        {"users": [{"name": "u", "user": {"token": "of a", "tokenFile": ""}}]},
    )
    write(tmp_path / "a" / "ca.pem", "x")
    second = with_cluster(**{"certificate-authority": "ca.pem"})
    write(tmp_path / "b" / "config", second)
    write(tmp_path / "b" / "ca.pem", "x")
    variable = f"{tmp_path / 'a' / 'config'}:{tmp_path / 'nowhere'}::{tmp_path / 'b' / 'config'}"
    found = load_credentials(environ={"KUBECONFIG": variable}, home=tmp_path)
    assert found.token == "of a"
    assert found.server == "https://c:6443"
    assert found.ca_file == tmp_path / "b" / "ca.pem"


def test_the_order_is_argument_environment_home_service_account(tmp_path: Path) -> None:
    def config(name: str) -> Path:
        content = with_cluster(server=f"https://{name}")
        return write(tmp_path / name / ".kube" / "config", content)

    account = tmp_path / "account"
    write(account / "token", "t")
    write(account / "ca.crt", "c")
    write(account / "namespace", "podstamp-system\n")
    named, variable = config("named"), config("variable")
    config("home")
    environ = {"KUBECONFIG": str(variable), "KUBERNETES_SERVICE_HOST": "10.0.0.1"}

    def choose(path: Path | None = None, home: str = "home") -> Credentials:
        return load_credentials(
            path, environ=environ, home=tmp_path / home, service_account=account
        )

    assert choose(named).server == "https://named"
    assert choose().server == "https://variable"
    environ.pop("KUBECONFIG")
    assert choose().server == "https://home"
    found = choose(home="nobody")
    assert (found.server, found.namespace) == ("https://10.0.0.1:443", "podstamp-system")
    assert (found.token_file, found.ca_file) == (account / "token", account / "ca.crt")
    environ.pop("KUBERNETES_SERVICE_HOST")
    with pytest.raises(ConfigError, match="no cluster is configured: pass --kubeconfig"):
        choose(home="nobody")


def test_a_variable_that_names_no_file_is_a_mistake_and_not_skipped(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nowhere"):
        load_credentials(environ={"KUBECONFIG": str(tmp_path / "nowhere")}, home=tmp_path)


def test_an_ipv6_service_gets_brackets(tmp_path: Path) -> None:
    write(tmp_path / "token", "t")
    write(tmp_path / "ca.crt", "c")
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}
    found = load_credentials(environ=environ, home=tmp_path, service_account=tmp_path)
    assert (found.server, found.namespace) == ("https://[fd00::1]:6443", "default")


@pytest.mark.parametrize("missing", ["token", "ca.crt"])
def test_a_pod_without_its_account_is_told_what_is_missing(tmp_path: Path, missing: str) -> None:
    for name in {"token", "ca.crt"} - {missing}:
        write(tmp_path / name, "x")
    with pytest.raises(ConfigError, match=f"{missing}: the service account is not mounted"):
        load_credentials(
            environ={"KUBERNETES_SERVICE_HOST": "h"}, home=tmp_path, service_account=tmp_path
        )


def plugin(tmp_path: Path, status: Any, code: int = 0) -> dict[str, Any]:
    """A kubeconfig whose user's program answers `status` and counts its calls."""
    answer = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": status,
    }
    program = write(
        tmp_path / "plugin",
        f"#!/bin/sh\necho call >> {tmp_path}/calls\necho '{json.dumps(answer)}'\nexit {code}\n",
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return with_user(
        exec={
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": str(program),
            "interactiveMode": "Never",
            "installHint": "install it from example.com",
        }
    )


def test_an_exec_plugin_gives_a_token_and_can_be_asked_again(tmp_path: Path) -> None:
    found = load(tmp_path, plugin(tmp_path, {"token": "issued"}))
    assert found.token == "issued"
    assert found.fetch_token is not None
    assert found.fetch_token() == "issued"
    assert (tmp_path / "calls").read_text().count("call") == 2


def test_an_exec_plugin_may_give_a_certificate(tmp_path: Path) -> None:
    status = {"clientCertificateData": "CERT", "clientKeyData": "KEY"}
    found = load(tmp_path, plugin(tmp_path, status))
    assert (found.client_cert_pem, found.client_key_pem) == ("CERT", "KEY")
    assert (found.token, found.fetch_token) == (None, None)


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        ({"token": "x"}, 3, "failed: .*3.*; install it from example.com"),
        ({}, 0, "gave neither a token nor a certificate"),
        ({"clientCertificateData": "C"}, 0, "gave neither a token nor a certificate"),
    ],
)
def test_a_plugin_that_fails_is_one_line(
    tmp_path: Path, status: Any, code: int, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        load(tmp_path, plugin(tmp_path, status, code))


def test_a_plugin_that_is_not_installed_says_so(tmp_path: Path) -> None:
    content = plugin(tmp_path, {"token": "x"})
    (tmp_path / "plugin").unlink()
    with pytest.raises(ConfigError, match=r"credentials plugin .* failed"):
        load(tmp_path, content)


def test_an_auth_provider_is_asked_through_the_official_client(tmp_path: Path) -> None:
    header, claims = b64('{"alg":"none"}').rstrip("="), b64('{"exp":32503680000}').rstrip("=")
    token = f"{header}.{claims}.x"
    provider = {"name": "oidc", "config": {"id-token": token, "idp-issuer-url": "https://i"}}
    found = load(tmp_path, with_user(**{"auth-provider": provider}))
    assert found.token == token


@pytest.mark.parametrize(
    ("name", "config", "message"),
    [
        ("other", {}, "the auth-provider gave no token"),
        ("oidc", {"client-secret": "hush"}, "the auth-provider failed: .*id-token"),
    ],
)
def test_an_auth_provider_without_a_token_is_a_mistake_told_without_secrets(
    tmp_path: Path, name: str, config: dict[str, str], message: str
) -> None:
    content = with_user(**{"auth-provider": {"name": name, "config": config}})
    with pytest.raises(ConfigError, match=message) as caught:
        load(tmp_path, content)
    assert "hush" not in str(caught.value)


def test_the_official_client_is_not_imported_without_a_plugin() -> None:
    code = (
        "import sys, kube.client, kube.credentials, kube.reflector, kube.events, kube.lease;"
        "sys.exit('kubernetes' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
