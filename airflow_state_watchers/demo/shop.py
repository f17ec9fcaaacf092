"""The demo's table: a PostgreSQL whose rows are written in all the ways that make a watermark lose them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from random import Random
from typing import TYPE_CHECKING, Any

import psycopg

from airflow_state_watchers.demo.postgres import PostgresServer

if TYPE_CHECKING:
    from typing_extensions import Self

WRITERS = 4
KEYS = 200
FUTURE_ID = 999_999

TABLES = """
CREATE TABLE orders (
    id int PRIMARY KEY, amount int NOT NULL, updated_at timestamptz NOT NULL DEFAULT now());
CREATE INDEX ON orders (updated_at, id);
CREATE TABLE copied (LIKE orders INCLUDING ALL);
CREATE TABLE reads (at timestamptz DEFAULT clock_timestamp(), low text, high text, rows int);
"""
UPSERT = """
INSERT INTO orders (id, amount) VALUES (%s, %s)
ON CONFLICT (id) DO UPDATE SET amount = excluded.amount, updated_at = now()
"""
DIFFERENT = """
SELECT count(*) FROM (SELECT * FROM orders WHERE updated_at < now()) AS source
FULL JOIN copied USING (id) WHERE source.amount IS DISTINCT FROM copied.amount
"""

Connection = psycopg.Connection[Any]


class Shop(AbstractContextManager["Shop"]):
    """The server, its tables and those who write into them. ``counts``: how many transactions ended how."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self._server = PostgresServer({"max_prepared_transactions": "10"})
        self._stack = ExitStack()
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self._stack.enter_context(self._server)
        self.connection = self._stack.enter_context(psycopg.connect(self._server.uri(), autocommit=True))
        self.connection.execute(TABLES)
        return self

    def __exit__(self, *reason: object) -> None:
        self._stack.close()

    @property
    def env(self) -> dict[str, str]:
        """What Airflow's pieces need to know the connection ``shop``."""
        return {"AIRFLOW_CONN_SHOP": self._server.uri()}

    def write(self, seconds: float) -> None:
        """Let all writers work for so long, beside each other."""
        end = time.monotonic() + seconds
        errors: list[BaseException] = []
        threads = [threading.Thread(target=self._work, args=(number, end, errors)) for number in range(WRITERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]

    def _work(self, number: int, end: float, errors: list[BaseException]) -> None:
        random = Random(number)  # noqa: S311
        kinds: list[Callable[[Connection, Random, int], str]] = [_short] * 8 + [_undone, _long, _idle, _prepared]
        try:
            with psycopg.connect(self._server.uri(), autocommit=True) as connection:
                while time.monotonic() < end:
                    kind = random.choice(kinds)(connection, random, number)
                    with self._lock:
                        self.counts[kind] = self.counts.get(kind, 0) + 1
                    time.sleep(random.uniform(0, 0.1))
        except BaseException as error:
            errors.append(error)

    def put_future_row(self) -> None:
        self.connection.execute(
            "INSERT INTO orders VALUES (%s, 1, now() + interval '73 years') ON CONFLICT DO NOTHING", [FUTURE_ID]
        )

    def different(self) -> int:
        """Return how many rows of the source are not, or not as they are, in the copy."""
        return int(self._one(DIFFERENT))

    def rows(self) -> int:
        return int(self._one("SELECT count(*) FROM orders"))

    def copied_future_row(self) -> bool:
        return bool(self._one("SELECT count(*) FROM copied WHERE updated_at > now()"))

    def reads(self) -> tuple[int, int]:
        """Return how many windows the DAG has read, and how many rows in them."""
        row = self.connection.execute("SELECT count(*), coalesce(sum(rows), 0) FROM reads").fetchone()
        assert row is not None
        return int(row[0]), int(row[1])

    def _one(self, query: str) -> Any:
        row = self.connection.execute(query).fetchone()
        assert row is not None
        return row[0]


def _upsert(connection: Connection, random: Random, number: int) -> None:
    connection.execute(UPSERT, [number * KEYS + random.randrange(KEYS), random.randrange(1000)])


def _short(connection: Connection, random: Random, number: int) -> str:
    with connection.transaction():
        _upsert(connection, random, number)
    return "committed at once"


def _undone(connection: Connection, random: Random, number: int) -> str:
    with connection.transaction() as transaction:
        _upsert(connection, random, number)
        raise psycopg.Rollback(transaction)
    return "rolled back"


def _long(connection: Connection, random: Random, number: int) -> str:
    with connection.transaction():
        for _ in range(random.randint(5, 15)):
            _upsert(connection, random, number)
            time.sleep(0.4)
    return "long"


def _idle(connection: Connection, random: Random, number: int) -> str:
    with connection.transaction():
        _upsert(connection, random, number)
        time.sleep(random.uniform(2, 8))
    return "idle before its commit"


def _prepared(connection: Connection, random: Random, number: int) -> str:
    name = f"demo-{number}"
    connection.execute("BEGIN")
    _upsert(connection, random, number)
    connection.execute(f"PREPARE TRANSACTION '{name}'")
    time.sleep(random.uniform(1, 5))
    connection.execute(f"COMMIT PREPARED '{name}'")
    return "prepared"
