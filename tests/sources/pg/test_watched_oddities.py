"""What is odd about a table, its values, or what goes on beside it: no row is lost for it, or it is said."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from airflow_state_watchers import InboxError
from airflow_state_watchers.tasks.windows import SqlWindow
from tests.sources.pg.conftest import Define, Place
from tests.sources.pg.test_watched_starts import Watched, table


async def run(place: Place, *statements: str) -> None:
    async with await place.connect() as connection:
        for statement in statements:
            await connection.execute(statement.encode())


async def polled(watched: Watched, times: int = 3) -> list[int]:
    return [number for _ in range(times) for number in await watched.ids()]


async def window_of(watched: Watched) -> SqlWindow:
    (event,) = await watched.harness.poll()
    return SqlWindow.from_payload(event)


async def test_rows_of_a_foreign_table_whose_transaction_is_open_elsewhere(place: Place, define: Define) -> None:
    host = place.server.directory
    async with await Place(place.server, "postgres").connect() as connection:
        await connection.execute(f"CREATE DATABASE far_{place.name}".encode())
    far = Place(place.server, f"far_{place.name}")
    await table(far, "timestamptz")
    await run(
        place,
        "CREATE EXTENSION postgres_fdw",
        f"CREATE SERVER far FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '{host}', dbname '{far.name}')",
        "CREATE USER MAPPING FOR PUBLIC SERVER far OPTIONS (user 'writer')",
        "CREATE FOREIGN TABLE t (id int, w timestamptz NOT NULL) SERVER far",
    )
    watched = Watched(place, define, start="earliest", settle=1, lookback=60)
    async with await far.connect() as writer:
        await writer.execute("BEGIN")
        await writer.execute("INSERT INTO t (w) VALUES (now())")
        await run(far, "INSERT INTO t (w) VALUES (now())")
        await asyncio.sleep(1.2)
        assert await polled(watched) == [2]
        await writer.execute("COMMIT")
    assert await polled(watched, 1) == [1, 2]  # by lookback, as on any other database
    assert "foreign table" in (await watched.health())["note"]
    watched = Watched(place, define, start="earliest", horizon="transactions")
    assert "foreign table" in await watched.error()


async def test_a_materialized_view_that_is_refreshed(place: Place, define: Define) -> None:
    await run(
        place,
        "CREATE TABLE base (id serial PRIMARY KEY, w timestamptz NOT NULL DEFAULT now())",
        "CREATE MATERIALIZED VIEW t AS SELECT * FROM base",
    )
    watched = Watched(place, define, start="earliest", settle=1, lookback=60)
    await run(place, "INSERT INTO base DEFAULT VALUES")
    await asyncio.sleep(1.2)
    assert await polled(watched) == []
    await run(place, "REFRESH MATERIALIZED VIEW t")
    assert await polled(watched) == [1]
    note = (await watched.health())["note"]
    assert "materialized view" in note
    assert "NOT NULL" not in note


async def test_a_sequence_whose_values_a_session_keeps_for_later(place: Place, define: Define) -> None:
    await run(
        place,
        "CREATE SEQUENCE s CACHE 20",
        "CREATE TABLE t (id serial PRIMARY KEY, w bigint NOT NULL DEFAULT nextval('s'))",
    )
    watched = Watched(place, define, start="earliest", settle=0)
    note = (await watched.health())["note"]
    assert "CACHE 20" in note
    assert "lookback" in note


@pytest.mark.parametrize("column", ["w bigint NOT NULL DEFAULT nextval('s')", "w bigint GENERATED ALWAYS AS IDENTITY"])
async def test_a_sequence_that_keeps_none_is_no_matter(place: Place, define: Define, column: str) -> None:
    await run(place, "CREATE SEQUENCE s", f"CREATE TABLE t (id serial PRIMARY KEY, {column})")
    assert (await Watched(place, define, start="earliest").health())["note"] is None


@pytest.mark.parametrize("type_name", ["numeric", "double precision", "real"])
async def test_one_nan_keeps_all_later_rows_away(place: Place, define: Define, type_name: str) -> None:
    await table(place, type_name, "1", "NaN")
    watched = Watched(place, define, start="earliest", settle=0)
    assert await polled(watched, 4) == [1]
    await run(place, "INSERT INTO t (w) VALUES (3)")
    assert await polled(watched, 4) == [3]
    assert (await watched.health())["events"] == 2  # and no window of nothing for it


async def test_a_domain_over_a_time_is_a_time(place: Place, define: Define) -> None:
    await run(place, "CREATE DOMAIN changed AS timestamptz")
    await table(place, "changed", "2026-01-01", "2099-01-01")
    watched = Watched(place, define, start="earliest", settle=0)
    found = await polled(watched, 4)
    await run(place, "INSERT INTO t (w) VALUES (now())")
    found += await polled(watched, 4)
    assert found == [1, 3]


@pytest.mark.parametrize("max_hold", [None, 0.5])
async def test_start_at_the_latest_while_a_transaction_is_open_that_is_not_waited_for(
    place: Place, define: Define, max_hold: float | None
) -> None:
    await table(place, "timestamptz")
    watched = Watched(place, define, max_hold=max_hold, settle=0)
    async with await place.connect() as writer:
        await writer.execute("BEGIN")
        await writer.execute("INSERT INTO t (w) VALUES (now())")
        await asyncio.sleep(1)
        assert await polled(watched) == []
        await writer.execute("COMMIT")
    assert await polled(watched) == [1]


@pytest.mark.parametrize("zone", ["<-03>+03", "UTC+3"])
async def test_a_database_whose_time_zone_python_does_not_know(place: Place, define: Define, zone: str) -> None:
    await table(place, "timestamp", "2026-01-01")
    await run(place, f"ALTER DATABASE {place.name} SET timezone = '{zone}'")
    watched = Watched(place, define, start="earliest")
    assert "timezone=" in await watched.error()


@pytest.mark.parametrize(
    ("type_name", "value"),
    [
        ("json", "'\"\\ud83d\"'"),
        ("jsonb", "(repeat('[', 600) || repeat(']', 600))::jsonb"),
    ],
)
async def test_a_value_in_a_column_beside(place: Place, define: Define, type_name: str, value: str) -> None:
    await table(place, "timestamptz", "2026-01-01")
    await run(place, f"ALTER TABLE t ADD x {type_name} DEFAULT {value}")
    watched = Watched(place, define, start="earliest")
    events = await watched.harness.poll()
    assert [event["count"] for event in events] == [1], await watched.error()


@pytest.mark.parametrize(
    ("df_type", "type_name", "value"),
    [
        ("polars", "numeric", "'NaN'"),
        ("arrow", "numeric", "'NaN'"),
        ("arrow", "inet", "'10.0.0.1'"),
        ("arrow", "int4range", "'[1,2)'"),
    ],
)
async def test_rows_that_make_no_frame(place: Place, define: Define, df_type: Any, type_name: str, value: str) -> None:
    await table(place, "timestamptz", "2026-01-01", "2026-01-02")
    await run(place, f"ALTER TABLE t ADD x {type_name} DEFAULT {value}")
    window = await window_of(Watched(place, define, start="earliest", payload="window"))
    with pytest.raises(InboxError, match=f"{df_type} frame") as caught:
        await asyncio.to_thread(lambda: list(window.frames(df_type=df_type)))
    assert "rows()" in str(caught.value)


@pytest.mark.parametrize("type_name", ["uuid", "boolean", "jsonb"])
async def test_a_window_is_split_by_any_type(place: Place, define: Define, type_name: str) -> None:
    await table(place, type_name)
    value = {
        "uuid": "gen_random_uuid()",
        "boolean": "n > 5",
        "jsonb": "to_jsonb(n)",
    }[type_name]
    await run(place, f"INSERT INTO t (w) SELECT {value} FROM generate_series(1, 10) n")
    watched = Watched(place, define, start="earliest", settle=0, payload="window")
    events = [event for _ in range(4) for event in await watched.harness.poll()]
    (window,) = [SqlWindow.from_payload(event) for event in events]
    parts = await asyncio.to_thread(lambda: window.split(2))
    read = await asyncio.to_thread(lambda: [row["id"] for part in parts for rows in part.rows() for row in rows])
    assert sorted(read) == list(range(1, 11))


@pytest.mark.parametrize(("type_name", "a", "b"), [("numeric", "1.0", "1.00"), ("float8", "0", "-0")])
async def test_keys_that_are_equal_with_other_texts_do_not_tell_rows_apart(
    place: Place, define: Define, type_name: str, a: str, b: str
) -> None:
    await run(
        place,
        f"CREATE TABLE t (id serial, w timestamptz NOT NULL, k {type_name} NOT NULL)",
        f"INSERT INTO t (w, k) VALUES ('2026-01-01', '{a}'), ('2026-01-01', '{b}')",
    )
    window = await window_of(Watched(place, define, start="earliest", payload="window", key_columns=["k"]))
    with pytest.raises(InboxError, match="do not tell all rows apart"):
        await asyncio.to_thread(lambda: list(window.rows(chunksize=1)))


async def test_the_predicates_of_two_windows_in_one_statement(place: Place, define: Define) -> None:
    await table(place, "timestamptz", "2026-01-01", "2026-01-02", "2026-01-03", "2026-01-04")
    watched = Watched(place, define, start="earliest", payload="window", max_rows_per_event=1)
    first, second, *_ = [SqlWindow.from_payload(event) for event in await watched.harness.poll()]
    one, two = await asyncio.to_thread(lambda: (first.predicate(), second.predicate()))
    assert isinstance(one.parameters, dict)
    assert isinstance(two.parameters, dict)
    assert not set(one.parameters) & set(two.parameters)


async def test_an_alias_as_it_stands_in_the_text(place: Place, define: Define) -> None:
    await table(place, "timestamptz", "2026-01-01")
    window = await window_of(Watched(place, define, start="earliest", payload="window"))
    for alias in ("public.t", '"t"'):
        predicate = await asyncio.to_thread(window.predicate, alias)
        async with await place.connect() as connection:
            cursor = await connection.execute(
                f"SELECT count(*) FROM public.t WHERE {predicate.sql}".encode(),
                predicate.parameters,
            )
            assert await cursor.fetchone() == (1,)


@pytest.mark.parametrize("is_changed", [False, True])
async def test_what_was_passed_is_read_again_after_a_condition_was_changed(
    place: Place, define: Define, is_changed: bool
) -> None:
    await table(place, "timestamptz")
    arguments: dict[str, Any] = {"max_hold": 0.5, "settle": 0, "start": "earliest", "on_source_change": "keep"}
    watched = Watched(place, define, where="id > 0", **arguments)
    async with await place.connect() as writer:
        await writer.execute("BEGIN")
        await writer.execute("INSERT INTO t (w) VALUES (now())")
        await asyncio.sleep(0.8)
        await run(place, "INSERT INTO t (w) VALUES (now())")
        await asyncio.sleep(0.1)
        assert await polled(watched) == [2]
        trigger = Watched(place, define, where="id > -1" if is_changed else "id > 0", **arguments).harness
        trigger.store.set("state_watchers:t/w", watched.harness.store.get("state_watchers:t/w"))
        found = [row["id"] for _ in range(2) for event in await trigger.poll() for row in event["items"]]
        await writer.execute("COMMIT")
    found += [row["id"] for _ in range(3) for event in await trigger.poll() for row in event["items"]]
    assert 1 in found
