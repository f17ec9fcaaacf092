"""Reading the rows of a window from real databases."""

from __future__ import annotations

import json
import os
import re
import sys
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from itertools import pairwise
from typing import Any, cast

import psutil
import pytest
from airflow.sdk import BaseHook

from airflow_state_watchers import InboxError, SqlWindow
from airflow_state_watchers.sources.sql_statements import Place
from airflow_state_watchers.tasks.window_sql import WindowStatements
from tests.tasks.databases import Database, ids, read

NAME = 'Order "x" %s; --'


def orders(database: Database, values: list[Any], kind: str = "integer") -> None:
    """Make a table with these values, and the keys 1 to n."""
    database.run(f"CREATE TABLE orders (id integer PRIMARY KEY, v {kind})")
    database.insert("orders", list(enumerate(values, 1)))


@pytest.mark.parametrize("keys", [("id",), ()])
def test_a_window_has_its_low_and_not_its_high(database: Database, keys: tuple[str, ...]) -> None:
    orders(database, [1, 2, 3, 4, 5, 6])
    window = database.window("2", "5", key_columns=keys)
    assert list(window.rows(chunksize=2)) == [[{"id": 2, "v": 2}, {"id": 3, "v": 3}], [{"id": 4, "v": 4}]]
    assert read(window) == read(window)


@pytest.mark.parametrize(("bounds", "found"), [("[)", [2, 3]), ("(]", [3, 4]), ("[]", [2, 3, 4]), ("()", [3])])
def test_the_bounds_are_as_they_say(database: Database, bounds: str, found: list[int]) -> None:
    orders(database, [1, 2, 3, 4, 5])
    assert ids(database.window("2", "4", bounds=bounds)) == found


@pytest.mark.parametrize("keys", [("id",), ()])
def test_without_a_beginning_and_without_nulls(database: Database, keys: tuple[str, ...]) -> None:
    orders(database, [None, -5, 3, None, 9])
    assert ids(database.window(None, "9", key_columns=keys)) == [2, 3]
    assert ids(database.window(None, None, key_columns=keys)) == [2, 3, 5]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_ties_larger_than_a_page_are_complete(database: Database, size: int) -> None:
    orders(database, [1, 2, 2, 2, 2, 2, 2, 2, 3, 3])
    assert ids(database.window("1", "4"), size) == list(range(1, 11))
    assert ids(database.window("2", "3"), size) == list(range(2, 9))


def test_several_keys_tell_rows_apart(database: Database) -> None:
    database.run("CREATE TABLE orders (v integer, b text, a integer)")
    rows = [(v, b, a) for v in (1, 2) for b in ("x", "X", "é") for a in (1, 2, 3)]
    database.insert("orders", rows)
    found = read(database.window("1", "3", key_columns=("b", "a")), 2)
    assert sorted((row["v"], row["b"], row["a"]) for row in found) == sorted(rows)


def test_only_the_columns_asked_for_in_their_order(database: Database) -> None:
    database.run("CREATE TABLE orders (c integer, id integer, v integer, a integer)")
    database.insert("orders", [(1, 2, 3, 4), (5, 6, 7, 8)])
    assert [list(row.items()) for row in read(database.window("0", "9"))] == [
        [("c", 1), ("id", 2), ("v", 3), ("a", 4)],
        [("c", 5), ("id", 6), ("v", 7), ("a", 8)],
    ]
    some = database.window("0", "9", columns=("a", "c"))
    assert [list(row.items()) for row in read(some, 1)] == [[("a", 4), ("c", 1)], [("a", 8), ("c", 5)]]


@pytest.mark.parametrize("keys", [("Group",), ()])
def test_hostile_names(database: Database, keys: tuple[str, ...]) -> None:
    quoted = NAME.replace('"', '""')
    database.run(f'CREATE TABLE "{quoted}" ("Group" integer, "updatedAt" integer, "100%" text)')
    database.insert(
        f'"{quoted}"'.replace("%s", "%%s") if database.conn_id == "shop" else f'"{quoted}"',
        [(1, 5, "a%s"), (2, 6, "b")],
    )
    window = database.window(
        "5", "7", table=(NAME,), watermark_column="updatedAt", key_columns=keys, where="\"100%\" LIKE '%' AND 7 % 2 = 1"
    )
    assert read(window, 1) == [{"Group": 1, "updatedAt": 5, "100%": "a%s"}, {"Group": 2, "updatedAt": 6, "100%": "b"}]
    assert [len(part.split(9)) for part in window.split(2)] == [1, 1]


