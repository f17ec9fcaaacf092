"""Objects as the delivery path reads them: new versions, each with its place in the order of (time, key)."""

from __future__ import annotations

import logging
from contextlib import aclosing
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from airflow_state_watchers.core.batch import Batch
from airflow_state_watchers.core.checkpoint import Checkpoint, Start, cursor_of, later
from airflow_state_watchers.core.envelope import event_of
from airflow_state_watchers.core.stood import Stood
from airflow_state_watchers.core.uploads import Remembered
from airflow_state_watchers.core.window import END, Window, seen
from airflow_state_watchers.ports import Scan
from airflow_state_watchers.triggers.beginning import Beginning
from airflow_state_watchers.triggers.large import LargeBatches
from airflow_state_watchers.triggers.reading import Read
from airflow_state_watchers.triggers.selecting import select
from airflow_state_watchers.triggers.settings import Settings

log = logging.getLogger(__name__)


class ObjectReading:
    """One watcher's source of objects."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._large = LargeBatches(settings)

    @property
    def lookback(self) -> timedelta:
        return self._settings.lookback

    def blank(self, origin: str) -> Checkpoint:
        return Checkpoint(name=self._settings.name, source=self._settings.source.fields(), origin=origin)

    async def open(self) -> ObjectLook:
        return ObjectLook(await self._settings.source.open(), self._settings, self._large)

    async def payload(
        self, batch: Batch, checkpoint: Checkpoint, *, trigger_run_id: str, sequence_index: int
    ) -> dict[str, Any]:
        manifest = await self._large.written(batch)
        return event_of(
            batch,
            checkpoint,
            manifest=manifest,
            kind=self._settings.kind,
            trigger_run_id=trigger_run_id,
            sequence_index=sequence_index,
            source=self._settings.event_fields,
        )

    async def clean(self, now: datetime) -> None:
        await self._large.clean(now)

    async def aclose(self) -> None:
        await self._settings.source.aclose()
        await self._large.aclose()


class ObjectLook:
    """One poll's listing."""

    def __init__(self, scan: Scan, settings: Settings, large: LargeBatches, *, most: int | None = None) -> None:
        self.note = scan.note
        self._scan, self._settings, self._large, self._most = scan, settings, large, most

    async def begin(self, beginning: Beginning, *, label: str) -> bool:
        """Resolve the place, and count what stands there as seen."""
        scan, settings = self._scan, self._settings
        start = beginning.start or Start.at(settings.start, settings.initial_value, scan.now, settings.settle)
        base = beginning.base.looked(scan.uploads, scan.now, ttl=settings.upload_ttl)
        stood = Stood(start, Remembered.of(base.uploads), label=label)
        low = start.low(settings.lookback)
        if start.watermark is not None:
            high = END if start.everything else Window(None, start.watermark).high
            async with aclosing(scan.pages(low, high, whole=True)) as pages:
                async for page in pages:
                    stood.add(page)
        ledger = stood.result()
        beginning.start = start
        beginning.advice, beginning.newest = scan.advice, stood.newest
        beginning.skipped = scan.listed if start.everything else len(ledger)
        beginning.first = replace(start.begin(base, ledger, floor=low), cursor=cursor_of(scan.cursor, low))
        return True

    async def read(self, checkpoint: Checkpoint) -> Read:
        looked = self._looked(checkpoint)
        selected, cursor = await select(self._scan, looked, self._settings, most=self._most)
        after = seen(looked, selected, cursor)
        frontier = later(after.frontier, selected.upto)
        return Read(
            after,
            await self._large.step(after, selected),
            selected.upto,
            complete=selected.complete and not looked.intents,
            lag=None if frontier is None else self._scan.now - frontier.value,
        )

    def _looked(self, before: Checkpoint) -> Checkpoint:
        """Return the checkpoint to poll with, now that a look has begun; says so if its frontier cannot be true."""
        scan, settings = self._scan, self._settings
        checkpoint = before.credible(scan.now - settings.settle, lookback=settings.lookback)
        if checkpoint is not before:
            was = before.frontier.value.isoformat() if before.frontier else None
            log.error("%s: the source's clock says %s, but it was read up to %s before: one of the two is wrong, or settle "
                      "was raised by more than lookback. Reading again from the watermark",
                      settings.name, scan.now.isoformat(), was)  # fmt: skip
        return checkpoint.looked(scan.uploads, scan.now, ttl=settings.upload_ttl)
