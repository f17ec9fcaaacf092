"""One poll of a table: what is read again, what is new, and what is still waited for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from airflow_state_watchers.core.cut import Cut, Span
from airflow_state_watchers.core.reach import Reach, Seen, readable, with_look
from airflow_state_watchers.core.rows import RowCheckpoint, RowIntent, row_batch_id
from airflow_state_watchers.core.slices import Slice, Sums, changed, inside
from airflow_state_watchers.core.transactions import Openness
from airflow_state_watchers.ports import RowScan
from airflow_state_watchers.triggers.reading import Read
from airflow_state_watchers.triggers.settings import Settings

HOLD_ALARM = timedelta(minutes=1)
FUTURE_COUNTED = 1000
"""A source counts no more rows than one more than this."""


@dataclass
class Memory:
    """What a watcher's process remembers from one poll to the next, beside the checkpoint. Times are the source's.

    ``met``: when each open transaction was first seen. ``recent``: since when there are rows that were too young to be read,
    and none that was read since. ``future``: rows with a time to come. ``behind``: the greatest value and the watermark, if that is
    beyond it.
    """

    met: dict[str, datetime] = field(default_factory=dict)
    recent: datetime | None = None
    future: int = 0
    behind: tuple[str, str] | None = None
    has_new_look: bool = False
    _told: dict[str, str] = field(default_factory=dict)

    def meet(self, opened: Openness) -> None:
        keys = {transaction.key for transaction in opened.transactions}
        self.met = {key: self.met.get(key, opened.now) for key in keys}
        self._told = {key: text for key, text in self._told.items() if key in keys}

    def told(self, key: str, text: str) -> str:
        """Return the same text for as long as one transaction is open: what is said is said once."""
        return self._told.setdefault(key, text)


def hold_note(opened: Openness, found: Reach, memory: Memory) -> str | None:
    """Say which transaction the watermark waits for, if it has been open for long."""
    holding = found.holding
    if holding is None or opened.now - (holding.since or memory.met[holding.key]) < HOLD_ALARM:
        return None
    text = f"nothing newer is read until a transaction has ended: {holding.text}. End it, or let go with max_hold=..."
    return memory.told(holding.key, text)


def future_note(count: int) -> str | None:
    """Say how many rows are held back because their time is to come."""
    if not count:
        return None
    many = "more than 1,000" if count > FUTURE_COUNTED else f"{count:,}"
    what = "row is" if count == 1 else "rows are"
    each = "it is" if count == 1 else "each is"
    return f"{many} {what} dated after the database's now; {each} read when its time has come"


def behind_note(behind: tuple[str, str] | None) -> str | None:
    """Say that numbers may have begun again, which would be delivered only when they have come to the watermark."""
    if behind is None:
        return None
    return (
        f"the greatest value is {behind[0]}, and the watermark {behind[1]}. If newer rows were deleted, this is as it should be; "
        "if the table was emptied or made anew and its numbers begin again, move the watermark back, or nothing is delivered"
    )


class RowPoll:
    """Plans the windows of one poll."""

    def __init__(
        self,
        scan: RowScan,
        checkpoint: RowCheckpoint,
        memory: Memory,
        *,
        settings: Settings,
        max_rows: int | None,
        lookback: timedelta,
    ) -> None:
        self._scan, self._checkpoint, self._memory = scan, checkpoint, memory
        self._settings, self._max_rows, self._lookback = settings, max_rows, lookback

    async def read(self, moment: datetime | None) -> Read:
        """Return the windows that a look up to ``moment`` gives (``None``: only what is read again)."""
        scan, now = self._scan, self._scan.opened.now
        again = [*await self._ended(now), *(await self._changed(moment) if moment else ())]
        end = self._end(moment)
        new: list[RowIntent] = []
        complete, upto = True, self._checkpoint
        if end is not None:
            new, complete, is_ahead = await self._new(end)
            if complete and not new:
                upto = await self._upto(end, is_ahead=is_ahead)
        if not scan.has_clock:
            await self._look(moment)
            upto = replace(upto, looks=self._checkpoint.looks)
        at = end.at if end is not None and complete else self._checkpoint.at
        batches = self._checkpoint.batches([*again, *new])
        lag = None if at is None else now - at
        return Read(self._checkpoint, batches, upto, complete=complete, lag=lag)

    def _end(self, moment: datetime | None) -> Seen | None:
        """Return how far this poll reads."""
        if moment is None:
            return None
        if self._scan.has_clock:
            return Seen(self._scan.at(moment), moment)
        return readable(self._checkpoint.looks, moment)

    async def _ended(self, now: datetime) -> list[RowIntent]:
        """Read again what was passed while a transaction was not waited for that has ended now."""
        checkpoint = self._checkpoint
        opened = self._scan.opened.transactions
        keys = {transaction.key for transaction in opened}
        ended = [passed for passed in checkpoint.passed if passed.key not in keys]
        if not ended:
            return []
        # What has ended as a session's may go on as a prepared one, under another key. That is not waited for either.
        unknown = [transaction.key for transaction in opened if transaction.since is None]
        checkpoint = self._checkpoint = checkpoint.passing(unknown, like=ended[0])
        low, high = ended[0].low, checkpoint.frontier
        part = None if high is None else await self._scan.begin(Span(low, high), most=None)
        if high is None or part is None or not part.count:
            self._checkpoint = replace(checkpoint, passed=tuple(p for p in checkpoint.passed if p not in ended))
            return []
        ends = tuple(passed.key for passed in ended)
        batch_id = row_batch_id(checkpoint, low, high, "ended", ends)
        return [RowIntent(batch_id, low, high, part.count, now, reread=True, ends=ends)]

    async def _changed(self, moment: datetime) -> list[RowIntent]:
        """Read again the parts of the lookback in which something has changed."""
        slices = inside(self._checkpoint.slices, moment, self._lookback)
        self._checkpoint = replace(self._checkpoint, slices=slices)
        if not slices:
            return []
        found = await self._scan.sums([slices[0].low, *(each.high for each in slices)])
        return [
            RowIntent(
                row_batch_id(self._checkpoint, each.low, each.high, "reread", each.sums),
                each.low,
                each.high,
                each.sums.count,
                each.at,
                reread=True,
                slice=each,
            )
            for each in changed(slices, [Sums(*sums) for sums in found])
        ]

    async def _new(self, end: Seen) -> tuple[list[RowIntent], bool, bool]:
        """Cut what stands between the frontier and ``end`` into windows.

        Also say whether that is all of it, and whether ``end`` is ahead of the last window.
        """
        low = self._checkpoint.frontier
        intents: list[RowIntent] = []
        while len(intents) < self._settings.max_in_flight:
            if low == end.cut:
                return intents, True, False
            part = await self._scan.begin(Span(low, end.cut), most=self._max_rows)
            if not part.is_ahead:
                return intents, True, False
            is_last = part.high == end.cut
            if part.count:
                self._memory.recent = None
            elif not (is_last and not intents and self._is_hot(end.at)):
                return intents, True, True
            intents.append(await self._window(low, part.high, part.count, end.at))
            low = part.high
            if is_last:
                await self._beyond(end.cut)
                return intents, True, False
        return intents, False, True

    def _is_hot(self, at: datetime) -> bool:
        """Whether rows that were too young to be read have become younger still, again and again."""
        return self._memory.recent is not None and at >= self._memory.recent

    async def _window(self, low: Cut | None, high: Cut, count: int, at: datetime) -> RowIntent:
        seen = await self._slice(low, high, at)
        return RowIntent(row_batch_id(self._checkpoint, low, high), low, high, count, at, slice=seen)

    async def _upto(self, end: Seen, *, is_ahead: bool) -> RowCheckpoint:
        """Nothing is new: note how far that has been seen, and what is too young to be read."""
        checkpoint = self._checkpoint
        await self._beyond(end.cut)
        if not is_ahead:
            return checkpoint
        seen = await self._slice(checkpoint.frontier, end.cut, end.at)
        return checkpoint.upto(end.cut, end.at, seen, self._lookback)

    async def _beyond(self, cut: Cut) -> None:
        beyond = await self._scan.beyond(cut)
        memory = self._memory
        memory.future = beyond.future
        memory.recent = (memory.recent or self._scan.opened.now) if beyond.recent else None

    async def _slice(self, low: Cut | None, high: Cut, at: datetime) -> Slice | None:
        """Return what is seen in the part of a window that lies inside the lookback; nothing if none of it does."""
        scan, checkpoint = self._scan, self._checkpoint
        if not self._lookback:
            return None
        is_near = low == checkpoint.frontier and checkpoint.at is not None and at - checkpoint.at <= self._lookback
        if scan.has_clock and not is_near:
            begin = scan.at(at - self._lookback)
            if not (await scan.begin(Span(begin, high), most=1)).is_ahead:
                return None
            if low is None or (await scan.begin(Span(low, begin), most=1)).is_ahead:
                low = begin
        ((count, checksum),) = await scan.sums([low, high])
        return Slice(low, high, Sums(count, checksum), at)

    async def _look(self, moment: datetime | None) -> None:
        """Remember the greatest value there is now: a later poll reads up to it."""
        cut, at = await self._scan.greatest()
        looks: Sequence[Seen] = self._checkpoint.looks
        self._memory.behind = await self._behind(cut)
        if cut is not None:
            keep = None if moment is None else moment - self._lookback
            looks = with_look(looks, Seen(cut, at), keep=keep)
        was_soon = self._memory.has_new_look
        self._memory.has_new_look = not was_soon and bool(looks) and looks[-1].cut != self._checkpoint.frontier
        self._checkpoint = replace(self._checkpoint, looks=tuple(looks))

    async def _behind(self, greatest: Cut | None) -> tuple[str, str] | None:
        frontier = self._checkpoint.frontier
        if greatest is None or frontier is None or greatest == frontier:
            return None
        is_behind = (await self._scan.begin(Span(greatest, frontier), most=1)).is_ahead
        return (greatest.value, frontier.value) if is_behind else None
