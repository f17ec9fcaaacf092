"""An open inbox: hands items out and keeps account of how far."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from difflib import get_close_matches
from itertools import islice

from airflow_state_watchers.core.chain import Event
from airflow_state_watchers.core.micros import moment_of
from airflow_state_watchers.core.numbers import Numbers
from airflow_state_watchers.core.takes import Copies, Slot, Take
from airflow_state_watchers.tasks.opening import Opened, open_inbox
from airflow_state_watchers.tasks.reading import Payload
from airflow_state_watchers.tasks.refusal import InboxRefusal
from airflow_state_watchers.tasks.rules import Rules
from airflow_state_watchers.tasks.shelf import Shelf
from airflow_state_watchers.tasks.surroundings import Surroundings

log = logging.getLogger(__name__)


class Session:
    """From opening to leaving. Until it is stored, nothing counts as handed out.

    ``inside``: it ends with a ``with`` block; otherwise with each iteration.
    """

    def __init__(self, place: Surroundings, rules: Rules, *, inside: bool) -> None:
        self.place = place
        self.inside = inside
        self._rules = rules
        self._shelf = Shelf(place, rules.consumer)
        opened: Opened = open_inbox(place, self._shelf, rules)
        self.take: Take = opened.take
        self._stored = opened.take
        self._bookmark = opened.bookmark
        self._slots = opened.slots
        self._reached = 0
        self._findings = opened.findings

    @property
    def asset(self) -> str:
        return self._rules.asset

    def parts(self) -> Iterator[tuple[Slot, Numbers, Payload]]:
        """Yield what is left, event by event: where it is, the numbers of the items, and the event's payload."""
        slots = iter(self._slots)
        for piece in self.take.pieces:
            wanted = [slot for slot in islice(slots, len(piece.ids)) if self._left_of(slot)]
            payloads = self._findings.payloads([slot.event for slot in wanted])
            for slot, payload in zip(wanted, payloads, strict=True):
                if payload is not None:
                    yield slot, self._left_of(slot), payload
                else:
                    self._gone(slot.event)

    def last_slots(self) -> frozenset[int]:
        """Return where the last event of each watcher starts: nothing newer of that watcher is left."""
        return frozenset({slot.event.watcher: slot.start for slot in self._slots if self._left_of(slot)}.values())

    def _gone(self, event: Event) -> None:
        """Raise because what was taken is not there any more, unless the author wants to go on without it."""
        name = f"asset event {event.id} of {moment_of(event.time)}"
        uri = self._findings.manifests.gone.get(event.batch_id)
        if uri is None:
            self._rules.gap(f"{name} is gone since it was taken.")
        else:
            self._rules.gap(
                f"{uri}, the manifest of {name}, is gone.",
                "Was it removed by age ([state_watchers] manifest_retention)?",
            )

    def _left_of(self, slot: Slot) -> Numbers:
        return self.take.left & Numbers.span(slot.start, slot.stop)

    def reached(self, number: int) -> None:
        """All items below ``number`` have been handed out."""
        self._reached = max(number, self._reached)

    def hand_over(self, copies: Copies | None) -> None:
        """All has been handed out; ``copies`` tells whose success finishes it, if not this task's."""
        before = self.take.copies
        if copies and before and copies.task_id != before.task_id:
            raise InboxRefusal(
                f"take(done_by={copies.task_id!r}): this task has given the same items to {before.task_id!r} already. "
                "Take them once."
            )
        self._reached = self.take.size
        self.take = replace(self.take, copies=copies or before)

    def commit(self) -> None:
        """Store that what was handed out is done."""
        self.take = replace(self.take, left=self.take.left - self.take.left.below(self._reached))
        self._store()

    def pause(self, *, ended: bool) -> None:
        """An iteration is over."""
        if not self.inside:
            self.leave(ended=ended)

    def leave(self, *, ended: bool) -> None:
        """Store how far the items were handed out."""
        if self.take.pieces:
            self.take = replace(self.take, ended=ended)
            self._store()

    def _store(self) -> None:
        self.take = replace(self.take, yielded=self._reached)
        if self.take == self._stored:
            return
        bookmark = self._shelf.load() or self._bookmark
        known = bookmark.take_of(self.take.holder)
        if known is not None and known != self._stored:
            if known.pieces[: len(self.take.pieces)] != self.take.pieces:
                log.warning(
                    "what this task took has been taken over meanwhile, or taken anew; its items may come twice"
                )
                return
            self.take = self._joined(known)
        self._bookmark = self._shelf.save(bookmark.with_take(self.take))
        self._stored = self.take

    def _joined(self, known: Take) -> Take:
        """Add what this session did to a take that another inbox of the same task has made longer meanwhile."""
        done = self._stored.left - self.take.left
        return replace(
            known,
            left=known.left - done,
            yielded=max(known.yielded, self.take.yielded),
            ended=self.take.ended,
            copies=self.take.copies or known.copies,
        )

    def check_map_length(self, group: int | None) -> None:
        """Raise if Airflow would refuse to map a task over the list."""
        items, limit = len(self.take.left), self.place.max_map_length
        length = -(-items // (group or 1))
        if not self.place.mapped_over or length <= limit:
            return
        made = f"{items} items" if group is None else f"{items} items in groups of {group} make {length} lists"
        raise InboxRefusal(
            f"{made}: Airflow maps a task over at most {limit} values ([core] max_map_length). "
            f"Use take(group={-(-items // limit)}) or more, and give the mapped task a list of items."
        )

    def check_done_by(self, task_id: str | None) -> None:
        """Raise if the DAG has no such task: its items would never be done."""
        known = self.place.task_ids
        if task_id is None or known is None or task_id in known:
            return
        near = get_close_matches(task_id, known, n=1, cutoff=0.5)
        raise InboxRefusal(
            f"done_by={task_id!r}: DAG {self.place.opener.holder.dag_id!r} has no such task."
            + (f" Did you mean {near[0]!r}?" if near else "")
        )
