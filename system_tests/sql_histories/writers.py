"""Concurrent writers of a PostgreSQL table, in all the ways in which transactions are late, long, undone or prepared."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from threading import Event, Thread
from typing import Any

import psycopg

from system_tests.sql_histories.clients import HOT, Client, Kind

TABLE = """
CREATE SEQUENCE versions CACHE 1;
CREATE TABLE orders (
    id int PRIMARY KEY,
    version bigint NOT NULL DEFAULT nextval('versions'),
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    writer text NOT NULL
);
CREATE INDEX ON orders (updated_at, id);
CREATE INDEX ON orders (version, id);
"""
UPSERT = """
INSERT INTO orders (id, version, updated_at, writer) VALUES (%(id)s, nextval('versions'), {stamp}, %(writer)s)
ON CONFLICT (id) DO UPDATE SET version = excluded.version, updated_at = excluded.updated_at, writer = excluded.writer
"""
STAMPS = ["now()", "now()", "clock_timestamp()", "statement_timestamp()", "%(client)s"]


class Writer(Client):
    def __init__(self, number: int, uri: str, stop: Event) -> None:
        super().__init__(number, stop)
        self.uri = uri

    def connect(self) -> AbstractContextManager[Any]:
        return psycopg.connect(self.uri, autocommit=True)

    def kinds(self) -> list[Kind]:
        return [*[self.short] * 6, self.several, self.savepoint, self.undone, self.long, self.idle, self.prepared]

    def short(self, connection: psycopg.Connection[Any]) -> None:
        with connection.transaction():
            self.write(connection)

    def several(self, connection: psycopg.Connection[Any]) -> None:
        with connection.transaction():
            for _ in range(self.random.randint(2, 30)):
                self.write(connection)

    def savepoint(self, connection: psycopg.Connection[Any]) -> None:
        with connection.transaction():
            self.write(connection)
            with connection.transaction() as inner:
                self.write(connection)
                if self.random.random() < 0.5:
                    raise psycopg.Rollback(inner)
            self.write(connection)

    def undone(self, connection: psycopg.Connection[Any]) -> None:
        with connection.transaction() as outer:
            self.write(connection)
            raise psycopg.Rollback(outer)

    def long(self, connection: psycopg.Connection[Any]) -> None:
        with connection.transaction():
            end = time.monotonic() + self.random.uniform(0.5, 6)
            while time.monotonic() < end and not self.stop.is_set():
                self.write(connection)
                self.wait(0, 0.5)

    def idle(self, connection: psycopg.Connection[Any]) -> None:
        with connection.transaction():
            self.write(connection)
            self.wait(0.5, 5)

    def prepared(self, connection: psycopg.Connection[Any]) -> None:
        name = f"writer-{self.number}-{self.transactions}"
        connection.execute("BEGIN")
        self.write(connection)
        connection.execute(f"PREPARE TRANSACTION '{name}'")
        self.wait(0, 3)
        end = "COMMIT" if self.random.random() < 0.7 else "ROLLBACK"
        connection.execute(f"{end} PREPARED '{name}'")

    def write(self, connection: psycopg.Connection[Any]) -> None:
        key = self.key()
        if self.random.random() < 0.1:
            connection.execute("DELETE FROM orders WHERE id = %s", [key])
            return
        values = {"id": key, "writer": self.name, "client": self.client_time()}
        connection.execute(UPSERT.format(stamp=self.random.choice(STAMPS)), values)


class HotWriter(Thread):
    """Updates one row every 0.2 s; ``written`` are the times of its versions."""

    def __init__(self, uri: str, stop: Event) -> None:
        super().__init__(name="hot", daemon=True)
        self.uri, self.stop = uri, stop
        self.written: dict[int, float] = {}

    def run(self) -> None:
        with psycopg.connect(self.uri, autocommit=True) as connection:
            while not self.stop.wait(0.2):
                row = connection.execute(
                    UPSERT.format(stamp="now()") + " RETURNING version", {"id": HOT, "writer": "hot"}
                ).fetchone()
                assert row is not None
                self.written[row[0]] = time.time()
