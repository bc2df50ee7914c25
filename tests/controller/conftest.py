"""Fixtures of the controller's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.controller.postgres import Postgres

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
