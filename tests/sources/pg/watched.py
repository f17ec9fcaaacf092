"""A whole watcher on a real PostgreSQL, and a consumer that reads its windows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from airflow_state_watchers import SqlUpdatedAtTrigger, SqlWindow
from airflow_state_watchers.core.transactions import Openness
from airflow_state_watchers.sources.sql import SqlTableSource
from airflow_state_watchers.sources.sql_scan import Database
from airflow_state_watchers.testing import FrozenClock, WatcherHarness

if TYPE_CHECKING:
    from tests.sources.pg.conftest import Place

NAME = "orders watched"


class Watched:
    """The watcher, the database it watches, and what became of its events.

    :param conn_id: the Airflow connection that the watcher and the consumer use.
    :param now: the clock of the database, as the watcher is told it, where a test needs another than the real one.
    """

    def __init__(
        self, place: Place, conn_id: str, *, now: Callable[[], datetime] | None = None, **arguments: Any
    ) -> None:
        known: dict[str, Any] = {
            "watermark_column": "updated_at",
            "key_columns": ["id"],
            "start": "earliest",
            "settle": 0,
            "name": NAME,
        }
        if "initial_value" in arguments:
            del known["start"]
        if "sql" not in arguments:
            known["table"] = "orders"
        self.place, self.clock = place, FrozenClock()
        self.trigger = SqlUpdatedAtTrigger(conn_id, **{**known, **arguments})
        self.clocked = _Clocked.of(self.trigger, now) if now else None
        self.trigger.source = self.clocked
        self.harness = WatcherHarness(self.trigger, clock=self.clock)
        self.windows: list[SqlWindow] = []

    async def run(self, sql: str, parameters: Any = None) -> list[tuple[Any, ...]]:
        """Run a statement as the one who writes the table."""
        async with await self.place.connect() as connection:
            cursor = await connection.execute(sql.encode(), parameters)
            return [] if cursor.description is None else await cursor.fetchall()

    async def poll(self, **crash: Any) -> list[dict[str, Any]]:
        """Poll once, a minute after the last time by the process's clock; after a crash begin a new process."""
        self.clock.advance(61)
        known = len(self.harness.events)
        events = await self.harness.poll(**crash)
        self.windows += [SqlWindow.from_payload(event) for event in self.harness.events[known:]]
        if crash and events:
            self.harness.restart()
        return events

    async def polls(self, number: int = 3) -> list[dict[str, Any]]:
        return [event for _ in range(number) for event in await self.poll()]

    async def restart(self) -> None:
        """Begin a new process in an orderly way: the old one's connections are closed first."""
        await self.harness._die()
        self.harness.restart()

    async def read(self, *, chunksize: int = 5000) -> list[dict[str, Any]]:
        """Read the windows that were not read yet, and return their rows."""
        windows, self.windows = self.windows, []
        return await asyncio.to_thread(
            lambda: [row for window in windows for rows in window.rows(chunksize=chunksize) for row in rows]
        )

    async def ids(self, polls: int = 3) -> list[Any]:
        """Poll, and return the ids of what was delivered, in order."""
        await self.polls(polls)
        return [row["id"] for row in await self.read()]

    @property
    def root(self) -> Any:
        return self.harness.store.get(f"state_watchers:{self.trigger.watcher_name}")

    @property
    def watermark(self) -> Any:
        return self.root and self.root["watermark"]

    @property
    def health(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.harness.store.get(f"state_watchers.health:{self.trigger.watcher_name}")
        return found

    @property
    def error(self) -> str:
        """What the health record says is wrong; empty if nothing is."""
        error = self.health["last_error"]
        return f"{error['kind']}: {error['message']}" if error else ""

    @property
    def note(self) -> str:
        return self.health["note"] or ""

    async def aclose(self) -> None:
        await self.harness._die()


class _Clocked(SqlTableSource):
    """The source of a trigger, of a database whose clock is the test's. No transaction is open in it."""

    now: Callable[[], datetime]

    @classmethod
    def of(cls, trigger: SqlUpdatedAtTrigger, now: Callable[[], datetime]) -> _Clocked:
        source = cls(trigger.relation, conn_id=trigger.conn_id, carries_rows=trigger.payload == "rows")
        source.now = staticmethod(now)
        return source

    def _find(self) -> Database:
        database = super()._find()
        now = self.now

        async def openness() -> tuple[Openness, str | None]:
            return Openness(now(), exact=True), None

        database.openness = openness  # type: ignore[method-assign]
        return database
