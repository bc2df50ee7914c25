"""Fixtures that every test may use.

Tests under tests/e2e and tests that take `cluster` also run on the real control plane, with
`--control-plane`; all others run on the embedded API server or on none.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apiserver import EmbeddedCluster
from tests.clock import FakeClock
from tests.cluster import Cluster
from tests.kubectl import Kubectl

ROOT = Path(__file__).parent.parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--control-plane",
        action="store_true",
        help="run what can run on a real kube-apiserver and etcd, and only that",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    real: bool = config.getoption("--control-plane")
    kept: list[pytest.Item] = []
    dropped: list[pytest.Item] = []
    for item in items:
        only_real = "e2e" in item.path.relative_to(ROOT / "tests").parts
        both = "cluster" in getattr(item, "fixturenames", ())
        wanted = (only_real or both) if real else not only_real
        (kept if wanted else dropped).append(item)
    config.hook.pytest_deselected(items=dropped)
    items[:] = kept


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def embedded() -> Iterator[EmbeddedCluster]:
    """An embedded API server of the test's own."""
    with EmbeddedCluster() as server:
        yield server


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """The embedded server or, with --control-plane, the real one; shared, so use own namespaces."""
    if request.config.getoption("--control-plane"):
        from tests.controlplane import ControlPlane

        with ControlPlane() as real:
            yield real
    else:
        with EmbeddedCluster() as server:
            yield server


@pytest.fixture(scope="session")
def kubectl(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    """kubectl as the administrator of `cluster`."""
    return Kubectl(cluster.kubeconfig, tmp_path_factory.mktemp("kubectl"))


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()
