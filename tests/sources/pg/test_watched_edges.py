"""Values at the edges of their types: they are delivered, and keep nothing else from being delivered."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_state_watchers.sources import sql_scan
from tests.sources.pg.conftest import Define, Place
from tests.sources.pg.test_watched_starts import Watched, table


@pytest.mark.parametrize(
    ("type_name", "greatest"), [("smallint", 2**15 - 1), ("int", 2**31 - 1), ("bigint", 2**63 - 1), ("numeric", 10**40)]
)
async def test_the_greatest_integer_there_is(place: Place, define: Define, type_name: str, greatest: int) -> None:
    await table(place, type_name, "5", str(greatest))
    watched = Watched(place, define, start="earliest", settle=0)
    assert [number for _ in range(4) for number in await watched.ids()] == [1, 2]


@pytest.mark.parametrize(
    ("type_name", "values"),
    [
        ("timestamptz", ["-infinity", "0044-03-15 12:00 BC", "2026-01-01"]),
        ("timestamp", ["-infinity", "2026-01-01"]),
        ("date", ["-infinity", "2026-01-01"]),
    ],
)
async def test_times_that_python_has_not(place: Place, define: Define, type_name: str, values: list[str]) -> None:
    await table(place, type_name, *values)
    async with await place.connect() as connection:
        await connection.execute(
            "ALTER TABLE t ADD valid_to timestamptz DEFAULT 'infinity', ADD closes time DEFAULT '24:00'"
        )
        await connection.execute("ALTER TABLE t ADD days date[] DEFAULT '{infinity,2026-01-31}'")
        await connection.execute("ALTER TABLE t ADD span interval DEFAULT '1 month'")
    watched = Watched(place, define, start="earliest", timezone=None if type_name == "timestamptz" else "UTC")
    (event,) = await watched.harness.poll()
    assert [row["id"] for row in event["items"]] == list(range(1, len(values) + 1))
    assert event["items"][0] == {
        "id": 1,
        "w": "-infinity",
        "valid_to": "infinity",
        "closes": "24:00:00",
        "days": ["infinity", "2026-01-31"],
        "span": "1 mon",
    }


@pytest.mark.parametrize("payload", ["window", "rows"])
@pytest.mark.parametrize("missing", [{"key_columns": ["nope"]}, {"columns": ["id", "nope"]}])
async def test_a_missing_column_is_said_at_the_first_poll_and_not_in_the_task(
    place: Place, define: Define, payload: str, missing: dict[str, Any]
) -> None:
    await table(place, "timestamptz", "2026-01-01")
    watched = Watched(place, define, start="earliest", **{"payload": payload, **missing})
    error = await watched.error()
    assert "no such column" in error
    assert '"nope"' in error


async def test_a_window_has_no_more_rows_than_can_be_counted_in_time(
    place: Place, define: Define, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_scan, "MOST_ROWS", 10)
    await table(place, "timestamptz")
    async with await place.connect() as connection:
        await connection.execute("INSERT INTO t (w) SELECT to_timestamp(n) FROM generate_series(1, 25) n")
        await connection.execute("INSERT INTO t (w) SELECT '2026-01-02' FROM generate_series(1, 12)")
    watched = Watched(place, define, start="earliest", payload="window")
    events = await watched.harness.poll()
    assert [event["count"] for event in events] == [10, 10, 5, 10]
    assert [event["low"] for event in events[1:]] == [event["high"] for event in events[:-1]]
    assert await watched.harness.poll() == []


async def test_another_table_of_the_name_is_said_and_looked_at_anew(place: Place, define: Define) -> None:
    await table(place, "timestamptz", "2026-01-01")
    watched = Watched(place, define, start="earliest")
    assert await watched.ids() == [1]
    async with await place.connect() as connection:
        await connection.execute("DROP TABLE t")
    assert "no such table" in await watched.error()
    await table(place, "timestamptz", "2026-01-02")
    async with await place.connect() as connection:
        await connection.execute("ALTER TABLE t ALTER w DROP NOT NULL")
    note = (await watched.health())["note"]
    assert "made again" in note
    assert "may be NULL" in note
