"""What lies inside the lookback, slice by slice: so many rows, with such a checksum.

A row that was committed late, with a value that the watermark has passed, changes the slice it lies in. Slices lie side by
side up to the frontier. Counts and checksums of two neighbours add up to those of both.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from airflow_state_watchers.core.cut import Cut

PARTS = 12
"""The lookback is kept in about so many slices."""
_MODULUS = 2**64


@dataclass(frozen=True, slots=True)
class Sums:
    count: int
    checksum: int

    def __add__(self, other: Sums) -> Sums:
        return Sums(self.count + other.count, (self.checksum + other.checksum) % _MODULUS)


NOTHING = Sums(0, 0)


@dataclass(frozen=True, slots=True)
class Slice:
    """``[low, high)`` with what was seen in it; ``at``: the moment up to which the source could be read then."""

    low: Cut | None
    high: Cut
    sums: Sums
    at: datetime


def joined(slices: Iterable[Slice], lookback: timedelta) -> tuple[Slice, ...]:
    """Unite neighbours of about the same time."""
    result: list[Slice] = []
    for new in slices:
        last = result[-1] if result else None
        begun = result[-2].at if len(result) > 1 else None
        if last and last.high == new.low and begun is not None and new.at - begun <= lookback / PARTS:
            result[-1] = Slice(last.low, new.high, last.sums + new.sums, new.at)
        else:
            result.append(new)
    return tuple(result)


def inside(slices: Iterable[Slice], moment: datetime, lookback: timedelta) -> tuple[Slice, ...]:
    """Return those that a poll at ``moment`` looks at again."""
    return tuple(each for each in slices if moment - each.at <= lookback)


def replaced(slices: Sequence[Slice], new: Slice) -> tuple[Slice, ...]:
    """Put a slice in the place of those that it covers, from the one with its beginning to the one with its end."""
    starts = [number for number, each in enumerate(slices) if each.low == new.low]
    ends = [number for number, each in enumerate(slices) if each.high == new.high]
    if not starts or not ends or ends[-1] < starts[0]:
        return tuple(slices)
    return (*slices[: starts[0]], replace(new, at=slices[ends[-1]].at), *slices[ends[-1] + 1 :])


def changed(slices: Sequence[Slice], now: Sequence[Sums]) -> list[Slice]:
    """Return what differs from before, with what is there now; neighbours that both differ as one."""
    result: list[Slice] = []
    for old, sums in zip(slices, now, strict=True):
        if old.sums == sums:
            continue
        if result and result[-1].high == old.low:
            last = result[-1]
            result[-1] = Slice(last.low, old.high, last.sums + sums, old.at)
        else:
            result.append(replace(old, sums=sums))
    return result