def test_a_query_and_a_condition(database: Database) -> None:
    orders(database, [1, 2, 3, 4, 5, 6])
    window = database.window(
        "4", "12", table=None, sql="SELECT id, v * 2 AS v, 'a%b' AS t FROM orders", where="id <> 3 OR id = 4"
    )
    assert read(window) == [{"id": i, "v": 2 * i, "t": "a%b"} for i in (2, 4, 5)]


def test_comments_hide_nothing(database: Database) -> None:
    orders(database, [1, 2, 3, 4])
    window = database.window("2", "4", where="id < 9 -- all of them")
    assert ids(window) == [2, 3]
    assert ids(database.window("2", "4", table=None, sql="SELECT * FROM orders -- all of them")) == [2, 3]


def test_a_null_in_a_key_is_said(database: Database) -> None:
    database.run("CREATE TABLE orders (id integer, v integer)")
    database.insert("orders", [(1, 1), (None, 1), (None, 2), (4, 2)])
    with pytest.raises(InboxError, match=r"key column.* id .*NULL"):
        ids(database.window("1", "3"))
    assert len(read(database.window("1", "3", key_columns=()))) == 4


def test_a_null_key_is_said_wherever_pages_end(database: Database) -> None:
    database.run("CREATE TABLE orders (id integer, v integer)")
    database.insert("orders", [(1, 1), (2, 1), (None, 1), (4, 1), (5, 2)])
    for size in range(1, 6):
        with pytest.raises(InboxError, match=r"key columns id are NULL in a row\. Name key columns"):
            ids(database.window("1", "3"), size)


def test_keys_that_do_not_tell_rows_apart_are_said_where_one_would_be_lost(database: Database) -> None:
    database.run("CREATE TABLE orders (id integer, v integer)")
    database.insert("orders", [(1, 1), (2, 1), (2, 1), (3, 1)])
    assert ids(database.window("1", "3"), 3) == [1, 2, 2, 3]
    with pytest.raises(InboxError, match=r"key columns id do not tell all rows apart\. Name more of them"):
        ids(database.window("1", "3"), 2)


UTC = timezone.utc
STAMP = datetime(2026, 11, 29, 10, 0, 0, 123456, tzinfo=UTC)
MICRO = timedelta(microseconds=1)


NAIVE = STAMP.replace(tzinfo=None)
NIL = "00000000-0000-0000-0000-00000000000"
EXACT: list[tuple[str, list[Any], str, str, list[int]]] = [
    ("integer", [-7, 0, 7, 8], "-7", "8", [1, 2, 3]),
    ("bigint", [-(2**63), 0, 2**63 - 1], str(-(2**63)), str(2**63 - 1), [1, 2]),
    ("numeric(38,10)", [Decimal("1.0000000001"), Decimal(2), Decimal("9e27")], "1.0000000001", "9e27", [1, 2]),
    ("numeric", [Decimal("1.00"), Decimal("1.0"), Decimal(2)], "1", "2.000", [1, 2]),
    ("double precision", [0.1, 0.1 + 0.2, 0.3], "0.1", "0.30000000000000004", [1, 3]),
    ("text", ["", "a'; --", "é", "😀"], "", "😀", [1, 2, 3]),
    ("uuid", [f"{NIL}{n}" for n in range(3)], f"{NIL}0", f"{NIL}2", [1, 2]),
    ("date", [date(2026, 1, 1), date(2026, 1, 2), date(1, 1, 1)], "2026-01-01", "2026-01-02", [1]),
    ("timestamp", [NAIVE + n * MICRO for n in range(3)], f"{NAIVE}", f"{NAIVE + 2 * MICRO}", [1, 2]),
    (
        "timestamptz",
        [STAMP + n * MICRO for n in range(3)],
        f"{NAIVE + timedelta(hours=1)}+01",
        f"{NAIVE + 2 * MICRO}+00",
        [1, 2],
    ),
]


