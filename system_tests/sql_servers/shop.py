"""A database with a table that is watched, and what its watcher and its consumer make of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any, ClassVar

import pymysql

from airflow_state_watchers import SqlUpdatedAtTrigger, SqlWindow
from airflow_state_watchers.testing import FrozenClock, WatcherHarness
from system_tests.sql_servers.mariadb_server import MariadbServer


class Shop:
    """What the shop's application does, on a connection of its own that commits by itself."""

    def __init__(self, server: MariadbServer) -> None:
        self._server = server
        self._connections: list[pymysql.Connection[Any]] = []
        self.connection = self.connect()

    def connect(self, **changes: Any) -> pymysql.Connection[Any]:
        self._connections.append(self._server.connect(**changes))
        return self._connections[-1]

    def reconnect(self) -> None:
        """Begin a new session, after the server was gone."""
        self.connection = self.connect()

    def run(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        with self.connection.cursor() as cursor:
            cursor.execute(sql, values or None)
            return list(cursor.fetchall())

    def orders(self, kind: str, *values: Any, more: str = "") -> None:
        """Make the table ``orders`` with a watermark column of that type and these values in rows 1 to n."""
        self.run(f"CREATE TABLE orders (id int PRIMARY KEY, w {kind}, {more} KEY (w, id))")
        self.insert(*values)

    def insert(self, *values: Any) -> None:
        ((last,),) = self.run("SELECT coalesce(max(id), 0) FROM orders")
        for number, value in enumerate(values, last + 1):
            self.run("INSERT INTO orders (id, w) VALUES (%s, %s)", number, value)

    def close(self) -> None:
        for connection in self._connections:
            if connection.open:
                connection.close()


class Watched:
    """The table's watcher. By default it reads from the beginning up to now, and looks at nothing twice."""

    alive: ClassVar[list[Watched]] = []

    def __init__(self, **arguments: Any) -> None:
        known = {"table": "orders", "watermark_column": "w", "key_columns": ["id"], "start": "earliest", "name": "w"}
        known |= {"settle": 0, "lookback": 0, **arguments}
        self.clock = FrozenClock()
        self.harness = WatcherHarness(SqlUpdatedAtTrigger("shop", **known), clock=self.clock)
        self.alive.append(self)

    def poll(self) -> list[dict[str, Any]]:
        self.clock.advance(61)  # this process's: a health record is written once a minute
        return self.harness.poll_sync()

    @classmethod
    def end_all(cls) -> None:
        """End the watchers that live still: another test's would share their connections."""
        for watched in cls.alive:
            tasks = list(watched.harness._tasks)
            watched.harness.restart()
            if tasks:
                ended = asyncio.wait(tasks, timeout=20)
                asyncio.run_coroutine_threadsafe(ended, tasks[0].get_loop()).result()  # type: ignore[arg-type]
        cls.alive.clear()

    def windows(self, polls: int = 3) -> list[SqlWindow]:
        """Return what so many polls deliver: a column without a clock shows what is new in two looks."""
        found = [event for _ in range(polls) for event in self.poll()]
        assert self.error() is None
        return [SqlWindow.from_payload(event) for event in found]

    def until_event(self, seconds: float = 20) -> dict[str, Any]:
        """Poll until an event comes, and return it."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if events := self.poll():
                (event,) = events
                return event
        raise AssertionError(f"no event in {seconds:g} s; the watcher's error: {self.error()}")

    @property
    def root(self) -> Any:
        return self.harness.store.get("state_watchers:w")

    def health(self) -> dict[str, Any]:
        return dict(self.harness.store.get("state_watchers.health:w") or {})

    def error(self) -> str | None:
        found = self.health().get("last_error")
        return None if found is None else str(found["message"])


def read(windows: Sequence[SqlWindow], chunksize: int = 2, **more: Any) -> list[dict[str, Any]]:
    return [row for window in windows for rows in window.rows(chunksize=chunksize, **more) for row in rows]


def ids(windows: Sequence[SqlWindow], chunksize: int = 2, **more: Any) -> list[Any]:
    return [row["id"] for row in read(windows, chunksize, **more)]
