"""A consumer's place among an asset's events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from airflow_state_watchers.core.chain import Chains, Event
from airflow_state_watchers.core.numbers import Numbers
from airflow_state_watchers.core.takes import Fate, Holder, Question, Take

OVERLAP = 600_000_000
"""Microseconds read again before the bookmark: event times come from other hosts' clocks, and before their commit."""

REMEMBERED_RUNS = 100

_NOTHING = Numbers()
_NO_CHAINS = Chains()


@dataclass(frozen=True, slots=True)
class Bookmark:
    """What a consumer has seen, who took what of it, and how the batches follow each other. Times are microseconds.

    ``time`` is the time of the newest event seen, never later than this process's clock; ``seen`` are the ids of all events
    read that lie inside the overlap before it. ``begin``: events up to there were there before this consumer, and
    nobody was given them. ``takes`` are those of the last 100 runs, the last opened at the end; ``forgotten`` is the newest
    event of those that are no longer remembered. ``written`` counts the times it was stored. ``keeper`` is the task
    instance that keeps the second copy.
    """

    time: int | None = None
    seen: Numbers = _NOTHING
    begin: int | None = None
    takes: tuple[Take, ...] = ()
    chains: Chains = _NO_CHAINS
    forgotten: int | None = None
    written: int = 0
    keeper: Holder | None = None

    @property
    def low(self) -> int | None:
        """Where reading begins; ``None``: at the first event."""
        return None if self.time is None else self.time - OVERLAP

    def take_of(self, holder: Holder) -> Take | None:
        return next((take for take in self.takes if take.holder == holder), None)

    def others(self, holder: Holder) -> tuple[Take, ...]:
        return tuple(take for take in self.takes if take.holder != holder)

    def questions(self, holder: Holder) -> set[Question]:
        """Return whose states must be known before ``holder`` may open."""
        return {question for take in self.others(holder) for question in take.questions()}

    def settled(
        self, holder: Holder, fates: Mapping[Question, Mapping[int, Fate]]
    ) -> tuple[Bookmark, list[tuple[Take, Numbers]]]:
        """Decide about the open takes of others. Returns what ``holder`` is to take over: takes, with numbers of theirs."""
        takes: list[Take] = []
        over: list[tuple[Take, Numbers]] = []
        for take in self.takes:
            after, numbers = (take, _NOTHING) if take.holder == holder else take.settled(fates)
            takes.append(after)
            if numbers:
                over.append((take, numbers))
        return replace(self, takes=tuple(takes)), over

    def with_take(self, take: Take) -> Bookmark:
        """Put ``take`` at the end, in the place of this holder's earlier one."""
        return replace(self, takes=(*self.others(take.holder), take))

    def advanced(self, read: Sequence[Event], newest: int | None, now: int) -> Bookmark:
        """Move to the time of the newest event, of whatever kind, after ``read`` were read from :attr:`low` on.

        A time later than ``now`` comes from a clock that is ahead; it must not hide what other hosts still send.
        """
        reached = [time for time in (self.time, None if newest is None else min(newest, now)) if time is not None]
        time = max(reached, default=None)
        seen = Numbers.of(event.id for event in read if time is not None and event.time >= time - OVERLAP)
        return replace(self, time=time, seen=seen)

    def missed(self, holder: Holder, times: Iterable[int], *, cleared: bool) -> tuple[int, int] | None:
        """Return the span of the events that triggered the holder's own run and that nobody remembers to have given it.

        That is so for events from before this consumer, and for a cleared run that lies further back than is remembered.
        """
        if self.take_of(holder) is not None:
            return None
        limit = max(self.begin or 0, (self.forgotten or 0) if cleared else 0)
        wanted = [time for time in times if time <= limit]
        return (min(wanted), max(wanted)) if wanted else None

    def given(self) -> Numbers:
        """Return the ids of the events in remembered takes."""
        return Numbers.join(run for take in self.takes for run in take.event_ids().runs)

    def trimmed(self) -> Bookmark:
        """Keep the takes of the last 100 runs, and whatever is open."""
        runs = list(dict.fromkeys((take.holder.dag_id, take.holder.run_id) for take in reversed(self.takes)))
        kept = set(runs[:REMEMBERED_RUNS])
        return self.without(
            take for take in self.takes if not take.left and (take.holder.dag_id, take.holder.run_id) not in kept
        )

    def closed(self, *, besides: Holder) -> list[Take]:
        """Return the takes that may be forgotten to make room, the oldest first."""
        return [take for take in self.others(besides) if not take.left and take.pieces]

    def without(self, takes: Iterable[Take]) -> Bookmark:
        """Forget these takes."""
        gone = {take.holder: take for take in takes}
        times = [piece.last for take in gone.values() for piece in take.pieces]
        forgotten = max([*times, *([] if self.forgotten is None else [self.forgotten])], default=None)
        kept = tuple(take for take in self.takes if take.holder not in gone)
        return replace(self, takes=kept, forgotten=forgotten)