@pytest.mark.parametrize(("kind", "values", "low", "high", "found"), EXACT)
def test_values_are_compared_exactly_in_postgresql(
    shop: Database, kind: str, values: list[Any], low: str, high: str, found: list[int]
) -> None:
    orders(shop, values, kind)
    for keys in [("id",), ()]:
        window = shop.window(low, high, key_columns=keys, column_type=kind.partition("(")[0])
        assert sorted(ids(window, 1)) == found
        rows = {row["id"]: row["v"] for row in read(window)}
        assert all(str(rows[i]) == str(values[i - 1]) or rows[i] == values[i - 1] for i in found)


@pytest.mark.parametrize("kind", ["timestamptz", "timestamp", "date"])
def test_infinity_is_read_as_the_latest_there_is(shop: Database, kind: str) -> None:
    shop.run(f"CREATE TABLE orders (id integer PRIMARY KEY, v {kind}, until {kind})")
    shop.run(
        "INSERT INTO orders VALUES (1, '-infinity', 'infinity'), (2, '2026-01-01', 'infinity'), (3, 'infinity', NULL)"
    )
    window = shop.window(None, "infinity", column_type=kind)
    assert [(row["id"], row["until"].year) for row in read(window, 1)] == [(1, 9999), (2, 9999)]
    assert read(window)[0]["v"].year == 1
    assert ids(shop.window("-infinity", "infinity", bounds="(]", column_type=kind), 1) == [2, 3]
    assert ids(shop.window(None, "2026-01-02", column_type=kind), upper="now") == [1, 2]


def test_integers_reals_and_text_in_sqlite(lite: Database) -> None:
    orders(lite, [-(2**63), 0, 2**63 - 1], "bigint")
    assert ids(lite.window("-9223372036854775808", "9223372036854775807", column_type="BIGINT"), 1) == [1, 2]
    lite.run("DROP TABLE orders")
    orders(lite, ["2026-11-29 10:00:00", "2026-11-29 10:00:00.5", "2026-11-30 10:00:00"], "timestamp")
    stamps = lite.window("2026-11-29 10:00:00", "2026-11-30 10:00:00", column_type="TIMESTAMP")
    assert ids(stamps, 1) == [1, 2]


def test_updated_rows_are_in_the_later_window_and_deleted_ones_nowhere(database: Database) -> None:
    orders(database, [1, 2, 3, 4])
    first, second = database.window("1", "5"), database.window("5", "9")
    database.run("UPDATE orders SET v = 6 WHERE id = 2")
    database.run("DELETE FROM orders WHERE id = 3")
    assert ids(first) == [1, 4]
    assert ids(second) == [2]


def test_a_row_that_is_updated_all_the_time_is_read_by_the_last_window(database: Database) -> None:
    orders(database, list(range(1, 9)))
    window, hot = database.window("1", "9"), 9

    def read_and_update(upper: Any) -> list[int]:
        nonlocal hot
        found = []
        for rows in window.rows(chunksize=2, upper=upper):
            found += [row["id"] for row in rows]
            hot += 1
            if hot % 10 < 8:
                database.run(f"UPDATE orders SET v = {hot} WHERE id = 5")
        return found

    assert 5 not in read_and_update("window")
    assert 5 in read_and_update("now")
    earlier = database.window("1", "9", is_last=False)
    assert 5 not in ids(earlier, upper="now")


def test_no_transaction_stays_open_between_two_pages(shop: Database) -> None:
    orders(shop, [1, 2, 3, 4])
    pages = shop.window("1", "9").rows(chunksize=2)
    next(pages)
    shop.run("SET lock_timeout = '2s'")
    shop.run("ALTER TABLE orders ADD COLUMN late integer")
    assert [row["id"] for row in next(pages)] == [3, 4]


END = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"


def test_a_connection_that_was_lost_between_two_pages_is_opened_again(shop: Database) -> None:
    orders(shop, [1, 2, 3, 4])
    pages = shop.window("1", "9").rows(chunksize=2)
    next(pages)
    assert shop.run(END) == [(True,)]
    assert [row["id"] for row in next(pages)] == [3, 4]


def test_it_cannot_write(database: Database) -> None:
    orders(database, [1])
    if database.conn_id == "shop":
        database.run("CREATE FUNCTION drop_all() RETURNS integer LANGUAGE sql AS 'DELETE FROM orders RETURNING id'")
        with pytest.raises(Exception, match="read-only"):
            ids(database.window("0", "9", where="drop_all() = 1"))
    assert database.run("SELECT count(*) FROM orders") == [(1,)]


