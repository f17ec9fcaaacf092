"""Real databases for tests that read windows: PostgreSQL, and a file of SQLite, each behind an Airflow connection."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from airflow_state_watchers.demo.postgres import PostgresServer
from tests.tasks.databases import Database


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@pytest.fixture
def shop(server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    where = {"conn_type": "postgres", "host": str(server.directory), "login": "postgres", "schema": "postgres"}
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", json.dumps(where))
    with psycopg.connect(server.uri(), autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS warehouse CASCADE; DROP SCHEMA public CASCADE; CREATE SCHEMA public")
        yield Database("shop", connection)


@pytest.fixture
def lite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    path = tmp_path / "shop.db"
    monkeypatch.setenv("AIRFLOW_CONN_LITE", json.dumps({"conn_type": "sqlite", "host": str(path)}))
    connection = sqlite3.connect(path, isolation_level=None)
    yield Database("lite", connection)
    connection.close()


@pytest.fixture(params=["shop", "lite"])
def database(request: pytest.FixtureRequest) -> Database:
    found: Database = request.getfixturevalue(request.param)
    return found
