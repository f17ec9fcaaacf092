"""Where a person tells a watcher to begin, by ``initial_value`` or by hand: the value means the same whatever the column's type."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from airflow_state_watchers import SqlUpdatedAtTrigger
from airflow_state_watchers.testing import FrozenClock, WatcherHarness
from tests.sources.pg.conftest import Define, Place

ROOT = "state_watchers:t/w"
CET = timezone(timedelta(hours=1))
NOON = datetime(2026, 1, 2, 12, tzinfo=CET)


class Watched:
    """A watcher of a table ``t (id, w)``; ``w``'s type is given."""

    def __init__(self, place: Place, define: Define, **arguments: Any) -> None:
        conn_id = define("shop_starts", host=str(place.server.directory), login="watcher_super", schema=place.name)
        trigger = SqlUpdatedAtTrigger(
            conn_id, table="t", watermark_column="w", **{"key_columns": ["id"], "payload": "rows", **arguments}
        )
        self.clock = FrozenClock()
        self.harness = WatcherHarness(trigger, clock=self.clock)

    async def ids(self) -> list[int]:
        return [row["id"] for event in await self.harness.poll() for row in event["items"]]

    async def error(self) -> str:
        return str((await self.health())["last_error"]["message"])

    async def health(self) -> dict[str, Any]:
        """Poll, which has to find nothing, and return the health record."""
        self.clock.advance(61)  # it is written once a minute
        assert await self.harness.poll() == []
        record: dict[str, Any] = self.harness.store.get("state_watchers.health:t/w")
        return record


async def table(place: Place, type_name: str, *values: str) -> None:
    async with await place.connect() as connection:
        await connection.execute(f"CREATE TABLE t (id serial PRIMARY KEY, w {type_name} NOT NULL)".encode())
        await connection.execute("CREATE INDEX ON t (w, id)")
        for value in values:
            await connection.execute("INSERT INTO t (w) VALUES (%s)", [value])


@pytest.mark.parametrize(
    ("type_name", "values", "initial", "arguments", "ids"),
    [
        ("timestamptz", ["2026-01-02 10:59:59.999999Z", "2026-01-02 11:00Z"], NOON, {}, [2]),
        ("timestamptz", ["2026-01-02 10:59:59.999999Z", "2026-01-02 11:00Z"], "2026-01-02T12:00+01:00", {}, [2]),
        ("timestamptz", ["2026-01-02 11:59:59Z", "2026-01-02 12:00Z"], NOON.replace(tzinfo=None), {}, [2]),
        # In a column without a zone the time stands as that zone's clocks show it, not as its own offset would have it.
        ("timestamp", ["2026-01-02 10:59:59", "2026-01-02 11:00"], NOON, {"timezone": "UTC"}, [2]),
        ("timestamp", ["2026-01-02 05:59:59", "2026-01-02 06:00"], NOON, {"timezone": "America/New_York"}, [2]),
        ("timestamp", ["2026-01-02 11:59:59", "2026-01-02 12:00"], NOON.replace(tzinfo=None), {"timezone": "UTC"}, [2]),
        ("date", ["2026-01-01", "2026-01-02"], "2026-01-02T00:30:00+01:00", {"timezone": "Europe/Berlin"}, [2]),
        ("date", ["2025-12-31", "2026-01-01"], "2026-01-02T00:30:00+01:00", {"timezone": "UTC"}, [2]),
        ("date", ["2026-01-01", "2026-01-02"], date(2026, 1, 2), {"timezone": "UTC"}, [2]),
        ("numeric(38,10)", ["1.4999999999", "1.5"], Decimal("1.50"), {}, [2]),
        ("bigint", ["-9007199254740994", "-9007199254740993"], -9007199254740993, {}, [2]),
    ],
)
async def test_an_initial_value_is_a_time_or_a_number_and_not_a_text(
    place: Place, define: Define, type_name: str, values: list[str], initial: Any, arguments: Any, ids: list[int]
) -> None:
    await table(place, type_name, *values)
    watched = Watched(place, define, initial_value=initial, settle=0, **arguments)
    found: list[int] = []
    for _ in range(3):
        found += await watched.ids()
    assert found == ids


@pytest.mark.parametrize(
    ("written", "ids"),
    [
        ("2026-01-02T12:00:00+01:00", [2, 3]),
        ({"value": "2026-01-02T12:00:00+01:00"}, [2, 3]),
        ("2026-01-02 11:00", [2, 3]),
        ("yesterday", [3]),
        (None, [1, 2, 3]),
    ],
)
async def test_a_watermark_by_hand_is_read_so_too(place: Place, define: Define, written: Any, ids: list[int]) -> None:
    yesterday = str(datetime.now(timezone.utc) - timedelta(hours=12))[:19]
    await table(place, "timestamp", "2026-01-02 10:59:59", "2026-01-02 11:00", yesterday)
    watched = Watched(place, define, timezone="UTC")
    assert await watched.ids() == []
    root = watched.harness.store.get(ROOT)
    watched.harness.store.set(ROOT, {**root, "watermark": written})
    watched.harness.restart()
    assert await watched.ids() == ids


async def test_a_word_for_now_is_the_time_that_it_meant_when_it_was_read(place: Place, define: Define) -> None:
    await table(place, "timestamptz", "2026-01-02 11:00Z")
    watched = Watched(place, define, initial_value="now", settle=0)
    assert await watched.ids() == []
    async with await place.connect() as connection:
        await connection.execute("INSERT INTO t (w) VALUES (clock_timestamp())")
    watched.harness.restart()
    assert await watched.ids() == [2]


@pytest.mark.parametrize(("type_name", "written"), [("timestamptz", "soonish"), ("bigint", "2026-01-01"), ("date", 5)])
async def test_what_is_no_value_of_the_column_is_said(
    place: Place, define: Define, type_name: str, written: Any
) -> None:
    await table(place, type_name)
    watched = Watched(place, define, initial_value=written)
    error = await watched.error()
    assert repr(str(written)) in error
    assert type_name.replace("timestamptz", "timestamp with time zone") in error
    assert "initial_value" in error
