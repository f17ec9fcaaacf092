"""Large batches: cut to what an event may hold, or written as a manifest where the watcher has a place for it."""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime, timedelta
from typing import Any

from airflow_state_watchers.core.batch import Batch, size_of, step
from airflow_state_watchers.core.checkpoint import Checkpoint
from airflow_state_watchers.core.window import Selected
from airflow_state_watchers.exceptions import StateWatcherError
from airflow_state_watchers.triggers.settings import SELECTION_LIMIT, Settings

log = logging.getLogger(__name__)

CLEAN_INTERVAL = timedelta(days=1)
IN_THREAD = 2_000
"""From so many items on they are cut in a thread: it takes 2 us an item."""


class LargeBatches:
    """One watcher's way with them."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._cleaned: datetime | None = None
        self._is_clean = True

    async def step(self, checkpoint: Checkpoint, selected: Selected) -> list[Batch]:
        """Cut what is new into batches."""
        settings = self._settings
        limits: dict[str, Any] = {"max_items": settings.max_items, "max_bytes": settings.max_bytes}
        if settings.manifests is not None:
            limits = {"max_items": SELECTION_LIMIT}
        if len(selected.items) < IN_THREAD:
            return step(checkpoint, selected, **limits)
        return await asyncio.to_thread(step, checkpoint, selected, **limits)

    async def written(self, batch: Batch) -> dict[str, Any] | None:
        """Write a batch as a manifest if it is too large for an event; return the address. Raises :class:`SourceError`."""
        settings = self._settings
        if settings.manifests is None or not await asyncio.to_thread(self._is_large, batch):
            return None
        return await settings.manifests.write(batch.batch_id, [item.data for item in batch.items])

    def _is_large(self, batch: Batch) -> bool:
        settings = self._settings
        return len(batch.items) > settings.max_items or sum(map(size_of, batch.items)) > settings.max_bytes

    async def clean(self, now: datetime) -> None:
        """Remove old manifests, once a day. A failure is said once, and tried again the next day."""
        manifests = self._settings.manifests
        if manifests is None or (self._cleaned and timedelta(0) <= now - self._cleaned < CLEAN_INTERVAL):
            return
        self._cleaned = now
        try:
            await manifests.clean()
        except Exception as error:
            if self._is_clean:
                # A foreign error's text may hold anything.
                what = str(error) if isinstance(error, StateWatcherError) else type(error).__name__
                log.warning("%s: old manifests cannot be removed: %s", self._settings.name, what)
            self._is_clean = False
        else:
            self._is_clean = True

    async def aclose(self) -> None:
        if self._settings.manifests is not None:
            await self._settings.manifests.aclose()
