"""Local times of a zone, for columns that hold them without saying which zone it is."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone, tzinfo

_DAY = timedelta(days=1)
_STEP = timedelta(minutes=15)
_MICROSECOND = timedelta(microseconds=1)


def safe_local(moment: datetime, zone: tzinfo) -> datetime:
    """Return the greatest naive local time that no clock of ``zone`` shows again, or falls behind, from ``moment`` on.

    Mostly that is the local time itself. Where clocks are put back within the coming day, local times repeat: from the first of
    the times that will repeat until the last has passed the second time, the answer stays at the first. ``moment`` is aware.
    """
    utc = moment.astimezone(timezone.utc)
    lowest = _local(utc, zone)
    offset, begin = _offset(utc, zone), utc
    # In steps, as two changes within a day could cancel each other out of sight.
    while begin < utc + _DAY:
        end = begin + _STEP
        if _offset(end, zone) < offset:
            lowest = min(lowest, _local(_change(begin, end, zone), zone))
        begin, offset = end, _offset(end, zone)
    return lowest


def _change(begin: datetime, end: datetime, zone: tzinfo) -> datetime:
    """Return the first moment with ``end``'s offset, to the microsecond."""
    after = _offset(end, zone)
    while end - begin > _MICROSECOND:
        middle = begin + (end - begin) // 2
        if _offset(middle, zone) == after:
            end = middle
        else:
            begin = middle
    return end


def _offset(utc: datetime, zone: tzinfo) -> timedelta:
    return utc.astimezone(zone).utcoffset() or timedelta(0)


def _local(utc: datetime, zone: tzinfo) -> datetime:
    return utc.astimezone(zone).replace(tzinfo=None, fold=0)
