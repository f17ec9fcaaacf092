"""A watcher's look at SQLite, through Airflow's own hook and a file."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from airflow_state_watchers.core.cut import Cut, Span
from airflow_state_watchers.exceptions import SourceDenied, SourceMissing, SourceUnavailable
from airflow_state_watchers.sources.sql import SqlTableSource
from airflow_state_watchers.sources.sql_notes import LARGE
from airflow_state_watchers.sources.sql_relation import Relation

HOSTILE = 'Order "x" %s; --'
QUOTED = '"Order ""x"" %s; --"'
WHERE = "\"Group\" LIKE 'g%' -- ':x'"
NOON = datetime(2026, 11, 1, 12, tzinfo=timezone.utc)

Open = Callable[..., Any]


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[sqlite3.Connection]:
    path = tmp_path / "shop.db"
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", json.dumps({"conn_type": "sqlite", "host": str(path)}))
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(
        f'CREATE TABLE {QUOTED} (id INTEGER PRIMARY KEY, "updatedAt" TEXT NOT NULL, "Group" TEXT, "a:b%c`" INT)'
    )
    connection.execute(f'CREATE INDEX by_time ON {QUOTED} ("updatedAt", id)')
    yield connection
    connection.close()


@asynccontextmanager
async def opened(relation: Relation, **arguments: Any) -> AsyncIterator[SqlTableSource]:
    source = SqlTableSource(relation, conn_id="shop", **arguments)
    try:
        yield source
    finally:
        await source.aclose()


def fill(database: sqlite3.Connection, table: str) -> None:
    """Put in as many rows as make it large."""
    database.execute("BEGIN")
    database.executemany(
        f"INSERT INTO {table} (at) VALUES (?)",
        [(f"2026-11-01 10:00:{number % 60:02}",) for number in range(LARGE + 1)],
    )
    database.execute("COMMIT")


def relation(**changes: Any) -> Relation:
    return Relation(**{"watermark_column": "updatedAt", "table": (HOSTILE,), "key_columns": ("id",), **changes})


def insert(database: sqlite3.Connection, *times: str, group: str = "g") -> None:
    for each in times:
        database.execute(f'INSERT INTO {QUOTED} ("updatedAt", "Group", "a:b%c`") VALUES (?, ?, 5)', (each, group))


async def test_hostile_names_are_watched_and_read(database: sqlite3.Connection) -> None:
    insert(database, "2026-11-01 10:00:00", "2026-11-01 11:00:00", "2026-11-01 13:00:00")
    async with opened(relation(columns=("id", "Group", "a:b%c`"), where=WHERE), carries_rows=True) as source:
        scan = await source.open()
        assert (scan.column, scan.has_clock, scan.note) == ("text of times", True, scan.note)
        high = scan.at(NOON)
        assert high == Cut("2026-11-01 12:00:00")
        part = await scan.begin(Span(None, high), most=1000)
        assert (part.high, part.count, part.is_ahead) == (high, 2, True)
        rows = await scan.rows(Span(Cut("2026-11-01 10:00:00", after=True), high))
        assert rows == [{"id": 2, "Group": "g", "a:b%c`": 5}]
        greatest, at = await scan.greatest()
        assert greatest == Cut("2026-11-01 13:00:00", after=True)
        assert abs(at - datetime.now(timezone.utc)) < timedelta(seconds=30)


async def test_a_part_never_ends_within_a_tie(database: sqlite3.Connection) -> None:
    insert(database, *["2026-11-01 10:00:00"] * 2, *["2026-11-01 10:00:01"] * 3, "2026-11-01 10:00:02")
    async with opened(relation()) as source:
        scan = await source.open()
        high = scan.at(NOON)
        ends = [await scan.begin(Span(None, high), most=most) for most in (1, 2, 4, 5, 6)]
        second, last = Cut("2026-11-01 10:00:01"), Cut("2026-11-01 10:00:02")
        assert [(part.high, part.count) for part in ends] == [
            (second, 2),
            (second, 2),
            (second, 2),
            (last, 5),
            (high, 6),
        ]
        low = Cut("2026-11-01 10:00:00", after=True)
        assert (await scan.begin(Span(low, high), most=2)).high == last
        assert (await scan.begin(Span(low, high), most=None)).count == 4
        assert not (await scan.begin(Span(high, low), most=2)).is_ahead
        assert not (await scan.begin(Span(low, low), most=2)).is_ahead


async def test_checksums_of_neighbours_add_up_and_see_every_change(database: sqlite3.Connection) -> None:
    insert(database, "2026-11-01 10:00:00", "2026-11-01 10:00:01", "2026-11-01 10:00:02")
    async with opened(relation()) as source:
        scan = await source.open()
        middle = Cut("2026-11-01 10:00:01")
        parts = await scan.sums([None, middle, None])
        (whole,) = await scan.sums([None, None])
        assert [count for count, _ in parts] == [1, 2]
        assert whole == (3, sum(sum_ for _, sum_ in parts) % 2**64)
        database.execute(f"UPDATE {QUOTED} SET id = 7 WHERE id = 2")
        after = await scan.sums([None, middle, None])
        assert after[0] == parts[0]
        assert after[1] != parts[1]


async def test_rows_of_the_future_are_counted_and_not_recent(database: sqlite3.Connection) -> None:
    insert(database, "2026-11-01 10:00:00", "2099-01-01 00:00:00", "2099-01-02 00:00:00")
    async with opened(relation()) as source:
        scan = await source.open()
        beyond = await scan.beyond(Cut("2026-11-01 10:00:00"))
        assert (beyond.recent, beyond.future) == (True, 2)
        beyond = await scan.beyond(Cut("2026-11-01 10:00:00", after=True))
        assert (beyond.recent, beyond.future) == (False, 2)


@pytest.mark.parametrize(
    ("value", "horizon"),
    [
        ("2026-11-01T10:00:00.123456", "2026-11-01T12:00:00"),
        ("2026-11-01T10:00:00Z", "2026-11-01T12:00:00"),
        ("2026-11-01 10:00", "2026-11-01 12:00:00"),
        ("2026-11-01", "2026-11-01"),
    ],
)
async def test_the_horizon_is_written_as_times_are_stored(
    database: sqlite3.Connection, value: str, horizon: str
) -> None:
    insert(database, value)
    async with opened(relation()) as source:
        assert (await source.open()).at(NOON) == Cut(horizon)


async def test_a_local_time_that_repeats_is_held_back(database: sqlite3.Connection) -> None:
    insert(database, "2026-10-25 02:10:00")
    async with opened(relation(timezone="Europe/Berlin")) as source:
        scan = await source.open()
        assert scan.at(datetime(2026, 10, 25, 0, 30, tzinfo=timezone.utc)) == Cut("2026-10-25 02:00:00")
        assert scan.at(datetime(2026, 10, 25, 1, 30, tzinfo=timezone.utc)) == Cut("2026-10-25 02:30:00")


async def test_a_sequence_has_no_clock(database: sqlite3.Connection) -> None:
    insert(database, "2026-11-01 10:00:00", "2026-11-01 11:00:00")
    async with opened(relation(watermark_column="id")) as source:
        scan = await source.open()
        assert not scan.has_clock
        assert (await scan.greatest())[0] == Cut("3")
        beyond = await scan.beyond(Cut("1", after=True))
        assert (beyond.recent, beyond.future) == (True, 0)
        assert scan.note is None


async def test_a_query_is_watched(database: sqlite3.Connection) -> None:
    insert(database, "2026-11-01 10:00:00")
    sql = f"SELECT id, \"updatedAt\" AS moment, 'a:b' AS text FROM {QUOTED} -- all of it;"
    async with opened(Relation("moment", sql=sql), carries_rows=True) as source:
        scan = await source.open()
        assert await scan.rows(Span(None, None)) == [{"id": 1, "moment": "2026-11-01 10:00:00", "text": "a:b"}]
        assert source.fields() == {"kind": "sql", "connection": "shop", "sql": sql, "watermark_column": "moment"}


async def test_an_empty_table_is_opened(database: sqlite3.Connection) -> None:
    async with opened(relation()) as source:
        scan = await source.open()
        assert (await scan.greatest())[0] is None
        assert (await scan.begin(Span(None, Cut("2026")), most=10)).count == 0
        assert await scan.rows(Span(None, None)) == []


async def test_what_is_amiss_is_said_once_with_its_remedy(database: sqlite3.Connection) -> None:
    database.execute("CREATE TABLE bare (id INTEGER PRIMARY KEY, at TIMESTAMP)")
    async with opened(Relation("at", table=("bare",), key_columns=("id",))) as source:
        fill(database, "bare")
        note = (await source.open()).note or ""
        assert note.split("; ") == [
            "bare: at has no time zone, and is taken for UTC. Declare timezone=..., or rows may be late or missed",
            'bare: at may be NULL, and such rows are never delivered. Declare it NOT NULL, or say nulls="raise" to be told',
            "bare: polling by at reads the whole table (SCAN). Create an index on (at, id)",
        ]


async def test_an_indexed_column_has_no_note(database: sqlite3.Connection) -> None:
    database.execute("CREATE TABLE good (id INTEGER PRIMARY KEY, at TIMESTAMP NOT NULL)")
    database.execute("CREATE INDEX good_at ON good (at, id)")
    fill(database, "good")
    async with opened(Relation("at", table=("good",), key_columns=("id",), timezone="UTC")) as source:
        assert (await source.open()).note is None


async def test_null_is_an_error_where_it_was_asked_to_be(database: sqlite3.Connection) -> None:
    database.execute("CREATE TABLE bare (id INTEGER PRIMARY KEY, at TIMESTAMP)")
    async with opened(Relation("at", table=("bare",)), nulls="raise") as source:
        await source.open()
        database.execute("INSERT INTO bare (at) VALUES (NULL)")
        with pytest.raises(SourceDenied, match="bare: at is NULL in some rows"):
            await source.open()


async def test_rows_committed_meanwhile_are_seen(database: sqlite3.Connection) -> None:
    async with opened(relation()) as source:
        await source.open()
        insert(database, "2026-11-01 10:00:00")
        assert (await (await source.open()).begin(Span(None, Cut("2027")), most=5)).count == 1


async def test_a_column_that_is_not_there_is_named(database: sqlite3.Connection) -> None:
    async with opened(relation(watermark_column="updated_at")) as source:
        with pytest.raises(SourceMissing, match=r"there is no such column: updated_at \(connection 'shop'"):
            await source.open()


async def test_a_table_that_is_not_there_is_found_once_it_is(database: sqlite3.Connection) -> None:
    async with opened(Relation("at", table=("later",))) as source:
        with pytest.raises(SourceMissing, match=r"later: there is no such table \(connection 'shop'"):
            await source.open()
        database.execute("CREATE TABLE later (at TEXT)")
        assert (await source.open()).column == "text"


async def test_a_changed_type_is_seen_after_an_error(database: sqlite3.Connection) -> None:
    async with opened(relation()) as source:
        scan = await source.open()
        database.execute(f"DROP TABLE {QUOTED}")
        with pytest.raises(SourceMissing):
            await scan.greatest()
        database.execute(f'CREATE TABLE {QUOTED} (id INTEGER PRIMARY KEY, "updatedAt" BIGINT)')
        assert (await source.open()).column == "bigint"


async def test_a_connection_that_is_not_there_is_named() -> None:
    async with opened(relation()) as source:
        with pytest.raises(SourceMissing, match="Airflow has no connection 'shop'"):
            await source.open()


async def test_a_lock_is_said_and_passes(database: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    insert(database, "2026-11-01 10:00:00")
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *a, **k: connect(*a, **{**k, "timeout": 0}))
    async with opened(relation()) as source:
        scan = await source.open()
        database.execute("BEGIN EXCLUSIVE")
        with pytest.raises(SourceUnavailable, match=r"it is locked \(connection 'shop'"):
            await scan.greatest()
        database.execute("ROLLBACK")
        assert (await (await source.open()).greatest())[0]


async def test_a_statement_that_hangs_does_not_hold_the_watcher(database: sqlite3.Connection) -> None:
    insert(database, "2026-11-01 10:00:00")
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x AS w FROM n"
    before = threading.active_count()
    async with opened(Relation("w", sql=endless), timeout=0.5) as source:
        with pytest.raises(SourceUnavailable, match=r"the query: connection 'shop': no answer within 0\.5 s"):
            await source.open()
    async with opened(relation(), timeout=5) as source:
        assert (await (await source.open()).greatest())[0]
    assert threading.active_count() <= before + 2
