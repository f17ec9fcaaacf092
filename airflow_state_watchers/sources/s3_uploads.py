"""The multipart uploads in progress below a prefix, where S3 tells."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from datetime import timedelta

from airflow_state_watchers.core.uploads import Upload, upload_id
from airflow_state_watchers.exceptions import SourceUnavailable
from airflow_state_watchers.sources.s3_calls import Refused, S3Calls
from airflow_state_watchers.sources.s3_scan import instant

ASK_AGAIN = 900.0
"""Seconds after which uploads are asked for again where the server has refused to list them."""
BEGIN_AGAIN = 3
"""A list is begun again so often where the upload that a page ended with is gone before the next one is asked for."""
BROKEN = 3
"""After so many broken lists in a row they are done without."""


@dataclass
class UploadList:
    """What S3 says of the uploads in progress; ``note`` says what is missed where it does not."""

    calls: S3Calls
    lookback: timedelta
    note: str | None = None
    _ask_again: float = 0.0
    _broken: int = 0

    async def look(self) -> tuple[list[Upload] | None, str | None]:
        """Return the uploads, and the ``Date`` of the first answer; ``None`` if S3 does not tell.

        Raises :class:`~airflow_state_watchers.exceptions.SourceError`.
        """
        if self.note is not None and time.monotonic() < self._ask_again:
            return None, None
        date: str | None = None
        refused: Refused | None = None
        for _ in range(BEGIN_AGAIN):
            uploads, refused, first = await self._list()
            date = date or first
            if refused is None:
                self.note, self._broken = None, 0
                return uploads, date
            if not refused.is_marker:
                break
        assert refused is not None
        if not refused.is_final:
            self._broken += 1
            # No accident: a key that XML cannot hold makes a list unreadable for as long as its upload is in progress, and a
            # server may know no markers. Watching has to go on.
            if self._broken < BROKEN:
                raise SourceUnavailable(f"{self.calls.place.uri}: the list of uploads broke off. It is tried again.")
        self.note, self._ask_again = refused.note(self.calls.place, self.lookback), time.monotonic() + ASK_AGAIN
        return None, None

    async def _list(self) -> tuple[list[Upload], Refused | None, str | None]:
        """Fetch all pages; return the uploads, what kept the list from being whole, and the first ``Date``."""
        uploads: list[Upload] = []
        marker: tuple[str, str] | None = None
        date: str | None = None
        seen: set[tuple[str, str]] = set()
        while True:
            answer = await self.calls.uploads(marker)
            if isinstance(answer, Refused):
                return uploads, answer if marker else answer.at_once, date
            page, headers = answer
            date = date or headers.get("date")
            try:
                uploads += [Upload(key, upload_id(given), instant(began)) for key, given, began in page.entries()]
            except ValueError:
                return uploads, Refused("unreadable"), date
            marker = page.next_marker
            if marker is None:
                return uploads, None, date
            if marker in seen:
                raise SourceUnavailable(
                    f"{self.calls.place.uri}: the list of uploads does not advance, S3 repeats a page. It is tried again."
                )
            seen.add(marker)
            await asyncio.sleep(0)
