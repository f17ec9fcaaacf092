"""Any database that has a ``DbApiHook``."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from airflow.sdk import BaseHook

from airflow_state_watchers.core.transactions import Openness
from airflow_state_watchers.exceptions import SourceError
from airflow_state_watchers.sources.sql_dialects import Dialect, dialect_of, read_clock
from airflow_state_watchers.sources.sql_line import Line, Rows
from airflow_state_watchers.sources.sql_lines import Lines, SharedLines, key_of
from airflow_state_watchers.sources.sql_rendering import paramstyle_of
from airflow_state_watchers.sources.sql_statements import Query, clock_query


class HookDatabase:
    """One watcher's way to the database of an Airflow connection; the connections themselves are shared with others.

    It does not show its open transactions, so ``settle`` and ``lookback`` must do. ``timeout``: seconds for each statement.
    """

    def __init__(
        self,
        dialect: Dialect,
        *,
        conn_id: str,
        hook_params: Mapping[str, Any] | None = None,
        timeout: float = 30,
        connections: int = 4,
    ) -> None:
        self.dialect = dialect
        self._conn_id, self._hook_params = conn_id, dict(hook_params or {})
        self._timeout, self._connections = timeout, connections
        self._key = key_of(conn_id, self._hook_params, dialect.name)
        self._lines: Lines | None = None

    async def openness(self) -> tuple[Openness, str | None]:
        ((now,),) = await self.run(clock_query(self.dialect))
        try:
            return Openness(read_clock(now), exact=False), None
        except ValueError as error:
            raise SourceError(
                f"connection {self._conn_id!r}: {error}. This kind of database is not known well enough"
            ) from None

    async def run(self, query: Query) -> list[tuple[Any, ...]]:
        return (await self._run(query)).rows

    async def names(self, query: Query) -> tuple[str, ...]:
        return (await self._run(query)).names

    async def aclose(self) -> None:
        if self._lines is not None:
            self._lines = None
            SharedLines.here().release(self._key)

    async def _run(self, query: Query) -> Rows:
        if self._lines is None:
            self._lines = SharedLines.here().lease(self._key, self._line, self._connections)
        try:
            return await self._lines.run(query, self._timeout)
        except SourceError as error:
            raise type(error)(f"connection {self._conn_id!r}: {error}") from None

    def _line(self) -> Line:
        conn_id, params = self._conn_id, self._hook_params
        return Line(lambda: find_hook(conn_id, params)[1], self.dialect.name, label=conn_id)


def find_hook(conn_id: str, hook_params: Mapping[str, Any] | None) -> tuple[str, Any]:
    """Return a connection's type and a new hook of it. Blocks: call it in a thread. Raises what Airflow raises."""
    connection: Any = BaseHook.get_connection(conn_id)
    return str(connection.conn_type), connection.get_hook(hook_params=dict(hook_params) if hook_params else None)


def dialect_for(hook: Any, conn_type: str) -> Dialect:
    """Return the dialect of a hook's database: its connection type's, or what the hook says of a type for many (ODBC, JDBC)."""
    style = paramstyle_of(hook) or ("qmark" if getattr(hook, "placeholder", "%s") == "?" else None)
    if conn_type == "postgres":
        return dialect_of("redshift" if is_redshift(hook) else conn_type, style)
    by_type = dialect_of(conn_type, style)
    if by_type.name != "ansi":
        return by_type
    name = ""
    with suppress(Exception):  # it may need a package that is not installed
        name = str(hook.dialect_name)
    return dialect_of(name, style)


def is_redshift(hook: Any) -> bool:
    """Return whether a Postgres hook leads to a Redshift, which has no transactions of PostgreSQL's kind to look at."""
    extra = getattr(getattr(hook, "connection", None), "extra_dejson", {})
    return bool(extra.get("redshift") or extra.get("redshift-serverless"))
