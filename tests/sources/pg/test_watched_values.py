"""Values of a watermark column, exact from the table through the watcher to the consumer, whatever their type is."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from datetime import datetime
from shutil import which
from typing import Any

import pytest

from airflow_state_watchers.demo.postgres import PostgresServer
from tests.sources.pg.conftest import Define, Place, Watch
from tests.sources.pg.watched import Watched


async def made(watch: Watch, kind: str, values: list[Any], **arguments: Any) -> Watched:
    """Return a watcher of a table with these values in a column ``v``, whose ids are 1 to n."""
    watched = watch(watermark_column="v", table="t", **arguments)
    await watched.run(f"CREATE TABLE t (id serial PRIMARY KEY, v {kind} NOT NULL)")
    for value in values:
        await watched.run(f"INSERT INTO t (v) VALUES (%s::{kind})", [value])
    return watched


NIL = "00000000-0000-0000-0000-0000000000"
ORDERED: list[tuple[str, list[str]]] = [
    # In order; the last one comes after the others have been delivered.
    (
        "timestamptz",
        ["0001-01-01 00:00:00+00", "2020-02-29 12:00:00.000001+00", "2020-02-29 12:00:00.000002+00", "now"],
    ),
    ("timestamptz", ["-infinity", "0001-01-01 00:00:00+00", "2020-01-01 00:00:00+00", "now"]),
    ("timestamp", ["-infinity", "2020-02-29 12:00:00.000001", "2020-02-29 12:00:00.000002", "now"]),
    ("bigint", [str(-(2**63)), "-1", "0", "9", "10", str(2**63 - 1)]),
    ("smallint", ["-32768", "0", "32767"]),
    ("integer", [str(-(2**31)), "0", str(2**31 - 1)]),
    ("numeric(38,10)", ["-1e27", "0.0000000001", "0.0000000002", "9999999999999999999999999999.9999999999"]),
    ("numeric", ["-Infinity", "1.00", "1.01", "1e100", "Infinity"]),
    ("double precision", ["-Infinity", "0.1", "0.30000000000000004", "1e300", "Infinity"]),
    ("real", ["0.1", "0.2"]),
    ("text", ["", "B", "a", "a'; DROP TABLE t; --", "z", "\u00e4", "\U0001f600"]),
    ("varchar(5)", ["a", "a b", "b%s"]),
    ("char(3)", ["a", "ab", "b"]),
    ("uuid", [f"{NIL}0a", f"{NIL}0b", f"{NIL}ff"]),
    ("xid8", ["0", "9", "10", str(2**64 - 1)]),
    ("pg_lsn", ["0/0", "0/A", "1/0"]),
    ("bytea", ["\\x", "\\x00", "\\x0001", "\\xff"]),
    ("inet", ["9.0.0.1", "10.0.0.1", "10.0.0.2"]),
    ("interval", ["-1 days", "1 hour", "1 mon"]),
]


@pytest.mark.parametrize(("kind", "values"), ORDERED, ids=[f"{kind}-{n}" for n, (kind, _) in enumerate(ORDERED)])
@pytest.mark.parametrize("most", [None, 1])
async def test_values_of_a_type(watch: Watch, kind: str, values: list[str], most: int | None) -> None:
    """All are delivered once and in the database's order; one by one, too; and what comes after them is."""
    *old, newest = values
    watched = await made(watch, kind, old, max_rows_per_event=most)
    assert await watched.ids(5) == list(range(1, len(values)))
    assert watched.error == ""
    await watched.restart()
    await watched.run(f"INSERT INTO t (v) VALUES (%s::{kind})", [newest])
    assert await watched.ids(4) == [len(values)]
    assert watched.error == ""
    assert await watched.polls(2) == []


class Clock:
    """The database's time, as a test wants it."""

    def __init__(self, text: str) -> None:
        self.set(text)

    def set(self, text: str) -> None:
        self.now = datetime.fromisoformat(text)

    def __call__(self) -> datetime:
        return self.now


