"""One connection of a ``DbApiHook`` and the thread that uses it: one of SQLite's belongs to the thread that has made it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from threading import Thread
from typing import Any, NamedTuple

from airflow_state_watchers.exceptions import SourceError
from airflow_state_watchers.sources.sql_statements import Query
from airflow_state_watchers.sources.sql_thread import OwnThread

SESSION: Mapping[str, tuple[str, ...]] = {
    # A look sees what is committed when it begins, has times in UTC, and writes nothing.
    "mysql": (
        "SET SESSION time_zone = '+00:00'",
        "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ ONLY",
    ),
    "mssql": (
        "SET LOCK_TIMEOUT 15000",
    ),  # it waits for writers, and else for ever; the error then says that it was a lock
    "sqlite": ("PRAGMA query_only = ON",),
    "oracle": ("ALTER SESSION SET TIME_ZONE = '+00:00'",),
    "snowflake": ("ALTER SESSION SET TIMEZONE = 'UTC'",),
    "redshift": ("SET timezone TO 'UTC'",),
}


class Rows(NamedTuple):
    names: tuple[str, ...]
    rows: list[tuple[Any, ...]]


class Line:
    """Made when it is first needed, and made anew after an error. ``find`` returns a new hook, as the connection is by then."""

    def __init__(self, find: Callable[[], Any], dialect: str, *, label: str) -> None:
        self._find, self._dialect = find, dialect
        self._connection: Any = None
        self._thread = OwnThread(f"state-watchers-{label}", self._close)

    def call(self, query: Query) -> asyncio.Future[Rows]:
        """Begin a statement. Its future has the driver's error, or :class:`SourceError`."""
        return self._thread.call(lambda: self._run(query))

    def end(self) -> None:
        """Close the connection after what it has to do. Does not wait."""
        self._thread.end()

    def interrupt(self) -> None:
        """Ask the driver to end its statement, where it can; in a thread, since it may ask the server. Does not wait."""
        connection = self._connection
        for name in ("interrupt", "cancel"):  # sqlite3; psycopg2 and oracledb
            if function := getattr(connection, name, None):
                Thread(target=_quietly, args=(function,), name="state-watchers-interrupt", daemon=True).start()
                return

    def _run(self, query: Query) -> Rows:
        try:
            with closing(self._opened().cursor()) as cursor:
                cursor.execute(query.text, query.parameters)
                found = _fetched(cursor)
        except Exception:
            self._close()
            raise
        self._end_transaction()
        return found

    def _opened(self) -> Any:
        if self._connection is None:
            self._connection = self._find().get_conn()
            if statements := SESSION.get(self._dialect, ()):
                with closing(self._connection.cursor()) as cursor:
                    for statement in statements:
                        cursor.execute(statement)
                self._connection.commit()  # the end of the first transaction would take a setting back
        return self._connection

    def _end_transaction(self) -> None:
        """Let the next statement see what is committed by then."""
        try:
            self._connection.rollback()
        except NotImplementedError:  # BigQuery's, which has no transactions
            pass
        except Exception as error:
            # Perhaps there was none (a driver that commits by itself), perhaps it goes on, with its old view of the rows.
            if type(error).__name__ != "NotSupportedError":
                self._close()

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            _quietly(connection.close)


def _fetched(cursor: Any) -> Rows:
    if cursor.description is None:
        return Rows((), [])
    names = tuple(str(column[0]) for column in cursor.description)
    rows = [tuple(row.values()) if isinstance(row, Mapping) else tuple(row) for row in cursor.fetchall()]
    if any(len(row) != len(names) for row in rows):
        raise SourceError(
            "the driver gives rows as dictionaries, in which columns are lost. Take the cursor out of the connection's extra"
        )
    return Rows(names, rows)


def _quietly(function: Callable[[], object]) -> None:
    with suppress(Exception):
        function()
