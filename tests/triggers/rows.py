"""A watcher on a table in memory, and a consumer that keeps a copy of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from airflow_state_watchers import SqlUpdatedAtTrigger
from airflow_state_watchers.testing import FrozenClock, InMemoryTable, WatcherHarness


class Copied:
    """The table, its watcher, and a target that merges by key what each window holds when it is read."""

    def __init__(self, *, is_sequence: bool = False, exact: bool = True, **arguments: Any) -> None:
        self.clock = FrozenClock()
        self.table = InMemoryTable(self.clock, is_sequence=is_sequence)
        self.table.exact = exact
        trigger = SqlUpdatedAtTrigger("shop", table="orders", watermark_column="w", key_columns=["id"], **arguments)
        trigger.source = self.table
        self.harness = WatcherHarness(trigger, clock=self.clock)
        self.target: dict[str, Any] = {}
        self.read: set[str] = set()
        self.unread: list[dict[str, Any]] = []

    def poll(self, **crash: Any) -> list[dict[str, Any]]:
        known = len(self.harness.events)
        events = self.harness.poll_sync(**crash)
        self.unread += self.harness.events[known:]
        if crash and self.harness._crashed:
            self.harness.restart()
        return events

    def consume(self, *, upper: str = "window") -> list[str]:
        """Read what was delivered and not read yet; return the keys in the order they were merged."""
        merged: list[str] = []
        for event in [event for event in self.unread if event["batch_id"] not in self.read]:
            is_last = event is self.unread[-1]
            high = None if is_last and upper == "now" else event["high"]
            rows = self.table.read(event["low"], high, event["bounds"])
            self.target.update(rows)
            self.read.add(event["batch_id"])
            merged += rows
        self.unread.clear()
        return merged

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def settled(self) -> Iterator[None]:
        """Poll until nothing more comes, a minute at a time."""
        quiet = 0
        for _ in range(60):
            self.pass_time(61)
            quiet = 0 if self.poll() else quiet + 1
            self.consume()
            yield
            if quiet > 3:
                return
        raise AssertionError("the watcher never comes to rest")

    def rest(self) -> None:
        for _ in self.settled():
            pass