async def test_whole_seconds_are_rounded_and_not_lost(watch: Watch) -> None:
    """What is written at 0.4 s is stamped as of the second before, which has passed; settle is for that."""
    clock = Clock("2026-11-01 12:00:00.300000+00:00")
    watched = await made(watch, "timestamptz(0)", ["2026-11-01 11:00:00+00"], now=clock, settle=1)
    assert await watched.ids() == [1]
    for value in ("2026-11-01 12:00:00.4+00", "2026-11-01 12:00:00.6+00"):
        await watched.run("INSERT INTO t (v) VALUES (%s)", [value])
    clock.set("2026-11-01 12:00:01.700000+00:00")
    assert await watched.ids() == [2]
    clock.set("2026-11-01 12:00:03+00:00")
    assert await watched.ids() == [3]
    assert await watched.polls(3) == []


async def test_the_hour_that_clocks_show_twice(watch: Watch) -> None:
    """In Berlin 02:00 to 03:00 came twice on 25 October 2026: none of its rows is passed while its time may come again."""
    clock = Clock("2026-10-24 23:30:00+00:00")
    watched = await made(watch, "timestamp", ["2026-10-25 01:00"], now=clock, timezone="Europe/Berlin")
    assert await watched.ids() == [1]
    await watched.run("INSERT INTO t (v) VALUES ('2026-10-25 02:30:00.000001')")  # summer's, at 00:30 UTC
    clock.set("2026-10-25 00:45:00+00:00")
    early = await watched.ids()
    await watched.restart()
    await watched.run("INSERT INTO t (v) VALUES ('2026-10-25 02:15')")  # winter's, at 01:15 UTC
    clock.set("2026-10-25 01:20:00+00:00")
    early += await watched.ids()
    clock.set("2026-10-25 02:00:01+00:00")
    assert sorted(early + await watched.ids()) == [2, 3]
    assert await watched.polls(3) == []


async def test_the_hour_that_clocks_leave_out(watch: Watch) -> None:
    """On 29 March 2026 Berlin's clocks went from 02:00 to 03:00 at 01:00 UTC; applications wrote 02:30 all the same."""
    clock = Clock("2026-03-29 00:30:00+00:00")
    watched = await made(watch, "timestamp", ["2026-03-29 01:10"], now=clock, timezone="Europe/Berlin")
    assert await watched.ids() == [1]
    for value in ("2026-03-29 01:59:59.999999", "2026-03-29 02:30", "2026-03-29 03:00"):
        await watched.run("INSERT INTO t (v) VALUES (%s)", [value])
    clock.set("2026-03-29 01:00:00+00:00")
    first = await watched.ids()
    clock.set("2026-03-29 01:00:00.000001+00:00")
    assert first + await watched.ids() == [2, 3, 4]
    assert await watched.polls(3) == []


async def test_a_naive_column_without_a_zone_is_told(watch: Watch) -> None:
    watched = await made(watch, "timestamp", [])
    await watched.poll()
    assert "v has no time zone, and is taken for UTC. Declare timezone=..." in watched.note
    declared = watch(watermark_column="v", table="t", timezone="UTC", name="declared")
    await declared.poll()
    assert declared.health["state"] == "ok"
    assert "zone" not in declared.note


async def test_the_rows_of_a_day_come_when_it_is_over(watch: Watch) -> None:
    """A row that is written later on the same day has the same date, so no row of today is passed; none comes twice."""
    clock = Clock("2026-11-10 22:30:00+00:00")  # 23:30 in Berlin
    watched = await made(watch, "date", ["2026-11-09", "2026-11-10"], now=clock, timezone="Europe/Berlin")
    assert await watched.ids() == [1]
    await watched.restart()
    await watched.run("INSERT INTO t (v) VALUES ('2026-11-10')")
    assert await watched.ids() == []
    clock.set("2026-11-10 23:00:00+00:00")
    assert await watched.ids() == [2, 3]
    await watched.restart()
    assert await watched.polls(3) == []
    await watched.run("INSERT INTO t (v) VALUES ('2026-11-11')")
    assert await watched.ids() == []
    clock.set("2026-11-12 23:00:00+00:00")
    assert await watched.ids() == [4]


