"""Writers of a SQLite file, of which one at a time writes: the others wait for its commit."""

from __future__ import annotations

import sqlite3
from contextlib import AbstractContextManager, closing
from pathlib import Path
from threading import Event
from typing import Any

from system_tests.sql_histories.clients import Client, Kind

TABLE = """
PRAGMA journal_mode = WAL;
CREATE TABLE versions (n integer NOT NULL);
INSERT INTO versions VALUES (0);
CREATE TABLE orders (
    id integer PRIMARY KEY,
    version integer NOT NULL,
    updated_at timestamp NOT NULL,
    writer text NOT NULL
);
CREATE INDEX by_time ON orders (updated_at, id);
CREATE INDEX by_version ON orders (version, id);
"""
UPSERT = """
INSERT INTO orders (id, version, updated_at, writer) VALUES (:id, (SELECT n FROM versions), {stamp}, :writer)
ON CONFLICT (id) DO UPDATE SET version = excluded.version, updated_at = excluded.updated_at, writer = excluded.writer
"""
STAMPS = ["strftime('%Y-%m-%d %H:%M:%f', 'now')", "strftime('%Y-%m-%d %H:%M:%f', 'now')", ":client"]


def connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None, timeout=60)


class SqliteWriter(Client):
    """Holds a transaction for up to three seconds, and every now and then for more than ``settle``."""

    def __init__(self, number: int, path: Path, stop: Event) -> None:
        super().__init__(number, stop)
        self.path = path

    def connect(self) -> AbstractContextManager[Any]:
        return closing(connect(self.path))

    def kinds(self) -> list[Kind]:
        # Each fourth transaction of one writer is late: it keeps all the others waiting.
        if self.number == 0 and self.transactions % 4 == 1:
            return [self.late]
        return [*[self.short] * 6, self.several, self.savepoint, self.undone, self.idle]

    def short(self, connection: sqlite3.Connection) -> None:
        self.transact(connection, writes=1)

    def several(self, connection: sqlite3.Connection) -> None:
        self.transact(connection, writes=self.random.randint(2, 30))

    def idle(self, connection: sqlite3.Connection) -> None:
        self.transact(connection, writes=2, idle=(1.5, 3))

    def late(self, connection: sqlite3.Connection) -> None:
        self.transact(connection, writes=5, idle=(7, 9))

    def undone(self, connection: sqlite3.Connection) -> None:
        self.transact(connection, writes=3, end="ROLLBACK")

    def savepoint(self, connection: sqlite3.Connection) -> None:
        connection.execute("BEGIN IMMEDIATE")
        self.write(connection)
        connection.execute("SAVEPOINT inner_one")
        self.write(connection)
        if self.random.random() < 0.5:
            connection.execute("ROLLBACK TO inner_one")
        self.write(connection)
        connection.execute("COMMIT")

    def transact(
        self, connection: sqlite3.Connection, *, writes: int, idle: tuple[float, float] = (0, 0.05), end: str = "COMMIT"
    ) -> None:
        connection.execute("BEGIN IMMEDIATE")
        for _ in range(writes):
            self.write(connection)
        self.wait(*idle)
        connection.execute(end)
        self.wait(0, 0.3)  # lets another one begin

    def write(self, connection: sqlite3.Connection) -> None:
        key = self.key()
        if self.random.random() < 0.1:
            connection.execute("DELETE FROM orders WHERE id = ?", [key])
            return
        connection.execute("UPDATE versions SET n = n + 1")
        client = self.client_time().strftime("%Y-%m-%d %H:%M:%S.%f")
        connection.execute(
            UPSERT.format(stamp=self.random.choice(STAMPS)), {"id": key, "writer": self.name, "client": client}
        )
