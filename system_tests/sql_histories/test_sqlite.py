"""Random histories of a SQLite file, one writer at a time; see ``test_mariadb.py``."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from system_tests.sql_histories.history import SECONDS, History
from system_tests.sql_histories.writers_sqlite import TABLE, SqliteWriter, connect

WRITERS = 4
SETTLE, LOOKBACK = 5, 30
LIVES, UNTIL_THE_END = (SETTLE + 5.0, SETTLE + 20.0), (60.0, 60.0)
"""A watcher that was killed reads again from where its last event ended, and so may find what it had missed."""


@pytest.mark.parametrize("column", ["updated_at", "version"])
def test_nothing_is_lost(tmp_path: Path, column: str) -> None:
    history = history_of(tmp_path, watermark_column=column, settle=SETTLE, lookback=LOOKBACK)
    history.run()
    print(history.summary())
    assert history.missing() == {}
    assert history.consumer.rereads or SECONDS < 30


@pytest.mark.parametrize("settle", [0, SETTLE])
def test_without_a_lookback_what_is_committed_late_is_lost(tmp_path: Path, settle: int) -> None:
    history = history_of(tmp_path, watermark_column="updated_at", settle=settle, lookback=0, lives=UNTIL_THE_END)
    history.run(seconds=20)  # a shorter one might end before anything was late
    assert history.missing() != {}


def history_of(directory: Path, *, lives: tuple[float, float] = LIVES, **arguments: Any) -> History:
    path, stop = directory / "shop.db", Event()
    with closing(connect(path)) as connection:
        connection.executescript(TABLE)

    def table() -> dict[int, int]:
        with closing(connect(path)) as connection:
            return dict(connection.execute("SELECT id, version FROM orders").fetchall())

    return History(
        directory,
        connection=json.dumps({"conn_type": "sqlite", "host": str(path)}),
        arguments={"table": "orders", **arguments},
        writers=[SqliteWriter(number, path, stop) for number in range(WRITERS)],
        table=table,
        stop=stop,
        lives=lives,
        rest=SETTLE + 1,
    )
