"""Which identities were delivered inside the lookback.

A ledger is an immutable row of segments. Each segment is stored under its own key and never changes once a root names it:
adding identities either opens a new segment or replaces the last ones, while they are small, by one longer copy under a new
name. So the root stays the only commit; a commit writes one small segment beside what is new, and each identity is copied a
few times in its life.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime

from airflow_state_watchers.core.identities import Index, packed, unpacked
from airflow_state_watchers.core.position import IDENTITY_BYTES, Item

OPEN_SEGMENT = 400
"""A segment with fewer identities is still open: about 8 KB as stored."""
FULL_SEGMENT = 2400
"""No segment holds more: about 46 KB as stored, below Airflow's soft limit of 64 KB."""
FEW = 16


@dataclass(frozen=True, slots=True)
class Segment:
    """Identities under one key, sorted, one after another. ``high`` is the greatest position value among them, which decides
    when it may go."""

    name: str
    high: datetime
    identities: bytes = field(repr=False)

    def __len__(self) -> int:
        return len(self.identities) // IDENTITY_BYTES

    def __iter__(self) -> Iterator[bytes]:
        return unpacked(self.identities)


@dataclass(frozen=True, slots=True)
class Ledger:
    """The segments in the order they were written, and an index over them."""

    segments: tuple[Segment, ...] = ()
    _index: Index = field(default=Index(), repr=False, compare=False)

    @classmethod
    def of(cls, segments: Iterable[Segment]) -> Ledger:
        """Rebuild a ledger from stored segments."""
        ledger = cls()
        for segment in segments:
            ledger = ledger.with_segment(segment)
        return ledger

    def __contains__(self, identity: bytes) -> bool:
        return identity in self._index

    def knows(self, item: Item) -> bool:
        """Whether an item was delivered, or another version of it where one is enough."""
        return item.identity in self._index or (item.thing is not None and item.thing in self._index)

    def __len__(self) -> int:
        return sum(len(segment) for segment in self.segments)

    def __iter__(self) -> Iterator[str]:
        return (segment.name for segment in self.segments)

    def with_segment(self, segment: Segment) -> Ledger:
        """Return the ledger that also has a stored segment."""
        return Ledger((*self.segments, segment), self._index.with_new(segment, segment.high))

    def with_items(self, items: Iterable[Item], *, name: str) -> Ledger:
        """Return the ledger that also knows ``items``. New segments are called ``name``, or ``name`` and a number."""
        marks = ((mark, item.position.value) for item in items for mark in item.marks)
        new = {mark: value for mark, value in marks if mark not in self._index}
        if not new:
            return self
        kept, copied = _open(self.segments, len(new))
        rows = [*((identity, segment.high) for segment in copied for identity in segment), *new.items()]
        segments = list(kept)
        for number, start in enumerate(range(0, len(rows), FULL_SEGMENT)):
            part = rows[start : start + FULL_SEGMENT]
            label = name if number == 0 else f"{name}.{number}"
            segments.append(Segment(label, max(value for _, value in part), packed(identity for identity, _ in part)))
        return Ledger(tuple(segments), self._index.with_new(new, max(new.values())))

    def pruned(self, before: datetime) -> Ledger:
        """Return the ledger without the segments in which every value is older than ``before``."""
        kept = tuple(segment for segment in self.segments if segment.high >= before)
        # Identities of a dropped segment may stay in the index: nothing that old is read again in this generation.
        index = self._index.pruned(before)
        return self if len(kept) == len(self.segments) and index is self._index else Ledger(kept, index)


def _open(segments: tuple[Segment, ...], new: int) -> tuple[tuple[Segment, ...], tuple[Segment, ...]]:
    """Part the segments into those that stay and the last ones, which are copied together with ``new`` identities.

    A segment is copied while it is small. Where there are many, it is copied too when half as many follow it as it holds: so
    they grow at least by half each time they are copied, and a root names few. Where there are few, each goes as soon as what is
    in it is old.
    """
    end, size = len(segments), new
    while end:
        held = len(segments[end - 1])
        if size + held > FULL_SEGMENT or (held >= OPEN_SEGMENT and (end <= FEW or held > 2 * size)):
            break
        end -= 1
        size += held
    return segments[:end], segments[end:]
