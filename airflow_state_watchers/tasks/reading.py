"""Reading an asset's events page by page.

Airflow orders events by time alone and knows no offset, and any number of them may have the same time. An event with its
objects may be large and thousands may wait, so never more than a page is held here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from airflow_state_watchers.core.chain import Event
from airflow_state_watchers.core.micros import micros_of, moment_of
from airflow_state_watchers.core.takes import Piece
from airflow_state_watchers.tasks.events import event_of
from airflow_state_watchers.tasks.manifests import Manifests, ReadManifest, read_from_s3
from airflow_state_watchers.tasks.surroundings import EventLog, RawEvent

FIRST_PAGE = 20
ITEMS_PER_PAGE = 20_000
LARGEST_PAGE = 500
CACHED_ITEMS = 50_000
"""Items of one opening that are kept in memory: some 40 MB. What is beyond is read again when it is its turn."""

_LOOK_BACK = 2_000

Payload = Mapping[str, Any]


def scan(log: EventLog, low: int | None = None, high: int | None = None) -> Iterator[RawEvent]:
    """Yield the events from ``low`` to ``high``, both included, in the order of (time, id).

    The events of a full page's last moment are left to the next page: more of that moment may follow, in any order.
    """
    limit = FIRST_PAGE
    after = None if low is None else moment_of(low)
    before = None if high is None else moment_of(high)
    while True:
        page = sorted(log.page(after=after, before=before, limit=limit), key=lambda raw: (raw.time, raw.id))
        if len(page) < limit:
            yield from page
            return
        last = page[-1].time
        if page[0].time == last:
            limit *= 2
            continue
        yield from (raw for raw in page if raw.time < last)
        after = last
        limit = _next_limit(page)


def _next_limit(page: Sequence[RawEvent]) -> int:
    items = sum(len(raw.payload["items"]) for raw in page if raw.payload is not None)
    return max(FIRST_PAGE, min(LARGEST_PAGE, ITEMS_PER_PAGE * len(page) // max(items, 1)))


def look_back(log: EventLog, event: Event) -> list[Event]:
    """Return the events of a chain before ``event``, back to the one that it follows, the oldest first.

    If that one is not there, or thousands of events back, none is returned.
    """
    limit, looked = FIRST_PAGE, 0
    before = event.time
    found: dict[int, Event] = {}
    while looked < _LOOK_BACK:
        limit = min(limit, _LOOK_BACK - looked)
        page = log.page(after=None, before=moment_of(before), limit=limit, ascending=False)
        looked += len(page)
        for other in (event_of(raw.id, raw.time, raw.payload) for raw in page if raw.payload is not None):
            if other.chain == event.chain and other.id != event.id:
                found[other.id] = other
        if any(other.batch_id == event.previous for other in found.values()):
            return sorted(found.values(), key=lambda other: other.order)
        if len(page) < limit:
            break
        earliest = min(micros_of(raw.time) for raw in page)
        limit = limit * 2 if earliest == before else _next_limit(page)
        before = earliest
    return []


class Findings:
    """What one opening has read: every event, and the payloads of the first ones, as many as may be held."""

    def __init__(self, log: EventLog, read_manifest: ReadManifest = read_from_s3) -> None:
        self.log = log
        self.manifests = Manifests(read_manifest, most=CACHED_ITEMS)
        self.events: dict[int, Event] = {}
        self._payloads: dict[int, Payload] = {}
        self._room = CACHED_ITEMS

    def add(self, raw: RawEvent) -> Event:
        """Remember an event of a watcher."""
        assert raw.payload is not None
        event = self.events[raw.id] = event_of(raw.id, raw.time, raw.payload)
        if self._room > 0 and raw.id not in self._payloads:
            self._room -= len(raw.payload["items"])
            self._payloads[raw.id] = raw.payload
        return event

    def read(self, pieces: Iterable[Piece]) -> None:
        """Read the events of these pieces again, as far as they are still there."""
        for piece in pieces:
            for raw in scan(self.log, piece.first, piece.last):
                if raw.id in piece.ids and raw.payload is not None:
                    self.add(raw)

    def payload(self, event_id: int, time: int) -> Payload | None:
        """Return an event's payload with its items, reading it again if it is not at hand. ``None`` if it, or its manifest, is
        gone."""
        found = self._payloads.get(event_id)
        if found is None:
            found = next((raw.payload for raw in scan(self.log, time, time) if raw.id == event_id), None)
        return self.manifests.whole(found)

    def keep(self, event_ids: set[int]) -> None:
        """Drop the payloads of all others."""
        self._payloads = {event_id: self._payloads[event_id] for event_id in event_ids & self._payloads.keys()}

    def payloads(self, events: Sequence[Event]) -> Iterator[Payload | None]:
        """Yield the payloads, with their items, of events that come in the order of (time, id), in one pass; ``None`` for one
        that is gone, or whose manifest is."""
        return map(self.manifests.whole, self._stored(events))

    def _stored(self, events: Sequence[Event]) -> Iterator[Payload | None]:
        passing: Iterator[RawEvent] | None = None
        ahead: RawEvent | None = None
        for event in events:
            if event.id in self._payloads:
                yield self._payloads[event.id]
                continue
            if passing is None:
                passing = scan(self.log, event.time, events[-1].time)
            while ahead is None or (micros_of(ahead.time), ahead.id) < event.order:
                ahead = next(passing, None)
                if ahead is None:
                    break
            yield ahead.payload if ahead is not None and ahead.id == event.id else None
