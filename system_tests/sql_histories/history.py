"""One history: writers, a watcher's process that is killed now and then, and a consumer that reads as it goes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from threading import Event, Thread
from typing import Any

from system_tests.sql_histories.clients import Client
from system_tests.sql_histories.consumer import Consumer, stalest

SECONDS = float(os.environ.get("HISTORY_SECONDS", "60"))
"""For how long the writers write."""


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


class History:
    """One run of all of them.

    :param connection: the value of ``AIRFLOW_CONN_SHOP``.
    :param arguments: the trigger's, beside those that are the same everywhere.
    :param table: returns the version of each key in the table.
    :param stop: ends the writers.
    :param hot: updates one row all the time; ``hot.written`` has the times of its versions.
    :param lives: the least and the most seconds between two kills of the watcher. A life shorter than ``settle`` brings no
        value of a column without a clock, whose age is known by looks alone.
    :param rest: seconds after the last write until the watcher may have read it.
    """

    def __init__(
        self,
        directory: Path,
        *,
        connection: str,
        arguments: Mapping[str, Any],
        writers: Sequence[Client],
        table: Callable[[], dict[int, int]],
        stop: Event,
        hot: Any = None,
        lives: tuple[float, float] = (2, 12),
        rest: float = 0,
    ) -> None:
        self.env = {"AIRFLOW_CONN_SHOP": connection}
        plan = {"conn_id": "shop", "key_columns": ["id"], "start": "earliest", "poll_interval": 5, **arguments}
        (directory / "arguments.json").write_text(json.dumps(plan))
        self.watcher = Watcher(directory, self.env)
        self.stop, self.stop_reading = stop, Event()
        self.writers, self.hot = list(writers), hot
        self.consumer = Consumer(directory, self.stop_reading)
        self.ended = 0.0
        self._table, self._lives, self._rest = table, lives, rest

    def run(self, seconds: float = SECONDS) -> None:
        os.environ |= self.env
        self.watcher.start()
        _until(lambda: self.watcher.polls() > 2, 60, "the watcher's first polls")
        writing: list[Thread] = [*self.writers, *([self.hot] if self.hot else [])]
        for thread in [*writing, self.consumer]:
            thread.start()
        self._kill_now_and_then(seconds)
        self.stop.set()
        for thread in writing:
            thread.join()
        self.ended = time.time()
        for writer in self.writers:
            assert writer.error is None, writer.error
        self._settle()
        self.stop_reading.set()
        self.consumer.join()
        assert self.consumer.error is None, self.consumer.error
        self.watcher.kill()
        self.consumer.consume()
        self.table = self._table()

    def _kill_now_and_then(self, seconds: float) -> None:
        random = Random(1)  # noqa: S311
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.stop.wait(min(random.uniform(*self._lives), max(0.0, end - time.monotonic())))
            self.watcher.kill()
            self.watcher.start()

    def _settle(self) -> None:
        """Let the watcher poll until it has seen what was written last."""
        _until(lambda: time.time() > self.ended + self._rest, self._rest + 5, "the last values to be old enough")
        for _ in range(2):
            before = self.watcher.polls()
            _until(lambda: self.watcher.polls() > before + 12, 60, "the watcher's last polls")  # noqa: B023
        time.sleep(1)

    def missing(self) -> dict[int, Any]:
        """Return the rows whose version the copy does not have: (the table's, the copy's)."""
        copy = self.consumer.copy
        return {key: (version, copy.get(key)) for key, version in self.table.items() if copy.get(key) != version}

    def staleness(self) -> float:
        """Return for how long the hot row was out of date in the copy, in seconds."""
        return stalest(self.hot.written, self.consumer.hot, until=self.ended)

    def summary(self) -> str:
        consumer = self.consumer
        found = (
            f"{sum(writer.transactions for writer in self.writers)} transactions, {len(self.table)} rows, "
            f"{consumer.windows} windows of {consumer.rows} rows, {consumer.repeats} repeats, {consumer.rereads} read again, "
            f"{self.watcher.kills} kills"
        )
        return found + (f", hot row out of date for {self.staleness():.1f} s at most" if self.hot else "")


def _until(condition: Callable[[], bool], seconds: float, what: str) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited {seconds:.0f} s for {what}"
        time.sleep(0.05)
