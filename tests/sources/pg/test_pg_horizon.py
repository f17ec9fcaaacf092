"""The four rules of the horizon: real sessions that lose a row when a rule is broken, and lose none when it is kept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import psycopg
import pytest

from airflow_state_watchers.sources import pg_horizon
from airflow_state_watchers.sources.pg_horizon import History, Look, Past, Reading
from airflow_state_watchers.sources.pg_session import Session, read_only
from tests.sources.pg.conftest import ROLES, Place

LookAt = Callable[[Session, History, Reading], Awaitable[Look]]
Happening = Callable[[], Awaitable[Any]]

BEGINNING = datetime(2000, 1, 1, tzinfo=timezone.utc)


class Interrupted(Session):
    """A session in which something happens between the statements about sessions and the one about prepared transactions."""

    def __init__(self, session: Session, happening: Happening) -> None:
        super().__init__(session._connection, session.server)
        self._happening: Happening | None = happening
        self._before: str | None = None

    async def fetch(self, text: str, parameters: Any = None) -> list[tuple[Any, ...]]:
        if self._happening and self._before and pg_horizon.PREPARED in (text, self._before):
            happening, self._happening = self._happening, None
            await happening()
        self._before = text
        return await super().fetch(text, parameters)


class Watcher:
    """The shortest watcher that trusts its horizon: it keeps no margin and looks at nothing twice."""

    def __init__(
        self, connection: psycopg.AsyncConnection[Any], look: LookAt, *, one_transaction: bool = False
    ) -> None:
        self.connection = connection
        self.look = look
        self.one_transaction = one_transaction
        self.history = History()
        self.low = BEGINNING
        self.seen: set[int] = set()
        self.note: str | None = None

    async def poll(self, *, first: Happening | None = None, amid: Happening | None = None) -> None:
        """Look and read. ``first`` happens when the look's transaction has begun, ``amid`` after its first statement."""
        if self.one_transaction:
            async with self._repeatable() as session:
                high = await self._horizon(session, first, amid)
                await self._read(session, high)
            return
        async with read_only(self.connection, 30) as session:
            high = await self._horizon(session, first, amid)
        async with read_only(self.connection, 30) as session:
            await self._read(session, high)

    @asynccontextmanager
    async def _repeatable(self) -> AsyncIterator[Session]:
        async with read_only(self.connection, 30) as session:
            server = session.server
        await self.connection.execute("BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        await self.connection.execute("SELECT 1")
        yield Session(self.connection, server)
        await self.connection.execute("COMMIT")

    async def _horizon(self, session: Session, first: Happening | None, amid: Happening | None) -> datetime:
        if first:
            await first()
        found = await self.look(Interrupted(session, amid) if amid else session, self.history, {})
        self.note = found.note
        since = [each.since for each in found.openness.transactions]
        return max(self.low, min([found.openness.now, *(self.low if each is None else each for each in since)]))

    async def _read(self, session: Session, high: datetime) -> None:
        rows = await session.fetch("SELECT id FROM orders WHERE updated_at >= %s AND updated_at < %s", [self.low, high])
        self.seen |= {number for (number,) in rows}
        self.low = high


async def kept(session: Session, history: History, reading: Reading) -> Look:
    return await pg_horizon.look(session, history, reading)


async def clock_read_afterwards(session: Session, history: History, reading: Reading) -> Look:
    found = await kept(session, history, reading)
    ((now,),) = await session.fetch(
        "SELECT to_char(timezone('UTC', clock_timestamp()), 'YYYY-MM-DD\"T\"HH24:MI:SS.US')"
    )
    openness = replace(found.openness, now=datetime.fromisoformat(now).replace(tzinfo=timezone.utc))
    return Look(openness)


async def prepared_ignored(session: Session, history: History, reading: Reading) -> Look:
    return _without(await kept(session, history, reading), "prepared")


async def prepared_first(session: Session, history: History, reading: Reading) -> Look:
    prepared = await session.fetch(pg_horizon.PREPARED)
    found = _without(await kept(session, history, reading), "prepared")
    held = (replace(found.openness.transactions[0], since=None),) if prepared else ()
    return Look(replace(found.openness, transactions=(*found.openness.transactions, *held)))


async def null_taken_for_none(session: Session, history: History, reading: Reading) -> Look:
    return _without(await kept(session, history, reading), "virtual")


async def time_of_the_look_itself(session: Session, history: History, reading: Reading) -> Look:
    """Give what is new in ``pg_locks`` the time of the look that first showed it."""
    before = set(history.last.virtual) if history.last else set()
    found = await kept(session, history, reading)
    if not before and history.last is None:
        return found
    now = found.openness.now
    late = [
        replace(each, since=now) if each.key.startswith("virtual") else each for each in found.openness.transactions
    ]
    return Look(replace(found.openness, transactions=tuple(late)))


async def first_look_trusted(session: Session, history: History, reading: Reading) -> Look:
    """Take what the first look shows for as young as the look."""
    if history.last is None:
        found = await kept(session, History(), reading)
        history.last = Past(session.server.started, found.openness.now, {}, {})
    return await kept(session, history, reading)


def _without(found: Look, kind: str) -> Look:
    rest = tuple(each for each in found.openness.transactions if not each.key.startswith(kind))
    return Look(replace(found.openness, transactions=rest))


@pytest.fixture
async def writer(place: Place) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    async with await place.connect() as connection:
        yield connection


@pytest.fixture(params=ROLES)
async def role(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@asynccontextmanager
async def watching(place: Place, role: str, look: LookAt, **arguments: Any) -> AsyncIterator[Watcher]:
    async with await place.connect(role) as connection:
        yield Watcher(connection, look, **arguments)


async def insert(connection: psycopg.AsyncConnection[Any], number: int = 1) -> None:
    await connection.execute("BEGIN")
    await connection.execute("INSERT INTO orders VALUES (%s)", [number])


Writer = psycopg.AsyncConnection[Any]


@pytest.mark.parametrize(("look", "seen"), [(kept, {1}), (clock_read_afterwards, set())])
async def test_a_transaction_that_begins_amid_the_look(
    place: Place, writer: Writer, role: str, look: LookAt, seen: set[int]
) -> None:
    """Rule 1: the time is taken before the sessions are looked at, however long that stalls."""
    async with watching(place, role, look) as watcher:
        await watcher.poll(amid=lambda: insert(writer))
        await writer.execute("COMMIT")
        await watcher.poll()
        assert watcher.seen == seen


@pytest.mark.parametrize(("one_transaction", "seen"), [(False, {1}), (True, set())])
async def test_a_transaction_that_ends_before_the_look(
    place: Place, writer: Writer, role: str, one_transaction: bool, seen: set[int]
) -> None:
    """Rule 1: the read's snapshot is younger than the look."""
    async with watching(place, role, kept, one_transaction=one_transaction) as watcher:
        await insert(writer)
        await watcher.poll(first=lambda: writer.execute("COMMIT"))
        await watcher.poll()
        assert watcher.seen == seen


@pytest.mark.parametrize(("look", "seen"), [(kept, {1}), (prepared_ignored, set())])
async def test_a_prepared_transaction(place: Place, writer: Writer, role: str, look: LookAt, seen: set[int]) -> None:
    """Rule 2: it is in no session and holds the horizon of before."""
    async with watching(place, role, look) as watcher:
        await watcher.poll()
        await insert(writer)
        await writer.execute(f"PREPARE TRANSACTION '{place.name}'".encode())
        await watcher.poll()
        await watcher.poll()
        await writer.execute(f"COMMIT PREPARED '{place.name}'".encode())
        await watcher.poll()
        assert watcher.seen == seen


@pytest.mark.parametrize(("look", "seen"), [(kept, {1}), (prepared_first, set())])
async def test_a_transaction_that_is_prepared_amid_the_look(
    place: Place, writer: Writer, role: str, look: LookAt, seen: set[int]
) -> None:
    """Rule 2: prepared transactions are looked for after the sessions."""
    async with watching(place, role, look) as watcher:
        await insert(writer)
        await watcher.poll(amid=lambda: writer.execute(f"PREPARE TRANSACTION '{place.name}'".encode()))
        await writer.execute(f"COMMIT PREPARED '{place.name}'".encode())
        await watcher.poll()
        assert watcher.seen == seen


@pytest.mark.parametrize(
    ("look", "role", "seen"),
    [
        *((kept, role, {1}) for role in ROLES),
        (null_taken_for_none, "watcher_stats", {1}),
        (null_taken_for_none, "watcher_plain", set()),
        (time_of_the_look_itself, "watcher_plain", set()),
        (first_look_trusted, "watcher_plain", {1}),
    ],
)
async def test_a_transaction_that_began_between_two_looks(
    place: Place, writer: Writer, look: LookAt, role: str, seen: set[int]
) -> None:
    """Rule 3: whoever is not told its time gives it that of the look before, and keeps to it."""
    async with watching(place, role, look) as watcher:
        await watcher.poll()
        await insert(writer)
        await watcher.poll()
        await watcher.poll()
        await writer.execute("COMMIT")
        await watcher.poll()
        assert watcher.seen == seen


@pytest.mark.parametrize(
    ("look", "role", "seen"),
    [*((kept, role, {1}) for role in ROLES), (first_look_trusted, "watcher_plain", set())],
)
async def test_a_transaction_that_was_open_at_the_first_look(
    place: Place, writer: Writer, look: LookAt, role: str, seen: set[int]
) -> None:
    """Rule 3: it may be of any age, so the watermark stays where it was stored."""
    async with watching(place, role, look) as watcher:
        await insert(writer)
        await watcher.poll()
        await watcher.poll()
        await writer.execute("COMMIT")
        await watcher.poll()
        assert watcher.seen == seen


async def test_a_session_that_stops_reporting_in_its_transaction(place: Place, writer: Writer, role: str) -> None:
    """Rule 3: a superuser can hide a session from everybody; the transaction is as old as it was."""
    async with watching(place, role, kept) as watcher:
        await watcher.poll()
        await insert(writer)
        await watcher.poll()
        await writer.execute("SET track_activities = off")
        await watcher.poll()
        await writer.execute("SET track_activities = on")
        await watcher.poll()
        await writer.execute("COMMIT")
        await watcher.poll()
        assert watcher.seen == {1}


async def test_a_session_that_loses_sight_of_others(place: Place, writer: Writer) -> None:
    """Rule 3: a time that was known once still counts after the privilege was taken away."""
    async with watching(place, "watcher_stats", kept) as watcher:
        await watcher.poll()
        await insert(writer)
        await watcher.poll()
        async with await place.connect("watcher_plain") as plain:
            watcher.connection = plain
            await watcher.poll()
            await writer.execute("COMMIT")
            await watcher.poll()
        assert watcher.seen == {1}


@pytest.mark.parametrize(
    ("role", "seen"), [("watcher_super", {1}), ("watcher_stats", {1}), ("watcher_plain", set())], ids=ROLES
)
async def test_several_transactions_in_one_message(place: Place, writer: Writer, role: str, seen: set[int]) -> None:
    """The second one's time is when the message came, before the first one's end. Whoever may see times sees that one.

    A limit of what others are told, who see only that the second one is new: they lose the row.
    """
    message = """BEGIN; SELECT pg_advisory_xact_lock(1); COMMIT;
                 BEGIN; INSERT INTO orders VALUES (1); SELECT pg_advisory_xact_lock(2); COMMIT"""
    async with watching(place, role, kept) as watcher, await place.connect() as gate:
        await watcher.poll()
        await gate.execute("SELECT pg_advisory_lock(1), pg_advisory_lock(2)")
        sending = asyncio.create_task(writer.execute(message.encode()))
        for lock in (1, 2):
            waiting = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND objid = %s AND NOT granted"
            while not await (await gate.execute(waiting, [lock])).fetchall():  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.005)
            await watcher.poll()
            await gate.execute("SELECT pg_advisory_unlock(%s)", [lock])
        await sending
        await watcher.poll()
        assert watcher.seen == seen


async def test_what_commits_nothing_does_not_hold(place: Place, role: str) -> None:
    """Rule 4: a session of replication is left out; so is another database."""
    uri = f"{place.server.uri(place.name, user='writer')}&replication=database"
    async with (
        watching(place, role, kept) as watcher,
        await psycopg.AsyncConnection.connect(uri, autocommit=True) as walsender,
        await Place(place.server, "postgres").connect() as elsewhere,
    ):
        await walsender.execute("BEGIN")
        await elsewhere.execute("BEGIN")
        await watcher.poll()
        async with read_only(watcher.connection, 30) as session:
            found = await kept(session, watcher.history, {})
        assert found.openness.transactions == ()


async def test_workers_of_a_query_are_left_out(place: Place, writer: Writer) -> None:
    """Rule 4: they are in the transaction of the one that leads them. (A role that is told less counts them twice.)"""
    await writer.execute("SET debug_parallel_query = on")
    query = asyncio.create_task(writer.execute("SELECT pg_sleep(60)"))
    async with watching(place, "watcher_stats", kept) as watcher, await place.connect() as other:
        waiting = "SELECT 1 FROM pg_stat_activity WHERE backend_type = 'parallel worker' AND wait_event = 'PgSleep'"
        while not await (await other.execute(waiting)).fetchall():  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.005)
        async with read_only(watcher.connection, 30) as session:
            (transaction,) = (await kept(session, History(), {})).openness.transactions
    assert f"pid {writer.info.backend_pid}," in transaction.text
    query.cancel()
    with pytest.raises(asyncio.CancelledError):
        await query


