"""Which transactions of a PostgreSQL may still commit rows, as any role can find out.

Four rules, each of which loses rows when it is broken (FACTS.md, and a test for each):

1. The look is a transaction of its own, before the one that reads, and its time is taken *before* it looks at the others'
   transactions: one that begins after the look stamps its rows with a later time.
2. Prepared transactions belong to no session, and PostgreSQL does not tell when they began. They are looked for *after* the
   sessions: a transaction that is prepared meanwhile is seen twice rather than never.
3. When other users' transactions began is told only to members of ``pg_read_all_stats``, to others it is NULL, which looks like
   "none". Their virtual transaction ids are visible to everybody in ``pg_locks``, without a time: such a transaction began after
   the last look that did not show it. At the first look that is not known. One case cannot be told: several transactions sent
   in *one message* (``psql -c "BEGIN; ...; COMMIT; BEGIN; ..."``) all have the message's time, and the later ones look young.
4. What never commits rows (autovacuum, replication to elsewhere, a query's parallel workers) is left out. A transaction's time is
   taken an instant before others can see it: the caller keeps a margin (``settle``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any, NamedTuple, overload

from airflow_state_watchers.core.transactions import Openness, Transaction
from airflow_state_watchers.sources.pg_session import Session

_TIME = "pg_catalog.to_char(pg_catalog.timezone('UTC', {}), 'YYYY-MM-DD\"T\"HH24:MI:SS.US')"

CLOCK = f"SELECT {_TIME.format('pg_catalog.statement_timestamp()')}"

# The left join gives the time even when there is nobody else. A session that is idle is in no transaction; a row without both
# a state and a time is one that this role may not see, or one that does not report.
ACTIVITY = f"""
SELECT {_TIME.format("pg_catalog.statement_timestamp()")},
  pg_catalog.pg_has_role(current_user, 'pg_read_all_stats', 'USAGE'), pg_catalog.quote_ident(current_user),
  a.pid, a.backend_start::text, {_TIME.format("a.xact_start")},
  {_TIME.format("a.query_start")}, a.usename::text, a.application_name, a.state
FROM (SELECT 1) AS one LEFT JOIN pg_catalog.pg_stat_activity AS a
  ON a.datid = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = pg_catalog.current_database())
  AND a.pid <> pg_catalog.pg_backend_pid()
  AND a.usesysid IS NOT NULL
  AND (a.backend_type IS NULL OR a.backend_type NOT IN ('autovacuum worker', 'walsender', 'parallel worker'))
  AND (a.xact_start IS NOT NULL OR a.state IS DISTINCT FROM 'idle')
  AND a.pid NOT IN (SELECT w.pid FROM pg_catalog.pg_stat_get_wal_senders() AS w)
"""  # noqa: S608 - made of constants

VIRTUAL = """
SELECT pid, virtualxid FROM pg_catalog.pg_locks
WHERE locktype = 'virtualxid' AND granted AND mode = 'ExclusiveLock' AND pid IS NOT NULL
"""

PREPARED = f"""
SELECT gid, transaction::text, owner::text, {_TIME.format("prepared")}
FROM pg_catalog.pg_prepared_xacts WHERE database = pg_catalog.current_database()
"""  # noqa: S608


Reading = dict[tuple[str, int], object]
"""This process's own transactions, which commit nothing: each under its server's start and its backend's process id."""


class Backend(NamedTuple):
    """Another session of the database that is, or may be, in a transaction."""

    pid: int
    started: str | None
    xact_start: datetime | None
    query_start: datetime | None
    user: str | None
    application: str | None
    state: str | None

    @property
    def text(self) -> str:
        application = f", application {self.application}" if self.application else ""
        state = f", {self.state}" if self.state else ""
        return f"pid {self.pid}, user {self.user or 'unknown'}{application}{state}"


@dataclass(frozen=True, slots=True)
class Look:
    """What a look found, and what people should know about it."""

    openness: Openness
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Past:
    """A look of before: whose server's, when, and what was open: since when by session, and by virtual transaction."""

    server: str
    now: datetime
    sessions: Mapping[int, datetime]
    virtual: Mapping[str, datetime | None]

    def began(self, backend: Backend, virtual: str) -> datetime | None:
        """Return a time that a virtual transaction, seen now, did not begin before."""
        if virtual in self.virtual:
            return self.virtual[virtual]
        return min(self.now, self.sessions.get(backend.pid, self.now))


