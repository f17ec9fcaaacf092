"""What stood at the source when a generation began."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from airflow_state_watchers.core.checkpoint import Start
from airflow_state_watchers.core.identities import packed
from airflow_state_watchers.core.ledger import FULL_SEGMENT, Ledger, Segment
from airflow_state_watchers.core.position import Item
from airflow_state_watchers.core.uploads import Remembered


class Stood:
    """Collects what counts as seen, of pages in any order. ``newest`` is the greatest value among it.

    What an upload made that was in progress a moment ago has not stood there before.
    """

    def __init__(self, start: Start, uploads: Remembered, *, label: str) -> None:
        self.newest: datetime | None = None
        self._start, self._uploads, self._label = start, uploads, label
        self._ledger = Ledger()
        self._found: dict[bytes, datetime] = {}

    def add(self, page: Iterable[Item]) -> None:
        start, uploads, found = self._start, self._uploads, self._found
        for item in page:
            if start.sees(item) and not (uploads.by_key and uploads.made(item)):
                value = item.position.value
                found.update(dict.fromkeys(item.marks, value))
                if self.newest is None or value > self.newest:
                    self.newest = value
                if len(found) >= FULL_SEGMENT - 1:
                    self._enter()

    def result(self) -> Ledger:
        """Return the ledger that knows all of it."""
        if self._found:
            self._enter()
        return self._ledger

    def _enter(self) -> None:
        name = f"{self._label}-{len(self._ledger.segments):x}"
        segment = Segment(name, max(self._found.values()), packed(self._found))
        self._ledger = self._ledger.with_segment(segment)
        self._found.clear()