async def test_what_people_read(place: Place, writer: Writer) -> None:
    """Pid, user, application and state; never the query. A role that is told less reads how to be told more."""
    await writer.execute("SET application_name = 'loader'")
    texts = {}
    for role in ROLES:
        async with watching(place, role, kept) as watcher, read_only(watcher.connection, 30) as session:
            first = await kept(session, History(), {})
        assert first.openness.transactions == ()
        await insert(writer)
        async with watching(place, role, kept) as watcher, read_only(watcher.connection, 30) as session:
            found = await kept(session, History(), {})
        await writer.execute("ROLLBACK")
        (transaction,) = found.openness.transactions
        assert (transaction.since is None) == (role == "watcher_plain")
        texts[role] = transaction.text
        assert ("GRANT pg_read_all_stats TO watcher_plain" in (found.note or "")) == (role == "watcher_plain")
    pid = writer.info.backend_pid
    assert (
        texts["watcher_stats"] == f"pid {pid}, user writer, application loader, idle in transaction, open for 0:00:00"
    )
    assert texts["watcher_plain"] == f"pid {pid}, user writer, application loader, open since before the first look"
    assert "INSERT" not in "".join(texts.values())


async def test_own_reads_are_left_out_and_others_of_the_role_are_not(place: Place) -> None:
    async with await place.connect("watcher_stats") as own, await place.connect("watcher_stats") as looking:
        async with read_only(own, 30) as reading, read_only(looking, 30) as session:
            key = reading.server.started, reading.server.pid
            assert (await kept(session, History(), {key: object()})).openness.transactions == ()
        async with read_only(own, 30), read_only(looking, 30) as session:
            assert len((await kept(session, History(), {})).openness.transactions) == 1


async def test_a_transaction_keeps_its_key(place: Place, writer: Writer, role: str) -> None:
    history = History()
    keys = []
    async with watching(place, role, kept) as watcher:
        await insert(writer)
        for _ in range(2):
            async with read_only(watcher.connection, 30) as session:
                keys.append([each.key for each in (await kept(session, history, {})).openness.transactions])
        await writer.execute("COMMIT")
        await insert(writer, 2)
        async with read_only(watcher.connection, 30) as session:
            (again,) = (await kept(session, history, {})).openness.transactions
    assert keys[0] == keys[1]
    assert again.key not in keys[0]
