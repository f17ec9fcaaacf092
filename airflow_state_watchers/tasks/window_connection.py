"""The connection that a window is read with: that of the Airflow hook, read-only, and told how to stream.

The hook gives a DB-API connection of whichever driver the provider uses, so what is particular to drivers is here alone.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from datetime import date, datetime, timezone
from importlib import import_module
from typing import Any, TypeAlias
from uuid import uuid4

from airflow.sdk import BaseHook

from airflow_state_watchers.sources.pg_values import read_beyond
from airflow_state_watchers.sources.sql_rendering import paramstyle_of

log = logging.getLogger(__name__)

Names: TypeAlias = tuple[str, ...]
Rows: TypeAlias = list[tuple[Any, ...]]
Parameters: TypeAlias = Mapping[str, Any] | tuple[Any, ...]

_FIRST, _LAST = datetime.min.replace(tzinfo=timezone.utc), datetime.max.replace(tzinfo=timezone.utc)
_BOUNDS: dict[str, tuple[Any, Any]] = {
    "date": (date.min, date.max),
    "timestamp": (_FIRST.replace(tzinfo=None), _LAST.replace(tzinfo=None)),
    "timestamptz": (_FIRST, _LAST),
}
_SESSION = {
    "sqlite": ("PRAGMA query_only = ON",),
    # In the session of a zone whose clocks go back, the two hours that look the same are one to MySQL: rows would be left out.
    "mysql": ("SET SESSION time_zone = '+00:00'", "SET SESSION TRANSACTION READ ONLY"),
}


class ReadConnection:
    """One connection, opened when it is first used. ``name`` is what SQLAlchemy calls its database.

    Not in a transaction between two calls of :meth:`read`, so the database is free while a caller works on a page.
    """

    def __init__(self, conn_id: str, hook_params: Mapping[str, Any] | None) -> None:
        connection: Any = BaseHook.get_connection(conn_id)
        self._hook = connection.get_hook(hook_params=dict(hook_params) if hook_params else None)
        self._connection: Any = None

    @property
    def name(self) -> str:
        return str(self._hook.dialect_name)

    @property
    def placeholder(self) -> str:
        """How the driver wants a parameter to be written."""
        return "%(name)s" if paramstyle_of(self._hook) == "pyformat" else str(self._hook.placeholder)

    def __enter__(self) -> ReadConnection:
        return self

    def __exit__(self, *reason: object) -> None:
        self._close()

    def _close(self) -> None:
        if self._connection is not None:
            with suppress(Exception):  # what went wrong with it has been raised already
                self._connection.close()
            self._connection = None

    def read(self, sql: str, parameters: Parameters) -> tuple[Names, Rows]:
        """Run one statement in a transaction of its own, and return its columns and all of its rows.

        A connection that was lost since the last call (a caller may work on a page for hours) is opened again, once.
        """
        used = self._connection is not None
        try:
            return self._read(sql, parameters)
        except Exception:
            if not used or not _is_lost(self._connection):
                raise
        self._close()
        return self._read(sql, parameters)

    def _read(self, sql: str, parameters: Parameters) -> tuple[Names, Rows]:
        connection = self._opened()
        with closing(self._cursor(connection)) as cursor:
            cursor.execute(sql, parameters)
            found = _names(cursor), _tuples(cursor.fetchall())
        connection.rollback()
        return found

    def stream(self, sql: str, parameters: Parameters, size: int) -> Iterator[tuple[Names, Rows]]:
        """Run one statement and yield its rows, up to ``size`` at a time, as far as the driver can without holding all of them."""
        connection = self._opened()
        cursor = self._streaming_cursor(connection)
        try:
            cursor.execute(sql, parameters)
            while rows := cursor.fetchmany(size):
                yield _names(cursor), _tuples(rows)
        finally:
            with suppress(
                Exception
            ):  # a reader that leaves early leaves rows unread, which MySQL's own driver takes amiss
                cursor.close()
        connection.rollback()

    def _opened(self) -> Any:
        if self._connection is None:
            self._connection = self._hook.get_conn()
            self._make_read_only(self._connection)
        return self._connection

    def _make_read_only(self, connection: Any) -> None:
        driver = _driver(connection)
        if driver == "psycopg":
            connection.read_only = True
            connection.prepare_threshold = None  # a pgbouncer that pools transactions knows no prepared statements
            read_beyond(connection, _infinity)
        elif driver == "psycopg2":
            connection.set_session(readonly=True)
        elif self.name in _SESSION:
            with closing(connection.cursor()) as cursor:
                for statement in _SESSION[self.name]:
                    cursor.execute(statement)

    def _cursor(self, connection: Any) -> Any:
        """Return a cursor whose rows are tuples, whatever ``cursor`` the Airflow connection asks for."""
        driver = _driver(connection)
        if driver == "psycopg":
            return connection.cursor(row_factory=import_module("psycopg.rows").tuple_row)
        if driver == "psycopg2":
            return connection.cursor(cursor_factory=import_module("psycopg2.extensions").cursor)
        return connection.cursor()

    def _streaming_cursor(self, connection: Any) -> Any:
        driver = _driver(connection)
        name = f"state_watchers_{uuid4().hex}"
        if driver == "psycopg":
            return connection.cursor(name, row_factory=import_module("psycopg.rows").tuple_row)
        if driver == "psycopg2":
            return connection.cursor(name, cursor_factory=import_module("psycopg2.extensions").cursor)
        if driver in ("pymysql", "MySQLdb"):
            return connection.cursor(import_module(f"{driver}.cursors").SSCursor)
        return connection.cursor()


def _driver(connection: Any) -> str:
    return type(connection).__module__.partition(".")[0]


def _is_lost(connection: Any) -> bool:
    """Return whether the driver knows that the connection is gone: psycopg says ``closed``, those of MySQL not ``open``, or are
    asked."""
    is_connected = getattr(connection, "is_connected", lambda: True)
    return bool(getattr(connection, "closed", False)) or not getattr(connection, "open", True) or not is_connected()


def _names(cursor: Any) -> Names:
    return tuple(column[0] for column in cursor.description)


def _tuples(rows: Sequence[Any]) -> Rows:
    return [tuple(row.values()) if isinstance(row, Mapping) else tuple(row) for row in rows]


def _infinity(type_name: str, text: str, error: Exception) -> Any:
    """Read PostgreSQL's ``infinity`` as the latest moment that Python has, and ``-infinity`` as the first."""
    if type_name not in _BOUNDS or text not in ("infinity", "-infinity"):
        raise error
    return _BOUNDS[type_name][text == "infinity"]