@pytest.mark.parametrize("size", [0, -1])
def test_a_chunk_has_at_least_one_row(database: Database, size: int) -> None:
    orders(database, [1])
    with pytest.raises(InboxError, match=f"chunksize={size}"):
        next(database.window("0", "9").rows(chunksize=size))


def test_the_cursor_of_the_connection_does_not_matter(shop: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    orders(shop, [1, 2, 3])
    known = json.loads(os.environ["AIRFLOW_CONN_SHOP"])
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", json.dumps({**known, "extra": {"cursor": "dictcursor"}}))
    for keys in [("id",), ()]:
        assert ids(shop.window("1", "9", key_columns=keys)) == [1, 2, 3]


@pytest.mark.parametrize("keys", [("id",), ()])
def test_a_large_window_takes_the_memory_of_a_page(shop: Database, keys: tuple[str, ...]) -> None:
    shop.run("CREATE UNLOGGED TABLE orders (id integer, v integer, t text)")
    shop.run("INSERT INTO orders SELECT n, n / 100, repeat('x', 100) FROM generate_series(1, 300000) n")
    shop.run("CREATE UNIQUE INDEX ON orders (v, id)")
    window, process = shop.window("0", "9999", key_columns=keys), psutil.Process()
    next(window.split(9)[0].rows(chunksize=5000))  # whatever is loaded or allocated once
    count, before = 0, process.memory_info().rss
    top = before
    for rows in window.rows(chunksize=5000):
        count += len(rows)
        top = max(top, process.memory_info().rss)
    assert count == 300_000
    assert top - before < 20e6  # all of it is some 120 MB


def test_a_page_is_a_range_of_the_index(shop: Database) -> None:
    shop.run("CREATE UNLOGGED TABLE orders (id integer, v timestamptz)")
    shop.run("INSERT INTO orders SELECT n, to_timestamp(n / 10) FROM generate_series(1, 50000) n")
    shop.run("CREATE UNIQUE INDEX ON orders (v, id); ANALYZE orders")
    window = shop.window("1970-01-01 00:10:00+00", "1970-01-01 01:00:00+00", column_type="timestamptz")
    made = WindowStatements.of(window.relation, "postgresql", "%s", window.column_type)
    page = made.page(window.span(), Place("1970-01-01 00:20:00+00", ("12005",)), 100)
    plan = "\n".join(line for (line,) in shop.connection.execute("EXPLAIN " + page.text, page.parameters))
    assert re.search(r"Index Cond: .*ROW\(v, id\) > ROW\(", plan), plan
    assert "Sort" not in plan
    assert "Filter" not in plan


# predicate -----------------------------------------------------------------------------------------------------------


def test_a_predicate_loads_a_window_by_sql(database: Database) -> None:
    orders(database, [1, 2, 3, 4, 5])
    database.run("CREATE TABLE copy (id integer PRIMARY KEY, v integer)")
    hook: Any = cast(Any, BaseHook.get_connection(database.conn_id)).get_hook()
    for window in [database.window("2", "4", where="id <> 99"), database.window("2", "6", where="id % 2 = 1")]:
        for alias in ("o", None):
            p = window.predicate(alias)
            source = f"orders {alias or ''}"
            hook.run(
                f"INSERT INTO copy SELECT * FROM {source} WHERE {p.sql} ON CONFLICT (id) DO NOTHING",
                parameters=p.parameters,
            )
    assert database.run("SELECT id FROM copy ORDER BY id") == [(2,), (3,), (5,)]
    last = database.window("2", "3").predicate("o", upper="now")
    hook.run(f"INSERT INTO copy SELECT * FROM orders o WHERE {last.sql} AND id = 4", parameters=last.parameters)
    assert database.run("SELECT count(*) FROM copy") == [(4,)]


def test_a_statement_may_have_parameters_of_its_own(shop: Database) -> None:
    orders(shop, [1, 2, 3, 4, 5])
    p = shop.window("2", "5").predicate()
    hook: Any = cast(Any, BaseHook.get_connection("shop")).get_hook()
    parameters = {**cast("dict[str, Any]", p.parameters), "most": 3}
    assert hook.get_records(f"SELECT id FROM orders WHERE {p.sql} AND id <= %(most)s", parameters) == [(2,), (3,)]


# split ---------------------------------------------------------------------------------------------------------------


def tiles(window: SqlWindow, parts: list[SqlWindow]) -> bool:
    """Whether the parts follow each other without a hole and end where the whole does."""
    assert (parts[0].low, parts[0].bounds[0]) == (window.low, window.bounds[0])
    assert (parts[-1].high, parts[-1].bounds[1]) == (window.high, window.bounds[1])
    inner = [(one.high, one.bounds[1], two.low, two.bounds[0]) for one, two in pairwise(parts)]
    return all(high == low and (end, start) == (")", "[") for high, end, low, start in inner)


@pytest.mark.parametrize("bounds", ["[)", "(]"])
@pytest.mark.parametrize(
    ("values", "n", "sizes"),
    [
        (list(range(1, 13)), 4, [3, 3, 3, 3]),
        (list(range(1, 13)), 1, [12]),
        ([5, 5, 5, 5, 5, 5], 3, [6]),
        ([1, 5, 5, 5, 5, 5, 5, 9], 4, [1, 7]),
        ([1, 2], 9, [1, 1]),
        ([], 4, [0]),
    ],
)
def test_a_split_tiles_a_window(database: Database, values: list[int], n: int, sizes: list[int], bounds: str) -> None:
    orders(database, values)
    window = database.window("0", "99", bounds=bounds)
    parts = window.split(n)
    assert tiles(window, parts)
    assert [len(read(part)) for part in parts] == sizes
    assert [i for part in parts for i in ids(part)] == ids(window)
    assert [part.is_last for part in parts] == [False] * (len(parts) - 1) + [True]


def test_equal_numbers_of_different_text_stay_together(shop: Database) -> None:
    orders(shop, ["1.0", "1.00", "1.000", "2", "2.0"], "numeric")
    parts = shop.window(None, None, column_type="numeric").split(5)
    assert [ids(part) for part in parts] == [[1, 2, 3], [4, 5]]


@pytest.mark.parametrize("n", [0, -3])
def test_a_split_has_at_least_one_part(database: Database, n: int) -> None:
    with pytest.raises(InboxError, match=f"split\\({n}\\)"):
        database.window("0", "9").split(n)


# frames --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("df_type", ["pandas", "polars", "arrow"])
@pytest.mark.parametrize("keys", [("id",), ()])
def test_rows_as_frames(database: Database, df_type: Any, keys: tuple[str, ...]) -> None:
    database.run("CREATE TABLE orders (id integer, v integer, t text)")
    database.insert("orders", [(1, 1, None), (2, 2, "é"), (3, 3, None)])
    frames = list(database.window("1", "9", key_columns=keys).frames(chunksize=2, df_type=df_type))
    assert [len(frame) for frame in frames] == [2, 1]
    names = frames[0].column_names if df_type == "arrow" else list(frames[0].columns)
    assert names == ["id", "v", "t"]
    if df_type == "polars":
        assert frames[0].rows() == [(1, 1, None), (2, 2, "é")]


@pytest.mark.parametrize("df_type", ["pandas", "polars", "arrow"])
def test_frames_keep_what_only_a_late_row_has(shop: Database, df_type: Any) -> None:
    shop.run("CREATE TABLE orders (id integer, v integer, n integer, j jsonb)")
    shop.run(
        """INSERT INTO orders SELECT n, n, CASE WHEN n > 150 THEN n END, '{"a": 1}' FROM generate_series(1, 199) n"""
    )
    shop.run("""INSERT INTO orders VALUES (200, 200, 7, '{"b": 2}')""")
    (frame,) = shop.window("1", "999").frames(df_type=df_type)
    numbers, objects = (frame[name].to_pylist() if df_type == "arrow" else list(frame[name]) for name in ("n", "j"))
    assert (numbers[-1], objects[-1]["b"]) == (7, 2)


def test_a_missing_library_is_named(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(
        InboxError, match=r"needs polars, which is not installed where this task runs\. pip install polars"
    ):
        database.window("1", "9").frames(df_type="polars")
    with pytest.raises(InboxError, match="df_type='spark' is none of 'pandas', 'polars', 'arrow'"):
        database.window("1", "9").frames(df_type="spark")  # type: ignore[arg-type]
