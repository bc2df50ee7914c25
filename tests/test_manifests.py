"""What the rendered manifests say, without a cluster."""

import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from certs.settings import NAMESPACE
from controller.config import ControllerConfig
from tests.kubectl import KUBECTL
from webhook.config import WebhookConfig

MANIFESTS = Path(__file__).parent.parent / "manifests"
SOURCES = ["base", *sorted(f"overlays/{p.name}" for p in (MANIFESTS / "overlays").iterdir())]
WEBHOOKS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")

Manifest = dict[str, Any]


@cache
def rendered(source: str) -> str:
    command = [str(KUBECTL), "kustomize", str(MANIFESTS / source)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def documents(source: str) -> list[Manifest]:
    return [each for each in yaml.safe_load_all(rendered(source)) if each]


def one(source: str, kind: str, name: str) -> Manifest:
    [found] = [
        each
        for each in documents(source)
        if (each["kind"], each["metadata"]["name"]) == (kind, name)
    ]
    return found


def entries(source: str) -> Iterator[Manifest]:
    for each in documents(source):
        if each["kind"] in WEBHOOKS:
            yield from each["webhooks"]


def deployments(source: str) -> list[Manifest]:
    return [each for each in documents(source) if each["kind"] == "Deployment"]


def test_install_yaml_is_what_make_manifests_renders() -> None:
    assert (MANIFESTS / "install.yaml").read_text() == rendered("install")
    assert sorted(map(str, documents("install"))) == sorted(map(str, documents("base")))


@pytest.mark.parametrize("source", SOURCES)
def test_every_object_is_labelled_and_in_the_namespace_of_podstamp(source: str) -> None:
    for each in documents(source):
        assert each["metadata"]["labels"]["app.kubernetes.io/part-of"] == "podstamp", each
        assert each["metadata"].get("namespace", NAMESPACE) == NAMESPACE


@pytest.mark.parametrize("source", SOURCES)
def test_no_manifest_carries_a_ca_bundle(source: str) -> None:
    # An apply would wipe the one that podstamp, or cert-manager, filled in.
    assert "caBundle" not in rendered(source)


def test_the_webhook_configurations_come_and_go_first() -> None:
    kinds = [each["kind"] for each in documents("install")]
    assert set(kinds[:2]) == set(WEBHOOKS)
    assert kinds.index("Namespace") < kinds.index("ServiceAccount")


@pytest.mark.parametrize("source", [s for s in SOURCES if s != "overlays/local"])
def test_every_pod_is_restricted_and_bounded(source: str) -> None:
    assert {each["metadata"]["name"] for each in deployments(source)} == {
        "podstamp-webhook",
        "podstamp-controller",
    }
    for each in deployments(source):
        spec = each["spec"]["template"]["spec"]
        assert spec["priorityClassName"] == "podstamp"
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in spec["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert container["resources"]["requests"].keys() == {"cpu", "memory"}
            assert "memory" in container["resources"]["limits"]
            assert container.keys() >= {"startupProbe", "livenessProbe", "readinessProbe"}
            assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
            assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"


def test_the_webhook_rolls_without_a_gap() -> None:
    spec = one("base", "Deployment", "podstamp-webhook")["spec"]
    assert spec["replicas"] == 2
    assert spec["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}
    pod = spec["template"]["spec"]
    pause_s = pod["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    config = settings("webhook.yaml", WebhookConfig)
    assert pause_s > 0
    needed_s = pause_s + config.drain_seconds + config.stop_seconds
    assert pod["terminationGracePeriodSeconds"] > needed_s
    [spread] = pod["topologySpreadConstraints"]
    assert spread["topologyKey"] == "kubernetes.io/hostname"
    assert one("base", "PodDisruptionBudget", "podstamp-webhook")["spec"]["minAvailable"] == 1


def test_ha_means_more_replicas_on_different_nodes() -> None:
    webhook = one("overlays/ha", "Deployment", "podstamp-webhook")["spec"]
    assert webhook["replicas"] == 3
    spread = webhook["template"]["spec"]["topologySpreadConstraints"]
    assert [(each["topologyKey"], each["whenUnsatisfiable"]) for each in spread] == [
        ("kubernetes.io/hostname", "DoNotSchedule"),
        ("topology.kubernetes.io/zone", "ScheduleAnyway"),
    ]
    budget = one("overlays/ha", "PodDisruptionBudget", "podstamp-webhook")["spec"]
    assert budget["minAvailable"] == 2
    assert one("overlays/ha", "Deployment", "podstamp-controller")["spec"]["replicas"] == 2


def settings(key: str, kind: type[Any]) -> Any:
    text = one("base", "ConfigMap", "podstamp-config")["data"][key]
    return msgspec.convert(yaml.safe_load(text), kind, strict=True)


@pytest.mark.parametrize(
    ("key", "kind"), [("webhook.yaml", WebhookConfig), ("controller.yaml", ControllerConfig)]
)
def test_the_shipped_settings_are_the_defaults(key: str, kind: type[Any]) -> None:
    assert settings(key, kind) == kind()


@pytest.mark.parametrize("name", ["webhook", "controller"])
def test_the_commands_of_the_deployments_are_understood(name: str, tmp_path: Path) -> None:
    data = one("base", "ConfigMap", "podstamp-config")["data"][f"{name}.yaml"]
    (tmp_path / f"{name}.yaml").write_text(data)
    pod = one("base", "Deployment", f"podstamp-{name}")["spec"]["template"]["spec"]
    [container] = pod["containers"]
    [mount] = container["volumeMounts"]
    given = [arg.replace(mount["mountPath"], str(tmp_path)) for arg in container["args"]]
    assert given != container["args"]
    absent = str(tmp_path / "no-kubeconfig")
    done = subprocess.run(
        [str(KUBECTL.with_name(*container["command"])), *given, "--kubeconfig", absent],
        capture_output=True,
        text=True,
        check=False,
    )
    # Everything before the API server was in order.
    [line] = done.stderr.splitlines()
    assert absent in line


def test_local_calls_every_entry_by_url_and_runs_nothing_in_the_cluster() -> None:
    addresses = {entry["name"]: entry["clientConfig"] for entry in entries("overlays/local")}
    assert addresses.keys() == {entry["name"] for entry in entries("base")}
    for name, client in addresses.items():
        path = "mutate" if ".mutate." in name else "validate"
        assert client == {"url": f"https://127.0.0.1:9443/{path}"}
    absent = {"Deployment", "Service", "PodDisruptionBudget", "NetworkPolicy", "PriorityClass"}
    assert not absent & {each["kind"] for each in documents("overlays/local")}


def test_elsewhere_every_entry_goes_to_the_service() -> None:
    service = one("base", "Service", "podstamp-webhook")
    ports = [port["port"] for port in service["spec"]["ports"]]
    for entry in entries("base"):
        called = entry["clientConfig"]["service"]
        assert (called["namespace"], called["name"]) == (NAMESPACE, service["metadata"]["name"])
        assert called.get("port", 443) in ports


def test_ignore_create_changes_the_policy_of_create_and_nothing_else() -> None:
    before = {entry["name"]: entry for entry in entries("base")}
    changed = {
        entry["name"]
        for entry in entries("overlays/ignore-create")
        if entry != before[entry["name"]]
    }
    assert changed == {"create.mutate.podstamp.dev", "create.validate.podstamp.dev"}
    for entry in entries("overlays/ignore-create"):
        if entry["name"] in changed:
            assert entry["failurePolicy"] == "Ignore"
            assert before[entry["name"]]["failurePolicy"] == "Fail"
            assert entry | {"failurePolicy": "Fail"} == before[entry["name"]]


@pytest.mark.parametrize("account", ["podstamp-webhook", "podstamp-controller"])
def test_no_role_gives_a_wildcard_or_a_verb_for_a_whole_group(account: str) -> None:
    for kind in ("ClusterRole", "Role"):
        role = one("base", kind, account)
        for rule in role["rules"]:
            assert "*" not in rule["verbs"] + rule["resources"] + rule["apiGroups"]
        binding = one("base", f"{kind}Binding", account)
        assert binding["roleRef"]["name"] == account
        assert [subject["name"] for subject in binding["subjects"]] == [account]
        assert one("base", "ServiceAccount", account)


@pytest.mark.parametrize("account", ["podstamp-webhook", "podstamp-controller"])
def test_secrets_and_config_maps_of_other_namespaces_are_out_of_reach(account: str) -> None:
    resources = {
        resource for rule in one("base", "ClusterRole", account)["rules"]
        for resource in rule["resources"]
    }  # fmt: skip
    assert not resources & {"secrets", "configmaps"}
