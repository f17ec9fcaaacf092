"""Any database through its hook: few connections, each used again; drivers of every habit."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from airflow_state_watchers.exceptions import SourceError, SourceUnavailable
from airflow_state_watchers.sources import sql_hook, sql_lines
from airflow_state_watchers.sources.sql_dialects import Dialect, dialect_of, read_clock, read_text
from airflow_state_watchers.sources.sql_hook import HookDatabase, dialect_for
from airflow_state_watchers.sources.sql_statements import Query

ONE = Query("SELECT 1", ())


class NotSupportedError(Exception):
    pass


class Cursor:
    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.description: Any = None

    def execute(self, text: str, parameters: Any = ()) -> None:
        self.driver.statements.append(text)
        if text == "HANG":
            self.driver.hanging.release()
            self.driver.go_on.wait(10)
        if text == "FAIL":
            raise RuntimeError("no")
        self.description = self.driver.description

    def fetchall(self) -> Any:
        return self.driver.rows

    def close(self) -> None:
        pass


class Driver:
    """A driver and its hook in one; what it does is set by the test."""

    placeholder = "%s"
    description: Any = (("a",), ("b",))
    rows: Any = ((1, 2),)
    rollback_error: Exception | None = None

    def __init__(self) -> None:
        self.statements: list[str] = []
        self.hooks = self.opened = self.closed = 0
        self.hanging, self.go_on = threading.Semaphore(0), threading.Event()

    def get_conn(self) -> Driver:
        self.opened += 1
        return self

    def cursor(self) -> Cursor:
        return Cursor(self)

    def commit(self) -> None:
        self.statements.append("COMMIT")

    def rollback(self) -> None:
        self.statements.append("ROLLBACK")
        if self.rollback_error is not None:
            raise self.rollback_error

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    driver = Driver()

    def find(conn_id: str, hook_params: Any) -> tuple[str, Any]:
        driver.hooks += 1
        return "strange", driver

    monkeypatch.setattr(sql_hook, "find_hook", find)
    return driver


def database(dialect: Dialect | None = None, **arguments: Any) -> HookDatabase:
    return HookDatabase(dialect or dialect_of("strange"), conn_id="shop", **arguments)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - a thread's work, of which nothing tells
        await asyncio.sleep(0.002)


async def test_a_connection_is_used_again_and_closed_with_its_last_watcher(driver: Driver) -> None:
    first, second = database(), database()
    for each in (first, second, first):
        assert await each.run(ONE) == [(1, 2)]
    await first.aclose()
    assert await second.run(ONE) == [(1, 2)]
    assert (driver.opened, driver.closed) == (1, 0)
    await second.aclose()
    await until(lambda: driver.closed == 1)
    assert await first.run(ONE) == [(1, 2)]
    await first.aclose()
    assert driver.opened == 2


async def test_a_hundred_watchers_share_four_connections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", json.dumps({"conn_type": "sqlite", "host": str(tmp_path / "shop.db")}))
    connect = MagicMock(side_effect=sqlite3.connect)
    monkeypatch.setattr(sqlite3, "connect", connect)
    databases = [database(dialect_of("sqlite")) for _ in range(100)]
    threads = threading.active_count()
    assert await asyncio.gather(*(each.run(ONE) for each in databases)) == [[(1,)]] * 100
    assert connect.call_count == 4
    assert threading.active_count() <= threads + 4
    for each in databases:
        await each.aclose()


async def test_an_unused_connection_is_closed_and_an_old_one_is_not_used(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_lines, "KEEP", 0.01)
    watcher = database()
    await watcher.run(ONE)
    await until(lambda: driver.closed == 1)
    monkeypatch.setattr(sql_lines, "KEEP", 60)
    monkeypatch.setattr(sql_lines, "LIFE", 0)
    await watcher.run(ONE)
    await watcher.run(ONE)
    assert driver.opened == 3
    await watcher.aclose()


async def test_an_error_ends_the_connection_and_the_next_is_made_by_the_connection_as_it_is_then(
    driver: Driver,
) -> None:
    watcher = database()
    await watcher.run(ONE)
    with pytest.raises(RuntimeError, match="no"):
        await watcher.run(Query("FAIL", ()))
    await until(lambda: driver.closed == 1)
    assert await watcher.run(ONE) == [(1, 2)]
    assert (driver.opened, driver.hooks) == (2, 2)
    await watcher.aclose()


async def test_a_session_is_set_up_for_all_its_transactions(driver: Driver) -> None:
    watcher = database(dialect_of("redshift"))
    for _ in range(2):
        await watcher.run(ONE)
    assert driver.statements == ["SET timezone TO 'UTC'", "COMMIT", "SELECT 1", "ROLLBACK", "SELECT 1", "ROLLBACK"]
    await watcher.aclose()


async def test_a_session_that_cannot_be_set_up_is_closed(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_state_watchers.sources.sql_line.SESSION", {"ansi": ("FAIL",)})
    watcher = database()
    with pytest.raises(RuntimeError, match="no"):
        await watcher.run(ONE)
    await until(lambda: driver.closed == 1)
    await watcher.aclose()


@pytest.mark.parametrize(
    ("error", "opened"),
    [
        (NotImplementedError("no transactions"), 1),
        (NotSupportedError("no transactions"), 1),
        (RuntimeError("it may go on, with an old view of the rows"), 2),
    ],
)
async def test_a_transaction_that_may_go_on_is_not_read_in(driver: Driver, error: Exception, opened: int) -> None:
    driver.rollback_error = error
    watcher = database()
    for _ in range(2):
        assert await watcher.run(ONE) == [(1, 2)]
    assert driver.opened == opened
    await watcher.aclose()


async def test_statements_that_hang_keep_their_slots_until_they_end(driver: Driver) -> None:
    watcher = database(timeout=0.05, connections=2)
    for _ in range(2):
        with pytest.raises(SourceUnavailable, match=r"connection 'shop': no answer within 0\.05 s"):
            await watcher.run(Query("HANG", ()))
    with pytest.raises(SourceUnavailable, match=r"connection 'shop': all 2 connections were in use for 0\.05 s"):
        await watcher.run(ONE)
    driver.go_on.set()
    await until(lambda: driver.closed == 2)
    assert await watcher.run(ONE) == [(1, 2)]
    await watcher.aclose()


async def test_a_statement_that_hangs_for_ever_gives_its_slot_up(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_lines, "HANG", 0.01)
    watcher = database(timeout=0.02, connections=1)
    for _ in range(2):
        with pytest.raises(SourceUnavailable, match="no answer"):
            await watcher.run(Query("HANG", ()))
        await asyncio.sleep(0.05)
    watcher._timeout = 5
    assert await watcher.run(ONE) == [(1, 2)]
    driver.go_on.set()
    await until(lambda: driver.closed == 2)
    # The slots that were given up are not given back a second time.
    assert watcher._lines is not None
    assert watcher._lines._slots._value == 1
    await watcher.aclose()


async def test_a_cancelled_statement_leaves_its_connection(driver: Driver) -> None:
    watcher = database(connections=1)
    task = asyncio.create_task(watcher.run(Query("HANG", ())))
    await asyncio.to_thread(driver.hanging.acquire)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    driver.go_on.set()
    assert await watcher.run(ONE) == [(1, 2)]
    assert driver.opened == 2
    await watcher.aclose()


ROWS: list[tuple[Any, Any, Any]] = [
    ((("a",), ("b",)), [{"a": 1, "b": 2}], [(1, 2)]),
    ((("a",), ("b",)), [[1, 2]], [(1, 2)]),
    (None, None, []),
]


@pytest.mark.parametrize(("description", "given", "rows"), ROWS)
async def test_rows_of_any_kind_are_tuples(driver: Driver, description: Any, given: Any, rows: Any) -> None:
    driver.description, driver.rows = description, given
    watcher = database()
    assert await watcher.run(ONE) == rows
    assert await watcher.names(ONE) == tuple(each[0] for each in description or ())
    await watcher.aclose()


async def test_rows_that_lost_a_column_are_refused(driver: Driver) -> None:
    driver.description, driver.rows = (("a",), ("a",)), [{"a": 2}]
    watcher = database()
    with pytest.raises(SourceError, match="connection 'shop': the driver gives rows as dictionaries"):
        await watcher.run(ONE)
    await watcher.aclose()


async def test_a_clock_of_an_unknown_form_is_an_error(driver: Driver) -> None:
    driver.rows = [("2026-11-01 10:00:00 Europe/Berlin",)]
    driver.description = (("now",),)
    watcher = database()
    with pytest.raises(SourceError, match="connection 'shop': the database's clock has an unknown form"):
        await watcher.openness()
    await watcher.aclose()


TEN = datetime(2026, 11, 1, 10, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-01 10:00:00",
        "2026-11-01T10:00:00.0000009",
        "2026-11-01 10:00:00.000 UTC",
        "2026-11-01 11:00:00+01",
        b"2026-11-01 10:00:00Z",
        TEN,
        TEN.replace(tzinfo=None),
    ],
)
def test_a_clock_is_read(text: Any) -> None:
    assert read_clock(text) == TEN


def test_a_text_may_come_in_bytes() -> None:
    assert [read_text(each) for each in ("ä", "ä".encode(), bytearray(b"0x01"), 5)] == ["ä", "ä", "0x01", "5"]


class Named(Driver):
    def __init__(self, name: str | Exception, placeholder: str = "%s", **extra: Any) -> None:
        self._name, self.placeholder = name, placeholder
        self.connection = type("Connection", (), {"extra_dejson": extra})

    @property
    def dialect_name(self) -> str:
        if isinstance(self._name, Exception):
            raise self._name
        return self._name


@pytest.mark.parametrize(
    ("conn_type", "hook", "name", "style"),
    [
        ("mysql", Named("mysql"), "mysql", "format"),
        ("sqlite", Named("sqlite", "?"), "sqlite", "qmark"),
        ("snowflake", Named(ImportError("snowflake-sqlalchemy")), "snowflake", "pyformat"),
        ("gcpbigquery", Named("default"), "bigquery", "pyformat"),
        ("odbc", Named("mssql", "?"), "mssql", "qmark"),
        ("jdbc", Named("oracle", "?"), "oracle", "qmark"),
        ("trino", Named("trino", "?"), "ansi", "qmark"),
        ("jdbc", Named(ValueError("no url")), "ansi", "format"),
        ("postgres", Named("postgresql", redshift=True), "redshift", "format"),
        ("redshift", Named("default"), "redshift", "format"),
    ],
)
def test_the_dialect_of_a_hook(conn_type: str, hook: Any, name: str, style: str) -> None:
    dialect = dialect_for(hook, conn_type)
    assert (dialect.name, dialect.rendering.paramstyle) == (name, style)


HANGING = """
import asyncio, threading
from airflow_state_watchers.sources.sql_thread import OwnThread

async def main():
    begun = threading.Event()
    OwnThread("hangs", print).call(lambda: (begun.set(), threading.Event().wait()))
    begun.wait()

asyncio.run(main())
"""


def test_a_statement_that_hangs_does_not_keep_the_process() -> None:
    subprocess.run([sys.executable, "-c", HANGING], check=True, timeout=60)
