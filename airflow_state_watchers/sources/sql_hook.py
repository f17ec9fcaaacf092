"""Any database that has a ``DbApiHook``, asked in a thread of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from typing import Any

from airflow.sdk import BaseHook

from airflow_state_watchers.core.transactions import Openness
from airflow_state_watchers.exceptions import SourceUnavailable
from airflow_state_watchers.sources.sql_dialects import Dialect, read_clock
from airflow_state_watchers.sources.sql_statements import Query, clock_query

_SESSION = {
    "mysql": (
        "SET SESSION time_zone = '+00:00'",
        "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ ONLY",
    ),
    "sqlite": ("PRAGMA query_only = ON",),
}


class _Line:
    """A connection and the one thread that uses it: one of SQLite's belongs to the thread that has made it."""

    def __init__(self, hook: Any, name: str) -> None:
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="watched-database")
        self._hook, self._name = hook, name
        self._connection: Any = None

    def run(self, query: Query) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        connection = self._opened()
        try:
            with closing(connection.cursor()) as cursor:
                cursor.execute(query.text, query.parameters)
                rows = cursor.fetchall()
                names = tuple(column[0] for column in cursor.description or ())
            connection.rollback()  # the next statement sees what is committed by then
        except Exception:
            self.close()
            raise
        return names, [tuple(row.values()) if isinstance(row, Mapping) else tuple(row) for row in rows]

    def _opened(self) -> Any:
        if self._connection is None:
            connection = self._hook.get_conn()
            with closing(connection.cursor()) as cursor:
                for statement in _SESSION.get(self._name, ()):
                    cursor.execute(statement)
            self._connection = connection
        return self._connection

    def close(self) -> None:
        connection, self._connection = self._connection, None
        with suppress(Exception):
            if connection is not None:
                connection.close()


class HookDatabase:
    """One watcher's connection. It does not show its open transactions, so ``settle`` and ``lookback`` must do."""

    def __init__(self, hook: Any, dialect: Dialect, *, conn_id: str, timeout: float) -> None:
        self.dialect = dialect
        self._hook, self._conn_id, self._timeout = hook, conn_id, timeout
        self._line = _Line(hook, dialect.name)

    async def openness(self) -> tuple[Openness, str | None]:
        ((now,),) = await self.run(clock_query(self.dialect))
        return Openness(read_clock(now), exact=False), None

    async def run(self, query: Query) -> list[tuple[Any, ...]]:
        return (await self._run(query))[1]

    async def names(self, query: Query) -> tuple[str, ...]:
        return (await self._run(query))[0]

    async def _run(self, query: Query) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        line = self._line
        future = asyncio.get_running_loop().run_in_executor(line.thread, line.run, query)
        try:
            return await asyncio.wait_for(asyncio.shield(future), self._timeout)
        except (TimeoutError, asyncio.TimeoutError):
            if future.done():
                raise
            self._abandon(line, future)
            raise SourceUnavailable(
                f"connection {self._conn_id!r}: no answer within {self._timeout:g} s. Is there an index on the watermark column? "
                "See also [state_watchers] source_timeout"
            ) from None

    async def aclose(self) -> None:
        self._line.thread.submit(self._line.close)
        self._line.thread.shutdown(wait=False)

    def _abandon(self, line: _Line, future: asyncio.Future[Any]) -> None:
        """Leave a statement that hangs to itself, with its thread and its connection, and go on with new ones."""
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        line.thread.submit(line.close)
        line.thread.shutdown(wait=False)
        if self._line is line:
            self._line = _Line(self._hook, self.dialect.name)


def find_hook(conn_id: str, hook_params: Mapping[str, Any] | None) -> tuple[str, Any]:
    """Return a connection's type and its hook. Blocks: call it in a thread. Raises what Airflow raises."""
    connection: Any = BaseHook.get_connection(conn_id)
    return str(connection.conn_type), connection.get_hook(hook_params=dict(hook_params) if hook_params else None)
