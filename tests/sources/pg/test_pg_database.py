"""A database as a watcher asks it: few connections, each used again; errors that say what is wrong; nothing left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any

import psycopg
import pytest

from airflow_state_watchers.demo.postgres import PostgresServer, _binaries
from airflow_state_watchers.exceptions import SourceError, SourceUnavailable
from airflow_state_watchers.sources import pg_horizon, pg_pool
from airflow_state_watchers.sources.pg_pool import PgPool, PgPools
from airflow_state_watchers.sources.pg_session import read_only
from airflow_state_watchers.sources.sql_statements import Query
from tests.sources.pg.conftest import PASSWORD, ROLES, SETTINGS, Define, MakeDatabase, Place


def query(sql: str, parameters: dict[str, Any] | None = None) -> Query:
    return Query(sql, parameters or {})


ONE = query("SELECT 1")
WHO = query("SELECT pg_backend_pid()")


async def wait_for(place: Place, sql: str) -> None:
    """Wait until a query of the database's superuser finds something."""
    async with await place.connect("postgres") as connection:
        while not await (await connection.execute(sql.encode())).fetchall():  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.005)


async def wait_until_gone(place: Place) -> None:
    while await place.sessions():  # noqa: ASYNC110 - another process
        await asyncio.sleep(0.005)


async def wait_until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - nothing tells when
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("role", ROLES)
async def test_the_clock_and_the_rows(place: Place, make: MakeDatabase, role: str) -> None:
    database = make(role)
    opened, note = await database.openness()
    assert opened.exact
    assert opened.transactions == ()
    assert (note is not None) == (role == "watcher_plain")
    async with await place.connect() as writer:
        await writer.execute("INSERT INTO orders VALUES (7)")
    text = "SELECT id, updated_at::text > %(now)s FROM orders WHERE id = %(id)s"
    assert await database.run(query(text, {"now": opened.now.isoformat(" "), "id": 7})) == [(7, True)]


async def test_mode_clock_does_not_look(place: Place, make: MakeDatabase) -> None:
    async with await place.connect() as writer:
        await writer.execute("BEGIN")
        opened, note = await make(mode="clock").openness()
    assert not opened.exact
    assert opened.transactions == ()
    assert note is None


async def test_a_read_can_change_nothing_and_leaves_no_setting_behind(place: Place, make: MakeDatabase) -> None:
    database = make("watcher_super", connections=1)
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        await database.run(query("INSERT INTO orders VALUES (1)"))
    assert await database.run(query("SHOW timezone")) == [("UTC",)]
    pool = database._leased()
    async with pool.connection(5) as connection:
        cursor = await connection.execute("SHOW statement_timeout")
        assert await cursor.fetchall() == [("0",)]
    assert await place.sessions() == 1


async def test_a_hundred_watchers_use_four_connections(place: Place, make: MakeDatabase) -> None:
    databases = [make(connections=4) for _ in range(100)]
    most = 0

    async def watch() -> None:
        nonlocal most
        while True:
            most = max(most, await place.sessions())

    watching = asyncio.create_task(watch())
    for _ in range(2):
        await asyncio.gather(*(each.openness() for each in databases))
        await asyncio.gather(*(each.run(query("SELECT pg_sleep(0.01)")) for each in databases))
    watching.cancel()
    assert 1 < most <= 4
    for each in databases:
        await each.aclose()
    await wait_until_gone(place)
    assert PgPools.here()._pools == {}


async def test_watchers_of_one_process_do_not_hold_each_other_up(place: Place, make: MakeDatabase) -> None:
    reader, looker = make(), make()
    reading = asyncio.create_task(reader.run(query("SELECT pg_sleep(60)")))
    await wait_for(place, "SELECT 1 FROM pg_stat_activity WHERE query LIKE '%pg_sleep(60)' AND pid <> pg_backend_pid()")
    opened, _ = await looker.openness()
    assert opened.transactions == ()
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading


@pytest.mark.parametrize("moment", ["waiting", "connecting", "reading"])
async def test_a_cancelled_poll_leaves_nothing_broken(place: Place, make: MakeDatabase, moment: str) -> None:
    database = make(connections=1)
    if moment == "waiting":
        async with database._leased().connection(5):
            task = asyncio.create_task(database.run(ONE))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
    else:
        task = asyncio.create_task(database.run(query("SELECT pg_sleep(60)")))
        if moment == "reading":
            await wait_for(
                place, "SELECT 1 FROM pg_stat_activity WHERE query LIKE '%pg_sleep(60)' AND pid <> pg_backend_pid()"
            )
        else:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await wait_until_gone(place)
    assert await database.run(ONE) == [(1,)]
    assert database._leased().reading == {}


