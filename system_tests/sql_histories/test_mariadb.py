"""Random histories of a real MariaDB, which does not show its open transactions: ``settle`` and ``lookback`` have to do.

Most transactions are shorter than ``settle``, a few are longer, and shorter than ``lookback``. With both, every committed version
that was not overwritten is in the copy; without, versions are missing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from system_tests.sql_histories.history import SECONDS, History
from system_tests.sql_histories.writers_mariadb import TABLE, LateWriter, MariadbHotWriter, MariadbWriter
from system_tests.sql_servers.mariadb_server import MariadbServer

WRITERS, LATE = 6, 2
SETTLE, LOOKBACK = 5, 30
LIVES, UNTIL_THE_END = (SETTLE + 5.0, SETTLE + 20.0), (60.0, 60.0)
STALEST = 40.0
"""Seconds for which a row that is updated all the time may be out of date in the copy: a killed watcher needs five to be back, and
for a number ``settle`` after that."""


@pytest.fixture(scope="module")
def server() -> Iterator[MariadbServer]:
    with MariadbServer() as server:
        yield server


@pytest.mark.parametrize("column", ["updated_at", "version"])
def test_nothing_is_lost(server: MariadbServer, tmp_path: Path, column: str) -> None:
    history = history_of(server, tmp_path, watermark_column=column, settle=SETTLE, lookback=LOOKBACK)
    history.run()
    print(history.summary())
    assert history.missing() == {}
    assert history.consumer.rereads or SECONDS < 30
    assert history.staleness() < STALEST


@pytest.mark.parametrize("settle", [0, SETTLE])
def test_without_a_lookback_what_is_committed_late_is_lost(server: MariadbServer, tmp_path: Path, settle: int) -> None:
    history = history_of(
        server, tmp_path, watermark_column="updated_at", settle=settle, lookback=0, lives=UNTIL_THE_END
    )
    history.run(seconds=20)  # a shorter one might end before anything was late
    assert history.missing() != {}


def history_of(
    server: MariadbServer, directory: Path, *, lives: tuple[float, float] = LIVES, **arguments: Any
) -> History:
    """Return a history on a fresh database."""
    with server.connect(database=None) as connection, connection.cursor() as cursor:
        for statement in ("DROP DATABASE IF EXISTS shop", "CREATE DATABASE shop", "USE shop", *TABLE.split(";")):
            cursor.execute(statement)

    def table() -> dict[int, int]:
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SELECT id, version FROM orders")
            return dict(cursor.fetchall())

    stop = Event()
    writers = [MariadbWriter(number, server, stop) for number in range(WRITERS)]
    return History(
        directory,
        connection=json.dumps({**server.airflow_connection, "extra": {"client": "mysql-connector-python"}}),
        arguments={"table": "orders", **arguments},
        writers=[*writers, *(LateWriter(number, server, stop) for number in range(WRITERS, WRITERS + LATE))],
        hot=MariadbHotWriter(server, stop),
        table=table,
        stop=stop,
        lives=lives,
        rest=SETTLE + 1,
    )
