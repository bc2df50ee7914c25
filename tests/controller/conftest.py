"""Fixtures of the controller's tests."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import Cluster
from tests.controller.installed import There, installed
from tests.controller.postgres import Postgres
from tests.kubectl import Kubectl

TABLE = """
CREATE TABLE executions (
    namespace text, pod_name text, incarnation text, state text, active boolean, note text
)
"""


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    """One PostgreSQL for the run, started by the first test that needs it."""
    with Postgres() as server:
        yield server


@pytest.fixture
def postgres(postgres_server: Postgres) -> Postgres:
    """It runs, and its table of executions is empty."""
    postgres_server.start()
    postgres_server.run("DROP TABLE IF EXISTS executions")
    postgres_server.run(TABLE)
    return postgres_server


@pytest.fixture(scope="module")
def folder(
    cluster: Cluster, kubectl: Kubectl, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """Where the processes keep their files, while podstamp is installed."""
    made = tmp_path_factory.mktemp("life")
    with installed(cluster, kubectl, made):
        yield made


@pytest.fixture
def there(kubectl: Kubectl, folder: Path) -> Iterator[There]:
    name = f"life-{secrets.token_hex(4)}"
    kubectl("create", "namespace", name)
    kubectl("label", "namespace", name, "podstamp.dev/enabled=true")
    yield There(kubectl, name)
    kubectl("delete", "namespace", name, "--wait=false")
