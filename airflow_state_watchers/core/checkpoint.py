"""What a watcher knows about its progress, and how that changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from airflow_state_watchers.core import uploads
from airflow_state_watchers.core.ledger import Ledger
from airflow_state_watchers.core.position import Item, Position
from airflow_state_watchers.core.uploads import Upload, UploadSegment

MAX_REPLACED = 8
STRIDE = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Intent:
    """One delivery that is not committed yet, stored before it is made.

    ``upto`` is where its items end; they begin after the intent before it, or inside the lookback. ``replaces`` names the
    batches that were delivered for the same bounds by earlier tries, newest first.
    """

    batch_id: str
    upto: Position
    replaces: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "replaces", self.replaces[:MAX_REPLACED])


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where a listing in the order of keys may begin: every key up to ``key`` was last modified before ``below``."""

    key: str
    below: datetime


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Everything stored for one watcher. ``None`` as watermark or frontier is the beginning of all positions.

    - ``watermark``: the greatest position delivered and committed.
    - ``frontier``: scanned completely to here; never less than the watermark.
    - ``generation``: how often a person or a reset moved the watermark, plus one.
    - ``origin``: drawn when the first checkpoint was made, so that batch ids never repeat after a loss of the state.
    - ``last_batch``: the last committed batch of this generation.
    - ``uploads``: multipart uploads whose objects may appear late; ``upload_segments``: as they were last stored.
    - ``cursor``: where a listing in the order of keys may begin.
    - ``floor``: the ledger knows all that was delivered from here on; nothing older is read, however long ``lookback`` is now.
    - ``dropped``: segment names that nothing names any more and that may still be stored.
    - ``by`` and ``n``: which process wrote it, and the how-manieth write it was.
    """

    name: str
    source: Mapping[str, Any] = field(hash=False)
    origin: str
    watermark: Position | None = None
    frontier: Position | None = None
    generation: int = 1
    last_batch: str | None = None
    intents: tuple[Intent, ...] = ()
    ledger: Ledger = field(default_factory=Ledger)
    uploads: tuple[Upload, ...] = ()
    upload_segments: tuple[UploadSegment, ...] = ()
    cursor: Cursor | None = None
    floor: datetime | None = None
    dropped: tuple[str, ...] = ()
    by: str = ""
    n: int = 0

    def is_behind(self, other: Checkpoint) -> bool:
        """Whether the other one has come further: a later generation, or more delivered within the same one.

        The frontier does not count. It runs ahead in memory, and the intents of a root that is behind by it alone must not
        be forgotten: what they delivered could no longer be named when it is delivered again.
        """
        return self._progress() < other._progress()

    def _progress(self) -> tuple[Any, ...]:
        return (self.generation, self.watermark is not None, self.watermark)

    def of_source(self, source: Mapping[str, Any]) -> Checkpoint:
        """Return the checkpoint to go on with at another source, whose keys stand in another order."""
        return replace(self, source=source, cursor=None)

    def restart(self) -> Start:
        """Return where the generation begins that a person asked for by moving the watermark."""
        return Start(self.watermark)

    def intend(self, intent: Intent, *, closes: Sequence[str] = ()) -> Checkpoint:
        """Return the checkpoint to store before a delivery: its intent is in, those it finishes replacing are out."""
        others = (known for known in self.intents if known.batch_id not in (intent.batch_id, *closes))
        return replace(self, intents=tuple(sorted((*others, intent), key=lambda known: known.upto)))

    def commit(self, intent: Intent, items: Sequence[Item], *, lookback: timedelta, segment: str) -> Checkpoint:
        """Return the checkpoint to store once Airflow has confirmed the delivery of ``items``, its greatest last."""
        watermark = later(self.watermark, items[-1].position if items else None)
        frontier = later(later(self.frontier, intent.upto), watermark)
        ledger = self.ledger.with_items(items, name=segment)
        moved = replace(
            self,
            watermark=watermark,
            frontier=frontier,
            last_batch=intent.batch_id,
            intents=tuple(known for known in self.intents if known.batch_id != intent.batch_id),
            uploads=uploads.committed(self.uploads, items),
        )
        return moved.with_ledger(ledger).pruned(lookback)

    def scanned(self, upto: Position) -> Checkpoint:
        """Return the checkpoint after a poll that found nothing up to ``upto``. Prune it only when it is stored: until
        then a restart reads from the stored frontier, and needs the identities from there on."""
        return replace(self, frontier=later(self.frontier, upto), intents=())

    def credible(self, horizon: datetime, *, lookback: timedelta) -> Checkpoint:
        """Return the checkpoint to poll with when the source's clock allows to read up to ``horizon``.

        A frontier more than ``lookback`` ahead of that comes from a clock that was wrong then, or is now. What has been put
        since would never be read, so reading begins again at the watermark; the ledger drops what is known.
        """
        if self.frontier is None or self.frontier == self.watermark:
            return self
        low = self.low(lookback)
        return replace(self, frontier=self.watermark) if low is not None and low > horizon else self

    def pruned(self, lookback: timedelta) -> Checkpoint:
        """Forget identities that no poll reads again: those older than ``lookback`` behind the watermark.

        The frontier, which is ahead of it, may turn out to be false (:meth:`credible`).
        """
        before = None if self.watermark is None else minus(self.watermark.value, lookback)
        if before is None:
            return self
        floor = before if self.floor is None else max(before, self.floor)
        return replace(self.with_ledger(self.ledger.pruned(before)), floor=floor)

    def looked(self, listed: Sequence[Upload] | None, now: datetime, *, ttl: timedelta | None) -> Checkpoint:
        """Return the checkpoint after a look at the source's time ``now`` that showed these uploads in progress (``None``: the
        source did not say). Those older than ``ttl`` are not remembered.

        One answer of a clock that is far ahead must not make them so: the time counts up to :data:`STRIDE` after the frontier.
        """
        if self.frontier is not None and now - self.frontier.value > STRIDE:
            now = self.frontier.value + STRIDE
        oldest = None if ttl is None else minus(now, ttl)
        return replace(self, uploads=uploads.looked(self.uploads, listed, oldest=oldest))

    @property
    def is_fresh(self) -> bool:
        """Whether nothing has been read yet in this generation."""
        return self.last_batch is None and self.frontier == self.watermark

    def low(self, lookback: timedelta) -> datetime | None:
        """The smallest value that a poll reads: ``lookback`` behind the frontier; ``None``: from the beginning."""
        low = None if self.frontier is None else minus(self.frontier.value, lookback)
        return self.floor if low is None or (self.floor is not None and self.floor > low) else low

    def after(self, lookback: timedelta) -> str | None:
        """The key after which a listing in the order of keys begins; ``None``: at the first key.

        A cursor serves for as long as polls read nothing older than when it was set.
        """
        low, cursor = self.low(lookback), self.cursor
        return cursor.key if cursor is not None and low is not None and low >= cursor.below else None

    def with_packed_uploads(self, name: str) -> Checkpoint:
        """Divide the uploads among segments for storing. Segments that are no longer named go to ``dropped``."""
        packed = uploads.pack(self.uploads, self.upload_segments, name=name)
        kept = {segment.name for segment in packed}
        gone = tuple(segment.name for segment in self.upload_segments if segment.name not in kept)
        return replace(self, upload_segments=packed, dropped=self.dropped + gone)

    def with_ledger(self, ledger: Ledger) -> Checkpoint:
        """Swap the ledger; segments that are no longer named go to ``dropped``."""
        kept = set(ledger)
        gone = tuple(name for name in self.ledger if name not in kept)
        return replace(self, ledger=ledger, dropped=self.dropped + gone) if gone or ledger is not self.ledger else self


@dataclass(frozen=True, slots=True)
class Start:
    """Where a generation begins, before its first look has been stored.

    ``watermark`` is the place (``None``: the beginning). What stands up to it when the generation begins counts as seen;
    with ``everything`` all that the first look shows does.
    """

    watermark: Position | None
    everything: bool = False

    @classmethod
    def at(cls, start: str, initial_value: datetime | None, now: datetime, settle: timedelta) -> Start:
        """Resolve the ``start`` policy at the source's time ``now``. ``initial_value`` is inclusive and wins."""
        if initial_value is not None:
            return cls(Position(initial_value))
        if start == "earliest":
            return cls(None)
        return cls(Position(now - settle), everything=True)

    def low(self, lookback: timedelta) -> datetime | None:
        """Where the first look begins: what is older can never be read again."""
        return None if self.watermark is None else minus(self.watermark.value, lookback)

    def sees(self, item: Item) -> bool:
        """Whether an item that the first look showed counts as seen."""
        return self.everything or (self.watermark is not None and item.position <= self.watermark)

    def begin(self, base: Checkpoint, seen: Ledger, *, floor: datetime | None) -> Checkpoint:
        """Return the first checkpoint of the generation, on top of what the last one leaves to be deleted.

        What counts as seen, from ``floor`` on, is in ``seen``. Uploads that the last generation remembered stay remembered.
        """
        empty = replace(base.with_ledger(Ledger()), watermark=self.watermark, frontier=self.watermark, floor=floor)
        return replace(empty, intents=(), last_batch=None, cursor=None).with_ledger(seen)


def later(one: Position | None, other: Position | None) -> Position | None:
    """The greater of two positions, where ``None`` is the beginning."""
    if one is None or other is None:
        return one or other
    return max(one, other)


def cursor_of(key: str | None, low: datetime | None) -> Cursor | None:
    """Return the cursor after a listing for values from ``low`` on, which said that up to ``key`` all are older."""
    return None if key is None or low is None else Cursor(key, low)


def minus(value: datetime, span: timedelta) -> datetime | None:
    """A time so long before; ``None`` if there is none."""
    try:
        return value - span
    except OverflowError:
        return None
