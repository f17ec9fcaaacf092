"""Which partitions of a prefix are alive: those whose date is from some time on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from airflow_state_watchers.exceptions import WatcherArgumentError

BACK = 2
"""So many partitions before the oldest one that is asked for are listed too, for what was put into them late."""
AHEAD = 1
"""And so many after the current one, for writers whose clocks are ahead."""
MOST = 2_000
"""More partitions than that are not listed one by one: the whole prefix is."""

_DIGITS = {"Y": 4, "G": 4, "y": 2, "m": 2, "V": 2, "d": 2, "j": 3, "H": 2, "M": 2}
_FINE = {"M": timedelta(minutes=1), "H": timedelta(minutes=30)}
_DAILY = timedelta(hours=6)
"""Steps in which no partition is jumped over: a day may have 23 hours, an hour of local time half of one."""
_FURTHEST = 1200 * 4
"""Steps: more than three years of :data:`_DAILY` ones."""


@dataclass(frozen=True, slots=True)
class DatePattern:
    """The dated part of keys, right after the prefix: a ``strftime`` pattern, in a time zone.

    Raises :class:`WatcherArgumentError` for a pattern that names no date, or one that cannot be told from others.
    """

    pattern: str
    timezone: str = "UTC"
    _zone: ZoneInfo = field(init=False, repr=False, compare=False)
    _step: timedelta = field(init=False, repr=False, compare=False)
    _regex: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "_zone", ZoneInfo(self.timezone))
        except (ValueError, OSError, LookupError):
            raise WatcherArgumentError(
                f'timezone={self.timezone!r}: no such time zone is known here. Give a name such as "Europe/Berlin"'
            ) from None
        found = re.findall(r"%(.?)", self.pattern, re.DOTALL)
        odd = [directive for directive in found if directive not in _DIGITS and directive != "%"]
        if odd:
            raise WatcherArgumentError(
                f"date_pattern={self.pattern!r}: %{odd[0]} cannot be used. Use {', '.join('%' + each for each in _DIGITS)}"
            )
        if not set(found) - {"%"}:
            raise WatcherArgumentError(
                f'date_pattern={self.pattern!r} names no date. Write, for example, "dt=%Y-%m-%d/", or leave it out'
            )
        object.__setattr__(self, "_step", min((_FINE[each] for each in found if each in _FINE), default=_DAILY))
        object.__setattr__(self, "_regex", re.compile(_regex_of(self.pattern)))

    def matches(self, rest: str) -> bool:
        """Say whether a key's ``rest`` after the prefix begins as a partition does."""
        return self._regex.match(rest) is not None

    def partitions(self, since: datetime, now: datetime) -> list[str] | None:
        """Return the partitions from ``since`` to ``now`` and some beside them; ``None`` if they are too many."""
        if (now - since) / self._step > 50 * MOST:
            return None
        names = [*reversed(list(self._beside(since, -self._step, BACK))), self._name(since)]
        at = since
        while at < now:
            at = now if now - at <= self._step else at + self._step
            name = self._name(at)
            if name not in names[-2:]:
                names.append(name)
        names += [name for name in self._beside(now, self._step, AHEAD) if name not in names]
        distinct = list(dict.fromkeys(names))
        return distinct if len(distinct) <= MOST else None

    def _beside(self, at: datetime, step: timedelta, count: int) -> Iterator[str]:
        """Yield the partitions next to the one of a time, in one direction."""
        last, left = self._name(at), count
        for _ in range(_FURTHEST):
            try:
                at += step
                name = self._name(at)
            except (OverflowError, ValueError):
                return
            if name != last:
                yield name
                last, left = name, left - 1
                if not left:
                    return

    def _name(self, at: datetime) -> str:
        return at.astimezone(self._zone).strftime(self.pattern)


def _regex_of(pattern: str) -> str:
    parts = re.split(r"%(.)", pattern, flags=re.DOTALL)
    texts, directives = parts[::2], parts[1::2]
    rows = ["%" if each == "%" else rf"\d{{{_DIGITS[each]}}}" for each in directives]
    return "".join(re.escape(text) + row for text, row in zip(texts, [*rows, ""], strict=True))
