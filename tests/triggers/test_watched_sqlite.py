"""A whole watcher on SQLite: an Airflow connection, its hook, a file, and Airflow's own shared streams."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import Asset

from airflow_state_watchers import Inbox, SqlUpdatedAtTrigger
from airflow_state_watchers.sources.sql_notes import LARGE
from airflow_state_watchers.testing import FrozenClock, WatcherHarness

HOSTILE = 'Order "x" %s; --'
QUOTED = '"Order ""x"" %s; --"'


def ago(seconds: float) -> str:
    """A time as applications write it, in UTC with microseconds."""
    moment = datetime.now(timezone.utc) - timedelta(seconds=seconds)
    return moment.replace(tzinfo=None).isoformat(sep=" ", timespec="microseconds")


LATER = datetime.fromisoformat("2026-01-01 10:00:01")


class Shop:
    """A file with the table of hostile names, and watchers of it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.database = sqlite3.connect(path, isolation_level=None)
        self.sources: list[Any] = []
        self.create()

    def create(self, type_name: str = "TIMESTAMP NOT NULL") -> None:
        self.database.execute(
            f'CREATE TABLE {QUOTED} (id INTEGER PRIMARY KEY, "Group" TEXT DEFAULT \'g\', "updatedAt" {type_name})'
        )
        self.database.execute(f'CREATE INDEX by_time ON {QUOTED} ("updatedAt", id)')

    def drop(self) -> None:
        self.database.execute(f"DROP TABLE {QUOTED}")

    def put(self, *values: Any) -> None:
        self.database.execute("BEGIN")
        self.database.executemany(f'INSERT INTO {QUOTED} ("updatedAt") VALUES (?)', [(value,) for value in values])
        self.database.execute("COMMIT")

    def watch(self, **changes: Any) -> Watched:
        arguments: dict[str, Any] = {
            "table": [HOSTILE], "watermark_column": "updatedAt", "key_columns": ["id"], "start": "earliest", "settle": 5,
            "lookback": 30, "payload": "rows", "timezone": "UTC", **changes,
        }  # fmt: skip
        trigger = SqlUpdatedAtTrigger("shop", name="orders", **arguments)
        trigger.source = trigger.build_source(10)
        self.sources.append(trigger.source)
        return Watched(trigger)


class Watched:
    def __init__(self, trigger: SqlUpdatedAtTrigger) -> None:
        self.clock = FrozenClock()
        self.harness = WatcherHarness(trigger, asset="orders", clock=self.clock)

    async def ids(self, polls: int = 1) -> list[int]:
        """What polls deliver, in order."""
        events = [event for _ in range(polls) for event in await self.poll()]
        return [row["id"] for event in events for row in event["items"]]

    async def poll(self) -> list[dict[str, Any]]:
        self.clock.advance(61)  # by which the health record is written anew
        return await self.harness.poll()

    @property
    def health(self) -> dict[str, Any]:
        found: dict[str, Any] = self.harness.store.get("state_watchers.health:orders")
        return found

    async def error(self) -> str:
        assert await self.poll() == []
        return str(self.health["last_error"]["message"])


@pytest.fixture
async def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Shop]:
    shop = Shop(tmp_path / "shop.db")
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", json.dumps({"conn_type": "sqlite", "host": str(shop.path)}))
    yield shop
    for source in shop.sources:
        await source.aclose()
    shop.database.close()


async def test_rows_travel_in_events_and_what_is_young_waits(shop: Shop) -> None:
    times = [ago(300), ago(299), ago(0)]
    shop.put(*times)
    watched = shop.watch(settle=100, where="\"Group\" LIKE 'g%' -- ':x'", columns=["id", "Group", "updatedAt"])
    (event,) = await watched.poll()
    assert event["items"] == [
        {"id": 1, "Group": "g", "updatedAt": times[0]},
        {"id": 2, "Group": "g", "updatedAt": times[1]},
    ]
    assert event["table"] == [HOSTILE]
    assert await watched.ids(2) == []


