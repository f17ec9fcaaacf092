"""Local times for columns without a zone."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone, tzinfo

LONGEST_REPEAT = timedelta(hours=26)
"""No clock has ever been set back by more than a day."""
_STEP = timedelta(minutes=15)


def safe_local(moment: datetime, zone: tzinfo) -> datetime:
    """Return the greatest local time that no later moment is before.

    Where clocks go back, an hour of local times comes twice. In its first pass, and until the second one is over the place, what
    is written later may carry a smaller local time: so the answer stays at the beginning of that hour until the second pass.
    """
    start = moment.astimezone(timezone.utc)
    least = _local(start, zone)
    at, offset = start, _offset(start, zone)
    while at < start + LONGEST_REPEAT:
        step = at + _STEP
        new = _offset(step, zone)
        if new < offset:
            least = min(least, _local(_change(at, step, zone, offset), zone))
        at, offset = step, new
    return least


def _change(before: datetime, after: datetime, zone: tzinfo, offset: timedelta) -> datetime:
    """Return the first moment with another offset."""
    while after - before > timedelta(seconds=1):
        middle = before + (after - before) / 2
        if _offset(middle, zone) == offset:
            before = middle
        else:
            after = middle
    return after.replace(microsecond=0)  # clocks are set at whole seconds


def _offset(moment: datetime, zone: tzinfo) -> timedelta:
    return moment.astimezone(zone).utcoffset() or timedelta(0)


def _local(moment: datetime, zone: tzinfo) -> datetime:
    return moment.astimezone(zone).replace(tzinfo=None)
