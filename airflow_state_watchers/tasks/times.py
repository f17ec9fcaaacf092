"""Between aware datetimes and the microseconds since 1970 that bookmarks count in: exact both ways."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND = timedelta(microseconds=1)


def micros_of(moment: datetime) -> int:
    return (moment - _EPOCH) // _MICROSECOND


def moment_of(micros: int) -> datetime:
    return _EPOCH + micros * _MICROSECOND
