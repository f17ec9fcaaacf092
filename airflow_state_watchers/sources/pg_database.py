"""A PostgreSQL as a SQL watcher asks it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Literal

from airflow_state_watchers.core.transactions import Openness
from airflow_state_watchers.exceptions import SourceError, SourceUnavailable
from airflow_state_watchers.sources.pg_deadline import deadline
from airflow_state_watchers.sources.pg_horizon import Look, look, look_at_clock
from airflow_state_watchers.sources.pg_pool import PgPool, PgPools
from airflow_state_watchers.sources.pg_session import Session, read_only
from airflow_state_watchers.sources.sql_dialects import Dialect, dialect_of
from airflow_state_watchers.sources.sql_statements import Query

Mode = Literal["auto", "transactions", "clock"]


class PgDatabase:
    """One watcher's way to the database of an Airflow connection; the connections themselves are shared with others.

    ``mode``: ``"transactions"`` insists on the exact horizon, ``"auto"`` does without where there is none (a standby), and
    ``"clock"`` does not look at transactions. ``timeout``: seconds for each statement. ``connections``: at most so many for all
    watchers of this event loop.
    """

    def __init__(
        self,
        conn_id: str,
        *,
        hook_params: Mapping[str, Any] | None = None,
        mode: Mode = "auto",
        timeout: float = 30,
        connections: int = 4,
    ) -> None:
        self._conn_id = conn_id
        self._hook_params = dict(hook_params or {})
        self._mode = mode
        self._timeout = timeout
        self._connections = connections
        self._pool: PgPool | None = None
        self._looked_at: str | None = None
        self.dialect: Dialect = dialect_of("postgresql")

    async def openness(self) -> tuple[Openness, str | None]:
        """Look at the clock and the open transactions, in a transaction that ends before this returns.

        Also returns what people should know. Raises :class:`SourceError` or psycopg's errors.
        """
        self._looked_at = None
        async with self._session() as session:
            found = await self._look(session)
        if found.openness.exact:
            self._looked_at = session.server.started
        return found.openness, found.note

    async def run(self, query: Query) -> list[tuple[Any, ...]]:
        """Run one statement in a read-only transaction of its own, of the server that was looked at.

        Raises :class:`SourceError` or psycopg's errors.
        """
        async with self._session() as session:
            if self._looked_at not in (None, session.server.started) or (self._looked_at and session.server.standby):
                # A row that this one has not yet, or has not committed yet, would be passed by what the other one said.
                raise SourceUnavailable(
                    f"{self._conn_id}: the server that answers is not the one whose transactions were looked at, or was "
                    "started again since. It is tried again; if it goes on, let the connection lead to one server only."
                )
            return await session.fetch(query.text, query.parameters)

    async def names(self, query: Query) -> tuple[str, ...]:
        """Return the names of a statement's columns."""
        async with self._session() as session:
            return await session.names(query.text, query.parameters)

    async def aclose(self) -> None:
        """Let go of the connections; the last one closes them."""
        if self._pool:
            self._pool = None
            await PgPools.here().release(self._conn_id, self._hook_params)

    async def _look(self, session: Session) -> Look:
        if self._mode == "clock":
            return await look_at_clock(session)
        if not session.server.standby:
            return await look(session, self._leased().history, self._leased().reading)
        why = "the server is a standby, which does not show the transactions that are open on its primary"
        if self._mode == "transactions":
            raise SourceError(
                f'{self._conn_id}: {why}, so horizon="transactions" cannot be had. Connect to the primary, or use horizon='
                '"clock" with a settle and lookback that are longer than the longest transaction and the replication lag.'
            )
        found = await look_at_clock(session)
        return Look(
            found.openness,
            f"{self._conn_id}: {why}. Rows are read once they are settle old; keep settle and lookback together longer "
            "than the longest transaction and the replication lag, or connect to the primary.",
        )

    def _leased(self) -> PgPool:
        if self._pool is None:
            self._pool = PgPools.here().lease(self._conn_id, self._hook_params, self._connections)
        return self._pool

    @asynccontextmanager
    async def _session(self) -> AsyncIterator[Session]:
        pool = self._leased()
        async with pool.connection(self._timeout) as connection:
            try:
                # The server ends a statement in time, unless the network is what hangs.
                async with deadline(1.5 * self._timeout + 1), read_only(connection, self._timeout) as session:
                    key = session.server.started, session.server.pid
                    pool.reading[key] = object()
                    try:
                        yield session
                    finally:
                        # Before COMMIT: after it a pooler may give the backend to somebody who writes.
                        del pool.reading[key]
            except (TimeoutError, asyncio.TimeoutError):
                text = f"{self._conn_id}: no answer within {1.5 * self._timeout + 1:g} s. Check the network."
                raise SourceUnavailable(text) from None
