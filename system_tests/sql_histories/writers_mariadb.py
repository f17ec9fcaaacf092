"""Concurrent writers of a MariaDB table. Most commit within ``SETTLE`` of their values, a few later, but within ``LOOKBACK``."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from threading import Event, Thread
from typing import Any

import pymysql

from system_tests.sql_histories.clients import HOT, Client, Kind
from system_tests.sql_servers.mariadb_server import MariadbServer

TABLE = """
CREATE SEQUENCE versions;
CREATE TABLE orders (
    id int PRIMARY KEY,
    version bigint NOT NULL,
    updated_at timestamp(6) NOT NULL DEFAULT current_timestamp(6),
    writer varchar(20) NOT NULL,
    KEY (updated_at, id),
    KEY (version, id)
)
"""
UPSERT = """
INSERT INTO orders (id, version, updated_at, writer) VALUES (%(id)s, NEXT VALUE FOR versions, {stamp}, %(writer)s)
ON DUPLICATE KEY UPDATE version = VALUES(version), updated_at = VALUES(updated_at), writer = VALUES(writer)
"""
STAMPS = ["now(6)", "now(6)", "sysdate(6)", "%(client)s"]
DEADLOCK = 1213


class MariadbWriter(Client):
    def __init__(self, number: int, server: MariadbServer, stop: Event) -> None:
        super().__init__(number, stop)
        self.server = server

    def connect(self) -> AbstractContextManager[Any]:
        # Its clients' times are in UTC; gaps are not locked, which would let writers wait for each other.
        begin = "SET time_zone = '+00:00', tx_isolation = 'READ-COMMITTED'"
        return self.server.connect(autocommit=False, init_command=begin)

    def kinds(self) -> list[Kind]:
        return [
            self.committed(kind) for kind in [*[self.short] * 6, self.several, self.savepoint, self.long, self.idle]
        ] + [self.undone]

    def committed(self, kind: Kind) -> Kind:
        """Return a transaction of that kind and its commit; one that a deadlock has undone counts as a rollback."""

        def transact(connection: Any) -> None:
            try:
                kind(connection)
                connection.commit()
            except pymysql.OperationalError as error:
                if error.args[0] != DEADLOCK:
                    raise
                connection.rollback()

        return transact

    def short(self, connection: Any) -> None:
        self.write(connection)

    def several(self, connection: Any) -> None:
        for _ in range(self.random.randint(2, 30)):
            self.write(connection)

    def savepoint(self, connection: Any) -> None:
        self.write(connection)
        with connection.cursor() as cursor:
            cursor.execute("SAVEPOINT inner_one")
            self.write(connection)
            if self.random.random() < 0.5:
                cursor.execute("ROLLBACK TO SAVEPOINT inner_one")
        self.write(connection)

    def undone(self, connection: Any) -> None:
        self.write(connection)
        connection.rollback()

    def long(self, connection: Any) -> None:
        end = time.monotonic() + self.random.uniform(0.5, 3)
        while time.monotonic() < end and not self.stop.is_set():
            self.write(connection)
            self.wait(0, 0.5)

    def idle(self, connection: Any) -> None:
        self.write(connection)
        self.wait(0.5, 3)

    def write(self, connection: Any) -> None:
        key = self.key()
        with connection.cursor() as cursor:
            if self.random.random() < 0.1:
                cursor.execute("DELETE FROM orders WHERE id = %s", [key])
                return
            values = {"id": key, "writer": self.name, "client": self.client_time().replace(tzinfo=None)}
            cursor.execute(UPSERT.format(stamp=self.random.choice(STAMPS)), values)


class LateWriter(MariadbWriter):
    """Commits when its values are older than ``settle``, though not yet than ``lookback``."""

    def kinds(self) -> list[Kind]:
        return [self.committed(self.late)]

    def late(self, connection: Any) -> None:
        for _ in range(5):
            self.write(connection)
        self.wait(7, 12)


class MariadbHotWriter(Thread):
    """Updates one row every 0.2 s; ``written`` are the times of its versions."""

    def __init__(self, server: MariadbServer, stop: Event) -> None:
        super().__init__(name="hot", daemon=True)
        self.server, self.stop = server, stop
        self.written: dict[int, float] = {}

    def run(self) -> None:
        with self.server.connect() as connection, connection.cursor() as cursor:
            while not self.stop.wait(0.2):
                cursor.execute(UPSERT.format(stamp="now(6)"), {"id": HOT, "writer": "hot"})
                cursor.execute("SELECT version FROM orders WHERE id = %s", [HOT])
                ((version,),) = cursor.fetchall()
                self.written[version] = time.time()
