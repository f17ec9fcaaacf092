"""Rows as the delivery path reads them: windows of the watermark column, each ended before anything that may still be committed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from airflow_state_watchers.core.envelope import NotJson, check_json
from airflow_state_watchers.core.reach import Reach, reach
from airflow_state_watchers.core.rows import RowBatch, RowCheckpoint
from airflow_state_watchers.exceptions import CheckpointError
from airflow_state_watchers.ports import RowScan, RowSource
from airflow_state_watchers.triggers.beginning import Beginning
from airflow_state_watchers.triggers.reading import Read
from airflow_state_watchers.triggers.row_beginning import begin
from airflow_state_watchers.triggers.row_events import RowEvents
from airflow_state_watchers.triggers.row_polling import Memory, RowPoll, behind_note, future_note, hold_note
from airflow_state_watchers.triggers.settings import Settings

EXACT_SETTLE, EXACT_LOOKBACK = timedelta(seconds=1), timedelta(0)
CLOCK_SETTLE, CLOCK_LOOKBACK = timedelta(seconds=60), timedelta(seconds=600)


@dataclass(frozen=True, slots=True)
class RowOptions:
    """A SQL watcher's own arguments. ``settle`` and ``lookback`` are ``None`` where the source's kind of horizon decides."""

    settle: timedelta | None = None
    lookback: timedelta | None = None
    max_hold: timedelta | None = None
    max_rows: int | None = None
    carries_rows: bool = False


class RowReading:
    """One watcher's table."""

    def __init__(self, settings: Settings, options: RowOptions, events: RowEvents) -> None:
        self._settings, self._options, self._events = settings, options, events
        self._source: RowSource = settings.source
        self._memory = Memory()
        self.lookback = options.lookback or EXACT_LOOKBACK
        self.settle = options.settle or EXACT_SETTLE

    def blank(self, origin: str) -> RowCheckpoint:
        return RowCheckpoint(name=self._settings.name, source=self._source.fields(), origin=origin)

    async def open(self) -> RowLook:
        scan = await self._source.open()
        opened = scan.opened
        settle, lookback = (EXACT_SETTLE, EXACT_LOOKBACK) if opened.exact else (CLOCK_SETTLE, CLOCK_LOOKBACK)
        self.settle = settle if self._options.settle is None else self._options.settle
        self.lookback = lookback if self._options.lookback is None else self._options.lookback
        self._memory.meet(opened)
        return RowLook(scan, self, self._memory, self._settings, self._options)

    async def payload(
        self, batch: RowBatch, checkpoint: RowCheckpoint, *, trigger_run_id: str, sequence_index: int
    ) -> dict[str, Any]:
        return self._events.payload(batch, checkpoint, trigger_run_id=trigger_run_id, sequence_index=sequence_index)

    async def clean(self, now: datetime) -> None:
        """Nothing is kept outside the database."""

    async def aclose(self) -> None:
        await self._source.aclose()


class RowLook:
    """One poll's look at the table."""

    def __init__(
        self, scan: RowScan, reading: RowReading, memory: Memory, settings: Settings, options: RowOptions
    ) -> None:
        self._scan, self._reading, self._memory = scan, reading, memory
        self._settings, self._options = settings, options
        self.note = self._noted(self._reach(()))

    async def begin(self, beginning: Beginning, *, label: str) -> bool:
        """Resolve the place. A start at the latest has to wait until it is known what is the latest."""
        base = replace(beginning.base, passed=())
        # Not past a transaction that is not waited for: what it writes is new, and is read again when it ends.
        found = self._reach((), waits=True)
        if found.moment is None:
            found = self._reach(())
        return await begin(beginning, base, self._scan, found, self._reading.lookback, self._settings)

    async def read(self, checkpoint: RowCheckpoint) -> Read:
        if not checkpoint.fits(self._scan.column):
            raise CheckpointError(
                f"{self._settings.name}: the watermark was stored for a column of type {checkpoint.column}, and it is "
                f"{self._scan.column} now, whose values may stand in another order. Nothing is delivered. Move the watermark by "
                "hand to a value of the new type, or delete the root's key to begin anew"
            )
        checkpoint = replace(checkpoint, column=self._scan.column)
        if checkpoint.intents:
            batches = checkpoint.batches(checkpoint.intents)
            return Read(checkpoint, await self._with_rows(batches), checkpoint, complete=False)
        passed = [each.key for each in checkpoint.passed]
        found = self._reach(passed)
        poll = RowPoll(
            self._scan,
            checkpoint.passing([each.key for each in found.passing]),
            self._memory,
            settings=self._settings,
            max_rows=self._options.max_rows,
            lookback=self._reading.lookback,
        )
        read = await poll.read(found.moment)
        return replace(read, batches=await self._with_rows(read.batches), soon=self._soon(read, found))

    def _reach(self, passed: Sequence[str], *, waits: bool = False) -> Reach:
        return reach(
            self._scan.opened,
            settle=self._reading.settle,
            max_hold=None if waits else self._options.max_hold,
            met=self._memory.met,
            passed=passed,
        )

    def _noted(self, found: Reach) -> str | None:
        memory = self._memory
        notes = [self._scan.note, hold_note(self._scan.opened, found, memory), future_note(memory.future)]
        notes.append(behind_note(memory.behind))
        if self._options.max_hold is not None and not self._scan.opened.exact:
            notes.append("max_hold does nothing here: open transactions cannot be seen, and are not waited for")
        return "; ".join(note for note in notes if note) or None

    def _soon(self, read: Read, found: Reach) -> float | None:
        """A column without a clock shows in two looks what is new: the second need not wait for a whole interval."""
        if self._scan.has_clock or not self._memory.has_new_look or found.holding is not None:
            return None
        return self._reading.settle.total_seconds() + 0.1

    async def _with_rows(self, batches: Sequence[RowBatch]) -> list[RowBatch]:
        """Add the rows to the windows that carry them; to none that holds more than an event may."""
        most = self._options.max_rows
        if not self._options.carries_rows or most is None:
            return list(batches)
        result = []
        for batch in batches:
            fits = batch.count <= most
            rows = await self._rows(batch) if fits else None
            result.append(replace(batch, rows=rows) if rows is not None and len(rows) <= most else batch)
        return result

    async def _rows(self, batch: RowBatch) -> Sequence[dict[str, Any]] | None:
        """Return a window's rows, if an event can hold them."""
        try:
            rows = await self._scan.rows(batch.span)
            check_json(list(rows))
        except (NotJson, RecursionError):
            return None
        return rows