@pytest.mark.parametrize("kind", ["timestamptz", "timestamp", "date"])
async def test_rows_of_the_future_are_held_back_counted_and_delivered_when_due(watch: Watch, kind: str) -> None:
    clock = Clock("2026-11-10 12:00:00+00:00")
    values = ["2026-11-01", "2099-01-01", "2099-01-02", "infinity"]
    watched = await made(watch, kind, values, now=clock, timezone=None if kind == "timestamptz" else "UTC")
    assert await watched.ids() == [1]
    assert "3 rows are dated after the database's now" in watched.note
    await watched.run("INSERT INTO t (v) VALUES ('2026-11-12')")
    clock.set("2026-11-14 12:00:00+00:00")
    assert await watched.ids() == [5]
    clock.set("2099-01-02 12:00:00+00:00")
    assert await watched.ids() == ([2] if kind == "date" else [2, 3])
    clock.set("2099-01-03 12:00:00+00:00")
    assert await watched.ids() == ([3] if kind == "date" else [])
    assert "1 row is dated after" in watched.note
    assert watched.watermark["value"] < "2099-01-04"


HOSTILE = 'Order "x" %s; --'


@pytest.mark.parametrize("payload", ["window", "rows"])
async def test_hostile_names(watch: Watch, payload: str) -> None:
    quoted = HOSTILE.replace('"', '""')
    watched = watch(table=[HOSTILE], watermark_column="updatedAt", key_columns=["Group"], payload=payload)
    await watched.run(
        f'CREATE TABLE "{quoted}" ("Group" int, "updatedAt" timestamptz NOT NULL DEFAULT now(), "100%" text)'
    )
    await watched.run(f'INSERT INTO "{quoted}" VALUES (1), (2)')
    events = await watched.polls()
    assert [row["Group"] for row in await watched.read(chunksize=1)] == [1, 2]
    assert [len(event["items"]) for event in events] == ([2] if payload == "rows" else [0])
    assert watched.error == ""


