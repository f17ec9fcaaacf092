"""A real PostgreSQL, a database of its own for each test, and roles that may see more or less of the others' sessions."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import count
from typing import Any

import psycopg
import pytest

from airflow_state_watchers.demo.postgres import PostgresServer
from airflow_state_watchers.sources.pg_database import PgDatabase
from tests.sources.pg.watched import Watched

SETTINGS = {"max_prepared_transactions": "10", "wal_level": "logical", "autovacuum": "off"}

ROLES = ("watcher_super", "watcher_stats", "watcher_plain")
"""What a watcher logs in as: a superuser, a member of pg_read_all_stats, nobody in particular."""

PASSWORD = "fr3sh s'ecret\\"

MakeDatabase = Callable[..., PgDatabase]
_numbers = count()


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresServer]:
    with PostgresServer(SETTINGS) as server:
        with psycopg.connect(server.uri(), autocommit=True) as connection:
            connection.execute("CREATE ROLE watcher_super LOGIN SUPERUSER")
            connection.execute("CREATE ROLE watcher_stats LOGIN IN ROLE pg_read_all_stats")
            connection.execute("CREATE ROLE watcher_plain LOGIN")
            connection.execute("CREATE ROLE writer LOGIN SUPERUSER")
        yield server


class Place:
    """A database with a table ``orders (id, updated_at)``."""

    def __init__(self, server: PostgresServer, name: str) -> None:
        self.server = server
        self.name = name

    async def connect(self, user: str = "writer") -> psycopg.AsyncConnection[Any]:
        return await psycopg.AsyncConnection.connect(self.server.uri(self.name, user=user), autocommit=True)

    async def sessions(self) -> int:
        """How many sessions the watchers have in the database."""
        async with await self.connect("postgres") as connection:
            cursor = await connection.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND application_name = 'airflow-state-watchers'",
                [self.name],
            )
            ((number,),) = await cursor.fetchall()
            return int(number)


@pytest.fixture
async def place(server: PostgresServer) -> Place:
    place = Place(server, f"test_{next(_numbers)}")
    async with await Place(server, "postgres").connect() as connection:
        await connection.execute(f"CREATE DATABASE {place.name}".encode())
    async with await place.connect() as connection:
        await connection.execute(
            "CREATE TABLE orders (id int PRIMARY KEY, updated_at timestamptz NOT NULL DEFAULT now())"
        )
        await connection.execute("GRANT SELECT ON orders TO PUBLIC")
    return place


Define = Callable[..., str]


@pytest.fixture
def define(monkeypatch: pytest.MonkeyPatch) -> Define:
    """Define an Airflow connection and return its id."""

    def define(conn_id: str, **fields: Any) -> str:
        monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps({"conn_type": "postgres", **fields}))
        return conn_id

    return define


@pytest.fixture
async def make(place: Place, define: Define) -> AsyncIterator[MakeDatabase]:
    """Make databases as watchers have them, for a role."""
    made: list[PgDatabase] = []

    def make(role: str = "watcher_stats", *, conn_id: str | None = None, **arguments: Any) -> PgDatabase:
        if conn_id is None:
            conn_id = define(f"shop_{role}", host=str(place.server.directory), login=role, schema=place.name)
        made.append(PgDatabase(conn_id, **arguments))
        return made[-1]

    yield make
    for each in made:
        await each.aclose()


Watch = Callable[..., Watched]


@pytest.fixture
async def watch(place: Place, define: Define) -> AsyncIterator[Watch]:
    """Make watchers of the database; by default as a role that sees all sessions and may read every table."""
    made: list[Watched] = []
    async with await place.connect() as connection:
        await connection.execute("ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO PUBLIC")

    def watch(*, conn_id: str | None = None, role: str = "watcher_stats", **arguments: Any) -> Watched:
        if conn_id is None:
            conn_id = define(f"shop_{role}", host=str(place.server.directory), login=role, schema=place.name)
        made.append(Watched(place, conn_id, **arguments))
        return made[-1]

    yield watch
    for each in made:
        await each.aclose()


@pytest.fixture
def guarded(server: PostgresServer) -> Iterator[str]:
    """A role that must give a password."""
    rules = server.directory / "data" / "pg_hba.conf"
    before = rules.read_text()
    rules.write_text(f"local all guarded scram-sha-256\n{before}")
    with psycopg.connect(server.uri(), autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS guarded")
        literal = psycopg.sql.Literal(PASSWORD)
        connection.execute(psycopg.sql.SQL("CREATE ROLE guarded LOGIN PASSWORD {}").format(literal))
        connection.execute("SELECT pg_reload_conf()")
        yield "guarded"
        rules.write_text(before)
        connection.execute("SELECT pg_reload_conf()")
