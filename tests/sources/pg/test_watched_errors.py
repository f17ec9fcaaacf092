"""What goes wrong between a watcher and its table: each is said, moves no watermark, and passes by itself when it is mended."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from airflow_state_watchers.demo.postgres import PostgresServer
from airflow_state_watchers.sources.sql import SqlTableSource
from airflow_state_watchers.sources.sql_statements import Query
from tests.sources.pg.conftest import PASSWORD, Define, Place, Watch
from tests.sources.pg.watched import Watched

CANARY = "wr0ng-secret"


async def begun(watched: Watched) -> Watched:
    """Let one row be delivered, and write the next."""
    await watched.run("INSERT INTO orders VALUES (1)")
    assert await watched.ids() == [1]
    await watched.run("INSERT INTO orders VALUES (2)")
    return watched


async def failing(watched: Watched, expected: str) -> None:
    """Poll twice; see that it is said what is wrong, and that nothing else happens."""
    before = watched.watermark
    assert await watched.polls(2) == []
    assert expected in watched.error
    assert watched.health["state"] == "failing"
    assert watched.health["consecutive_failures"] == 2
    assert watched.watermark == before


async def mended(watched: Watched) -> None:
    assert await watched.ids() == [2]
    assert watched.error == ""
    assert watched.health["state"] == "ok"


IN_PLACE = {
    "missing table": (
        "ALTER TABLE orders RENAME TO gone",
        "ALTER TABLE gone RENAME TO orders",
        "SourceMissing: orders: there is no such table (connection 'shop_watcher_stats', SQLSTATE 42P01)",
    ),
    "missing column": (
        "ALTER TABLE orders RENAME updated_at TO gone",
        "ALTER TABLE orders RENAME gone TO updated_at",
        "SourceMissing: orders: there is no such column: \"updated_at\" (connection 'shop_watcher_stats', SQLSTATE 42703)",
    ),
    "permission denied": (
        "REVOKE SELECT ON orders FROM PUBLIC",
        "GRANT SELECT ON orders TO PUBLIC",
        "SourceDenied: orders: reading is denied (connection 'shop_watcher_stats', SQLSTATE 42501). Grant SELECT",
    ),
    "timestamptz to timestamp": (
        "ALTER TABLE orders ALTER updated_at TYPE timestamp",
        "ALTER TABLE orders ALTER updated_at TYPE timestamptz",
        "CheckpointError: orders watched: the watermark was stored for a column of type timestamp with time zone, and it is "
        "timestamp without time zone now",
    ),
    "timestamptz to text": (
        "ALTER TABLE orders ALTER updated_at DROP DEFAULT, ALTER updated_at TYPE text",
        "ALTER TABLE orders ALTER updated_at TYPE timestamptz USING updated_at::timestamptz",
        "and it is text now",
    ),
}


@pytest.mark.parametrize("what", IN_PLACE)
@pytest.mark.parametrize("restarted", [False, True])
async def test_what_is_done_to_the_table(
    watch: Watch, what: str, restarted: bool, caplog: pytest.LogCaptureFixture
) -> None:
    harm, mend, expected = IN_PLACE[what]
    watched = await begun(watch())
    await watched.run(harm)
    if restarted:
        await watched.restart()
    await failing(watched, expected)
    assert any(
        expected.partition(": ")[2][-30:] in record.getMessage()
        for record in caplog.records
        if record.levelname == "ERROR"
    )
    await watched.run(mend)
    await mended(watched)


@pytest.mark.parametrize(
    ("old", "new", "is_same"),
    [
        ("int", "bigint", True),
        ("smallint", "int", True),
        ("varchar(9)", "text", False),
        ("bigint", "text", False),
        ("bigint", "numeric", False),
    ],
)
async def test_a_number_that_becomes_wider_goes_on_and_any_other_type_is_said(
    watch: Watch, old: str, new: str, is_same: bool
) -> None:
    watched = watch(table="t", watermark_column="id")
    await watched.run(f"CREATE TABLE t (id {old} PRIMARY KEY)")
    await watched.run("INSERT INTO t VALUES (9), (10)")
    assert sorted(map(int, await watched.ids(4))) == [9, 10]
    await watched.run(f"ALTER TABLE t ALTER id TYPE {new}")
    more = 2**40 if old == "int" else 99
    await watched.run("INSERT INTO t VALUES (%s)", [str(more)])
    if is_same:
        assert await watched.ids(4) == [more]
        await watched.restart()
        assert await watched.polls() == []
        assert watched.error == ""
        assert watched.harness.events[-1]["column_type"] == {"int": "integer"}.get(new, new)
        return
    assert await watched.polls(2) == []
    assert "whose values may stand in another order. Nothing is delivered. Move the watermark by hand" in watched.error
    watched.harness.store.set("state_watchers:orders watched", {**watched.root, "watermark": "98"})
    await watched.restart()
    assert [int(number) for number in await watched.ids(4)] == [99]
    assert watched.error == ""


async def test_a_table_that_is_dropped_and_made_again(watch: Watch, place: Place) -> None:
    watched = await begun(watch())
    ((definition, data),) = await watched.run(
        "SELECT 'CREATE TABLE orders (id int PRIMARY KEY, updated_at timestamptz NOT NULL)', updated_at FROM orders WHERE id = 2"
    )
    await watched.run("DROP TABLE orders")
    await failing(watched, "there is no such table")
    await watched.run(definition)
    await watched.run("INSERT INTO orders VALUES (2, %s)", [data])
    await mended(watched)
    assert "made again" in watched.note


async def test_a_lock_that_somebody_holds(watch: Watch, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__STATE_WATCHERS__SOURCE_TIMEOUT", "0.3")
    watched = await begun(watch())
    async with await place.connect() as other:
        await other.execute("BEGIN")
        await other.execute("LOCK TABLE orders IN ACCESS EXCLUSIVE MODE")
        await failing(
            watched, "SourceUnavailable: orders: it is locked (connection 'shop_watcher_stats', SQLSTATE 55P03)"
        )
    await mended(watched)


SLOW = """CREATE FUNCTION slow() RETURNS boolean LANGUAGE plpgsql AS
'BEGIN IF EXISTS (SELECT FROM flags) THEN PERFORM pg_sleep(60); END IF; RETURN true; END'"""


async def slowed(watched: Watched) -> Watched:
    """Of a watcher with ``where="slow()"``: make a poll never end."""
    await watched.run("CREATE TABLE flags (is_slow int)")
    await watched.run(SLOW)
    await begun(watched)
    await watched.run("INSERT INTO flags VALUES (1)")
    return watched


async def sleeping(watched: Watched) -> int:
    """Wait until the watcher's session is in the middle of a statement."""
    while True:
        found = await watched.run(
            "SELECT pid FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()"
        )
        if found:
            return int(found[0][0])
        await asyncio.sleep(0.005)


