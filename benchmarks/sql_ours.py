"""Polls of our own SQL watcher, through the harness: a poll here is a whole poll, with its reads and writes of state.

It counts the new rows and delivers a window. A task reads the rows, with ``SqlWindow.rows``: told beside it.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import shutil
import tempfile
from typing import TYPE_CHECKING, Any

from benchmarks.heartbeat import Run, measure
from benchmarks.sql_series import Limits, Series, Subject, news, quiet
from benchmarks.sql_table import NEW, Table, Target

if TYPE_CHECKING:
    from airflow_state_watchers.tasks.windows import SqlWindow

CONN_ID = "bench"
SETTLED = 1.05
"""Seconds after which a new row may be in a window: the watcher's default settle, and a little more."""

Outcome = dict[str, Series | Run]


def load_airflow(target: Target, *, triggerer: bool = True, user: str = "watcher", options: str = "") -> None:
    """Make the connection known, and load what a triggerer has loaded (its garbage is what a collection looks through)."""
    os.environ["AIRFLOW_HOME"] = home = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    connection = {"conn_type": "postgres", "host": target.host, "login": user, "schema": target.database}
    os.environ["AIRFLOW_CONN_BENCH"] = json.dumps(connection | ({"extra": {"options": options}} if options else {}))
    if triggerer:
        import airflow.jobs.triggerer_job_runner  # noqa: F401


class Watcher:
    """One watcher in its harness; a poll that fails, which the watcher would only note, is an error here."""

    def __init__(self) -> None:
        from airflow_state_watchers import SqlUpdatedAtTrigger
        from airflow_state_watchers.testing import FrozenClock, WatcherHarness

        trigger = SqlUpdatedAtTrigger(CONN_ID, table="public.orders", watermark_column="updated_at", key_columns=["id"])
        self.clock = FrozenClock()
        self.harness = WatcherHarness(trigger, asset="orders", clock=self.clock)
        self.windows: list[SqlWindow] = []

    async def poll(self) -> int:
        """Return how many rows the windows hold that were delivered."""
        from airflow_state_watchers.tasks.windows import SqlWindow

        self.clock.advance(61)  # longer than the time between two health records
        self.windows = [SqlWindow.from_payload(payload) for payload in await self.harness.poll()]
        self.harness.events.clear()
        for key, record in self.harness.store.data.items():
            if ".health:" in key and '"last_error": null' not in record:
                raise RuntimeError(f"the poll failed: {record}")
        return sum(window.count for window in self.windows)

    def read(self) -> int:
        """Read the rows of the last poll's windows, as a task does."""
        return sum(len(rows) for window in self.windows for rows in window.rows())

    async def only_read(self) -> int:
        return self.read()

    async def poll_and_read(self) -> int:
        await self.poll()
        return self.read()


async def watcher(where: dict[str, Any], name: str, **limits: int) -> Outcome:
    """Measure a first poll, polls without news, polls with a thousand new rows, and reading these."""
    target = Target(**where)
    load_airflow(target)
    table, limit = Table(target), Limits(**limits)
    subject = Watcher()
    first = await measure(subject.poll)  # it connects, and looks what kind of column it is
    alone = await measure(lambda: asyncio.sleep(4))  # about as long as its polls: what the machine does to any loop
    runs: Outcome = {f"{name}: connecting": first, f"{name}: an idle loop": alone}
    polled = Subject(subject.poll, wait=SETTLED)
    runs[name] = await quiet(table, polled, limit)
    runs[f"{name}: {NEW:,} new"] = await news(table, polled, limit)
    both = Subject(subject.poll_and_read, wait=SETTLED, in_loop=False)
    runs[f"{name}: {NEW:,} new, polled and read"] = await news(table, both, limit)
    reading = Series(NEW)
    while not limit.reached(reading):
        await reading.measure(table, Subject(subject.only_read, in_loop=False))
    runs[f"{name}: {NEW:,} new, read alone"] = reading
    return runs
