"""Where an item stands in its source's total order."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import total_ordering
from typing import Any

IDENTITY_BYTES = 12


@total_ordering
@dataclass(frozen=True, slots=True)
class Position:
    """An item's place: a value (an aware ``datetime`` for objects), then a tiebreak (the object key).

    Tiebreaks compare by their UTF-8 bytes, the order in which S3 lists keys. The empty tiebreak stands before every item
    of its value, so ``Position(horizon)`` is greater than all items whose value is smaller than the horizon and smaller
    than all others.
    """

    value: datetime
    tiebreak: str = ""

    def __post_init__(self) -> None:
        if self.value.tzinfo is None:
            raise ValueError(f"a position needs a value with a time zone, got {self.value!r}")

    @property
    def order(self) -> tuple[datetime, bytes]:
        """What positions compare by, for sorting many of them fast."""
        return self.value, self.tiebreak.encode("utf-8", "surrogatepass")

    def __lt__(self, other: Position) -> bool:
        if self.value != other.value:
            return self.value < other.value
        return self.tiebreak.encode("utf-8", "surrogatepass") < other.tiebreak.encode("utf-8", "surrogatepass")


@dataclass(frozen=True, slots=True)
class Item:
    """One version of one thing.

    ``identity`` is a digest of 12 bytes that tells this version from every other one (:func:`identity_of`); ``data`` is
    the JSON-plain mapping that an event carries for it. ``thing``: a digest of what it is a version of, where one version
    of each thing is enough.
    """

    position: Position
    identity: bytes
    data: Mapping[str, Any]
    thing: bytes | None = None

    @property
    def marks(self) -> tuple[bytes, ...]:
        """What a ledger keeps of it; with any of them known there it is not delivered."""
        return (self.identity,) if self.thing is None else (self.identity, self.thing)


def identity_of(*parts: str) -> bytes:
    """Digest the parts that make a version unique (for an object: key, ETag, LastModified as listed) to 96 bits."""
    digest = hashlib.blake2b(digest_size=IDENTITY_BYTES)
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(4, "big"))
        digest.update(data)
    return digest.digest()
