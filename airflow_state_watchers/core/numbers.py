"""Sets of whole numbers that are mostly runs: event ids, item numbers."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True)
class Numbers:
    """A set of whole numbers >= 0, kept as sorted half-open runs that do not touch.

    The text of :meth:`dump` is short for runs and for close neighbours: ids 1000 to 1999 take five characters.
    """

    runs: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, numbers: Iterable[int]) -> Numbers:
        return cls.join((number, number + 1) for number in numbers)

    @classmethod
    def span(cls, start: int, stop: int) -> Numbers:
        """Return ``start`` to ``stop - 1``."""
        return cls(((start, stop),)) if start < stop else cls()

    @classmethod
    def join(cls, runs: Iterable[tuple[int, int]]) -> Numbers:
        """Unite half-open runs in any order."""
        joined: list[tuple[int, int]] = []
        for start, stop in sorted(runs):
            if joined and start <= joined[-1][1]:
                joined[-1] = (joined[-1][0], max(stop, joined[-1][1]))
            elif start < stop:
                joined.append((start, stop))
        return cls(tuple(joined))

    def __iter__(self) -> Iterator[int]:
        for start, stop in self.runs:
            yield from range(start, stop)

    def __len__(self) -> int:
        return sum(stop - start for start, stop in self.runs)

    def __contains__(self, number: int) -> bool:
        place = bisect_right(self.runs, number, key=lambda run: run[0])
        return place > 0 and number < self.runs[place - 1][1]

    def __or__(self, other: Numbers) -> Numbers:
        return Numbers.join((*self.runs, *other.runs))

    def __sub__(self, other: Numbers) -> Numbers:
        return self & other._outside()

    def __and__(self, other: Numbers) -> Numbers:
        common: list[tuple[int, int]] = []
        mine, theirs = 0, 0
        while mine < len(self.runs) and theirs < len(other.runs):
            start = max(self.runs[mine][0], other.runs[theirs][0])
            stop = min(self.runs[mine][1], other.runs[theirs][1])
            if start < stop:
                common.append((start, stop))
            if self.runs[mine][1] <= other.runs[theirs][1]:
                mine += 1
            else:
                theirs += 1
        return Numbers.join(common)

    def below(self, limit: int) -> Numbers:
        return self & Numbers.span(0, limit)

    def pick(self, start: int, stop: int) -> Numbers:
        """Return the members number ``start`` to ``stop - 1``, counted from the smallest."""
        picked: list[tuple[int, int]] = []
        passed = 0
        for first, end in self.runs:
            low, high = first + max(start - passed, 0), min(end, first + stop - passed)
            if low < high:
                picked.append((low, high))
            passed += end - first
        return Numbers(tuple(picked))

    def _outside(self) -> Numbers:
        edges = [0, *(edge for run in self.runs for edge in run), 1 << 63]
        return Numbers(
            tuple((start, stop) for start, stop in zip(edges[::2], edges[1::2], strict=True) if start < stop)
        )

    def dump(self) -> str:
        """Return text: for each run the gap before it, and how many more than one it holds."""
        words: list[str] = []
        end = 0
        for start, stop in self.runs:
            more = f"+{_to_36(stop - start - 1)}" if stop - start > 1 else ""
            words.append(_to_36(start - end) + more)
            end = stop
        return " ".join(words)

    @classmethod
    def load(cls, text: str) -> Numbers:
        """Read :meth:`dump`'s text. Raises ``ValueError``."""
        runs: list[tuple[int, int]] = []
        end = 0
        for word in text.split():
            gap, plus, more = word.partition("+")
            start = end + int(gap, 36)
            end = start + 1 + (int(more, 36) if plus else 0)
            runs.append((start, end))
        return cls.join(runs)


def _to_36(number: int) -> str:
    digits = ""
    while True:
        number, digit = divmod(number, 36)
        digits = _DIGITS[digit] + digits
        if not number:
            return digits
