"""What a task was given of an asset's events, and what of it is done.

Events belong to a take from the moment somebody opened the inbox on them; their items are done when the task that took
them has succeeded, which is found out when the inbox is opened the next time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import pairwise

from airflow_state_watchers.core.chain import Event
from airflow_state_watchers.core.numbers import Numbers

_GAP = 3_600_000_000
_NONE = Numbers()

Question = tuple[str, str, str]
"""DAG, task, run: whose states are asked for."""


class Fate(Enum):
    """What became of a task that took something."""

    DONE = "it succeeded"
    FAILED = "it will not finish any more"
    ACTIVE = "it may still finish"


@dataclass(frozen=True, slots=True, order=True)
class Holder:
    """A task instance, over all its tries."""

    dag_id: str
    run_id: str
    task_id: str
    map_index: int = -1


@dataclass(frozen=True, slots=True)
class Piece:
    """Events given together, in the order of (time, id), with the times of the first and the last.

    ``parts`` holds the positions given of events that were not given whole.
    """

    ids: Numbers
    first: int
    last: int
    parts: Mapping[int, Numbers] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Slot:
    """The positions given of one event; its items are numbered from ``start``."""

    event: Event
    positions: Numbers
    start: int

    @property
    def stop(self) -> int:
        return self.start + len(self.positions)


@dataclass(frozen=True, slots=True)
class Copies:
    """A take that another task finishes: its copy ``i`` has the items ``i * group`` onwards of ``base``."""

    task_id: str
    group: int
    base: Numbers

    def split(self, left: Numbers, fates: Mapping[int, Fate]) -> dict[Fate, Numbers]:
        """Divide what is left by the fates of the copies; a task without copies has all, at map index -1."""
        by_fate = dict.fromkeys(Fate, _NONE)
        whole = fates.get(-1, Fate.FAILED)
        for index, start in enumerate(range(0, len(self.base), self.group)):
            by_fate[fates.get(index, whole)] |= self.base.pick(start, start + self.group) & left
        return by_fate


@dataclass(frozen=True, slots=True)
class Take:
    """What one task instance was given.

    Its items are numbered from 0, through its pieces in order; there are ``size`` of them. ``numbers`` are those that
    are its own, ``left`` those of them that are not done. Of what is left, the items below ``yielded`` have been handed out.
    ``tries`` is the task's ``max_tries`` when it opened: greater later means that somebody cleared it, since a retry
    leaves it alone. ``ended``: the task has succeeded, or is taken to have, since it left the inbox without an error.
    """

    holder: Holder
    tries: int
    pieces: tuple[Piece, ...] = ()
    size: int = 0
    numbers: Numbers = _NONE
    left: Numbers = _NONE
    yielded: int = 0
    ended: bool = False
    copies: Copies | None = None

    def emptied(self) -> Take:
        """It has opened, and nothing of what it took is its own any more."""
        return Take(self.holder, self.tries)

    def resumed(self, max_tries: int) -> Numbers:
        """Return the numbers that the same task gets again.

        A retry gets what is not done. So does a task that failed and was cleared; one that succeeded and was cleared gets
        all its own.
        """
        return self.numbers if self.ended and max_tries > self.tries else self.left

    def questions(self) -> tuple[Question, ...]:
        """Return whose states decide about this take, as long as something is left of it."""
        if not self.left:
            return ()
        mine = (self.holder.dag_id, self.holder.task_id, self.holder.run_id)
        copies = (self.holder.dag_id, self.copies.task_id, self.holder.run_id) if self.copies else None
        return (mine, copies) if copies else (mine,)

    def settled(self, fates: Mapping[Question, Mapping[int, Fate]]) -> tuple[Take, Numbers]:
        """Return the take as it stands when the fates are known, and the numbers to be taken over.

        ``fates`` has, for each of :meth:`questions`, the fates by map index; what is missing there is gone for good.
        """
        if not self.left:
            return self, _NONE
        mine, *others = self.questions()
        fate = fates[mine].get(self.holder.map_index, Fate.FAILED)
        if fate is Fate.ACTIVE:
            return self, _NONE
        if fate is Fate.FAILED:
            return self.emptied(), self.left
        if self.copies is None:
            over = self.left - self.left.below(self.yielded)
            return replace(self, numbers=self.numbers - over, left=_NONE, ended=True), over
        return self._settled_by(self.copies.split(self.left, fates[others[0]]))

    def _settled_by(self, by_fate: Mapping[Fate, Numbers]) -> tuple[Take, Numbers]:
        over, active = by_fate[Fate.FAILED], by_fate[Fate.ACTIVE]
        if not over:
            return replace(self, left=active, ended=self.ended or not active), _NONE
        # A run in which a copy failed has failed: cleared later, it gets nothing that others have finished since.
        return (replace(self, numbers=active, left=active) if active else self.emptied()), over

    def event_ids(self) -> Numbers:
        return Numbers.join(run for piece in self.pieces for run in piece.ids.runs)


def flatten(pieces: Iterable[Piece], events: Mapping[int, Event]) -> tuple[list[Slot], list[int]]:
    """Return the pieces' slots in order, and the ids of their events that are missing from ``events``."""
    slots: list[Slot] = []
    missing: list[int] = []
    start = 0
    for piece in pieces:
        missing += [event_id for event_id in piece.ids if event_id not in events]
        for event in sorted((events[i] for i in piece.ids if i in events), key=lambda event: event.order):
            positions = piece.parts.get(event.id, Numbers.span(0, event.count))
            slots.append(Slot(event, positions, start))
            start = slots[-1].stop
    return slots, missing


def select(slots: Iterable[Slot], numbers: Numbers) -> list[Slot]:
    """Return the slots that hold these numbers, with only their positions. The numbering of the result is the old one's."""
    chosen: list[Slot] = []
    for slot in slots:
        positions = _NONE
        for start, stop in (numbers & Numbers.span(slot.start, slot.stop)).runs:
            positions |= slot.positions.pick(start - slot.start, stop - slot.start)
        if positions:
            chosen.append(replace(slot, positions=positions))
    return chosen


def cut(given: Iterable[tuple[Event, Numbers]]) -> tuple[Piece, ...]:
    """Cut events, each with the positions given, into pieces in the order of (time, id).

    Positions of one event given twice are united. A new piece begins after an hour without an event, so that reading them
    again does not read what lies between.
    """
    united: dict[int, tuple[Event, Numbers]] = {}
    for event, positions in given:
        before = united.get(event.id)
        united[event.id] = (event, positions | before[1] if before else positions)
    ordered = sorted(united.values(), key=lambda pair: pair[0].order)
    if not ordered:
        return ()
    gaps = [n for n in range(1, len(ordered)) if ordered[n][0].time - ordered[n - 1][0].time > _GAP]
    return tuple(_piece(ordered[start:stop]) for start, stop in pairwise([0, *gaps, len(ordered)]))


def _piece(given: Sequence[tuple[Event, Numbers]]) -> Piece:
    ids = Numbers.of(event.id for event, _ in given)
    parts = {event.id: positions for event, positions in given if len(positions) < event.count}
    return Piece(ids, given[0][0].time, given[-1][0].time, parts)
