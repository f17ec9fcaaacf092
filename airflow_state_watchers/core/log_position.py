"""How far a log has been shown, so that a reader who comes later goes on after it. Pure: stamps come in as text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone

_STAMP = re.compile(r"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)$")


@dataclass(frozen=True)
class LogPosition:
    """The last line that was shown: its nanosecond, and how many lines of that nanosecond in a row were."""

    at: int
    shown: int

    def after(self, at: int) -> LogPosition:
        """The position once a further line, written at this nanosecond, has been shown."""
        return LogPosition(at, self.shown + 1 if at == self.at else 1)


NOTHING_SHOWN = LogPosition(at=-1, shown=0)


def stamp_of(line: bytes) -> int | None:
    """The nanosecond at which a line was written, from the RFC 3339 stamp it begins with; None for a line without one."""
    found = _STAMP.match(line.partition(b" ")[0].strip().decode("ascii", errors="replace"))
    if not found:
        return None
    whole = datetime.fromisoformat(f"{found[1]}{'+00:00' if found[3] == 'Z' else found[3]}")
    # Not timestamp(): a float has no place for nanoseconds, and the log's writers give all nine digits.
    seconds = int((whole - datetime(1970, 1, 1, tzinfo=timezone.utc)).total_seconds())
    return seconds * 1_000_000_000 + int((found[2] or "").ljust(9, "0"))


def unseen(lines: Iterable[bytes], shown: LogPosition) -> Iterator[tuple[bytes, LogPosition]]:
    """The lines after what was shown, each with the position that stands once it, too, has been.

    Only lines at the beginning are left out: once one is later than the position, all that follow are shown, though a clock
    be set back, since a line twice is better than none. A line without a stamp belongs to the one before it.
    """
    position, repeated, passed, kept = NOTHING_SHOWN, 0, False, shown == NOTHING_SHOWN
    for line in lines:
        at = stamp_of(line)
        if at is not None:
            repeated += at == shown.at
            passed = passed or at > shown.at or repeated > shown.shown
            position, kept = position.after(at), passed
        if kept:
            yield line, position
