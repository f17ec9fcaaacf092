"""Views, queries and arguments that ask for a word."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_state_watchers import SqlUpdatedAtTrigger
from airflow_state_watchers.testing import WatcherHarness
from tests.sources.pg.conftest import Define, Place
from tests.sources.pg.test_watched_oddities import run
from tests.sources.pg.test_watched_starts import Watched, table


async def test_a_view_is_not_told_to_declare_a_column_not_null(place: Place, define: Define) -> None:
    await run(place, "CREATE TABLE base (id int, w timestamptz NOT NULL)", "CREATE VIEW t AS SELECT * FROM base")
    watched = Watched(place, define, start="earliest")
    assert "Declare it NOT NULL" not in str((await watched.health())["note"])


@pytest.mark.parametrize("arguments", [{"columns": ["id", "id"]}])
async def test_arguments_that_cannot_work(place: Place, define: Define, arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="twice"):
        Watched(place, define, **arguments)


async def test_a_query_of_which_a_part_has_two_columns_of_a_name(place: Place, define: Define) -> None:
    await table(place, "timestamptz", "2026-01-01")
    conn_id = define("shop_query", host=str(place.server.directory), login="watcher_super", schema=place.name)
    trigger = SqlUpdatedAtTrigger(
        conn_id, sql="SELECT t.*, 5 AS x, 6 AS x FROM t", watermark_column="w", start="earliest", key_columns=["id"]
    )
    harness = WatcherHarness(trigger)
    assert await harness.poll() == []
    health = harness.store.get(f"state_watchers.health:{trigger.watcher_name}")
    assert "two columns called x" in health["last_error"]["message"]
