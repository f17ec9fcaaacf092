"""Random histories of a real PostgreSQL: eight writers, a watcher that is killed, a consumer that reads as it goes.

Every committed version that was not overwritten has to be in the copy. The time that the writers write is
``HISTORY_SECONDS`` (60 by default).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from threading import Event
from typing import Any

import psycopg
import pytest

from airflow_state_watchers.demo.postgres import PostgresServer
from system_tests.sql_histories.history import SECONDS, History
from system_tests.sql_histories.writers import TABLE, HotWriter, Writer

WRITERS = 8
STALEST = 20.0
"""Seconds for which a row that is updated all the time may be out of date in the copy, on a machine where a long transaction holds
the watermark for six and a killed watcher needs five to be back."""
ROLES = {
    "superuser": "CREATE ROLE {role} SUPERUSER LOGIN",
    "pg_read_all_stats": "CREATE ROLE {role} LOGIN; GRANT pg_read_all_stats TO {role}; GRANT SELECT ON orders TO {role}",
    "plain": "CREATE ROLE {role} LOGIN; GRANT SELECT ON orders TO {role}",
}


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer({"max_prepared_transactions": "50"}) as server:
        yield server


@pytest.mark.parametrize(
    ("column", "role"),
    [("updated_at", "superuser"), ("version", "superuser"), ("updated_at", "pg_read_all_stats"), ("updated_at", "plain"),
     ("version", "plain")],
)  # fmt: skip
def test_nothing_is_lost(server: PostgresServer, tmp_path: Path, column: str, role: str) -> None:
    history = history_of(server, tmp_path, column=column, role=role)
    history.run()
    assert history.missing() == {}
    print(history.summary())
    assert history.staleness() < STALEST


def test_a_fixed_lag_loses_rows(server: PostgresServer, tmp_path: Path) -> None:
    history = history_of(server, tmp_path, column="updated_at", role="superuser", horizon="clock", settle=1, lookback=0)
    history.run(seconds=min(SECONDS, 20))
    assert history.missing() != {}


def history_of(server: PostgresServer, directory: Path, *, column: str, role: str, **arguments: Any) -> History:
    """Return a history on a fresh database."""
    name = f"history_{Random().randrange(10**9)}"  # noqa: S311
    uri, stop = server.create_database(name), Event()
    with psycopg.connect(uri, autocommit=True) as connection:
        connection.execute(TABLE)
        for statement in ROLES[role].split(";"):
            connection.execute(statement.format(role=f"watcher_{name}"))

    def table() -> dict[int, int]:
        with psycopg.connect(uri) as connection:
            return dict(connection.execute("SELECT id, version FROM orders").fetchall())

    return History(
        directory,
        connection=server.uri(name, user=f"watcher_{name}"),
        arguments={"table": "public.orders", "watermark_column": column, **arguments},
        writers=[Writer(number, uri, stop) for number in range(WRITERS)],
        hot=HotWriter(uri, stop),
        table=table,
        stop=stop,
    )
