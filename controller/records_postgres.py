"""Records of retirement from PostgreSQL, by one configurable query.

Read-only transactions with a statement timeout, batches of pod names, one connection that is opened
when it is needed and thrown away after any failure. A look-up is whole, or RecordsUnavailable.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from controller.records import PodKey, Record, RecordsUnavailable
from kube.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import ModuleType

    from psycopg import AsyncConnection

    from kube.pod import Pod

COLUMNS = ("namespace", "pod_name", "incarnation", "state", "active")
_GRACE_S = 2.0
"""How long the server may take beyond its own statement timeout before the client gives up."""


@dataclass(frozen=True, slots=True)
class PostgresSettings:
    """`dsn` is a libpq connection string or URI; the TLS settings are laid over it if set."""

    dsn: str
    query: str
    dsn_file: str = ""
    ssl_mode: str = ""
    ssl_root_cert: str = ""
    batch_size: int = 500
    statement_timeout_s: float = 5.0
    connect_timeout_s: int = 5


class PostgresRecords:
    """One source; look_up calls of one process are run one after the other."""

    claimed = False

    def __init__(self, settings: PostgresSettings) -> None:
        """ConfigError if psycopg is not installed or the DSN cannot be read."""
        self._settings = settings
        self._psycopg = _import_psycopg()
        self._conninfo()
        self._connection: AsyncConnection[Any] | None = None
        self._turn = asyncio.Lock()

    async def look_up(self, pods: Sequence[Pod]) -> Mapping[PodKey, Sequence[Record]]:
        """Every record of these names, read now, in one snapshot."""
        settings = self._settings
        wanted = {pod.key for pod in pods}
        found: dict[PodKey, list[Record]] = {}
        batches = list(_batches(sorted(wanted), settings.batch_size))
        limit_s = settings.connect_timeout_s + (settings.statement_timeout_s + _GRACE_S) * max(
            1, len(batches)
        )
        async with self._turn:
            try:
                async with asyncio.timeout(limit_s):
                    for record in await self._read(batches):
                        key = (record.namespace, record.pod_name)
                        if key in wanted:
                            found.setdefault(key, []).append(record)
            except TimeoutError as error:
                await self._drop()
                raise RecordsUnavailable(f"PostgreSQL: no answer within {limit_s:.0f} s") from error
            except self._psycopg.Error as error:
                await self._drop()
                raise RecordsUnavailable(f"PostgreSQL: {_one_line(error)}") from error
            except ConfigError as error:
                raise RecordsUnavailable(str(error)) from error
            except BaseException:
                # Cut off in the middle: the state of the connection is unknown.
                await self._drop()
                raise
        return found

    async def aclose(self) -> None:
        await self._drop()

    async def _read(self, batches: list[list[PodKey]]) -> list[Record]:
        connection = self._connection or await self._connect()
        records: list[Record] = []
        milliseconds = max(1, int(self._settings.statement_timeout_s * 1000))
        async with connection.transaction(), connection.cursor() as cursor:
            await cursor.execute(
                "SELECT set_config('statement_timeout', %s, true)", (str(milliseconds),)
            )
            for batch in batches:
                await cursor.execute(
                    self._settings.query.encode(),
                    {
                        "names": sorted({name for _, name in batch}),
                        "namespaces": sorted({namespace for namespace, _ in batch}),
                    },
                )
                columns = [column.name for column in cursor.description or ()]
                rows = await cursor.fetchall() if columns else []
                records.extend(_records(columns, rows))
        return records

    async def _connect(self) -> AsyncConnection[Any]:
        connection: AsyncConnection[Any] = await self._psycopg.AsyncConnection.connect(
            self._conninfo(), prepare_threshold=None
        )
        await connection.set_read_only(True)
        await connection.set_isolation_level(self._psycopg.IsolationLevel.REPEATABLE_READ)
        self._connection = connection
        return connection

    async def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(self._psycopg.Error):
                await connection.close()

    def _conninfo(self) -> str:
        """The whole connection string; the file is read each time, as a Secret may be rotated."""
        settings = self._settings
        dsn = settings.dsn or _read_dsn(Path(settings.dsn_file))
        extra: dict[str, Any] = {
            "connect_timeout": settings.connect_timeout_s,
            "application_name": "podstamp",
        }
        if settings.ssl_mode:
            extra["sslmode"] = settings.ssl_mode
        if settings.ssl_root_cert:
            extra["sslrootcert"] = settings.ssl_root_cert
        try:
            made: str = self._psycopg.conninfo.make_conninfo(dsn, **extra)
        except self._psycopg.ProgrammingError as error:
            raise ConfigError(
                "retired.postgres: the DSN is no connection string"
                f" (postgresql://user@host/database): {_one_line(error)}"
            ) from error
        return made


def _import_psycopg() -> ModuleType:
    try:
        import psycopg
        import psycopg.conninfo
    except ImportError as error:
        raise ConfigError(
            "retired.source: postgres needs psycopg: pip install 'podstamp[postgres]'"
        ) from error
    return psycopg


def _read_dsn(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError as error:
        raise ConfigError(f"retired.postgres.dsnFile: {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"retired.postgres.dsnFile: {path}: not UTF-8 text") from error


def _batches(keys: Sequence[PodKey], size: int) -> Iterator[list[PodKey]]:
    for start in range(0, len(keys), size):
        yield list(keys[start : start + size])


def _records(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Iterator[Record]:
    """Rows by column name; RecordsUnavailable if a column is missing."""
    missing = [name for name in COLUMNS if name not in columns]
    if missing:
        raise RecordsUnavailable(
            f"retired.postgres.query: no column {', '.join(missing)};"
            f" it must name {', '.join(COLUMNS)}"
        )
    places = [columns.index(name) for name in COLUMNS]
    for row in rows:
        namespace, pod_name, incarnation, state, active = (row[place] for place in places)
        yield Record(
            namespace=str(namespace),
            pod_name=str(pod_name),
            incarnation=None if incarnation is None else str(incarnation),
            state="" if state is None else str(state),
            # Whatever does not clearly say that the execution is over says that it is not.
            active=active is not False,
        )


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
