"""The consuming side: reads what the watcher has delivered, as it goes, and keeps a copy of the table."""

from __future__ import annotations

import json
import time
from pathlib import Path
from threading import Event, Thread
from typing import Any

from airflow_state_watchers.tasks.kinds import kind_of
from system_tests.sql_histories.clients import HOT


class Consumer(Thread):
    """Reads each batch once, the windows that wait together, the last of them up to now.

    ``copy`` has the version of each key; ``hot`` the times at which versions of the hot row were read.
    """

    def __init__(self, directory: Path, stop: Event, *, pause: float = 0.3) -> None:
        super().__init__(name="consumer", daemon=True)
        self._events, self._stop_reading, self._pause = directory / "events.jsonl", stop, pause
        self.copy: dict[int, int] = {}
        self.hot: list[tuple[float, int]] = []
        self.error: BaseException | None = None
        self.windows = self.rows = self.repeats = self.rereads = 0
        self._read: set[str] = set()
        self._place = 0

    def run(self) -> None:
        try:
            while not self._stop_reading.wait(self._pause):
                self.consume()
        except BaseException as error:
            self.error = error

    def consume(self) -> None:
        """Read what is new since the last time."""
        fresh = []
        for payload in self._new():
            if payload["batch_id"] in self._read:
                self.repeats += 1
            else:
                self._read.add(payload["batch_id"])
                fresh.append(payload)
        for number, payload in enumerate(fresh):
            self._merge(payload, is_last=number == len(fresh) - 1)

    def _merge(self, payload: dict[str, Any], *, is_last: bool) -> None:
        (window,) = kind_of(payload).units(payload, is_last=is_last)
        self.windows += 1
        self.rereads += window.reread
        self.copy |= self._rows(window, upper="window")
        if is_last:
            # Not into the copy: what no window ever delivers must be seen to be missing there.
            self._rows(window, upper="now")

    def _rows(self, window: Any, *, upper: str) -> dict[int, int]:
        found: dict[int, int] = {}
        for rows in window.rows(chunksize=500, upper=upper):
            for row in rows:
                self.rows += 1
                found[row["id"]] = row["version"]
                if row["id"] == HOT:
                    self.hot.append((time.time(), row["version"]))
        return found

    def _new(self) -> list[dict[str, Any]]:
        if not self._events.exists():
            return []
        with self._events.open() as file:
            file.seek(self._place)
            text = file.read()
        whole, _, _ = text.rpartition("\n")
        self._place += len(whole.encode()) + (1 if whole else 0)
        return [json.loads(line)["payload"] for line in whole.splitlines()]


def stalest(written: dict[int, float], read: list[tuple[float, int]], *, until: float) -> float:
    """Return for how long, at most, the copy did not have a version of the hot row that had been written.

    A version is missing from the moment it is written until this or a later one is read.
    """
    worst = 0.0
    reads = iter(sorted(read))
    at, version = next(reads, (until, 1 << 62))
    for new, since in sorted(written.items()):
        while version < new:
            at, version = next(reads, (until, 1 << 62))
        if since < until:
            worst = max(worst, min(at, until) - since)
    return worst
