"""The whole watcher on a real MariaDB, through Airflow's MySQL hook: values, times, names, plans."""

from __future__ import annotations

import json
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from airflow_state_watchers import SqlWindow
from airflow_state_watchers.sources.sql_hook import HookDatabase
from airflow_state_watchers.sources.sql_statements import Query
from system_tests.sql_servers.shop import Shop, Watched, ids, read

HOSTILE = 'Order "x" %s; -- `y`'
QUOTED = "`" + HOSTILE.replace("`", "``") + "`"
NOON = datetime.fromisoformat("2026-03-01 12:00:00.123456")
MICRO = timedelta(microseconds=1)
TYPES: list[tuple[str, str, list[Any]]] = [
    ("datetime(6)", "datetime", [datetime.fromisoformat("1000-01-01"), NOON - MICRO, NOON, NOON + MICRO]),
    ("datetime", "datetime", [datetime.fromisoformat("2026-03-01 11:00:00"), datetime.fromisoformat("2026-03-01 12:00:00")]),
    ("timestamp(6) NULL", "timestamp", [datetime.fromisoformat("1970-01-01 03:00:00"), NOON - MICRO, NOON, NOON + MICRO]),
    ("date", "date", [date(1000, 1, 1), date(2026, 2, 28), date(2026, 3, 1)]),
    ("bigint", "bigint", [-(2**63), -1, 0, 2**63 - 1]),
    ("bigint unsigned", "bigint unsigned", [0, 2**53 + 1, 2**63, 2**63 + 1, 2**64 - 1]),
    ("decimal(38,10)", "decimal", [Decimal("-9e27"), Decimal("1.0000000001"), Decimal("1.0000000002"), Decimal("9e27")]),
    ("double", "double", [-1.5, 0.1, 0.1 + 0.2, 1e300]),
    ("varchar(40)", "varchar", ["", "a'; -- %s", "é", "😀"]),
    ("varchar(40) CHARACTER SET latin1 COLLATE latin1_german2_ci", "varchar", ["a", "ä", "b"]),
    ("char(36)", "char", ["0b1c", "7f%d"]),
]  # fmt: skip

WITHOUT_CLOCK = ("bigint", "bigint unsigned", "decimal", "double", "varchar", "char")


@pytest.mark.parametrize(("kind", "type_name", "values"), TYPES, ids=[kind for kind, _, _ in TYPES])
def test_each_value_is_delivered_once_and_exactly(shop: Shop, kind: str, type_name: str, values: list[Any]) -> None:
    shop.orders(kind, *values)
    watched = Watched()
    windows = watched.windows()
    shop.run("SET SESSION time_zone = '+00:00'")
    assert [row["w"] for row in read(windows, 1)] == [row[0] for row in shop.run("SELECT w FROM orders ORDER BY id")]
    assert {window.column_type for window in windows} == {type_name}
    assert watched.windows() == []


@pytest.mark.parametrize(("kind", "values"), [(kind, values) for kind, name, values in TYPES if name in WITHOUT_CLOCK])
def test_a_greater_value_is_delivered_alone(shop: Shop, kind: str, values: list[Any]) -> None:
    shop.orders(kind, *values[:-1])
    watched = Watched()
    assert ids(watched.windows()) == list(range(1, len(values)))
    shop.insert(values[-1])
    assert ids(watched.windows()) == [len(values)]
    assert watched.windows() == []


def test_a_window_ends_between_neighbours(shop: Shop) -> None:
    for kind, _, values in TYPES:
        shop.run("DROP TABLE IF EXISTS orders")
        shop.orders(kind, *values)
        windows = Watched(max_rows_per_event=1).windows()
        assert [ids([window]) for window in windows] == [[number] for number in range(1, len(values) + 1)], kind


def test_a_case_insensitive_collation_orders_as_the_database_does(shop: Shop) -> None:
    shop.orders("varchar(20) COLLATE utf8mb4_general_ci", "B", "a", "b", "A", "c")
    watched = Watched(max_rows_per_event=1)
    assert [sorted(ids([window])) for window in watched.windows()] == [[2, 4], [1, 3], [5]]
    shop.insert("C", "D")
    assert [sorted(ids([window])) for window in watched.windows()] == [[7]]  # "C" is no greater than what was read
    shop.run("ALTER TABLE orders MODIFY w varchar(20) COLLATE utf8mb4_bin")
    shop.run("DELETE FROM orders")
    shop.insert("B", "a", "b", "A", "c")
    assert [ids([window]) for window in Watched(max_rows_per_event=1).windows()] == [[4], [1], [2], [3], [5]]


def test_ties_are_never_cut(shop: Shop) -> None:
    shop.orders("datetime(6)", NOON, *[NOON + MICRO] * 5, NOON + 2 * MICRO)
    windows = Watched(max_rows_per_event=2).windows()
    assert [ids([window], 1) for window in windows] == [[1], [2, 3, 4, 5, 6], [7]]
    assert [window.count for window in windows] == [1, 5, 1]


