"""Rows that change while they are watched: NULL, ties, a table that is emptied, updates under a reader, crashes in between."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.sources.pg.conftest import Watch
from tests.sources.pg.watched import Watched

KINDS = ["timestamptz", "bigint"]


async def made(watch: Watch, kind: str = "bigint", **arguments: Any) -> Watched:
    """Return a watcher of an empty table, whose rows get a new value at each insert and update."""
    watched = watch(table="t", watermark_column="v", **arguments)
    default = "clock_timestamp()" if kind == "timestamptz" else "nextval('s')"
    await watched.run("CREATE SEQUENCE s")
    await watched.run(f"CREATE TABLE t (id int PRIMARY KEY, v {kind} NOT NULL DEFAULT {default}, n int)")
    await watched.run("CREATE INDEX ON t (v, id)")
    return watched


def writes(watched: Watched) -> list[str]:
    """What was written to the store, the health record left aside."""
    return [key for key in watched.harness.store.writes if "health" not in key]


# NULL -----------------------------------------------------------------------------------------------------------------


async def test_rows_without_a_value_are_left_out_and_that_is_said(watch: Watch) -> None:
    watched = await made(watch)
    await watched.run("ALTER TABLE t ALTER v DROP NOT NULL")
    await watched.run("INSERT INTO t VALUES (1, NULL), (2, 5), (3, NULL)")
    assert await watched.ids() == [2]
    assert 'v may be NULL, and such rows are never delivered. Declare it NOT NULL, or say nulls="raise"' in watched.note
    assert watched.error == ""


async def test_rows_without_a_value_may_be_an_error(watch: Watch) -> None:
    watched = await made(watch, nulls="raise")
    await watched.run("ALTER TABLE t ALTER v DROP NOT NULL")
    await watched.run("INSERT INTO t VALUES (1, 5)")
    assert await watched.ids() == [1]
    await watched.run("INSERT INTO t VALUES (2, 6), (3, NULL)")
    before = watched.watermark
    assert await watched.polls() == []
    assert "v is NULL in some rows" in watched.error
    assert watched.watermark == before
    await watched.run("UPDATE t SET v = 7 WHERE v IS NULL")
    assert await watched.ids() == [2, 3]
    assert watched.error == ""


# Empty tables ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("begin", [{"start": "earliest"}, {"start": "latest"}, {"initial_value": True}], ids=str)
async def test_an_empty_table_and_then_rows(watch: Watch, kind: str, begin: dict[str, Any]) -> None:
    if "initial_value" in begin:
        begin = {"initial_value": 1 if kind == "bigint" else "2026-01-01T00:00:00+00:00"}
    watched = await made(watch, kind, **begin)
    assert await watched.polls() == []
    await watched.restart()
    assert await watched.polls() == []
    await watched.run("INSERT INTO t VALUES (1), (2)")
    assert await watched.ids() == [1, 2]
    assert await watched.polls() == []
    assert watched.error == watched.note == ""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("what", ["t", "t WHERE id = 3"])
async def test_all_rows_or_the_greatest_deleted(watch: Watch, kind: str, what: str) -> None:
    watched = await made(watch, kind)
    await watched.run("INSERT INTO t VALUES (1), (2), (3)")
    assert await watched.ids() == [1, 2, 3]
    before = watched.watermark
    await watched.run(f"DELETE FROM {what}")
    assert await watched.polls(4) == []
    await watched.restart()
    assert await watched.polls(4) == []
    assert watched.watermark == before
    await watched.run("INSERT INTO t VALUES (4)")
    assert await watched.ids() == [4]
    assert watched.error == ""


@pytest.mark.parametrize("kind", [*KINDS, "date"])
async def test_twenty_polls_of_an_idle_table_give_no_event_and_write_nothing(watch: Watch, kind: str) -> None:
    watched = await made(watch, "timestamptz" if kind != "bigint" else kind)
    if kind == "date":
        await watched.run("ALTER TABLE t ALTER v DROP DEFAULT, ALTER v TYPE date, ALTER v SET DEFAULT '2026-01-01'")
    await watched.run("INSERT INTO t VALUES (1), (2)")
    assert await watched.ids(4) == [1, 2]
    before = writes(watched)
    assert await watched.polls(20) == []
    assert writes(watched) == before


# Ties -----------------------------------------------------------------------------------------------------------------


async def test_a_tie_that_is_larger_than_an_event_is_one_window(watch: Watch) -> None:
    watched = await made(watch, payload="rows", max_rows_per_event=4)
    await watched.run(
        "INSERT INTO t SELECT n, CASE WHEN n <= 3 THEN n WHEN n <= 10 THEN 4 ELSE n END FROM generate_series(1, 12) n"
    )
    events = await watched.polls(4)
    assert [(event["kind"], event["count"]) for event in events] == [
        ("sql_rows", 3),
        ("sql_window", 7),
        ("sql_rows", 2),
    ]
    assert [row["id"] for event in events for row in event["items"]] == [1, 2, 3, 11, 12]
    assert [row["id"] for row in await watched.read(chunksize=2)] == list(range(1, 13))


@pytest.mark.parametrize("payload", ["window", "rows"])
@pytest.mark.parametrize("crash", ["before_confirm", "before_commit"])
async def test_a_crash_beside_a_tie_neither_loses_nor_splits_it(watch: Watch, crash: str, payload: str) -> None:
    """Rows 4 to 10 share one value. A process dies at each delivery once; meanwhile more rows with other values come."""
    watched = await made(watch, payload=payload, max_rows_per_event=3)
    await watched.run(
        "INSERT INTO t SELECT n, CASE WHEN n BETWEEN 4 AND 10 THEN 40 ELSE n * 10 END FROM generate_series(1, 13) n"
    )
    died: list[str] = []
    for _ in range(20):
        events = await watched.poll(crash=crash)
        if not events:
            continue
        died.append(events[0]["batch_id"])
        await watched.run("INSERT INTO t SELECT max(id) + 1, max(id) * 10 + 10 FROM t HAVING max(id) < 16")
        again = await watched.poll()
        assert again[0]["batch_id"] == died[-1]
    assert len(died) > 1
    by_batch = {event["batch_id"]: event for event in watched.harness.events}
    windows = {(window.low, window.high, window.bounds): window for window in watched.windows}
    assert len(windows) == len(by_batch)
    found = await asyncio.to_thread(
        lambda: [[row["id"] for rows in w.rows(2) for row in rows] for w in windows.values()]
    )
    assert sorted(number for ids in found for number in ids) == list(range(1, 17))
    assert [ids for ids in found if 4 in ids] == [ids for ids in found if 10 in ids]
    assert watched.error == ""


async def test_pages_while_rows_are_updated(watch: Watch) -> None:
    """What OFFSET would skip: each update takes a row out of the window, and all after it move up by one."""
    watched = await made(watch, "timestamptz")
    await watched.run("INSERT INTO t SELECT n FROM generate_series(1, 100) n")
    await watched.polls()
    (window,) = watched.windows
    pages = window.rows(chunksize=7)
    read: list[int] = []
    while rows := await asyncio.to_thread(next, pages, None):
        read += [row["id"] for row in rows]
        for number in (read[0], read[-1], read[-1] + 10):
            await watched.run("UPDATE t SET v = clock_timestamp(), n = 1 WHERE id = %s AND n IS NULL", [number])
    updated = {row[0] for row in await watched.run("SELECT id FROM t WHERE n = 1")}
    watched.windows.clear()
    later = await watched.ids()
    assert len(read) == len(set(read))
    assert set(later) == updated
    assert set(read) | updated == set(range(1, 101))
    assert updated - set(read)


async def test_a_row_that_is_updated_between_two_windows_is_in_both(watch: Watch) -> None:
    watched = await made(watch, "timestamptz")
    await watched.run("INSERT INTO t VALUES (1), (2)")
    assert await watched.ids() == [1, 2]
    await watched.run("UPDATE t SET v = clock_timestamp() WHERE id = 1")
    assert await watched.ids() == [1]
