"""Types and places at which the SQL watcher breaks."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from airflow_state_watchers import SqlUpdatedAtTrigger
from airflow_state_watchers.tasks.windows import SqlWindow
from airflow_state_watchers.testing import WatcherHarness
from tests.sources.pg.conftest import Define, Place
from tests.sources.pg.test_broken import run
from tests.sources.pg.test_watched_starts import Watched, table


async def test_a_view_is_not_told_to_declare_a_column_not_null(place: Place, define: Define) -> None:
    await run(place, "CREATE TABLE base (id int, w timestamptz NOT NULL)", "CREATE VIEW t AS SELECT * FROM base")
    watched = Watched(place, define, start="earliest")
    assert "Declare it NOT NULL" not in str((await watched.health())["note"])


async def test_a_role_that_may_not_read_all_columns_is_told_at_the_first_poll(place: Place, define: Define) -> None:
    await table(place, "timestamptz", "2026-01-01")
    await run(place, "ALTER TABLE t ADD secret text", "GRANT SELECT (id, w) ON t TO watcher_plain")
    watched = Watched(place, define, start="earliest", payload="window")
    define("shop_starts", host=str(place.server.directory), login="watcher_plain", schema=place.name)
    events = await watched.harness.poll()
    if not events:
        assert "permission" in await watched.error()
        return
    window = SqlWindow.from_payload(events[0])
    assert await asyncio.to_thread(lambda: [len(rows) for rows in window.rows()]) == [1]


@pytest.mark.parametrize("arguments", [{"columns": ["id", "id"]}])
async def test_arguments_that_cannot_work(place: Place, define: Define, arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="twice"):
        Watched(place, define, **arguments)


async def test_a_query_that_ends_with_a_comment_after_its_semicolon(place: Place, define: Define) -> None:
    await table(place, "timestamptz", "2026-01-01")
    conn_id = define("shop_query", host=str(place.server.directory), login="watcher_super", schema=place.name)
    trigger = SqlUpdatedAtTrigger(
        conn_id, sql="SELECT * FROM t; -- all of it", watermark_column="w", start="earliest", key_columns=["id"]
    )
    assert len(await WatcherHarness(trigger).poll()) == 1


async def test_a_query_of_which_a_part_has_two_columns_of_a_name(place: Place, define: Define) -> None:
    await table(place, "timestamptz", "2026-01-01")
    conn_id = define("shop_query", host=str(place.server.directory), login="watcher_super", schema=place.name)
    trigger = SqlUpdatedAtTrigger(
        conn_id, sql="SELECT t.*, 5 AS x, 6 AS x FROM t", watermark_column="w", start="earliest", key_columns=["id"]
    )
    harness = WatcherHarness(trigger)
    events = await harness.poll()
    window = SqlWindow.from_payload(events[0])
    ((row,),) = await asyncio.to_thread(lambda: list(window.rows()))
    assert {5, 6} <= set(row.values())
