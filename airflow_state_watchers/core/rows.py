"""What a SQL watcher knows about its progress, and how that changes.

It delivers windows: spans of its watermark column, read by whoever wants the rows. So nothing is kept of single rows, and
cuts are never compared here: each window begins where the one before it ended.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from airflow_state_watchers.core.cut import Cut, Span
from airflow_state_watchers.core.ledger import Ledger
from airflow_state_watchers.core.reach import Seen
from airflow_state_watchers.core.slices import Slice, inside, joined, replaced

_NO_LEDGER = Ledger()
_WHOLE = frozenset({"tinyint", "smallint", "mediumint", "int", "integer", "bigint"})


@dataclass(frozen=True, slots=True)
class RowIntent:
    """One window that is not committed yet, stored before it is delivered.

    ``at``: the moment up to which the source could be read. ``reread``: it lies behind the watermark. ``slice``: what was
    seen in the part of it that lies inside the lookback. ``ends``: transactions that were not waited for, and whose rows are
    in it.
    """

    batch_id: str
    low: Cut | None
    high: Cut
    count: int
    at: datetime
    reread: bool = False
    slice: Slice | None = None
    ends: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RowBatch:
    """One event. ``rows``: the rows themselves, where the event carries them."""

    intent: RowIntent
    previous: str | None
    rows: Sequence[Mapping[str, Any]] | None = None
    items: tuple[()] = ()
    closes: tuple[str, ...] = ()

    @property
    def batch_id(self) -> str:
        return self.intent.batch_id

    @property
    def count(self) -> int:
        return self.intent.count if self.rows is None else len(self.rows)

    @property
    def span(self) -> Span:
        return Span(self.intent.low, self.intent.high)


@dataclass(frozen=True, slots=True)
class Passed:
    """A transaction that is not waited for. What it writes lies after ``low``, and is read again when it has ended."""

    key: str
    low: Cut | None


@dataclass(frozen=True, slots=True)
class RowStart:
    """Where a generation begins; ``None`` is the beginning. ``everything``: what exists is skipped."""

    watermark: Cut | None
    everything: bool = False


@dataclass(frozen=True, slots=True)
class RowCheckpoint:
    """Everything stored for one SQL watcher.

    - ``watermark``: the end of the last window delivered and committed; ``frontier``: read completely to here.
    - ``at``: the moment of the source's clock that the frontier stands for; ``None`` inside a backlog.
    - ``column``: the watermark column's type when it was read first.
    - ``commits`` counts windows: of two processes' checkpoints the one with more has come further.
    - ``slices``: what lies inside the lookback; ``looks``: the greatest values of the last looks, for a column without a clock;
      ``passed``: transactions that were not waited for.

    The other fields are those of :class:`~airflow_state_watchers.core.checkpoint.Checkpoint`.
    """

    name: str
    source: Mapping[str, Any] = field(hash=False)
    origin: str
    watermark: Cut | None = None
    frontier: Cut | None = None
    at: datetime | None = None
    column: str | None = None
    generation: int = 1
    commits: int = 0
    last_batch: str | None = None
    intents: tuple[RowIntent, ...] = ()
    slices: tuple[Slice, ...] = ()
    looks: tuple[Seen, ...] = ()
    passed: tuple[Passed, ...] = ()
    dropped: tuple[str, ...] = ()
    by: str = ""
    n: int = 0

    @property
    def ledger(self) -> Ledger:
        """Nothing: no single rows are kept."""
        return _NO_LEDGER

    @property
    def uploads(self) -> tuple[()]:
        return ()

    @property
    def upload_segments(self) -> tuple[()]:
        return ()

    def with_packed_uploads(self, name: str) -> RowCheckpoint:
        return self

    def is_behind(self, other: RowCheckpoint) -> bool:
        """Whether the other one has come further: a later generation, or more windows delivered within the same one."""
        return (self.generation, self.commits) < (other.generation, other.commits)

    def fits(self, column: str) -> bool:
        """Whether what is stored stands in the same order in a column of this type: whole numbers do, however wide they are."""
        return self.column in (None, column) or {self.column, column} <= _WHOLE

    def of_source(self, source: Mapping[str, Any]) -> RowCheckpoint:
        """Return the checkpoint to go on with at another source. What is to be read again of the old one still is."""
        return replace(self, source=source, column=None, looks=(), intents=())

    def restart(self) -> RowStart:
        """Return where the generation begins that a person asked for by moving the watermark."""
        return RowStart(self.watermark)

    def begin(self, start: RowStart, *, at: datetime | None, seen: Slice | None, column: str) -> RowCheckpoint:
        """Return the first checkpoint of a generation. ``seen``: what stands inside the lookback before its beginning."""
        return replace(
            self,
            watermark=start.watermark,
            frontier=start.watermark,
            at=at,
            column=column,
            commits=0,
            last_batch=None,
            intents=(),
            slices=(seen,) if seen else (),
            passed=(),
        )

    def batches(self, intents: Sequence[RowIntent]) -> list[RowBatch]:
        """Return the events of these windows; each names the one before it."""
        previous = (self.last_batch, *(intent.batch_id for intent in intents))
        return [RowBatch(intent, before) for intent, before in zip(intents, previous, strict=False)]

    def intend(self, intent: RowIntent, *, closes: Sequence[str] = ()) -> RowCheckpoint:
        """Return the checkpoint to store before a delivery."""
        others = tuple(known for known in self.intents if known.batch_id != intent.batch_id)
        return replace(self, intents=self.intents if intent in self.intents else (*others, intent))

    def commit(self, intent: RowIntent, items: Sequence[Any], *, lookback: timedelta, segment: str) -> RowCheckpoint:
        """Return the checkpoint to store once Airflow has confirmed the delivery. (``items`` and ``segment`` are for objects.)"""
        done = replace(
            self,
            commits=self.commits + 1,
            last_batch=intent.batch_id,
            intents=tuple(known for known in self.intents if known.batch_id != intent.batch_id),
            passed=tuple(passed for passed in self.passed if passed.key not in intent.ends),
        )
        if intent.reread:
            return replace(done, slices=replaced(done.slices, intent.slice)) if intent.slice else done
        moved = replace(done, watermark=intent.high, frontier=intent.high, at=intent.at)
        return moved.with_slice(intent.slice, lookback)

    def scanned(self, upto: RowCheckpoint) -> RowCheckpoint:
        """Return the checkpoint after a poll that found nothing new, which is what that poll made of it."""
        return upto

    def pruned(self, lookback: timedelta) -> RowCheckpoint:
        """Forget slices that no poll looks at again."""
        return self if self.at is None else replace(self, slices=inside(self.slices, self.at, lookback))

    def with_slice(self, new: Slice | None, lookback: timedelta) -> RowCheckpoint:
        return replace(self, slices=joined((*self.slices, new), lookback)) if new else self

    def upto(self, high: Cut, at: datetime, seen: Slice | None, lookback: timedelta) -> RowCheckpoint:
        """Return the checkpoint once it is known that nothing stands between the frontier and ``high``."""
        return replace(self, frontier=high, at=at).with_slice(seen, lookback)

    def passing(self, keys: Sequence[str], *, like: Passed | None = None) -> RowCheckpoint:
        """Return the checkpoint that no longer waits for these transactions.

        They write nothing before the frontier; or, if one of them may be ``like`` in disguise, nothing before its ``low``. Those
        that are passed stand in the order of ``low``.
        """
        known = {passed.key for passed in self.passed}
        low = like.low if like else self.frontier
        new = [Passed(key, low) for key in keys if key not in known]
        place = self.passed.index(like) if like else len(self.passed)
        return replace(self, passed=(*self.passed[:place], *new, *self.passed[place:])) if new else self


def row_batch_id(checkpoint: RowCheckpoint, low: Cut | None, high: Cut, *more: object) -> str:
    """Digest what a window is: its watcher, origin, generation and bounds; ``more`` tells one reading again from the next."""
    digest = hashlib.blake2b(digest_size=12)
    parts = (checkpoint.name, checkpoint.origin, checkpoint.generation, low, high, *more)
    digest.update(repr(parts).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()