async def test_a_statement_that_takes_too_long(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__STATE_WATCHERS__SOURCE_TIMEOUT", "0.3")
    watched = await slowed(watch(where="slow()"))
    await failing(watched, "SourceUnavailable: orders: the statement took too long (connection 'shop_watcher_stats'")
    await watched.run("DELETE FROM flags")
    await mended(watched)


async def test_a_session_that_is_ended_in_the_middle_of_a_poll(watch: Watch) -> None:
    watched = await slowed(watch(where="slow()"))
    before, polling = watched.watermark, asyncio.create_task(watched.poll())
    await watched.run("SELECT pg_terminate_backend(%s)", [await sleeping(watched)])
    assert await polling == []
    assert (
        "SourceUnavailable: orders: the connection was lost (connection 'shop_watcher_stats', SQLSTATE 57P01)"
        in watched.error
    )
    assert watched.watermark == before
    await watched.run("DELETE FROM flags")
    await mended(watched)


class Restarting(SqlTableSource):
    """The source of a watcher whose server is started again after some statement of the next poll."""

    server: PostgresServer
    after: int | None = None

    async def _run(self, query: Query) -> list[tuple[Any, ...]]:
        found = await super()._run(query)
        if self.after is not None:
            self.after -= 1
            if self.after < 0:
                self.after = None
                await asyncio.to_thread(self.server.stop)
                await asyncio.to_thread(self.server.start)
        return found


@pytest.fixture
def own(define: Define) -> Iterator[Place]:
    """A server of the test's own, to be stopped and started."""
    with PostgresServer() as server:
        with psycopg.connect(server.uri(), autocommit=True) as connection:
            connection.execute("CREATE ROLE writer LOGIN SUPERUSER")
            connection.execute(
                "CREATE TABLE orders (id int PRIMARY KEY, updated_at timestamptz NOT NULL DEFAULT now())"
            )
        yield Place(server, "postgres")


async def test_a_server_that_is_stopped_and_started_between_polls_and_within_them(own: Place, define: Define) -> None:
    conn_id = define("shop_own", host=str(own.server.directory), login="postgres", schema="postgres")
    watched = Watched(own, conn_id)
    source = Restarting(watched.trigger.relation, conn_id=conn_id)
    source.server = own.server
    watched.trigger.source = source
    try:
        await begun(watched)
        await asyncio.to_thread(own.server.stop)
        await failing(watched, "SourceUnavailable: orders: cannot connect (connection 'shop_own', OperationalError)")
        await asyncio.to_thread(own.server.start)
        await mended(watched)
        for number in range(3):
            await watched.run("INSERT INTO orders VALUES (%s)", [10 + number])
            source.after = number
            failed = await watched.poll() == []
            assert ("SourceUnavailable" in watched.error) == failed
            assert failed or number  # the first statement is never the last
            assert source.after is None
            found = await watched.ids()
            assert found == [10 + number]
            assert watched.error == ""
    finally:
        await watched.aclose()


async def test_a_wrong_password(
    watch: Watch, place: Place, define: Define, guarded: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    fields = {"host": str(place.server.directory), "login": guarded, "schema": place.name}
    watched = watch(conn_id=define("shop_guarded", password=PASSWORD, **fields))
    await begun(watched)
    define("shop_guarded", password=CANARY, **fields)
    await watched.restart()
    await failing(
        watched, "SourceDenied: orders: the login is not accepted (connection 'shop_guarded', OperationalError)"
    )
    define("shop_guarded", password=PASSWORD, **fields)
    await mended(watched)
    told = caplog.text + json.dumps(watched.harness.store.data) + repr(watched.harness.events)
    assert CANARY not in told
    assert PASSWORD not in told


async def test_a_database_that_is_renamed(watch: Watch, place: Place) -> None:
    watched = await begun(watch())
    async with await Place(place.server, "postgres").connect("postgres") as admin:
        await admin.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s", [place.name]
        )
        await admin.execute(f"ALTER DATABASE {place.name} RENAME TO elsewhere".encode())
        await failing(watched, "SourceMissing: orders: there is no such database")
        await admin.execute(f"ALTER DATABASE elsewhere RENAME TO {place.name}".encode())
    await mended(watched)


async def test_a_connection_that_is_removed_from_airflow(
    watch: Watch, monkeypatch: pytest.MonkeyPatch, place: Place, define: Define
) -> None:
    watched = await begun(watch())
    monkeypatch.delenv("AIRFLOW_CONN_SHOP_WATCHER_STATS")
    await watched.restart()
    await failing(watched, "SourceMissing: orders: Airflow has no connection 'shop_watcher_stats'")
    define("shop_watcher_stats", host=str(place.server.directory), login="watcher_stats", schema=place.name)
    await mended(watched)
