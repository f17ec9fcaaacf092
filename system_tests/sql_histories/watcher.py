"""One life of a SQL watcher, as a process that a test kills: polls a real database, keeps its state and its events in files.

    python -m system_tests.sql_histories.watcher DIRECTORY

``DIRECTORY/arguments.json`` are the trigger's arguments. Airflow's part (delivery in ack mode, the asset's state) is the
harness's: an event is persisted when its line is in ``events.jsonl``, a state when its file was renamed.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from airflow_state_watchers import SqlUpdatedAtTrigger
from airflow_state_watchers.testing import InMemoryStore, WatcherHarness

PAUSE = 0.25


class FileStore(InMemoryStore):
    """An asset's state in a file that is replaced as a whole."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        if path.exists():
            self.data = json.loads(path.read_text())

    def set(self, key: str, value: Any) -> None:
        super().set(key, value)
        self._write()

    def delete(self, key: str) -> None:
        super().delete(key)
        self._write()

    def _write(self) -> None:
        new = self._path.with_suffix(".new")
        new.write_text(json.dumps(self.data))
        os.replace(new, self._path)


class EventFile(list[dict[str, Any]]):
    """Airflow's table of events: one line each, written before the delivery is confirmed."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def append(self, payload: dict[str, Any]) -> None:
        super().append(payload)
        with self._path.open("a") as file:
            file.write(json.dumps({"at": time.time(), "payload": payload}) + "\n")


class WallClock:
    """Time passes; the harness ends the pauses."""

    def now(self) -> datetime:
        return datetime.now(timezone.utc)

    async def sleep(self, seconds: float) -> None: ...

    async def pause(self, seconds: float) -> None: ...


def main(directory: Path) -> None:
    logging.basicConfig(filename=directory / "watcher.log", level=logging.INFO)
    trigger = SqlUpdatedAtTrigger(**json.loads((directory / "arguments.json").read_text()))
    harness = WatcherHarness(trigger, store=FileStore(directory / "state.json"), clock=WallClock())
    harness.events = EventFile(directory / "events.jsonl")
    while not (directory / "stop").exists():
        harness.poll_sync()
        with (directory / "polls").open("a") as file:
            file.write(".")
        time.sleep(PAUSE)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