async def test_a_task_reads_a_windows_rows(shop: Shop) -> None:
    shop.put(ago(60), ago(50))
    watched = shop.watch(payload="window", where="\"Group\" = 'g'")
    await watched.poll()

    def read() -> list[int]:
        with watched.harness.task(), Inbox(Asset("orders")) as inbox:
            found = [row["id"] for window in inbox.windows() for page in window.rows() for row in page]
            inbox.commit()
        return found

    assert await asyncio.to_thread(read) == [1, 2]


async def test_microseconds_are_exact(shop: Shop) -> None:
    base = ago(60)[:20]
    times = [f"{base}{number:06}" for number in (1, 2, 3, 999999)]
    shop.put(*times)
    watched = shop.watch(max_rows_per_event=1)
    events = await watched.poll()
    assert [event["low"] for event in events] == [None, *(event["high"] for event in events[:-1])]
    assert [event["high"] for event in events[:-1]] == times[1:]
    assert [row["updatedAt"] for event in events for row in event["items"]] == times
    assert await watched.ids(2) == []


async def test_a_tie_is_never_split(shop: Shop) -> None:
    tie, after = ago(60), ago(59)
    shop.put(tie, tie, tie, tie, tie, after)
    watched = shop.watch(max_rows_per_event=2)
    events = await watched.poll()
    assert [(event["count"], len(event["items"])) for event in events] == [(5, 0), (1, 1)]


@pytest.mark.parametrize(
    "numbers", [[-(2**60), -(2**53) - 1, -1, 0, 2**53 + 1, 2**53 + 2, 2**63 - 2], [9, 10, 11, 100]]
)
async def test_integers_are_exact_and_stand_in_their_own_order(shop: Shop, numbers: Sequence[int]) -> None:
    shop.drop()
    shop.create("BIGINT NOT NULL")
    shop.put(*numbers)
    watched = shop.watch(settle=0, lookback=0)
    events = [event for _ in range(4) for event in await watched.poll()]
    assert [row["updatedAt"] for event in events for row in event["items"]] == numbers
    shop.put(numbers[-1] + 1)
    events = [event for _ in range(3) for event in await watched.poll()]
    assert [row["updatedAt"] for event in events for row in event["items"]] == [numbers[-1] + 1]


async def test_a_fraction_between_two_integers_is_not_passed(shop: Shop) -> None:
    shop.put(10, 11)
    watched = shop.watch(settle=0, lookback=0)
    assert await watched.ids(4) == [1, 2]
    shop.put(11.25, 11.5)
    assert await watched.ids(4) == [3, 4]


async def test_a_late_row_inside_the_lookback_comes_in_a_window_that_is_read_again(shop: Shop) -> None:
    shop.put(ago(12))
    watched = shop.watch()
    assert await watched.ids(2) == [1]
    shop.put(ago(14))
    (event,) = await watched.poll()
    assert event["reread"]
    assert 2 in [row["id"] for row in event["items"]]
    assert await watched.ids(3) == []


async def test_a_late_row_before_the_lookback_does_not_come(shop: Shop) -> None:
    shop.put(ago(12))
    watched = shop.watch()
    assert await watched.ids(2) == [1]
    shop.put(ago(300))
    assert await watched.ids(3) == []


async def test_null_is_told_once_or_raised(shop: Shop) -> None:
    shop.drop()
    shop.create("TIMESTAMP")
    shop.put(None, ago(60))
    watched = shop.watch()
    assert await watched.ids() == [2]
    assert "updatedAt may be NULL, and such rows are never delivered" in watched.health["note"]
    loud = shop.watch(nulls="raise")
    assert "updatedAt is NULL in some rows" in await loud.error()
    shop.database.execute(f'DELETE FROM {QUOTED} WHERE "updatedAt" IS NULL')
    assert await loud.ids() == [2]


@pytest.mark.parametrize("is_indexed", [True, False])
async def test_a_column_without_an_index_is_told(shop: Shop, *, is_indexed: bool) -> None:
    shop.put(*[ago(60)] * (LARGE + 1))
    if not is_indexed:
        shop.database.execute("DROP INDEX by_time")
    watched = shop.watch(payload="window")
    await watched.poll()
    assert ("Create an index on (updatedAt, id)" in (watched.health["note"] or "")) is not is_indexed


