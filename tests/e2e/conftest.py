"""Fixtures of the tests on the real control plane: one plane and one installation for all.

Tests share them, so each works in namespaces of its own and leaves the processes running.
"""

from collections.abc import Generator, Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.controlplane import ControlPlane
from tests.e2e.installation import Installation
from tests.kubectl import Kubectl

CRD = Path(__file__).parent.parent / "standins" / "podset_crd.yaml"
_numbers = count(1)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # It judges what all others did.
    items.sort(key=lambda item: item.path.name == "test_roles.py")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure is shown with what the processes wrote last."""
    report = yield
    installation = getattr(item, "funcargs", {}).get("podstamp")
    if report.failed and isinstance(installation, Installation):
        for process in (installation.controller, installation.webhook):
            if process is not None:
                report.sections.append((f"log of {process.name}", process.tail(40)))
    return report


@pytest.fixture(scope="session")
def plane() -> Iterator[ControlPlane]:
    with ControlPlane() as running:
        yield running


@pytest.fixture(scope="session")
def kubectl(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    """kubectl as the administrator of `plane`."""
    client = Kubectl(plane.kubeconfig, tmp_path_factory.mktemp("kubectl"))
    client("apply", "-f", str(CRD))
    client("wait", "--for=condition=Established", "-f", str(CRD), "--timeout=20s")
    return client


@pytest.fixture(scope="session")
def podstamp(
    plane: ControlPlane, kubectl: Kubectl, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    """podstamp, installed and running, its terminal reaper live."""
    installation = Installation(plane, kubectl, tmp_path_factory.mktemp("podstamp"))
    try:
        installation.start()
        yield installation
    finally:
        installation.stop()


@pytest.fixture
def namespace(podstamp: Installation, kubectl: Kubectl) -> Iterator[str]:
    """An enabled namespace of the test's own."""
    name = f"e2e-{next(_numbers)}"
    kubectl("create", "namespace", name)
    kubectl("label", "namespace", name, "podstamp.dev/enabled=true")
    yield name
    kubectl("delete", "namespace", name, "--wait=false", "--ignore-not-found")
