"""Installing, upgrading and removing, as commands that the README gives, on a fresh control plane.

No node runs the Deployments here: their pods stay Pending, which is enough to judge the manifests.
"""

from collections.abc import Iterator

import pytest

from tests.controlplane import ControlPlane
from tests.e2e.installation import MANIFESTS, SYSTEM, left
from tests.e2e.pods import open_definition, pod, text
from tests.e2e.steps import create, let_go
from tests.e2e.waiting import eventually
from tests.kubectl import Kubectl, Result

INSTALL = str(MANIFESTS / "install.yaml")
OVERLAYS = sorted(path.name for path in (MANIFESTS / "overlays").iterdir())
HOLD = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "hold", "namespace": SYSTEM, "finalizers": ["example.com/hold"]},
}


@pytest.fixture(scope="module")
def bare() -> Iterator[ControlPlane]:
    """A control plane that podstamp was never on."""
    with ControlPlane() as running:
        yield running


@pytest.fixture(scope="module")
def admin(bare: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    client = Kubectl(bare.kubeconfig, tmp_path_factory.mktemp("kubectl"))
    for kind in ("Certificate", "Issuer"):
        definition = open_definition("cert-manager.io", kind)
        create(client, definition)
    client("create", "namespace", "models")
    client("label", "namespace", "models", "podstamp.dev/enabled=true")
    return client


def quiet(result: Result) -> str:
    """What it printed; no error and no warning."""
    assert (result.code, result.err) == (0, "")
    return result.out


def versions(kubectl: Kubectl, *source: str) -> dict[tuple[str, str], object]:
    """What changes when somebody changes the object; a generation, where there is one."""
    return {
        (item["kind"], item["metadata"]["name"]): item["metadata"].get(
            "generation", item["metadata"]["resourceVersion"]
        )
        for item in kubectl.json("get", *source)["items"]
    }


def test_install_yaml_is_applied_twice_without_a_warning(admin: Kubectl) -> None:
    first = quiet(admin.run("apply", "-f", INSTALL)).splitlines()
    assert [line for line in first if not line.endswith(" created")] == []
    before = versions(admin, "-f", INSTALL)
    assert len(before) == len(first)
    quiet(admin.run("apply", "-f", INSTALL))
    assert versions(admin, "-f", INSTALL) == before


def test_the_pods_of_the_deployments_pass_pod_security(admin: Kubectl) -> None:
    quiet(admin.run("apply", "-f", INSTALL))
    eventually(
        lambda: len(admin.json("get", "pods", "-n", SYSTEM)["items"]) == 3,
        "two webhooks and a controller are admitted under `restricted`",
    )


def test_pods_can_be_created_while_it_is_half_gone(admin: Kubectl) -> None:
    quiet(admin.run("apply", "-f", INSTALL))
    refused = eventually(
        lambda: result if (result := try_create(admin)).code else None,
        "the webhook that does not run is asked",
    )
    assert "podstamp.dev" in refused.err
    create(admin, HOLD)
    quiet(admin.run("delete", "-f", INSTALL, "--ignore-not-found", "--wait=false"))
    assert admin.json("get", "namespace", SYSTEM)["status"]["phase"] == "Terminating"
    eventually(lambda: try_create(admin).code == 0, "a pod is created in an enabled namespace")
    let_go(admin, SYSTEM, "configmap", "hold")
    admin("wait", "--for=delete", f"namespace/{SYSTEM}", "--timeout=60s")
    assert left(admin) == ""


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_an_overlay_is_applied_over_another_without_a_warning(admin: Kubectl, overlay: str) -> None:
    source = ("-k", str(MANIFESTS / "overlays" / overlay))
    quiet(admin.run("apply", *source))
    before = versions(admin, *source)
    quiet(admin.run("apply", *source))
    assert versions(admin, *source) == before


def test_an_overlay_is_removed_after_its_webhook_configurations(admin: Kubectl) -> None:
    source = ("-k", str(MANIFESTS / "overlays" / "ha"))
    quiet(admin.run("apply", *source))
    configurations = "mutatingwebhookconfiguration,validatingwebhookconfiguration"
    quiet(admin.run("delete", configurations, "podstamp"))
    quiet(admin.run("delete", "--ignore-not-found", *source))
    assert left(admin) == ""


def try_create(kubectl: Kubectl) -> Result:
    return kubectl.run("create", "--dry-run=server", "-f", "-", stdin=text(pod("p", "models")))
