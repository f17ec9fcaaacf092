"""Many identities in little memory.

A million identities as a set of objects take more than 100 MB. Here they stand one after another in text of bytes: sorted in
a segment (:func:`packed`), and for the question whether one is known in many short rows (:class:`Index`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime

from airflow_state_watchers.core.position import IDENTITY_BYTES

PART = 1_000_000
"""A part of an index with so many identities takes no more."""


def packed(identities: Iterable[bytes]) -> bytes:
    """Return the identities, sorted, one after another."""
    return b"".join(sorted(identities))


def unpacked(row: bytes) -> Iterator[bytes]:
    return (row[start : start + IDENTITY_BYTES] for start in range(0, len(row), IDENTITY_BYTES))


@dataclass(frozen=True, slots=True)
class Part:
    """Up to :data:`PART` identities, of which the greatest value is ``high``; by their first 16 bits, in rows of bytes."""

    high: datetime
    count: int = 0
    rows: dict[int, bytes] = field(default_factory=dict, repr=False)

    def __contains__(self, identity: bytes) -> bool:
        row = self.rows.get(identity[0] << 8 | identity[1])
        if row is None:
            return False
        place = row.find(identity)
        while place > 0 and place % IDENTITY_BYTES:  # the end of one and the beginning of the next look like it
            place = row.find(identity, place + 1)
        return place >= 0

    def with_new(self, identities: Iterable[bytes], high: datetime) -> Part:
        """Return the part that also has these; this one does not change."""
        rows, count = self.rows.copy(), self.count
        for identity in identities:
            key = identity[0] << 8 | identity[1]
            rows[key] = rows.get(key, b"") + identity
            count += 1
        return Part(max(self.high, high), count, rows)


@dataclass(frozen=True, slots=True)
class Index:
    """Which identities are known: parts in the order in which they were begun, of which the last one grows.

    Adding never changes what an older index can see. Whole parts are forgotten, and those only: what is forgotten later than
    it could be does no harm, as nothing that old is read again.
    """

    parts: tuple[Part, ...] = ()

    def __contains__(self, identity: bytes) -> bool:
        return any(identity in part for part in reversed(self.parts))

    def __len__(self) -> int:
        return sum(part.count for part in self.parts)

    def with_new(self, identities: Iterable[bytes], high: datetime) -> Index:
        """Return the index that also knows these, of which the greatest value is ``high``."""
        parts = self.parts
        if not parts or parts[-1].count >= PART:
            parts = (*parts, Part(high))
        return Index((*parts[:-1], parts[-1].with_new(identities, high)))

    def pruned(self, before: datetime) -> Index:
        """Return the index without the parts in which every value is older than ``before``."""
        kept = tuple(part for part in self.parts if part.high >= before)
        return self if len(kept) == len(self.parts) else Index(kept)
