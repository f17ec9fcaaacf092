"""A plain watcher for tests of the pieces: one event whenever the content of a file has changed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from airflow.triggers.base import BaseEventTrigger, TriggerEvent


class FileWatcher(BaseEventTrigger):
    def __init__(self, path: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.path = path

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return ("file_watcher.FileWatcher", {"path": self.path})

    async def run(self) -> AsyncIterator[TriggerEvent]:
        path = Path(self.path)
        seen = ""
        while True:
            if path.exists() and (text := path.read_text()) != seen:  # noqa: ASYNC240 - a few bytes
                seen = text
                yield TriggerEvent({"text": text})  # type: ignore[no-untyped-call]
            await asyncio.sleep(0.2)
