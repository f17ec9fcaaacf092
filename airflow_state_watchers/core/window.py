"""What one poll reads, and which of it is new."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone

from airflow_state_watchers.core.checkpoint import Checkpoint, Cursor
from airflow_state_watchers.core.ledger import Ledger
from airflow_state_watchers.core.position import Item, Position
from airflow_state_watchers.core.uploads import Remembered, scanned

NO_UPLOADS = Remembered()
END = datetime.max.replace(tzinfo=timezone.utc)
_TICK = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Window:
    """The span one poll reads: values from ``low`` (``None``: from the beginning), positions up to ``upto``."""

    low: datetime | None
    upto: Position

    @property
    def high(self) -> datetime:
        """The smallest value that no position up to ``upto`` has: the exclusive end of ``[low, high)``."""
        if not self.upto.tiebreak:
            return self.upto.value
        return self.upto.value + _TICK if self.upto.value < END else END

    def __contains__(self, position: Position) -> bool:
        return (self.low is None or position.value >= self.low) and position <= self.upto


def plan(checkpoint: Checkpoint, now: datetime, *, settle: timedelta, lookback: timedelta) -> Window:
    """Choose what to read at the source's time ``now``.

    A poll reads again from ``lookback`` behind the frontier, up to the horizon (``now - settle``). While deliveries of an
    earlier process are not committed it reads what those deliveries had read, so that equal content makes equal batches.
    """
    low = checkpoint.low(lookback)
    if checkpoint.intents:
        return Window(low, checkpoint.intents[-1].upto)
    return Window(low, Position(now - settle))


@dataclass(frozen=True, slots=True)
class Selected:
    """The new items of a window in order. ``upto`` is where they end: the window's end, or less if there were too many.

    ``old`` are those that are delivered already and carry a stamp as if a remembered upload had made them.
    """

    items: tuple[Item, ...]
    upto: Position
    complete: bool
    old: tuple[Item, ...] = ()


class Selection:
    """Collects the smallest ``limit`` new items of a window, whatever order the pages come in.

    What one of the ``uploads`` that are gone has made is new however old its stamp. Memory is bounded by twice ``limit`` items.
    What is left out is larger than everything selected, and the next poll reads it; :meth:`result` says so by a smaller ``upto``.
    """

    def __init__(self, window: Window, ledger: Ledger, *, limit: int, uploads: Remembered = NO_UPLOADS) -> None:
        self._window = window
        self._ledger = ledger
        self._uploads, self._gone = uploads, uploads.gone()
        self._old: list[Item] = []
        self._limit = limit
        self._items: list[Item] = []
        self._upto = window.upto
        self._complete = True

    def skip(self, key: str, identity: bytes) -> bool:
        """Whether a version need not be added: it is known, and no upload is remembered that might have made it."""
        return identity in self._ledger and key not in self._uploads.by_key

    def add(self, page: Iterable[Item]) -> None:
        for item in page:
            if self._ledger.knows(item):
                if self._uploads.made(item):
                    self._old.append(item)
            elif item.position > self._upto:
                continue
            elif item.position in self._window or self._gone.made(item):
                self._items.append(item)
                if len(self._items) >= 2 * self._limit:
                    self._cut()

    def result(self) -> Selected:
        self._cut()
        return Selected(tuple(self._items), self._upto, self._complete, tuple(self._old))

    def _cut(self) -> None:
        distinct = {item.identity: item for item in self._items}
        self._items = sorted(distinct.values(), key=lambda item: item.position.order)
        if len(self._items) > self._limit:
            end = self._items[self._limit - 1].position
            # Versions of one object may share a position: never part them, the next poll would read neither or both.
            self._items = [item for item in self._items if item.position <= end]
            self._upto = end
            self._complete = False


def seen(checkpoint: Checkpoint, selected: Selected, cursor: Cursor | None) -> Checkpoint:
    """Return the checkpoint after a complete listing that showed these versions; the next one may begin at ``cursor``."""
    new = selected.items if selected.complete else None
    uploads = scanned(checkpoint.uploads, new=new, old=selected.old, horizon=selected.upto.value)
    return replace(checkpoint, uploads=uploads, cursor=cursor)