def test_times_are_those_of_utc_whatever_the_servers_zone_is(shop: Shop) -> None:
    assert shop.run("SELECT @@global.time_zone") == [("+02:00",)]
    shop.orders("timestamp(6) NULL")
    watched = Watched()
    assert watched.windows() == []
    shop.run("INSERT INTO orders VALUES (1, now(6))")
    event = watched.until_event()
    assert ids([SqlWindow.from_payload(event)]) == [1]
    ((stamp,),) = shop.run("SELECT convert_tz(w, '+02:00', '+00:00') FROM orders")
    assert datetime.fromisoformat(event["low"]) <= stamp < datetime.fromisoformat(event["high"])


def test_a_naive_column_is_read_in_the_zone_that_was_declared(shop: Shop) -> None:
    shop.orders("datetime(6) NOT NULL")
    right, wrong = Watched(timezone="Etc/GMT-2"), Watched(timezone="Etc/GMT+3")
    assert right.windows() == wrong.windows() == []
    shop.run("INSERT INTO orders VALUES (1, now(6))")
    assert ids([SqlWindow.from_payload(right.until_event())]) == [1]
    assert wrong.windows() == []
    assert wrong.health()["note"] == "1 row is dated after the database's now; it is read when its time has come"


def test_rows_of_today_wait_for_tomorrow_where_there_are_only_dates(shop: Shop) -> None:
    shop.orders("date NOT NULL")
    shop.run(
        "INSERT INTO orders VALUES (1, utc_date() - INTERVAL 1 DAY), (2, utc_date()), (3, utc_date() + INTERVAL 2 DAY)"
    )
    assert ids(Watched().windows()) == [1]


def test_a_late_commit_inside_the_lookback_is_read_again(shop: Shop) -> None:
    shop.orders("timestamp(6) NULL")
    watched = Watched(lookback=600)
    assert watched.windows() == []
    late = shop.connect(autocommit=False)
    late.cursor().execute("INSERT INTO orders VALUES (1, now(6))")
    shop.run("INSERT INTO orders VALUES (2, now(6))")
    event = watched.until_event()
    assert (event["reread"], ids([SqlWindow.from_payload(event)])) == (False, [2])
    late.commit()
    event = watched.until_event()
    assert (event["reread"], ids([SqlWindow.from_payload(event)])) == (True, [1, 2])
    assert watched.windows() == []


def test_a_late_commit_of_a_number_is_read_again(shop: Shop) -> None:
    shop.orders("bigint")
    watched = Watched(lookback=600)
    assert watched.windows() == []
    late = shop.connect(autocommit=False)
    late.cursor().execute("INSERT INTO orders VALUES (1, 1)")
    shop.run("INSERT INTO orders VALUES (2, 2)")
    assert ids([SqlWindow.from_payload(watched.until_event())]) == [2]
    late.commit()
    event = watched.until_event()
    assert event["reread"]
    assert ids([SqlWindow.from_payload(event)]) == [1, 2]


def test_a_start_at_the_latest_skips_what_exists(shop: Shop) -> None:
    shop.orders("timestamp(6) NULL", NOON)
    watched = Watched(start="latest", lookback=600)
    assert watched.windows() == []
    shop.run("INSERT INTO orders VALUES (2, now(6))")
    assert ids([SqlWindow.from_payload(watched.until_event())]) == [2]


def test_nulls_are_left_out_or_said(shop: Shop) -> None:
    shop.orders("datetime(6)", None, NOON)
    assert ids(Watched().windows()) == [2]
    watched = Watched(nulls="raise")
    assert watched.poll() == []
    assert (watched.error() or "").startswith('orders: w is NULL in some rows, and nulls="raise"')


def test_what_is_amiss_is_said_with_its_remedy(shop: Shop) -> None:
    shop.run("CREATE TABLE orders (id int PRIMARY KEY, w datetime(6))")
    shop.run("INSERT INTO orders SELECT seq, '2026-03-01' + INTERVAL seq SECOND FROM seq_1_to_10001")
    watched = Watched()
    watched.windows()
    assert watched.health()["note"].split("; ") == [
        "orders: w has no time zone, and is taken for UTC. Declare timezone=..., or rows may be late or missed",
        'orders: w may be NULL, and such rows are never delivered. Declare it NOT NULL, or say nulls="raise" to be told',
        "orders: polling by w reads the whole table (type ALL). Create an index on (w, id)",
    ]
    shop.run("ALTER TABLE orders MODIFY w datetime(6) NOT NULL, ADD INDEX (w, id)")
    watched = Watched(timezone="UTC")
    watched.windows()
    assert watched.health()["note"] is None


