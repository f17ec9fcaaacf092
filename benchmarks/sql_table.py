"""The table that ``benchmarks.sql_polling`` polls, in a PostgreSQL of its own: filled fast, and its server asked what it did.

There is a database for each size. Contestants come as ``watcher``, a role that may see the times of others' transactions; rows
come from ``postgres``, so that the server's figures of the one hold nothing of the other's.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg

from airflow_state_watchers.demo.postgres import PostgresServer

NEW = 1_000
SETTINGS = {
    "shared_preload_libraries": "pg_stat_statements",
    "pg_stat_statements.track_planning": "on",
    "shared_buffers": "1GB",
    "maintenance_work_mem": "512MB",
    "max_wal_size": "16GB",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "autovacuum": "off",  # it would come whenever it likes
    "jit": "off",
}
CREATE = """
CREATE TABLE orders (id bigint, updated_at timestamptz NOT NULL, payload text NOT NULL);
GRANT SELECT ON orders TO watcher;
"""
FILL = """
INSERT INTO orders
SELECT n, date_trunc('hour', now()) - interval '1 hour' - (%(rows)s - n) * (interval '30 days' / %(rows)s),
  repeat(md5(n::text), 3)
FROM generate_series(1, %(rows)s) AS n
"""
INDEX = """
ALTER TABLE orders ADD PRIMARY KEY (id);
CREATE INDEX ON orders (updated_at, id);
"""
ADD = """
INSERT INTO orders SELECT (SELECT max(id) FROM orders) + n, clock_timestamp(), repeat(md5(n::text), 3)
FROM generate_series(1, %s) AS n
"""
WORK = """
SELECT coalesce(sum(total_plan_time + total_exec_time), 0)::float8, coalesce(sum(calls), 0)::float8
FROM pg_stat_statements WHERE userid = 'watcher'::regrole
"""
ACTIVE = "SELECT active_time FROM pg_stat_database WHERE datname = %s"
FLUSH = "SELECT pg_stat_force_next_flush()"
"""Else a session tells what it did up to ten seconds later, while a contestant is measured."""
EXPLAIN = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "


@dataclass(frozen=True)
class Target:
    """Where a contestant finds the table, and how many rows it has before any are added."""

    host: str
    database: str
    rows: int
    log: str

    @property
    def conninfo(self) -> str:
        return f"host={self.host} dbname={self.database} user=watcher application_name=contestant"

    @property
    def uri(self) -> str:
        return f"postgresql+psycopg2://watcher@/{self.database}?host={self.host}"


class Table:
    """What the benchmark itself does with the table. Its sessions are idle, outside of transactions, while a contestant works."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._here = self._connect(target.database)
        self._aside = self._connect("postgres")

    def _connect(self, database: str) -> psycopg.Connection[Any]:
        return psycopg.connect(f"host={self.target.host} dbname={database} user=postgres", autocommit=True)

    def close(self) -> None:
        self._here.close()
        self._aside.close()

    def fill(self) -> None:
        self._here.execute(CREATE)
        with psycopg.ClientCursor(self._here) as cursor:
            cursor.execute(FILL, {"rows": self.target.rows})
        self._here.execute(INDEX)
        self._here.execute("VACUUM ANALYZE orders")
        self._here.execute("CHECKPOINT")
        self._here.execute(FLUSH)

    def add(self, rows: int = NEW) -> None:
        self._here.execute(ADD, (rows,))

    def restore(self) -> None:
        """Take away what was added."""
        self._here.execute("DELETE FROM orders WHERE id > %s", (self.target.rows,))
        self._here.execute("VACUUM ANALYZE orders")
        self._here.execute(FLUSH)

    def value_at(self, number: int) -> datetime:
        """Return the watermark of one of the original rows, counted from 1."""
        ((value,),) = self._here.execute("SELECT updated_at FROM orders WHERE id = %s", (number,)).fetchall()
        assert isinstance(value, datetime)
        return value

    def newest(self) -> datetime:
        ((value,),) = self._here.execute("SELECT max(updated_at) FROM orders").fetchall()
        assert isinstance(value, datetime)
        return value

    def explain(self, query: str, parameters: Sequence[Any]) -> dict[str, Any]:
        """Run a statement, and return its plan as PostgreSQL tells it in JSON."""
        with psycopg.ClientCursor(self._here) as cursor:
            cursor.execute(EXPLAIN + query, parameters)
            ((plan,),) = cursor.fetchall()
        found: dict[str, Any] = plan[0]
        return found

    def work(self) -> tuple[float, float]:
        """Return the milliseconds of planning and executing all of the contestants' statements so far, and their number."""
        ((milliseconds, calls),) = self._aside.execute(WORK).fetchall()
        return float(milliseconds), float(calls)

    def active(self) -> float:
        """Return the milliseconds for which sessions of this database have been busy, parsing and sending included."""
        ((milliseconds,),) = self._aside.execute(ACTIVE, (self.target.database,)).fetchall()
        return float(milliseconds)


@contextmanager
def server() -> Iterator[PostgresServer]:
    """Run a server that counts statements."""
    with PostgresServer(SETTINGS) as running, psycopg.connect(running.uri(), autocommit=True) as connection:
        connection.execute("CREATE EXTENSION pg_stat_statements")
        connection.execute("CREATE ROLE watcher LOGIN")
        connection.execute("GRANT pg_read_all_stats TO watcher")
        yield running


def filled(running: PostgresServer, rows: int) -> Table:
    """Make a database whose table has so many rows."""
    begun = time.perf_counter()
    database = f"rows_{rows}"
    running.create_database(database)
    table = Table(Target(str(running.directory), database, rows, str(running.log)))
    table.fill()
    print(f"\n{rows:,} rows, filled in {time.perf_counter() - begun:.1f} s", flush=True)
    return table
