"""Records of retirement from a real PostgreSQL."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from controller.config import DEFAULT_QUERY
from controller.records import Record, RecordsUnavailable
from controller.records_postgres import PostgresRecords, PostgresSettings
from kube.errors import ConfigError
from tests.controller.pods import as_pod, incarnation, pod
from tests.controller.postgres import Postgres, tls_front
from tests.pki import TestCa

pytestmark = pytest.mark.anyio

INSERT = "INSERT INTO executions VALUES (%s, %s, %s, %s, %s)"
PODS = [as_pod(pod(f"web-{i}", stamp=incarnation(i))) for i in range(5)]


@asynccontextmanager
async def source(postgres: Postgres, **settings: Any) -> AsyncIterator[PostgresRecords]:
    made = PostgresRecords(
        PostgresSettings(**{"dsn": postgres.dsn, "query": DEFAULT_QUERY, **settings})
    )
    try:
        yield made
    finally:
        await made.aclose()


async def test_rows_become_records_by_column_name_in_any_order(postgres: Postgres) -> None:
    postgres.run(INSERT, "llm", "web-1", incarnation(1), "suspended", False)
    postgres.run(INSERT, "llm", "web-2", incarnation(2), "running", True)
    postgres.run(INSERT, "llm", "web-2", incarnation(9), "replaced", False)
    postgres.run(INSERT, "other", "web-3", incarnation(3), "replaced", False)
    query = (
        "SELECT note, active, state, incarnation, pod_name, namespace FROM executions"
        " WHERE pod_name = ANY(%(names)s)"
    )
    async with source(postgres, query=query) as records:
        found = await records.look_up(PODS)
    assert {key: set(rows) for key, rows in found.items()} == {
        ("llm", "web-1"): {Record("llm", "web-1", incarnation(1), "suspended", False)},
        ("llm", "web-2"): {
            Record("llm", "web-2", incarnation(2), "running", True),
            Record("llm", "web-2", incarnation(9), "replaced", False),
        },
    }


async def test_what_does_not_clearly_say_that_it_is_over_is_active(postgres: Postgres) -> None:
    postgres.run(INSERT, "llm", "web-1", None, None, None)
    async with source(postgres) as records:
        found = await records.look_up(PODS)
    assert found[("llm", "web-1")] == [Record("llm", "web-1", None, "", True)]


async def test_uuid_and_integer_columns_are_read_too(postgres: Postgres) -> None:
    query = (
        "SELECT 'llm' AS namespace, unnest(%(names)s::text[]) AS pod_name, 0 AS active,"
        f" '{incarnation(1)}'::uuid AS incarnation, 'replaced' AS state"
    )
    async with source(postgres, query=query) as records:
        found = await records.look_up(PODS[:1])
    assert found[("llm", "web-0")] == [Record("llm", "web-0", incarnation(1), "replaced", True)]


async def test_names_are_asked_for_in_batches_and_only_those(postgres: Postgres) -> None:
    for i in range(7):
        postgres.run(INSERT, "llm", f"web-{i}", incarnation(i), "suspended", False)
    query = (
        "SELECT namespace, pod_name, incarnation, cardinality(%(names)s::text[])::text AS state,"
        " active FROM executions WHERE pod_name = ANY(%(names)s)"
    )
    async with source(postgres, query=query, batch_size=2) as records:
        found = await records.look_up(PODS)
    assert sorted(key[1] for key in found) == [f"web-{i}" for i in range(5)]
    assert sorted(rows[0].state for rows in found.values()) == ["1", "2", "2", "2", "2"]


async def test_a_query_that_writes_is_refused_and_changes_nothing(postgres: Postgres) -> None:
    postgres.run(INSERT, "llm", "web-1", incarnation(1), "suspended", False)
    query = (
        "DELETE FROM executions WHERE pod_name = ANY(%(names)s)"
        " RETURNING namespace, pod_name, incarnation, state, active"
    )
    async with source(postgres, query=query) as records:
        with pytest.raises(RecordsUnavailable, match="read-only"):
            await records.look_up(PODS)
    async with source(postgres) as records:
        assert len(await records.look_up(PODS)) == 1


async def test_a_slow_statement_is_cut_off_by_the_server(postgres: Postgres) -> None:
    query = DEFAULT_QUERY + " AND pg_sleep(30) IS NOT NULL"
    postgres.run(INSERT, "llm", "web-1", incarnation(1), "suspended", False)
    async with source(postgres, query=query, statement_timeout_s=0.1) as records:
        with pytest.raises(RecordsUnavailable, match="statement timeout"):
            await records.look_up(PODS)


async def test_a_missing_column_is_named(postgres: Postgres) -> None:
    query = "SELECT namespace, pod_name FROM executions WHERE pod_name = ANY(%(names)s)"
    async with source(postgres, query=query) as records:
        with pytest.raises(RecordsUnavailable, match="no column incarnation, state, active"):
            await records.look_up(PODS)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELECT nonsense FROM executions WHERE %(names)s IS NOT NULL", "nonsense"),
        ("SELECT * FROM no_such_table WHERE pod_name = ANY(%(names)s)", "no_such_table"),
        ("SELECT '50%' FROM executions WHERE pod_name = ANY(%(names)s)", "PostgreSQL"),
        ("SET search_path TO pg_catalog; -- %(names)s", "PostgreSQL"),
    ],
    ids=["column", "table", "per-cent-sign", "no-rows"],
)
async def test_a_wrong_query_fails_in_one_line(postgres: Postgres, query: str, words: str) -> None:
    async with source(postgres, query=query) as records:
        with pytest.raises(RecordsUnavailable) as caught:
            await records.look_up(PODS)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_it_connects_again_after_the_server_was_away(postgres: Postgres) -> None:
    postgres.run(INSERT, "llm", "web-1", incarnation(1), "suspended", False)
    async with source(postgres, connect_timeout_s=2) as records:
        assert await records.look_up(PODS)
        postgres.stop()
        for _ in range(2):
            with pytest.raises(RecordsUnavailable, match="PostgreSQL"):
                await records.look_up(PODS)
        postgres.start()
        assert await records.look_up(PODS)


async def test_one_connection_serves_all_look_ups(postgres: Postgres) -> None:
    async with source(postgres) as records:
        await asyncio.gather(*(records.look_up(PODS) for _ in range(5)))
        assert count_connections(postgres) == 1
    await asyncio.to_thread(wait_until, lambda: count_connections(postgres) == 0)


async def test_a_look_up_that_is_cancelled_leaves_no_connection_behind(postgres: Postgres) -> None:
    query = DEFAULT_QUERY + " AND pg_sleep(30) IS NOT NULL"
    postgres.run(INSERT, "llm", "web-1", incarnation(1), "suspended", False)
    async with source(postgres, query=query, statement_timeout_s=20) as records:
        looking = asyncio.ensure_future(records.look_up(PODS))
        await asyncio.to_thread(wait_until, lambda: count_connections(postgres, "active") == 1)
        looking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await looking
        await asyncio.to_thread(wait_until, lambda: count_connections(postgres) == 0)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def count_connections(postgres: Postgres, state: str = "%") -> int:
    with psycopg.connect(postgres.dsn) as connection:
        row = connection.execute(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE application_name = 'podstamp' AND state LIKE %s",
            (state,),
        ).fetchone()
    assert row is not None
    return int(row[0])


async def test_tls_is_verified_against_the_given_ca(postgres: Postgres, tmp_path: Path) -> None:
    ca = TestCa()
    (tmp_path / "ca.crt").write_text(ca.cert)
    (tmp_path / "other.crt").write_text(TestCa("another").cert)
    async with tls_front(postgres.port, ca.issue("localhost"), tmp_path) as port:

        async def look_up(host: str, ca_file: str) -> None:
            dsn = f"postgresql://postgres@{host}:{port}/postgres"
            root = str(tmp_path / ca_file)
            async with source(
                postgres, dsn=dsn, ssl_mode="verify-full", ssl_root_cert=root
            ) as records:
                assert await records.look_up(PODS) == {}

        await look_up("localhost", "ca.crt")
        with pytest.raises(RecordsUnavailable, match="does not match host name"):
            await look_up("127.0.0.1", "ca.crt")
        with pytest.raises(RecordsUnavailable, match="certificate verify failed"):
            await look_up("localhost", "other.crt")


async def test_a_server_without_tls_is_refused_if_tls_is_required(postgres: Postgres) -> None:
    async with source(postgres, ssl_mode="require") as records:
        with pytest.raises(RecordsUnavailable, match="SSL"):
            await records.look_up(PODS)


async def test_the_dsn_file_is_read_for_each_connection(postgres: Postgres, tmp_path: Path) -> None:
    file = tmp_path / "dsn"
    file.write_text(f"{postgres.dsn}\n")
    async with source(postgres, dsn="", dsn_file=str(file)) as records:
        assert await records.look_up(PODS) == {}
        await records.aclose()
        file.unlink()
        with pytest.raises(RecordsUnavailable, match="No such file"):
            await records.look_up(PODS)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"dsn": "postgresql://user:pass word@[host/db"}, "no connection string"),
        ({"dsn": "host=a nonsense=b"}, "no connection string"),
        ({"dsn": "", "dsn_file": "/nonexistent/dsn"}, "/nonexistent/dsn"),
        ({"dsn": "", "dsn_file": sys.executable}, "not UTF-8 text"),
    ],
    ids=["broken-uri", "unknown-key", "no-file", "no-text"],
)
def test_a_wrong_dsn_is_told_at_the_start(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        PostgresRecords(PostgresSettings(query=DEFAULT_QUERY, **settings))
    assert "\n" not in str(caught.value)


def test_without_psycopg_one_line_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from controller.records_postgres import PostgresRecords, PostgresSettings\n"
        "from kube.console import run_command\n"
        "def main():\n"
        "    PostgresRecords(PostgresSettings(dsn='host=a', query=''))\n"
        "run_command(main)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr == (
        "error: retired.source: postgres needs psycopg: pip install 'podstamp[postgres]'\n"
    )


def test_the_controller_starts_without_psycopg_if_it_needs_none() -> None:
    program = "import sys; sys.modules['psycopg'] = None; import controller.__main__"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
