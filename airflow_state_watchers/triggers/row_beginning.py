"""Where a SQL watcher's generation begins, and what of the lookback counts as seen then."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from airflow_state_watchers.core.cut import Cut, Span
from airflow_state_watchers.core.reach import Reach, Seen, readable, with_look
from airflow_state_watchers.core.rows import RowCheckpoint, RowStart
from airflow_state_watchers.core.slices import Slice, Sums
from airflow_state_watchers.ports import RowScan
from airflow_state_watchers.triggers.beginning import Beginning
from airflow_state_watchers.triggers.settings import Settings

COUNTED = 10_000
"""So many of the rows that are skipped are counted: all of them would take long in a large table."""


async def begin(
    beginning: Beginning, base: RowCheckpoint, scan: RowScan, found: Reach, lookback: timedelta, settings: Settings
) -> bool:
    """Set the first checkpoint, if it is known where the generation begins.

    "Latest" is where everything before is committed: what an open transaction is going to write has a time after it, and is
    new. The latest value of a column without a clock is known once all transactions have ended that were open when it was seen.
    """
    if not scan.has_clock:
        base = beginning.base = await _looked(base, scan)
    start = beginning.start or _start(settings)
    at = found.moment
    if start.everything:
        seen = None if scan.has_clock else readable(base.looks, found.moment)
        if found.moment is None or not (scan.has_clock or seen or not base.looks):
            return False
        cut = scan.at(found.moment) if scan.has_clock else (seen.cut if seen else None)
        start = RowStart(cut, everything=True)
        at = seen.at if seen else found.moment
        if cut is not None:
            part = await scan.begin(Span(None, cut), most=COUNTED)
            beginning.skipped, beginning.skipped_more = part.count, part.high != cut
            beginning.newest = cut.value
    beginning.start = start
    if start.watermark is not None and not start.everything:
        start = replace(start, watermark=await scan.placed(start.watermark))
    known = await _seen(scan, start.watermark, found, lookback)
    beginning.first = base.begin(start, at=at if start.everything else None, seen=known, column=scan.column)
    return True


def _start(settings: Settings) -> RowStart:
    if settings.initial_value is not None:
        return RowStart(Cut(settings.initial_value))
    return RowStart(None, everything=settings.start == "latest")


async def _looked(base: RowCheckpoint, scan: RowScan) -> RowCheckpoint:
    cut, at = await scan.greatest()
    return base if cut is None else replace(base, looks=with_look(base.looks, Seen(cut, at), keep=None))


async def _seen(scan: RowScan, watermark: Cut | None, found: Reach, lookback: timedelta) -> Slice | None:
    """Return what stands inside the lookback before the beginning."""
    if watermark is None or found.moment is None or not lookback or not scan.has_clock:
        return None
    low = scan.at(found.moment - lookback)
    if not (await scan.begin(Span(low, watermark), most=1)).is_ahead:
        return None
    ((count, checksum),) = await scan.sums([low, watermark])
    return Slice(low, watermark, Sums(count, checksum), found.moment)
