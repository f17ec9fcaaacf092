"""A few connections to one PostgreSQL for all watchers of an event loop.

Not psycopg_pool: it connects in the background and tells whoever waits only that time is up, never that the password is
wrong, and it goes on trying with the credentials it was given first. Here whoever needs a connection makes it, by the Airflow
connection as it is at that moment, and gets the error itself.
"""

from __future__ import annotations

import asyncio
import json
import select
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakKeyDictionary

from airflow_state_watchers.exceptions import SourceUnavailable
from airflow_state_watchers.sources.pg_deadline import deadline
from airflow_state_watchers.sources.pg_horizon import History, Reading
from airflow_state_watchers.sources.pg_values import read_texts

if TYPE_CHECKING:
    from psycopg import AsyncConnection

    from airflow_state_watchers.sources.pg_connection import Target

KEEP = 60.0
"""A connection that nobody needed for so many seconds is closed."""

LIFE = 3600.0
"""A connection that is older is not used again: the Airflow connection may have been changed since."""

Connect = Callable[[], Awaitable[tuple[Any, str]]]
"""Opens a connection; also returns what tells its server and user from others."""


@dataclass(eq=False, slots=True)
class Opened:
    """A connection, what tells its server and user from others, when it was opened and when it was last given back."""

    connection: AsyncConnection[Any]
    place: str
    since: float
    unused_since: float = 0.0


class PgPool:
    """At most ``size`` connections. ``history`` and ``reading`` are what all looks through this pool share."""

    def __init__(self, connect: Connect, size: int, *, label: str = "", keep: float = KEEP) -> None:
        self.history = History()
        self.reading: Reading = {}
        self._label = label
        self._connect = connect
        self._size = size
        self._keep = keep
        self._slots = asyncio.Semaphore(size)
        self._idle: list[Opened] = []
        self._place = ""
        self._failure: tuple[float, Exception] | None = None
        self._closing_old: asyncio.Task[None] | None = None
        self._closed = False

    @asynccontextmanager
    async def connection(self, timeout: float) -> AsyncIterator[AsyncConnection[Any]]:
        """Lend a connection that is in no transaction; one that comes back otherwise is thrown away.

        ``timeout`` is for the wait and for connecting, each. Raises :class:`SourceError` or psycopg's errors.
        """
        arrived = _now()
        await self._wait_for_slot(timeout)
        opened = None
        try:
            opened = await self._take() or await self._open(arrived, timeout)
            yield opened.connection
        finally:
            try:
                if opened is not None:
                    await self._give_back(opened)
            finally:
                self._slots.release()

    async def aclose(self) -> None:
        """Close what is not in use; the rest is closed when it comes back."""
        self._closed = True
        if self._closing_old:
            self._closing_old.cancel()
        while self._idle:
            await self._idle.pop().connection.close()

    async def _wait_for_slot(self, timeout: float) -> None:
        try:
            async with deadline(timeout):
                await self._slots.acquire()
        except (TimeoutError, asyncio.TimeoutError):
            raise SourceUnavailable(
                f"{self._label}: all {self._size} connections were in use for {timeout:g} s. Raise "
                "[state_watchers] connections_per_database, or let fewer watchers poll as often."
            ) from None

    async def _take(self) -> Opened | None:
        """Return the connection that was used last, so that the others grow old; ``None`` if none works."""
        while self._idle:
            opened = self._idle.pop()
            if self._is_current(opened) and _is_quiet(opened.connection):
                return opened
            await opened.connection.close()
        return None

    async def _open(self, arrived: float, timeout: float) -> Opened:
        if self._failure and self._failure[0] >= arrived:
            # Somebody failed while this one waited. A hundred tries one after the other would not tell more, and lock the
            # account perhaps.
            raise self._failure[1].with_traceback(None)
        try:
            async with deadline(timeout):
                connection, self._place = await self._connect()
        except (TimeoutError, asyncio.TimeoutError):
            text = f"{self._label}: no connection within {timeout:g} s. Check host, port and the network."
            self._failure = _now(), SourceUnavailable(text)
            raise SourceUnavailable(text) from None
        except Exception as error:
            self._failure = _now(), error
            raise
        self._failure = None
        return Opened(connection, self._place, _now())

    async def _give_back(self, opened: Opened) -> None:
        if self._closed or not self._is_current(opened):
            await opened.connection.close()
            return
        opened.unused_since = _now()
        self._idle.append(opened)
        if self._closing_old is None or self._closing_old.done():
            self._closing_old = asyncio.create_task(self._close_old())

    def _is_current(self, opened: Opened) -> bool:
        return _is_clean(opened.connection) and opened.place == self._place and _now() - opened.since < LIFE

    async def _close_old(self) -> None:
        while self._idle:
            await asyncio.sleep(max(0.0, self._idle[0].unused_since + self._keep - _now()))
            while self._idle and self._idle[0].unused_since + self._keep <= _now():
                await self._idle.pop(0).connection.close()


class PgPools:
    """The pools of one event loop: a connection belongs to the loop that opened it."""

    _of_loop: ClassVar[WeakKeyDictionary[asyncio.AbstractEventLoop, PgPools]] = WeakKeyDictionary()

    def __init__(self) -> None:
        self._pools: dict[str, tuple[PgPool, int]] = {}

    @classmethod
    def here(cls) -> PgPools:
        return cls._of_loop.setdefault(asyncio.get_running_loop(), cls())

    def lease(self, conn_id: str, hook_params: Mapping[str, Any], size: int) -> PgPool:
        """Return the pool of a connection id and these parameters. Whoever leases it gives it back by :meth:`release`.

        ``size`` counts for whoever is the first.
        """
        key = _key(conn_id, hook_params)
        pool, users = self._pools.get(key) or (PgPool(_connect_to(conn_id, hook_params), size, label=conn_id), 0)
        self._pools[key] = pool, users + 1
        return pool

    async def release(self, conn_id: str, hook_params: Mapping[str, Any]) -> None:
        """Give a pool back; the last one closes it."""
        key = _key(conn_id, hook_params)
        pool, users = self._pools.pop(key)
        if users > 1:
            self._pools[key] = pool, users - 1
        else:
            await pool.aclose()


def _connect_to(conn_id: str, hook_params: Mapping[str, Any]) -> Connect:
    async def connect() -> tuple[AsyncConnection[Any], str]:
        connection_type, target = await asyncio.to_thread(_find, conn_id, hook_params)
        # No prepared statements: behind a pooler the next transaction may run in another session.
        connection = await connection_type.connect(target.conninfo, autocommit=True, prepare_threshold=None)
        read_texts(connection)
        return connection, target.place

    return connect


def _find(conn_id: str, hook_params: Mapping[str, Any]) -> tuple[type[AsyncConnection[Any]], Target]:
    """Import what takes a second to import, and ask Airflow; in a thread."""
    from airflow_state_watchers.sources.pg_connection import AsyncConnection, find_target

    return AsyncConnection, find_target(conn_id, hook_params)


def _is_clean(connection: AsyncConnection[Any]) -> bool:
    return not connection.closed and connection.pgconn.transaction_status == 0  # PQTRANS_IDLE


def _is_quiet(connection: AsyncConnection[Any]) -> bool:
    """Return whether the server has said nothing meanwhile: what it says unasked is mostly goodbye. No round trip."""
    socket = select.poll()
    socket.register(connection.pgconn.socket, select.POLLIN)
    return not socket.poll(0)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _key(conn_id: str, hook_params: Mapping[str, Any]) -> str:
    return json.dumps([conn_id, dict(hook_params)], sort_keys=True, default=repr)