PLACES: dict[str, tuple[list[str], dict[str, Any]]] = {
    "a view": (["CREATE VIEW v AS SELECT id, updated_at FROM orders WHERE id > 0"], {"table": "v"}),
    "a partitioned table": (
        [
            "CREATE TABLE p (id int, updated_at timestamptz NOT NULL) PARTITION BY RANGE (updated_at)",
            "CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (MINVALUE) TO ('2026-02-01')",
            "CREATE TABLE p2 PARTITION OF p FOR VALUES FROM ('2026-02-01') TO (MAXVALUE)",
            "INSERT INTO p SELECT * FROM orders",
        ],
        {"table": "p"},
    ),
    "another schema": (
        ["CREATE SCHEMA other", "GRANT USAGE ON SCHEMA other TO PUBLIC", "CREATE TABLE other.o AS SELECT * FROM orders"],
        {"table": "other.o"},
    ),
    "dots in names": (
        [
            'CREATE SCHEMA "weird.schema"',
            'GRANT USAGE ON SCHEMA "weird.schema" TO PUBLIC',
            'CREATE TABLE "weird.schema"."t.x" AS SELECT * FROM orders',
        ],
        {"table": ("weird.schema", "t.x")},
    ),
    "an expression": (
        [],
        {
            "sql": "SELECT id, greatest(updated_at, '2026-01-01') AS changed FROM orders -- the later one",
            "watermark_column": "changed",
        },
    ),
    "an expression of whole numbers": (
        [],
        {"sql": "SELECT id, id * 10::bigint AS n FROM orders;", "watermark_column": "n", "where": "id < 100"},
    ),
    "a temporary order of types": (
        ["CREATE TYPE state AS ENUM ('new', 'fixed', 'closed')", "CREATE TABLE e (id int, s state NOT NULL)",
         "INSERT INTO e VALUES (1, 'new'), (2, 'fixed'), (3, 'closed')"],
        {"table": "e", "watermark_column": "s"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", PLACES)
async def test_what_may_be_watched_beside_plain_tables(watch: Watch, what: str) -> None:
    statements, arguments = PLACES[what]
    watched = watch(**arguments)
    await watched.run("INSERT INTO orders VALUES (1, '2026-01-02 00:00'), (2, '2026-01-03 00:00'), (3, '2026-03-03')")
    for statement in statements:
        await watched.run(statement)
    assert await watched.ids(5) == [1, 2, 3]
    assert watched.error == ""
    await watched.restart()
    assert await watched.polls(3) == []


@pytest.mark.parametrize("kind", ["json", "point"])
async def test_a_type_that_has_no_order_is_said(watch: Watch, kind: str) -> None:
    watched = await made(watch, kind, ['"a"' if kind == "json" else "(1,2)"])
    assert await watched.polls() == []
    assert watched.error.startswith("SourceError: t: the database does not take the statement")
    assert f"{kind}" in watched.error


@pytest.fixture(scope="module")
def german(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """A server that has the collation of a language, in which neither bytes nor Python say what comes first."""
    if which("localedef") is None:
        pytest.skip("no localedef to make a collation with")
    place = tmp_path_factory.mktemp("locales")
    done = subprocess.run(["localedef", "-i", "de_DE", "-f", "UTF-8", place / "de_DE.utf8"], capture_output=True)
    if done.returncode or not (place / "de_DE.utf8").exists():
        pytest.skip("no sources of locales")
    for folder in (place, *place.parents):
        if folder.stat().st_mode & 0o001 == 0:
            folder.chmod(0o711)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCPATH", str(place))
        with PostgresServer() as server:
            yield server


@pytest.mark.parametrize("whose", ["column", "database"])
async def test_text_stands_in_the_order_of_its_collation(german: PostgresServer, define: Define, whose: str) -> None:
    """Of the column where it has its own, else of the database; also where two bare values are compared, without a row."""
    name = f"german_{whose}"
    async with await Place(german, "postgres").connect("postgres") as connection:
        locale = "de_DE.utf8" if whose == "database" else "C"
        await connection.execute(f"CREATE DATABASE {name} TEMPLATE template0 LOCALE '{locale}'".encode())
    conn_id = define(name, host=str(german.directory), login="postgres", schema=name)
    watched = Watched(_Superuser(german, name), conn_id, watermark_column="v", table="t", max_rows_per_event=2)
    try:
        await watched.run("CREATE COLLATION german (locale = 'de_DE.utf8')")
        collation = "german" if whose == "column" else '"default"'
        await watched.run(f"CREATE TABLE t (id int PRIMARY KEY, v text COLLATE {collation} NOT NULL)")
        # Bytes would say: B, Z, a, z, \u00e4.
        await watched.run(
            "INSERT INTO t VALUES (1, 'a'), (2, '\u00e4'), (3, 'B'), (4, 'B'), (5, 'B'), (6, 'z'), (7, 'Z')"
        )
        assert await watched.ids(5) == [1, 2, 3, 4, 5, 6, 7]
        before = watched.watermark
        await watched.run(
            "DELETE FROM t WHERE id > 2"
        )  # what is left has greater bytes, and stands before the watermark
        watched.clock.advance(3700)  # a frontier is stored once an hour
        assert await watched.polls(4) == []
        assert watched.watermark == before
        assert watched.root.get("frontier", before) == before
        assert "the greatest value is \u00e4, and the watermark Z" in watched.note
        await watched.run("INSERT INTO t VALUES (8, 'Zz')")
        assert await watched.ids(4) == [8]
    finally:
        await watched.aclose()


class _Superuser(Place):
    async def connect(self, user: str = "postgres") -> Any:
        return await super().connect("postgres")