async def test_cancelled_at_every_step(place: Place, make: MakeDatabase) -> None:
    """However far a poll has come: the one connection there may be is free again, and clean."""
    database = make(connections=1)
    await database.run(ONE)
    for steps in range(40):
        task = asyncio.create_task(database.openness())
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert await database.run(ONE) == [(1,)]
        assert database._leased().reading == {}
    assert await place.sessions() == 1


async def test_a_session_that_the_server_ended_is_replaced(place: Place, make: MakeDatabase) -> None:
    database = make()
    ((pid,),) = await database.run(WHO)
    async with await place.connect("postgres") as admin:
        await admin.execute("SELECT pg_terminate_backend(%s, 10000)", [pid])
    ((other,),) = await database.run(WHO)
    assert other != pid


async def test_errors_of_the_server_keep_the_connection(place: Place, make: MakeDatabase) -> None:
    database = make("watcher_plain", timeout=0.4)
    ((pid,),) = await database.run(WHO)
    with pytest.raises(psycopg.errors.QueryCanceled, match="statement timeout"):
        await database.run(query("SELECT pg_sleep(60)"))
    with pytest.raises(psycopg.errors.UndefinedTable):
        await database.run(query("SELECT * FROM nowhere"))
    async with await place.connect() as writer:
        await writer.execute("REVOKE SELECT ON orders FROM PUBLIC")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            await database.run(query("SELECT * FROM orders"))
        await writer.execute("GRANT SELECT ON orders TO PUBLIC")
        await writer.execute("BEGIN")
        await writer.execute("LOCK TABLE orders")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            await database.run(query("SELECT * FROM orders"))
    assert await database.run(WHO) == [(pid,)]


async def test_all_connections_in_use(make: MakeDatabase) -> None:
    database = make(connections=1, timeout=0.05)
    async with database._leased().connection(5):
        with pytest.raises(SourceUnavailable, match="all 1 connections were in use"):
            await database.run(ONE)
    assert await make(connections=1).run(ONE) == [(1,)]


async def test_unused_connections_are_closed(place: Place) -> None:
    async def connect() -> tuple[Any, str]:
        return await place.connect("watcher_stats"), "here"

    pool = PgPool(connect, 4, keep=0.05)
    async with pool.connection(5) as first, pool.connection(5) as second:
        pass
    async with pool.connection(5) as again:
        assert again is first
    await wait_until(lambda: first.closed and second.closed)
    await pool.aclose()