@dataclass(slots=True)
class History:
    """The last look of this process. Only the last: whatever it did not show began after it."""

    last: Past | None = None

    def of(self, server: str) -> Past | None:
        """Another server, or the same one started again, has another clock and other transactions."""
        return self.last if self.last and self.last.server == server else None


@dataclass(slots=True)
class _Found:
    sessions: dict[int, datetime] = field(default_factory=dict)
    virtual: dict[str, datetime | None] = field(default_factory=dict)
    transactions: list[Transaction] = field(default_factory=list)


async def look_at_clock(session: Session) -> Look:
    """Read the source's time only."""
    ((now,),) = await session.fetch(CLOCK)
    return Look(Openness(_time(now), exact=False))


async def look(session: Session, history: History, reading: Reading) -> Look:
    """Find the open and prepared transactions, in a transaction of the look's own, and remember them in ``history``.

    Transactions in ``reading`` are left out: all watchers of a process together would otherwise hold each other up.
    """
    server = session.server.started
    before = dict(reading)
    rows = await session.fetch(ACTIVITY)
    # A backend is ours for certain only if it was in one and the same transaction of ours all the while.
    ours = {pid for (place, pid), token in before.items() if place == server and reading.get((place, pid)) is token}
    now, (privileged, role) = _time(rows[0][0]), rows[0][1:3]
    backends = [_backend(*row[3:]) for row in rows if row[3] is not None and row[3] not in ours]
    found = _Found()
    dark = _add_sessions(found, backends, now)
    if dark:
        virtual = [(dark[pid], number) for pid, number in await session.fetch(VIRTUAL) if pid in dark]
        _add_virtual(found, virtual, server, history.of(server), now)
    _add_prepared(found, await session.fetch(PREPARED), now)
    history.last = Past(server, now, found.sessions, found.virtual)
    return Look(
        Openness(now, exact=True, transactions=tuple(found.transactions)), None if privileged else _advice(role)
    )


def _backend(pid: int, started: str | None, xact: str | None, query: str | None, *who: str | None) -> Backend:
    return Backend(pid, started, _time(xact), _time(query), *who)


def _add_sessions(found: _Found, backends: Sequence[Backend], now: datetime) -> dict[int, Backend]:
    """Add what has a time; return the sessions whose transaction, if there is one, has none.

    A session that is active and in no transaction is about to begin one, perhaps the next one of several that were sent in one
    message: that one's time is when the message came.
    """
    dark = {}
    for each in backends:
        since = each.xact_start
        if since is None:
            dark[each.pid] = each
            if each.state != "active" or each.query_start is None:
                continue
            since = each.query_start
        found.sessions[each.pid] = since
        key = f"session {each.pid} {each.started} {since.isoformat()}"
        found.transactions.append(Transaction(key, since, f"{each.text}, open for {_age(now - since)}"))
    return dark


def _add_virtual(
    found: _Found, virtual: Sequence[tuple[Backend, str]], server: str, past: Past | None, now: datetime
) -> None:
    """Add the transactions of sessions without a time. A session that connected after the look at sessions is not among them:
    its transaction is younger than the look."""
    for backend, number in virtual:
        since = past.began(backend, number) if past else None
        found.virtual[number] = since
        age = f"open for {_age(now - since)} at most" if since else "open since before the first look"
        found.transactions.append(
            Transaction(f"virtual {number} {backend.pid} {server}", since, f"{backend.text}, {age}")
        )


def _add_prepared(found: _Found, rows: Sequence[tuple[Any, ...]], now: datetime) -> None:
    for gid, transaction, owner, prepared in rows:
        text = f"prepared transaction {gid!r}, user {owner}, prepared {_age(now - _time(prepared))} ago"
        found.transactions.append(Transaction(f"prepared {transaction} {gid}", None, text))


def _advice(role: str) -> str:
    return (
        f"Role {role} is not told when other users' transactions began, only that they are open. Their rows are waited for all "
        "the same, but what is open at the first look holds everything up until it ends, and of several transactions that are "
        f"sent in one message only the first is waited for. To be told: GRANT pg_read_all_stats TO {role}."
    )


@overload
def _time(text: str) -> datetime: ...
@overload
def _time(text: str | None) -> datetime | None: ...
def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text).replace(tzinfo=timezone.utc)


def _age(age: timedelta) -> str:
    return str(timedelta(seconds=max(0, round(age.total_seconds()))))
