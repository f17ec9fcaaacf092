"""What of a prefix a poll has to list."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from airflow_state_watchers.sources.partitions import DatePattern

WORTH = 8
"""Pages that a range must have for a listing to be split there."""


@dataclass(frozen=True, slots=True)
class Span:
    """A run of keys in S3's order: those that begin with ``prefix``, after ``after`` and up to ``upto`` (inclusive)."""

    prefix: str
    after: str | None = None
    upto: str | None = None

    def __contains__(self, key: str) -> bool:
        if not key.startswith(self.prefix):
            return False
        place = bytes_of(key)
        return (self.after is None or place > bytes_of(self.after)) and (
            self.upto is None or place <= bytes_of(self.upto)
        )


@dataclass(frozen=True, slots=True)
class Layout:
    """How keys and time go together below a prefix.

    - by default not at all: every poll lists the whole prefix;
    - ``in_order``: keys only grow, so a poll begins after a key that is old enough;
    - ``dated``: keys lie in dated partitions, so a poll lists the living ones.
    """

    prefix: str
    in_order: bool = False
    dated: DatePattern | None = None

    def spans(self, low: datetime | None, now: datetime, *, after: str | None, cuts: Sequence[str]) -> list[Span]:
        """Return what to list for objects from ``low`` on.

        ``after`` is used if keys are in order; ``cuts`` are keys at which a listing of the whole prefix may be split.
        """
        if self.in_order:
            return [Span(self.prefix, after)]
        names = self.dated.partitions(low, now) if self.dated and low is not None else None
        if names is not None:
            return [Span(self.prefix + name) for name in _without_longer(names)]
        ends = [*cuts, None]
        return [Span(self.prefix, start, end) for start, end in zip([None, *cuts], ends, strict=True)]

    def beside(self, keys: Iterable[str], spans: Sequence[Span]) -> list[str]:
        """Return those keys below the prefix that none of the spans lists."""
        if self.dated is None:
            return [key for key in keys if key not in spans[0]] if self.in_order else []
        prefixes = sorted(span.prefix for span in spans)
        places = ((key, bisect_right(prefixes, key)) for key in keys)
        return [key for key, place in places if place == 0 or not key.startswith(prefixes[place - 1])]

    def has(self, key: str) -> bool:
        """Whether a key below the prefix belongs to the source: where partitions are dated, only what lies in one."""
        return self.dated is None or self.dated.matches(key[len(self.prefix) :])


def cuts_of(ends: Sequence[str], count: int) -> list[str]:
    """Choose among the last keys of a listing's pages those at which the next one is split into ``count`` even ranges."""
    if count < 2 or len(ends) < WORTH * count:
        return []
    ordered = sorted(ends, key=bytes_of)
    return [ordered[len(ordered) * number // count] for number in range(1, count)]


def bytes_of(key: str) -> bytes:
    """What S3 orders keys by."""
    return key.encode("utf-8", "surrogatepass")


def _without_longer(names: Sequence[str]) -> list[str]:
    """Leave out what a shorter one lists already."""
    kept: list[str] = []
    for name in sorted(names):
        if not kept or not name.startswith(kept[-1]):
            kept.append(name)
    return kept