async def test_old_connections_are_replaced(place: Place, make: MakeDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    database = make()
    ((pid,),) = await database.run(WHO)
    assert await database.run(WHO) == [(pid,)]
    monkeypatch.setattr(pg_pool, "LIFE", 0.0)
    assert await database.run(WHO) != [(pid,)]


async def test_a_password_that_was_corrected(
    place: Place, define: Define, make: MakeDatabase, guarded: str, caplog: pytest.LogCaptureFixture
) -> None:
    fields = {"host": str(place.server.directory), "login": guarded, "schema": place.name}
    database = make(conn_id=define("shop_guarded", password="wr0ng-secret", **fields))
    caplog.set_level("DEBUG")
    for _ in range(2):
        with pytest.raises(psycopg.OperationalError, match="password authentication failed") as failed:
            await database.openness()
        assert "wr0ng-secret" not in f"{failed.value}{failed.value!r}{failed.value.__context__!r}"
    define("shop_guarded", password=PASSWORD, **fields)
    assert (await database.openness())[0].exact
    pool = database._leased()
    assert "wr0ng-secret" not in caplog.text + repr(vars(pool))
    assert PASSWORD not in caplog.text + repr(vars(pool))


async def test_one_failure_is_told_to_all_who_wait(define: Define) -> None:
    tries = 0

    async def connect() -> tuple[Any, str]:
        nonlocal tries
        tries += 1
        await asyncio.sleep(0.01)
        raise psycopg.OperationalError("refused")

    pool = PgPool(connect, 4)

    async def use() -> None:
        async with pool.connection(5):
            pass

    failures = await asyncio.gather(*(use() for _ in range(100)), return_exceptions=True)
    assert {type(each) for each in failures} == {psycopg.OperationalError}
    assert tries == 4
    with pytest.raises(psycopg.OperationalError):
        await use()
    assert tries == 5


async def test_nobody_listens(define: Define, make: MakeDatabase) -> None:
    database = make(conn_id=define("shop_refused", host="127.0.0.1", port=1, login="me", password="s3cret"))
    with pytest.raises(psycopg.OperationalError, match="refused") as failed:
        await database.run(ONE)
    assert "s3cret" not in str(failed.value)


async def test_nobody_answers(define: Define, make: MakeDatabase) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as listener:
        port = listener.sockets[0].getsockname()[1]
        database = make(conn_id=define("shop_silent", host="127.0.0.1", port=port, login="me"), timeout=0.2)
        with pytest.raises(SourceUnavailable, match="shop_silent: no connection within"):
            await database.run(ONE)


async def test_the_server_is_restarted(define: Define, make: MakeDatabase) -> None:
    with PostgresServer() as server:
        database = make(
            conn_id=define("shop_restarted", host=str(server.directory), login="postgres", schema="postgres")
        )
        await database.openness()
        reading = asyncio.create_task(database.run(query("SELECT pg_sleep(60)")))
        await wait_for(Place(server, "postgres"), "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep'")
        await asyncio.to_thread(server.stop)
        with pytest.raises(psycopg.OperationalError):
            await reading
        with pytest.raises(psycopg.OperationalError):
            await database.openness()
        await asyncio.to_thread(server.start)
        assert (await database.openness())[0].exact
        assert await database.run(ONE) == [(1,)]
        # In the middle of a poll: the look was at the server of before.
        await asyncio.to_thread(server.stop)
        await asyncio.to_thread(server.start)
        with pytest.raises(SourceUnavailable, match="not the one whose transactions"):
            await database.run(ONE)
        await database.openness()
        assert await database.run(ONE) == [(1,)]
        await database.aclose()


@pytest.fixture(scope="module")
def standby(server: PostgresServer) -> Iterator[PostgresServer]:
    standby = PostgresServer(SETTINGS)
    basebackup = _binaries(server.directory, server._owner) / "pg_basebackup"
    standby._run(
        basebackup, "-h", server.directory, "-U", "postgres", "-D", standby._data, "-R", "-c", "fast", "--no-sync"
    )
    with standby:
        yield standby


async def test_a_standby_has_no_exact_horizon(standby: PostgresServer, define: Define, make: MakeDatabase) -> None:
    conn_id = define("shop_standby", host=str(standby.directory), login="watcher_stats", schema="postgres")
    opened, note = await make(conn_id=conn_id).openness()
    assert not opened.exact
    assert note
    assert "standby" in note
    with pytest.raises(SourceError, match="standby"):
        await make(conn_id=conn_id, mode="transactions").openness()
    assert not (await make(conn_id=conn_id, mode="clock").openness())[0].exact


async def test_a_standby_does_not_read_for_its_primary(
    place: Place, standby: PostgresServer, define: Define, make: MakeDatabase
) -> None:
    """A connection may lead to several servers: what one said does not count for another."""
    fields = {"login": "watcher_stats", "schema": "postgres"}
    database = make(conn_id=define("shop_two", host=str(place.server.directory), **fields))
    await database.openness()
    ((pid,),) = await database.run(WHO)
    async with await place.connect("postgres") as admin:
        await admin.execute("SELECT pg_terminate_backend(%s, 10000)", [pid])
    define("shop_two", host=str(standby.directory), **fields)
    with pytest.raises(SourceUnavailable, match="not the one whose transactions"):
        await database.run(ONE)


async def test_a_connection_that_was_changed_is_not_mixed(place: Place, define: Define, make: MakeDatabase) -> None:
    """As soon as one connection is to another place, those to the place of before are closed."""
    fields = {"host": str(place.server.directory), "schema": place.name}
    database = make(conn_id=define("shop_changed", login="watcher_stats", **fields), connections=2)
    async with database._leased().connection(5) as old:
        define("shop_changed", login="watcher_plain", **fields)
        assert await database.run(query("SELECT current_user::text")) == [("watcher_plain",)]
    assert old.closed


@pytest.mark.parametrize("role", ROLES)
async def test_what_a_look_costs(
    place: Place, make: MakeDatabase, role: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Printed, not asserted: the time of the look as a watcher sees it, and the database's for its statements."""
    others = [await place.connect() for _ in range(50)]
    for each in others[:10]:
        await each.execute("BEGIN")
    database = make(role)
    await database.openness()
    begun = perf_counter()
    for _ in range(100):
        await database.openness()
    whole = (perf_counter() - begun) / 100
    spent = {}
    async with database._leased().connection(5) as connection, read_only(connection, 30) as session:
        for name in ("ACTIVITY", "VIRTUAL", "PREPARED"):
            text = f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {getattr(pg_horizon, name)}"
            plans = [(await session.fetch(text))[0][0][0] for _ in range(20)]
            spent[name] = min(each["Planning Time"] + each["Execution Time"] for each in plans)
    for each in others:
        await each.close()
    with capsys.disabled():
        parts = ", ".join(f"{name} {milliseconds:.2f} ms" for name, milliseconds in spent.items())
        print(f"\n{role}: look {whole * 1000:.2f} ms; planned and run by the database: {parts}")
