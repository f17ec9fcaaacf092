"""Which identities were delivered inside the lookback.

A ledger is an immutable row of segments. Each segment is stored under its own key and never changes once a root names it:
adding identities either opens a new segment or replaces the last, still small one by a longer copy under a new name. So
the root stays the only commit, and a commit writes one small segment beside what is new.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime

from airflow_state_watchers.core.position import Item

OPEN_SEGMENT = 400
"""A segment with fewer identities is still open: about 8 KB as stored."""
FULL_SEGMENT = 2400
"""No segment holds more, but for one event that does: about 46 KB as stored, below Airflow's soft limit of 64 KB."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Identities under one key. ``high`` is the greatest position value among them, which decides when it may go."""

    name: str
    high: datetime
    identities: frozenset[bytes] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Ledger:
    """The segments in the order they were written, and an index over them.

    The index is a row of sets whose sizes shrink at least by half from one to the next; adding to it never changes a set
    that an older ledger can see, so a commit that fails leaves nothing behind.
    """

    segments: tuple[Segment, ...] = ()
    _index: tuple[frozenset[bytes], ...] = field(default=(), repr=False, compare=False)

    @classmethod
    def of(cls, segments: Iterable[Segment]) -> Ledger:
        """Rebuild a ledger from stored segments."""
        kept = tuple(segments)
        return cls(kept, (frozenset().union(*(segment.identities for segment in kept)),) if kept else ())

    def __contains__(self, identity: bytes) -> bool:
        return any(identity in known for known in self._index)

    def __len__(self) -> int:
        return sum(len(segment.identities) for segment in self.segments)

    def __iter__(self) -> Iterator[str]:
        return (segment.name for segment in self.segments)

    def with_items(self, items: Iterable[Item], *, name: str) -> Ledger:
        """Return the ledger that also knows ``items``. New segments are called ``name``, or ``name`` and a number."""
        new = [(item.identity, item.position.value) for item in items if item.identity not in self]
        if not new:
            return self
        segments, appended = list(self.segments), new
        last = segments[-1] if segments else None
        if last is not None and len(last.identities) < OPEN_SEGMENT and len(last.identities) + len(new) <= FULL_SEGMENT:
            segments.pop()
            appended = [*((identity, last.high) for identity in last.identities), *new]
        for number, start in enumerate(range(0, len(appended), FULL_SEGMENT)):
            part = appended[start : start + FULL_SEGMENT]
            label = name if number == 0 else f"{name}.{number}"
            segments.append(
                Segment(label, max(value for _, value in part), frozenset(identity for identity, _ in part))
            )
        return Ledger(tuple(segments), _indexed(self._index, frozenset(identity for identity, _ in new)))

    def pruned(self, before: datetime) -> Ledger:
        """Return the ledger without the segments in which every value is older than ``before``."""
        kept = tuple(segment for segment in self.segments if segment.high >= before)
        if len(kept) == len(self.segments):
            return self
        live = sum(len(segment.identities) for segment in kept)
        # Identities of a dropped segment may stay in the index: nothing that old is read again in this generation.
        if 2 * live > sum(len(known) for known in self._index):
            return Ledger(kept, self._index)
        return Ledger.of(kept)


def _indexed(index: tuple[frozenset[bytes], ...], new: frozenset[bytes]) -> tuple[frozenset[bytes], ...]:
    """Append a set; while the last is not at most half of the one before it, the two become one (amortised)."""
    sets = [*index, new]
    while len(sets) > 1 and 2 * len(sets[-1]) > len(sets[-2]):
        last = sets.pop()
        sets[-1] = sets[-1] | last
    return tuple(sets)
