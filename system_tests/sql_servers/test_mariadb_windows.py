"""What a consumer reads of a window on a real MariaDB, with both drivers of Airflow's MySQL hook."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from airflow.sdk import Asset, BaseHook

from airflow_state_watchers import Inbox, SqlWindow
from system_tests.sql_servers.mariadb_server import MariadbServer
from system_tests.sql_servers.shop import Shop, Watched, ids, read

NOON = datetime.fromisoformat("2026-03-01 12:00:00.123456")
SECOND = timedelta(seconds=1)


def window_of(low: str | None, high: str | None, **more: Any) -> SqlWindow:
    known: dict[str, Any] = {
        "conn_id": "shop",
        "table": ("orders",),
        "sql": None,
        "where": None,
        "columns": (),
        "watermark_column": "w",
        "key_columns": ("id",),
        "count": 0,
        "reread": False,
        "column_type": "datetime",
    }
    return SqlWindow(low=low, high=high, **{**known, **more})


@pytest.fixture
def window(shop: Shop) -> SqlWindow:
    """A window of the rows 1 to 5; 3 to 5 are a tie, 6 and 7 stand after it."""
    stamps = [NOON, NOON + SECOND, *[NOON + 2 * SECOND] * 3, NOON + 3 * SECOND, NOON + 9 * SECOND]
    shop.orders("datetime(6) NOT NULL", *stamps, more="t varchar(20) DEFAULT 'a%s',")
    return window_of(str(NOON), str(NOON + 3 * SECOND))


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_rows_page_by_page_and_as_a_stream(window: SqlWindow, size: int) -> None:
    streamed = window_of(window.low, window.high, key_columns=())
    assert ids([window], size) == ids([streamed], size) == [1, 2, 3, 4, 5]
    assert [len(rows) for rows in window.rows(chunksize=2)] == [2, 2, 1]
    assert read([window])[0] == {"id": 1, "w": NOON, "t": "a%s"}


def test_a_stream_that_is_left_early_leaves_nothing_behind(shop: Shop, window: SqlWindow) -> None:
    rows = window_of(window.low, window.high, key_columns=()).rows(chunksize=1)
    next(rows)
    rows.close()  # type: ignore[attr-defined]
    assert ids([window]) == [1, 2, 3, 4, 5]


def test_up_to_now(shop: Shop, window: SqlWindow) -> None:
    assert ids([window], upper="now") == [1, 2, 3, 4, 5, 6, 7]
    assert ids([window_of(window.low, window.high, is_last=False)], upper="now") == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("df_type", ["pandas", "polars", "arrow"])
def test_frames(window: SqlWindow, df_type: Any) -> None:
    frames = list(window.frames(chunksize=2, df_type=df_type))
    assert [len(frame) for frame in frames] == [2, 2, 1]
    column = frames[0]["w"]
    values = column.to_pylist() if df_type == "arrow" else list(column)
    assert values == [NOON, NOON + SECOND]


def test_parts_have_every_row_once_and_no_tie_is_cut(window: SqlWindow) -> None:
    for n in (1, 2, 3, 9):
        parts = window.split(n)
        assert sorted(row for part in parts for row in ids([part])) == [1, 2, 3, 4, 5]
        assert [3, 4, 5] in [[row for row in ids([part]) if row > 2] for part in parts]


@pytest.mark.parametrize("alias", [None, "o"])
def test_a_predicate_in_a_statement_of_ones_own(shop: Shop, window: SqlWindow, alias: str | None) -> None:
    shop.run("CREATE TABLE copy LIKE orders")
    found = window_of(window.low, window.high, where="t LIKE 'a%' AND 7 % 4 = 3").predicate(alias)
    hook = BaseHook.get_hook("shop")
    source = f"orders {alias or ''}"
    hook.run(f"REPLACE INTO copy SELECT * FROM {source} WHERE {found.sql}", parameters=found.parameters)
    assert shop.run("SELECT id FROM copy ORDER BY id") == [(1,), (2,), (3,), (4,), (5,)]
    unbounded = window_of(None, None, where="t LIKE 'a%' AND id % 4 = 3").predicate(alias)
    hook.run(f"DELETE FROM copy WHERE {unbounded.sql}" if alias is None else
             f"DELETE {alias} FROM copy {alias} WHERE {unbounded.sql}", parameters=unbounded.parameters)  # fmt: skip
    assert shop.run("SELECT id FROM copy ORDER BY id") == [(1,), (2,), (4,), (5,)]


def test_a_connection_that_was_lost_between_two_pages_is_opened_again(shop: Shop, window: SqlWindow) -> None:
    pages = window.rows(chunksize=2)
    next(pages)
    for (session,) in shop.run(
        "SELECT id FROM information_schema.processlist WHERE user = 'shop' AND id <> connection_id()"
    ):
        shop.run(f"KILL {session}")
    assert [row["id"] for row in next(pages)] == [3, 4]


def test_it_cannot_write(shop: Shop, window: SqlWindow) -> None:
    shop.run("CREATE FUNCTION eat() RETURNS int MODIFIES SQL DATA BEGIN DELETE FROM orders; RETURN 1; END")
    with pytest.raises(Exception, match="READ ONLY"):
        ids([window_of(None, None, where="eat() = 1")])
    assert shop.run("SELECT count(*) FROM orders") == [(7,)]


def test_the_repeated_hour_is_read_whole_where_the_server_has_a_local_time(shop: Shop, server: MariadbServer) -> None:
    """02:30 comes twice in Berlin on this day. In a session of that zone the two are one."""
    shop.run("SET GLOBAL time_zone = 'SYSTEM'")
    try:
        shop.run("SET SESSION time_zone = '+00:00'")
        shop.orders("timestamp(6) NULL", *[f"2026-10-25 {time}" for time in ("00:10", "00:40", "01:10", "01:40")])
        watched = Watched(max_rows_per_event=1)
        windows = watched.windows()
        assert [ids([window]) for window in windows] == [[1], [2], [3], [4]]
        assert read(windows)[0]["w"] == datetime.fromisoformat("2026-10-25 00:10:00")
    finally:
        shop.run("SET GLOBAL time_zone = '+02:00'")


def test_an_inbox_reads_what_the_watcher_delivers(shop: Shop) -> None:
    shop.orders("timestamp(6) NULL")
    watched = Watched()
    watched.windows()
    shop.run("INSERT INTO orders VALUES (1, now(6)), (2, now(6))")
    watched.until_event()
    with watched.harness.task(), Inbox(Asset("test"), start="earliest") as inbox:
        assert ids(list(inbox.windows())) == [1, 2]
