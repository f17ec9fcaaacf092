"""Polls of our own S3 watcher, through the harness: a poll here is a whole poll, with its reads and writes of state.

``benchmarks.s3_listing`` runs each watcher in a process of its own. A watcher of a prefix without objects polls first, so
that everything is loaded before anything is measured.
"""

from __future__ import annotations

import os
from typing import Any

from benchmarks.heartbeat import Run, idle, measure, memory
from benchmarks.s3_peers import EMPTY, IDLE, Outcome, complete, load_triggerer
from benchmarks.s3_server import BUCKET, PREFIX, control

CLIENT = "ours, making the client"
NEW = 100
REPEATS, ENOUGH = 5, 2.0
OPTION = "list_concurrency"


class NotYet(Exception):
    """The installed release of this package has no such option."""


async def watcher(
    port: int, name: str, *, arguments: dict[str, Any] | None = None, ranges: int = 0, everything: bool = False
) -> Outcome:
    """Measure a first poll, polls without news, and one with a hundred new objects."""
    if ranges:
        set_ranges(ranges)
    load_triggerer(port)
    made = await measure(Watcher(EMPTY, {}).poll)
    held = memory()
    runs = {IDLE: await idle(), CLIENT: made}
    made.peak = 0.0  # it is the idle process of the others
    control(port, "/served")
    subject = Watcher(PREFIX, arguments or {})
    runs[f"{name}: first poll"] = complete(await measure(subject.poll), port, held)
    steady = [complete(await measure(subject.poll), port, held)]
    while len(steady) < REPEATS and sum(run.seconds for run in steady) < ENOUGH:
        steady.append(complete(await measure(subject.poll), port, held))
    runs[f"{name}: nothing new"] = middle(steady)
    subject.expect(0)
    control(port, f"/add?n={NEW}")
    runs[f"{name}: {NEW} new"] = complete(await measure(subject.poll), port, held)
    subject.expect(NEW)
    if everything:
        subject = Watcher(PREFIX, {**(arguments or {}), "start": "earliest", "name": "everything"})
        runs[f"{name}: everything delivered"] = complete(await measure(subject.poll), port, held)
    return runs


def middle(runs: list[Run]) -> Run:
    """Return the run of median length."""
    return sorted(runs, key=lambda run: run.seconds)[len(runs) // 2]


def set_ranges(ranges: int) -> None:
    from airflow_state_watchers.get_provider_info import get_provider_info

    options: dict[str, Any] = get_provider_info()["config"]["state_watchers"]["options"]
    if OPTION not in options:
        raise NotYet
    os.environ[f"AIRFLOW__STATE_WATCHERS__{OPTION.upper()}"] = str(ranges)


class Watcher:
    """One watcher in its harness; a poll that fails, which the watcher would only note, is an error here."""

    def __init__(self, prefix: str, arguments: dict[str, Any]) -> None:
        from airflow_state_watchers import S3PrefixWatermarkTrigger
        from airflow_state_watchers.exceptions import WatcherArgumentError
        from airflow_state_watchers.testing import FrozenClock, WatcherHarness

        try:
            trigger = S3PrefixWatermarkTrigger(BUCKET, prefix=prefix, aws_conn_id="bench", **arguments)
        except WatcherArgumentError as error:
            raise NotYet from error
        self.clock = FrozenClock()
        self.harness = WatcherHarness(trigger, asset="orders", clock=self.clock)
        self.delivered = 0

    async def poll(self) -> None:
        self.clock.advance(61)  # longer than the time between two health records
        for payload in await self.harness.poll():
            self.delivered += payload["count"]
        self.harness.events.clear()
        for key, record in self.harness.store.data.items():
            if ".health:" in key and '"last_error": null' not in record:
                raise RuntimeError(f"the poll failed: {record}")

    def expect(self, delivered: int) -> None:
        if self.delivered != delivered:
            raise RuntimeError(f"{self.delivered} objects were delivered, and not {delivered}")
