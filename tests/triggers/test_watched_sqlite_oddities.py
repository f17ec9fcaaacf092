"""What SQLite lets stand in a column: no row is lost for it, or it is said."""

from __future__ import annotations

import asyncio

import pytest

from airflow_state_watchers import InboxError
from airflow_state_watchers.tasks.windows import SqlWindow
from tests.triggers.test_watched_sqlite import Shop, ago, shop

__all__ = ["shop"]


async def test_max_hold_where_it_does_nothing_is_said(shop: Shop) -> None:
    shop.put(ago(60))
    watched = shop.watch(max_hold=10)
    await watched.poll()
    await watched.poll()
    assert "max_hold" in str(watched.health["note"]) + str(watched.health["last_error"])


async def test_keys_of_two_types_end(shop: Shop) -> None:
    shop.database.execute("CREATE TABLE odd (k, w)")
    time = ago(60)[:19]
    shop.database.executemany("INSERT INTO odd VALUES (?, ?)", [(5, time), ("7", time), ("8", time)])
    watched = shop.watch(table="odd", watermark_column="w", key_columns=["k"], payload="window")
    (event,) = await watched.poll()
    window = SqlWindow.from_payload(event)

    with pytest.raises(InboxError, match="do not tell all rows apart"):
        await asyncio.to_thread(lambda: [None for _ in zip(window.rows(chunksize=1), range(10), strict=False)])


async def test_one_value_that_is_no_time_keeps_all_later_rows_away(shop: Shop) -> None:
    shop.put(ago(60))
    watched = shop.watch(settle=0.01, lookback=0)
    assert await watched.ids(2) == [1]
    shop.put("unknown")
    found = []
    for _ in range(4):
        found += await watched.ids()
        await asyncio.sleep(0.05)
    shop.put(ago(0))
    for _ in range(4):
        await asyncio.sleep(0.05)
        found += await watched.ids()
    assert found == []
    assert "texts that are no times" in watched.health["last_error"]["message"]
