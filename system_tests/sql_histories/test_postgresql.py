"""Random histories of a real PostgreSQL: eight writers, a watcher that is killed, a consumer that reads as it goes.

Every committed version that was not overwritten has to be in the copy. The time that the writers write is
``HISTORY_SECONDS`` (60 by default).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from threading import Event, Thread
from typing import Any

import psycopg
import pytest

from airflow_state_watchers.demo.postgres import PostgresServer
from system_tests.sql_histories.consumer import Consumer, stalest
from system_tests.sql_histories.writers import TABLE, HotWriter, Writer

SECONDS = float(os.environ.get("HISTORY_SECONDS", "60"))
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


class Watcher:
    """The watcher's process, begun anew whenever it was killed."""

    def __init__(self, directory: Path, env: dict[str, str]) -> None:
        self._directory, self._env = directory, env
        self.process: subprocess.Popen[bytes] | None = None
        self.kills = 0

    def start(self) -> None:
        command = [sys.executable, "-m", "system_tests.sql_histories.watcher", str(self._directory)]
        with (self._directory / "output").open("ab") as log:
            self.process = subprocess.Popen(command, env={**os.environ, **self._env}, stdout=log, stderr=log)

    def kill(self) -> None:
        assert self.process
        assert self.process.poll() is None, (self._directory / "output").read_text()[-3000:]
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.kills += 1

    def polls(self) -> int:
        path = self._directory / "polls"
        return path.stat().st_size if path.exists() else 0


@pytest.mark.parametrize(
    ("column", "role"),
    [("updated_at", "superuser"), ("version", "superuser"), ("updated_at", "pg_read_all_stats"), ("updated_at", "plain"),
     ("version", "plain")],
)  # fmt: skip
def test_nothing_is_lost(server: PostgresServer, tmp_path: Path, column: str, role: str) -> None:
    history = History(server, tmp_path, column=column, role=role)
    history.run()
    assert history.missing() == {}
    print(history.summary())
    assert history.staleness() < STALEST


def test_a_fixed_lag_loses_rows(server: PostgresServer, tmp_path: Path) -> None:
    history = History(server, tmp_path, column="updated_at", role="superuser", horizon="clock", settle=1, lookback=0)
    history.run(seconds=min(SECONDS, 20))
    assert history.missing() != {}


class History:
    """One run of all of them on a fresh database."""

    def __init__(self, server: PostgresServer, directory: Path, *, column: str, role: str, **arguments: Any) -> None:
        self.directory = directory
        name = f"history_{Random().randrange(10**9)}"  # noqa: S311
        self.uri = server.create_database(name)
        with psycopg.connect(self.uri, autocommit=True) as connection:
            connection.execute(TABLE)
            for statement in ROLES[role].split(";"):
                connection.execute(statement.format(role=f"watcher_{name}"))
        self.env = {"AIRFLOW_CONN_SHOP": server.uri(name, user=f"watcher_{name}")}
        plan = {"conn_id": "shop", "table": "public.orders", "watermark_column": column, "key_columns": ["id"]}
        plan |= {"start": "earliest", "poll_interval": 5, **arguments}
        (directory / "arguments.json").write_text(json.dumps(plan))
        self.watcher = Watcher(directory, self.env)
        self.stop, self.stop_reading = Event(), Event()
        self.writers = [Writer(number, self.uri, self.stop) for number in range(WRITERS)]
        self.hot = HotWriter(self.uri, self.stop)
        self.consumer = Consumer(directory, self.stop_reading)
        self.ended = 0.0

    def run(self, seconds: float = SECONDS) -> None:
        os.environ |= self.env
        self.watcher.start()
        _until(lambda: self.watcher.polls() > 2, 60, "the watcher's first polls")
        threads: list[Thread] = [*self.writers, self.hot, self.consumer]
        for thread in threads:
            thread.start()
        self._kill_now_and_then(seconds)
        self.ended = time.time()
        self.stop.set()
        for writer in self.writers:
            writer.join()
            assert writer.error is None, writer.error
        self.hot.join()
        self._settle()
        self.stop_reading.set()
        self.consumer.join()
        assert self.consumer.error is None, self.consumer.error
        self.watcher.kill()
        self.consumer.consume()
        with psycopg.connect(self.uri) as connection:
            self.table = dict(connection.execute("SELECT id, version FROM orders").fetchall())

    def _kill_now_and_then(self, seconds: float) -> None:
        random = Random(1)  # noqa: S311
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.stop.wait(min(random.uniform(2, 12), max(0.0, end - time.monotonic())))
            self.watcher.kill()
            self.watcher.start()

    def _settle(self) -> None:
        """Let the watcher poll until it has seen what was written last."""
        for _ in range(2):
            before = self.watcher.polls()
            _until(lambda: self.watcher.polls() > before + 12, 60, "the watcher's last polls")  # noqa: B023
        time.sleep(1)

    def missing(self) -> dict[int, Any]:
        """Return the rows whose version the copy does not have: (the table's, the copy's)."""
        copy = self.consumer.copy
        return {key: (version, copy.get(key)) for key, version in self.table.items() if copy.get(key) != version}

    def staleness(self) -> float:
        return stalest(self.hot.written, self.consumer.hot, until=self.ended)

    def summary(self) -> str:
        consumer = self.consumer
        return (
            f"{sum(writer.transactions for writer in self.writers)} transactions, {len(self.table)} rows, "
            f"{consumer.windows} windows of {consumer.rows} rows, {consumer.repeats} repeats, {self.watcher.kills} kills, "
            f"hot row out of date for {self.staleness():.1f} s at most"
        )


def _until(condition: Callable[[], bool], seconds: float, what: str) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited {seconds:.0f} s for {what}"
        time.sleep(0.05)
