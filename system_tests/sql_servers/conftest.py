"""MariaDB behind an Airflow connection, once for each driver that Airflow's MySQL hook can use."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pymysql
import pytest

from system_tests.sql_servers.mariadb_server import MariadbServer
from system_tests.sql_servers.shop import Shop, Watched

EXTRAS: dict[str, dict[str, Any]] = {
    "mysqlclient": {"charset": "utf8mb4"},
    "mysql-connector-python": {"client": "mysql-connector-python"},
}


@pytest.fixture(scope="session")
def server() -> Iterator[MariadbServer]:
    with MariadbServer() as server:
        yield server


@pytest.fixture(params=EXTRAS)
def client(request: pytest.FixtureRequest) -> str:
    """The driver by the name that the hook has for it."""
    name: str = request.param
    return name


@pytest.fixture
def connect_airflow(server: MariadbServer, client: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Call it with what is to be other than usual in the connection ``shop``."""
    # mysqlclient has to be compiled; PyMySQL is made to stand in for it, and marks parameters as it does.
    monkeypatch.setitem(sys.modules, "MySQLdb", pymysql)

    def connect(**changes: Any) -> None:
        connection = {**server.airflow_connection, "extra": EXTRAS[client], **changes}
        monkeypatch.setenv("AIRFLOW_CONN_SHOP", json.dumps(connection))

    return connect


@pytest.fixture
def shop(server: MariadbServer, connect_airflow: Callable[..., None]) -> Iterator[Shop]:
    """An empty database ``shop``."""
    connect_airflow()
    with server.connect(database=None) as connection:
        connection.cursor().execute("DROP DATABASE IF EXISTS shop")
        connection.cursor().execute("CREATE DATABASE shop CHARACTER SET utf8mb4")
    shop = Shop(server)
    yield shop
    Watched.end_all()
    shop.close()
