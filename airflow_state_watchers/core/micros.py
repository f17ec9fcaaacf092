"""Times as microseconds since 1970, which bookmarks count in: exact both ways, and text that a person can read."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND = timedelta(microseconds=1)


def micros_of(moment: datetime) -> int:
    """Return the microseconds of an aware time."""
    return (moment - _EPOCH) // _MICROSECOND


def moment_of(micros: int) -> datetime:
    return _EPOCH + micros * _MICROSECOND


def text_of(micros: int) -> str:
    return moment_of(micros).isoformat()


def read_text(text: str) -> int:
    """Read :func:`text_of`'s text. Raises ``ValueError``."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone")
    return micros_of(moment)
