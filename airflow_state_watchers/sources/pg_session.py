"""One read-only transaction, which leaves nothing behind in its session.

All settings are local to the transaction, so that a pooler may give the session to somebody else after it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from psycopg import AsyncConnection

SETTINGS = {
    "statement_timeout": "{timeout}",
    "lock_timeout": "{lock_timeout}",
    "idle_in_transaction_session_timeout": "{idle_timeout}",
    "TimeZone": "UTC",
    "DateStyle": "ISO, YMD",
    "IntervalStyle": "postgres",
    "bytea_output": "hex",
    "extra_float_digits": "3",
}
_SERVER = "pg_catalog.pg_backend_pid(), pg_catalog.pg_is_in_recovery(), pg_catalog.pg_postmaster_start_time()::text"
_SET = ", ".join(f"pg_catalog.set_config('{name}', '{value}', true)" for name, value in SETTINGS.items())
BEGIN = f"BEGIN TRANSACTION ISOLATION LEVEL READ COMMITTED READ ONLY; SELECT {_SERVER}, {_SET}"
"""Two statements instead of one for each setting: a poll has several transactions."""


class Server(NamedTuple):
    """Who answers: the backend's process id there, whether it is a standby, and when it was started."""

    pid: int
    standby: bool
    started: str


class Session:
    """A transaction that has begun."""

    def __init__(self, connection: AsyncConnection[Any], server: Server) -> None:
        self._connection = connection
        self.server = server

    async def fetch(self, text: str, parameters: Any = None) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows. Raises psycopg's errors."""
        cursor = await self._connection.execute(text, parameters)
        return await cursor.fetchall()

    async def names(self, text: str, parameters: Any = None) -> tuple[str, ...]:
        """Run a statement and return the names of its columns. Raises psycopg's errors."""
        cursor = await self._connection.execute(text, parameters)
        return tuple(column.name for column in cursor.description or ())


@asynccontextmanager
async def read_only(connection: AsyncConnection[Any], timeout: float) -> AsyncIterator[Session]:
    """Run a transaction of one or more statements, each of at most ``timeout`` seconds.

    A cancelled one closes its connection rather than wait for the server's word on a rollback.
    """
    try:
        yield Session(connection, await _begin(connection, timeout))
        await connection.execute("COMMIT")
    except Exception:
        await _roll_back(connection)
        raise
    except BaseException:
        await connection.close()
        raise


async def _roll_back(connection: AsyncConnection[Any]) -> None:
    try:
        await connection.execute("ROLLBACK")
    except Exception:  # the error that led here is the one to tell
        await connection.close()


async def _begin(connection: AsyncConnection[Any], timeout: float) -> Server:
    milliseconds = max(1, round(timeout * 1000))
    # Half of it for a lock: then the error says that it was a lock.
    text = BEGIN.format(timeout=milliseconds, lock_timeout=max(1, milliseconds // 2), idle_timeout=2 * milliseconds)
    cursor = await connection.execute(text.encode())  # all in one message, as there are no parameters
    while cursor.nextset():
        pass
    (row,) = await cursor.fetchall()
    return Server(*row[: len(Server._fields)])