async def test_a_table_that_is_dropped_and_made_again(shop: Shop) -> None:
    shop.put(ago(60))
    watched = shop.watch()
    assert await watched.ids() == [1]
    shop.drop()
    assert f"{HOSTILE}: there is no such table (connection 'shop'" in await watched.error()
    shop.create()
    shop.put(ago(600), ago(6))  # the watermark stays where it was
    assert await watched.ids(3) == [2]
    assert watched.health["last_error"] is None


async def test_another_type_under_a_stored_watermark_is_loud(shop: Shop) -> None:
    shop.put(ago(60))
    watched = shop.watch()
    assert await watched.ids() == [1]
    shop.drop()
    shop.create("BIGINT NOT NULL")
    shop.put(5)
    assert "stored for a column of type timestamp, and it is bigint now" in await watched.error()


async def test_other_values_in_a_column_of_the_same_name_are_loud(shop: Shop) -> None:
    shop.put(ago(60))
    watched = shop.watch()
    assert await watched.ids() == [1]
    shop.database.execute(f"DELETE FROM {QUOTED}")
    shop.put(1767261600)
    assert "of type timestamp, and it is timestamp of numbers now" in await watched.error()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"table": "nothing"}, "nothing: there is no such table (connection 'shop'"),
        ({"watermark_column": "updated_at"}, "there is no such column: updated_at (connection 'shop'"),
        ({"columns": ["id", "nothing"]}, "there is no such column: nothing (connection 'shop'"),
        ({"where": "missing = 1"}, "there is no such column: missing (connection 'shop'"),
        ({"where": "kind of ="}, "the database does not take the statement (connection 'shop'"),
    ],
)
async def test_what_is_not_there_is_named(shop: Shop, arguments: dict[str, Any], text: str) -> None:
    shop.put(ago(60))
    assert text in await shop.watch(**arguments).error()


async def test_a_locked_database_is_told_and_passes(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.put(ago(60))
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, timeout=0))
    watched = shop.watch()
    shop.database.execute("BEGIN EXCLUSIVE")
    assert "it is locked (connection 'shop'" in await watched.error()
    shop.database.execute("ROLLBACK")
    assert await watched.ids() == [1]


async def test_a_watcher_writes_nothing(shop: Shop) -> None:
    watched = shop.watch(table=None, sql="SELECT 1 AS id, '2026-01-01 00:00:00' AS w", watermark_column="w")
    assert await watched.ids() == [1]
    before = shop.path.read_bytes()
    assert await watched.ids(2) == []
    assert shop.path.read_bytes() == before


@pytest.mark.parametrize(
    ("type_name", "values", "initial", "ids"),
    [
        ("TIMESTAMP", ["2026-01-01 10:00:00.000001", "2026-01-01 10:00:00.000002"], "2026-01-01 10:00:00.000002", [2]),
        ("TIMESTAMP", ["2026-01-01 10:00:00", "2026-01-01 10:00:01"], LATER, [2]),
        ("TIMESTAMP", ["2026-01-01T10:00:00", "2026-01-01T10:00:01"], LATER, [2]),
        ("BIGINT", [2**53 + 1, 2**53 + 2], 2**53 + 2, [2]),
        ("BIGINT", [-10, -9], -9, [2]),
        ("TEXT", ["a9", "b1"], "b", [2]),
    ],
)
async def test_an_initial_value_is_where_it_begins(
    shop: Shop, type_name: str, values: list[Any], initial: Any, ids: list[int]
) -> None:
    shop.drop()
    shop.create(type_name)
    shop.put(*values)
    watched = shop.watch(start="latest", initial_value=initial, settle=0, lookback=0)
    assert await watched.ids(4) == ids


async def test_a_query_with_an_alias_is_watched(shop: Shop) -> None:
    shop.put(ago(60), ago(50))
    sql = f'SELECT id, max("updatedAt", \'x:y\') AS other, "updatedAt" AS moment FROM {QUOTED} WHERE id > 0 -- all;'
    watched = shop.watch(table=None, sql=sql, watermark_column="moment", columns=["id", "moment"])
    assert await watched.ids(2) == [1, 2]
    shop.put(ago(8))
    assert await watched.ids(2) == [3]
