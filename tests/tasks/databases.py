"""A database behind an Airflow connection, and windows of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from airflow_state_watchers import SqlWindow


class Database:
    """A database behind the Airflow connection ``conn_id``."""

    def __init__(self, conn_id: str, connection: Any) -> None:
        self.conn_id = conn_id
        self.connection = connection
        self.mark = "?" if conn_id == "lite" else "%s"

    def run(self, sql: str) -> list[tuple[Any, ...]]:
        cursor = self.connection.execute(sql)
        return [] if cursor.description is None else [tuple(row) for row in cursor.fetchall()]

    def insert(self, table: str, rows: Iterable[Sequence[Any]]) -> None:
        for row in rows:
            self.connection.execute(f"INSERT INTO {table} VALUES ({', '.join([self.mark] * len(row))})", tuple(row))

    def window(self, low: str | None, high: str | None, **more: Any) -> SqlWindow:
        known: dict[str, Any] = {
            "conn_id": self.conn_id,
            "table": ("orders",),
            "sql": None,
            "where": None,
            "columns": (),
            "watermark_column": "v",
            "key_columns": ("id",),
            "count": 0,
            "reread": False,
            "column_type": "integer",
        }
        return SqlWindow(low=low, high=high, **{**known, **more})


def read(window: SqlWindow, chunksize: int = 2, **more: Any) -> list[dict[str, Any]]:
    return [row for rows in window.rows(chunksize=chunksize, **more) for row in rows]


def ids(window: SqlWindow, chunksize: int = 2, **more: Any) -> list[Any]:
    return [row["id"] for row in read(window, chunksize, **more)]
