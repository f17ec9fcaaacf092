"""A table, or a query, as a source of rows."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal
from zoneinfo import ZoneInfo

from airflow_state_watchers.exceptions import SourceDenied, SourceError, SourceMissing
from airflow_state_watchers.sources.sql_column import Column
from airflow_state_watchers.sources.sql_columns import Found, find_column
from airflow_state_watchers.sources.sql_errors import explain, explain_hook
from airflow_state_watchers.sources.sql_notes import notes_on
from airflow_state_watchers.sources.sql_relation import Relation
from airflow_state_watchers.sources.sql_scan import Database, SqlScan
from airflow_state_watchers.sources.sql_statements import Query, Statements

LOOK_AGAIN = 20
"""Polls after which a column's type is asked for again where that is a costly query of the catalogue's."""

ANOTHER = (
    "was dropped and made again, or another table has its name now. What stands in it before the watermark is not delivered; move "
    "the watermark back if it should be"
)


class SqlTableSource:
    """See :class:`~airflow_state_watchers.ports.RowSource`. The database is chosen by the connection's type at the first poll.

    Errors are :class:`SourceError`, whose texts name table and connection and hold no secret.
    """

    def __init__(
        self,
        relation: Relation,
        *,
        conn_id: str,
        hook_params: Mapping[str, Any] | None = None,
        horizon: Literal["auto", "transactions", "clock"] = "auto",
        nulls: Literal["exclude", "raise"] = "exclude",
        timeout: float = 30,
        connections: int = 4,
        carries_rows: bool = False,
    ) -> None:
        self._relation, self._conn_id, self._hook_params = relation, conn_id, hook_params
        self._horizon, self._nulls = horizon, nulls
        self._timeout, self._connections, self._carries_rows = timeout, connections, carries_rows
        self._database: Database | None = None
        self._found: Found | None = None
        self._notes: str | None = None
        self._table: str | None = None
        self._is_another = False
        self._polls = 0

    def fields(self) -> dict[str, Any]:
        relation = self._relation
        found = {
            "kind": "sql",
            "connection": self._conn_id,
            "table": list(relation.table) or None,
            "sql": relation.sql,
            "watermark_column": relation.watermark_column,
            "where": relation.where,
            "timezone": relation.timezone,
        }
        return {key: value for key, value in found.items() if value is not None}

    async def open(self) -> SqlScan:
        if self._database is None:
            self._database = await asyncio.to_thread(self._find)
        return await self._open(self._database)

    async def aclose(self) -> None:
        database, self._database = self._database, None
        if database is not None:
            await database.aclose()

    async def _open(self, database: Database) -> SqlScan:
        try:
            opened, note = await database.openness()
        except Exception as error:
            raise self._explained(error) from None
        found = await self._current(database)
        if opened.exact and not found.is_own:
            opened, note = replace(opened, exact=False, transactions=()), self._from_elsewhere()
        zone = self._zone(found.zone)
        keys = [Column(name) for name in self._relation.key_columns]
        statements = Statements(self._relation, database.dialect, found.column, keys)
        if self._notes is None:
            await self._check_columns(statements)
            if self._relation.sql is not None:
                await self._names(statements)
            self._notes = await notes_on(self._relation, found, statements, self._run)
        if self._nulls == "raise":
            await self._check_nulls(statements)
        another = f"{self._relation.label} {ANOTHER}" if self._is_another else None
        notes = "; ".join(each for each in (note, another, self._notes) if each) or None
        names = await self._names(statements) if self._carries_rows else ()
        return SqlScan(self._run, statements, zone, opened, notes, names)

    def _from_elsewhere(self) -> str:
        """Say that the open transactions of this database tell nothing; raise if they were asked for."""
        label = self._relation.label
        why = f"{label} is a foreign table or a materialized view, into which rows come that were committed elsewhere"
        if self._horizon == "transactions":
            raise SourceDenied(
                f'{why}, so horizon="transactions" cannot be had. Watch the table itself, or leave horizon out'
            )
        return (
            f"{why}. They are read by settle and lookback: together longer than it takes a row to come, or it is missed"
        )

    def _zone(self, name: str) -> ZoneInfo:
        try:
            return ZoneInfo(name)
        except (ValueError, LookupError, OSError):
            raise SourceError(
                f"{self._relation.label}: the database's time zone, {name!r}, is none that this machine knows, and "
                f"{self._relation.watermark_column} has none of its own. Declare timezone=..., such as 'Europe/Berlin'"
            ) from None

    async def _current(self, database: Database) -> Found:
        """Return what the watermark column is now: its type may be changed while a watcher runs."""
        self._polls += 1
        if self._found is None or database.dialect.name in ("postgresql", "sqlite") or self._polls % LOOK_AGAIN == 0:
            self._found = await find_column(self._relation, database.dialect, self._run)
        if self._found.table != self._table:
            self._is_another = self._table is not None
            self._table, self._notes = self._found.table, None
        return self._found

    async def _names(self, statements: Statements) -> tuple[str, ...]:
        """Return the columns that an event carries."""
        assert self._database is not None
        if self._relation.columns:
            return self._relation.columns
        try:
            names = await self._database.names(statements.names())
        except Exception as error:
            raise self._explained(error) from None
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise SourceError(
                f"{self._relation.label} has two columns called {', '.join(twice)}. Give each a name of its own"
            )
        return names

    async def _check_columns(self, statements: Statements) -> None:
        """Raise here if keys or columns are missing, rather than in each task that reads a window."""
        names = list(dict.fromkeys((*self._relation.key_columns, *self._relation.columns)))
        if names:
            await self._run(statements.names(names))

    async def _check_nulls(self, statements: Statements) -> None:
        if await self._run(statements.nulls()):
            column = self._relation.watermark_column
            raise SourceDenied(
                f'{self._relation.label}: {column} is NULL in some rows, and nulls="raise". Such rows can never be delivered: '
                f'set the column, declare it NOT NULL, or say nulls="exclude"'
            )

    async def _run(self, query: Query) -> list[tuple[Any, ...]]:
        assert self._database is not None
        try:
            return await self._database.run(query)
        except Exception as error:
            raise self._explained(error) from None

    def _explained(self, error: Exception) -> SourceError:
        self._found = None  # perhaps the column is another one by now
        dialect = self._database.dialect.name if self._database is not None else ""
        return explain(error, label=self._relation.label, conn_id=self._conn_id, dialect=dialect)

    def _find(self) -> Database:
        """Return the database that the connection leads to. Runs in a thread: it asks Airflow, and imports providers."""
        from airflow_state_watchers.sources.sql_hook import HookDatabase, dialect_for, find_hook, is_redshift

        label, conn_id = self._relation.label, self._conn_id
        try:
            conn_type, hook = find_hook(conn_id, self._hook_params)
            is_postgres = conn_type == "postgres" and not is_redshift(hook)
        except Exception as error:
            # Without its cause, whose text may repeat what the connection holds.
            raise explain_hook(error, label=label, conn_id=conn_id) from None
        limits: Any = {"hook_params": self._hook_params, "timeout": self._timeout, "connections": self._connections}
        if is_postgres:
            from airflow_state_watchers.sources.pg_database import PgDatabase

            return PgDatabase(conn_id, mode=self._horizon, **limits)
        if self._horizon == "transactions":
            raise SourceDenied(
                f'{label}: horizon="transactions" is for PostgreSQL, and connection {conn_id!r} is of type {conn_type!r}. '
                "Leave horizon out, and choose settle and lookback longer than the longest transaction"
            )
        if not hasattr(hook, "get_conn") or not hasattr(hook, "run"):
            raise SourceMissing(f"{label}: connection {conn_id!r} of type {conn_type!r} is no SQL database")
        return HookDatabase(dialect_for(hook, conn_type), conn_id=conn_id, **limits)