def test_hostile_names(shop: Shop) -> None:
    shop.run(
        f"CREATE TABLE {QUOTED} "
        "(`Group` int PRIMARY KEY, `updatedAt` datetime(6) NOT NULL, `100%:x` varchar(20), KEY (`updatedAt`))"
    )
    shop.run(f"INSERT INTO {QUOTED} VALUES (1, '2026-03-01', 'a%s'), (2, '2026-03-02', 'b'), (3, '2026-03-03', 'c:d')")
    watched = Watched(
        table=[HOSTILE],
        watermark_column="updatedAt",
        key_columns=["Group"],
        where="`100%:x` LIKE '%' AND 7 % 4 = 3 AND `100%:x` <> 'c:d' -- %s",
        lookback=600,
    )
    windows = watched.windows()
    stamps = [datetime.fromisoformat("2026-03-01"), datetime.fromisoformat("2026-03-02")]
    expected = [
        {"Group": 1, "updatedAt": stamps[0], "100%:x": "a%s"},
        {"Group": 2, "updatedAt": stamps[1], "100%:x": "b"},
    ]
    assert read(windows, 1) == expected
    assert [row["Group"] for part in windows[0].split(2) for row in read([part])] == [1, 2]
    assert windows[0].table == (HOSTILE,)


def test_a_query_is_watched(shop: Shop) -> None:
    shop.orders("datetime(6) NOT NULL", NOON, NOON + MICRO, NOON + 2 * MICRO)
    sql = "SELECT id, w AS changed, 'a%sb' AS text FROM orders WHERE id % 2 = 1 -- %s `"
    windows = Watched(table=None, sql=sql, watermark_column="changed").windows()
    assert read(windows) == [{"id": i, "changed": NOON + (i - 1) * MICRO, "text": "a%sb"} for i in (1, 3)]


def test_small_windows_carry_their_rows(shop: Shop) -> None:
    shop.orders("bigint unsigned", more="d decimal(38,10), t datetime(6), b varbinary(4), j json,")
    shop.run("INSERT INTO orders VALUES (1, %s, 1.5, %s, %s, %s)", 2**64 - 1, NOON, b"\x00\xff", '{"a": 1}')
    event = Watched(payload="rows").until_event()
    assert event["kind"] == "sql_rows"
    row = {"id": 1, "w": str(2**64 - 1), "d": "1.5000000000", "t": NOON.isoformat(), "b": "00ff", "j": '{"a": 1}'}
    assert json.loads(json.dumps(event["items"])) == [row]
    event = Watched(payload="rows", columns=["t"]).until_event()
    assert event["items"] == [{"t": NOON.isoformat()}]


def test_a_poll_reads_a_range_of_the_index(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every statement of a poll that reads the table, with new rows and without, by the server's own plan."""
    asked: list[Query] = []
    run = HookDatabase.run

    async def noted(database: HookDatabase, query: Query) -> list[tuple[Any, ...]]:
        asked.append(query)
        return await run(database, query)

    monkeypatch.setattr(HookDatabase, "run", noted)
    for kind, step in (
        ("timestamp(6) NOT NULL", "now(6) - INTERVAL 9 DAY + INTERVAL seq SECOND"),
        ("bigint NOT NULL", "seq"),
    ):
        shop.run("DROP TABLE IF EXISTS orders")
        shop.orders(kind, more="t char(40) DEFAULT 'x',")
        shop.run(f"INSERT INTO orders (id, w) SELECT seq, {step} FROM seq_1_to_20000")
        shop.run("ANALYZE TABLE orders")
        watched = Watched(start="latest", max_rows_per_event=10)
        watched.windows()
        asked.clear()
        watched.windows()
        shop.run("INSERT INTO orders (id, w) SELECT 20000 + seq, w FROM seq_1_to_20, (SELECT now(6) AS w) AS n" if step != "seq"
                 else "INSERT INTO orders (id, w) SELECT 20000 + seq, 20000 + seq FROM seq_1_to_20")  # fmt: skip
        assert sum(window.count for window in watched.windows()) == 20
        queries = [query for query in asked if "FROM `orders`" in query.text]
        assert len(queries) > 4
        for query in queries:
            assert _read_at_most(shop, query) <= 200, query.text
            for table, kind, extra in _plan(shop, query):
                assert table != "orders" or (kind in ("range", "index") and "filesort" not in extra), query.text


def _plan(shop: Shop, query: Query) -> list[tuple[str, str, str]]:
    """Return for each table of the server's plan how it is read: its name, the kind of look, and what comes with it."""
    with shop.connection.cursor() as cursor:
        cursor.execute("SET SESSION time_zone = '+00:00'")
        cursor.execute(f"EXPLAIN {query.text}", query.parameters)
        assert cursor.description
        names = [column[0] for column in cursor.description]
        rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    return [(str(row["table"]), str(row["type"]), str(row["Extra"])) for row in rows]


def _read_at_most(shop: Shop, query: Query) -> int:
    """Return how many rows the server really touched to answer."""
    with shop.connection.cursor() as cursor:
        cursor.execute("FLUSH STATUS")
        cursor.execute(query.text, query.parameters)
        cursor.fetchall()
        cursor.execute("SHOW SESSION STATUS LIKE 'Handler_read%'")
        return sum(int(value) for _, value in cursor.fetchall())
