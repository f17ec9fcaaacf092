"""What the processes of one watcher may and may not do, checked as it happens.

Laws are kept per *lineage*: one origin and generation, within which nothing is delivered again without a reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from airflow_state_watchers.core.batch import Batch
from airflow_state_watchers.core.checkpoint import MAX_REPLACED, later
from airflow_state_watchers.core.codec import load_position, load_segment
from airflow_state_watchers.core.position import Item, Position
from airflow_state_watchers.core.uploads import TOLERANCE, Upload

Lineage = tuple[str, int]


@dataclass(frozen=True)
class Event:
    """One delivery. ``poll`` tells the polls of all processes apart."""

    lineage: Lineage
    poll: int
    batch_id: str
    previous: str | None
    replaces: tuple[str, ...]
    items: tuple[Item, ...]

    @property
    def identities(self) -> set[bytes]:
        return {item.identity for item in self.items}

    def is_kin_of(self, other: Event) -> bool:
        """Whether a consumer that has read one of them can tell that the other may hold the same items."""
        mine, theirs = {self.batch_id, *self.replaces}, {other.batch_id, *other.replaces}
        return bool(mine & theirs) or MAX_REPLACED in (len(self.replaces), len(other.replaces))


@dataclass
class Life:
    """One lineage: where and when it began, what stood there, and what has become of it."""

    start: Position | None
    began: int
    seen: set[bytes]
    persisted: list[Event] = field(default_factory=list)
    delivered: set[bytes] = field(default_factory=set)
    committed: set[bytes] = field(default_factory=set)
    watermark: Position | None = None
    top: Position | None = None
    frontier: Position | None = None
    known: set[bytes] = field(default_factory=set)
    forgiven: int = 0

    def forgive(self) -> None:
        """Begin the books anew at what is stored now."""
        self.committed, self.top, self.forgiven = set(self.known), self.watermark, len(self.persisted)


@dataclass
class Look:
    """What the first look of a generation has shown, and when it began."""

    when: int
    shown: Mapping[bytes, Item]


@dataclass
class Asked:
    """What a person did to the root: moved its watermark (``moved``, to ``place``) or deleted it."""

    moved: bool
    place: Position | None = None


class Laws:
    """``torn``: a process has overwritten what another one stored after its look. Airflow's store has no way to exclude
    that; repeats are then possible, losses are not, and once all is quiet everything is as strict as before."""

    def __init__(self, *, settle: int, lookback: int, latest: bool) -> None:
        self.settle, self.lookback, self.latest = timedelta(seconds=settle), timedelta(seconds=lookback), latest
        self.items: dict[bytes, Item] = {}
        self.shown_at: dict[bytes, tuple[datetime, int]] = {}
        self.uploads: dict[Upload, int] = {}
        self.excused = 0
        self.holes: set[str] = set()
        self.late: dict[bytes, int] = {}
        """When the uploads began that made these versions."""
        self.lives: dict[Lineage, Life] = {}
        self.now: Lineage | None = None
        self.events: list[Event] = []
        self.asked: Asked | None = None
        self.blank = True
        self.torn = False
        self.gap = False
        self.broken = False
        self.order = 0

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Remember that a law was broken: nothing that happens afterwards says anything."""
        try:
            yield
        except AssertionError:
            self.broken = True
            raise

    # What happens.

    def begun(self, upload: Upload) -> None:
        self.order += 1
        self.uploads[upload] = self.order

    def uploads_forgotten(self) -> None:
        """A root names uploads that another process has deleted: what they make may be missed if it comes too late."""
        assert self.torn, "the root names uploads that are not stored"
        self.excused = self.order

    def shown(self, item: Item, when: datetime, *, by: Upload | None = None) -> None:
        """A version has become visible. An upload that has made it gives it its time."""
        self.items[item.identity] = item
        if by is not None:
            self.late[item.identity] = self.uploads[by]
        self.order += 1
        self.shown_at[item.identity] = (when, self.order)

    def moved(self, place: Position | None) -> None:
        self.asked = Asked(True, place)

    def reset(self) -> None:
        self.asked = Asked(False)

    def lost(self, *, remembered: bool) -> None:
        """All state is gone: whoever remembers nothing begins anew, unasked."""
        self.blank, self.asked = not remembered, None

    def forgotten(self) -> None:
        """The last process that remembered lost state is gone too."""
        self.blank = True

    def overwritten(self) -> None:
        """A root is written over one that its writer has not seen."""
        self.torn = True

    def delivered(self, event: Event, horizon: datetime, in_flight: Iterable[Event]) -> None:
        places = [item.position for item in event.items]
        assert places, "an empty batch"
        assert places == sorted(places), "a batch out of order"
        assert all(place.value < horizon for place in places), "an item that has not settled"
        stood = event.identities & self.lives[event.lineage].seen
        assert all(map(self._is_ambiguous, stood)), "what stood at the beginning is delivered"
        for other in in_flight:
            assert not event.identities & other.identities, "one item is twice in flight"
            assert other.poll != event.poll or other.items[-1].position <= places[0], "batches out of order"
        for other in self.events:
            same = other.batch_id == event.batch_id
            equal = other.lineage == event.lineage and other.identities == event.identities
            assert same == equal, "a batch id is its content, origin and generation"
        self.events.append(event)

    def persisted(self, event: Event) -> None:
        life = self.lives[event.lineage]
        if not self.torn:
            for other in life.persisted[life.forgiven :]:
                assert not other.identities & event.identities or other.is_kin_of(event), "a repeat that names nothing"
        if event.previous is not None and not self.gap:
            assert event.previous in {other.batch_id for other in life.persisted}, "a hole in the chain"
        life.persisted.append(event)
        life.delivered |= event.identities

    def intends(self, lineage: Lineage, batch: Batch) -> None:
        life = self.lives[lineage]
        if not self.torn:
            again = {item.identity for item in batch.items} & life.committed
            if self.lookback <= TOLERANCE:  # too short to have told what an upload might have made before it was known
                again = {identity for identity in again if not self._is_ambiguous(identity)}
            assert not again, "what was committed is delivered again"
            assert batch.previous or not life.committed, "the chain begins anew within a generation"

    def commits(self, lineage: Lineage, items: Sequence[Item]) -> None:
        life = self.lives[lineage]
        life.committed |= {item.identity for item in items}
        life.top = max([item.position for item in items] + ([life.top] if life.top else []))

    def begins(self, lineage: Lineage, watermark: Position | None, look: Look | None, *, moved: bool) -> None:
        """The first root of a lineage is about to be written, or again by a writer that was told that it could not."""
        asked, self.asked = self.asked, None
        again = lineage == self.now
        assert asked or self.blank or again or self.torn, "a generation that nobody asked for"
        assert not asked or again or lineage[1] > (self.now[1] if self.now else 0), "the generation does not count on"
        if asked and asked.moved:
            assert watermark == asked.place, "the watermark is not where the person put it"
        everything = self.latest and not moved
        began, seen = self.order, set()
        if look is not None and watermark is not None:
            began = look.when
            seen = {key for key, item in look.shown.items() if everything or item.position <= watermark}
        self.lives[lineage] = Life(watermark, began, seen, watermark=watermark, top=watermark)
        self.blank = False

    def stored(self, root: Mapping[str, Any], segments: Mapping[str, Any]) -> None:
        """A root has been written. ``segments`` are those that it names, as they are stored."""
        lineage = (root["origin"], root["generation"])
        life = self.lives[lineage]
        watermark = load_position(root["watermark"], "watermark")
        frontier = load_position(root["frontier"], "frontier")
        assert later(watermark, frontier) == frontier, "the frontier is behind the watermark"
        known = {key for name, stored in segments.items() for key in load_segment(name, stored)}
        assert known <= life.seen | life.delivered, "something counts as delivered that is not in Airflow's database"
        if self.torn:  # a process that was thought dead may name what another one has deleted
            self.holes |= set(root["segments"]) - set(segments)
        else:
            assert watermark == life.top, "the watermark is not the greatest position that was committed"
            assert later(life.watermark, watermark) == watermark, "the watermark went back"
            assert later(life.frontier, frontier) == frontier, "the frontier went back"
            assert set(root["segments"]) - set(segments) <= self.holes, "the root names a segment that is not stored"
            if frontier is not None:
                low = frontier.value - self.lookback
                # What an upload may have made counts as seen only once that is told.
                certain = {key for key in life.seen if not self._is_ambiguous(key)}
                needed = {key for key in certain | life.committed if self.items[key].position.value >= low}
                assert needed <= known, "the ledger has forgotten what is read again"
        life.watermark, life.frontier, life.known = watermark, frontier, known
        self.now = lineage

    def quiet(self, listing: Iterable[Item]) -> None:
        """Nothing is left to do: every item that is still there and came in time has been delivered."""
        assert self.asked is None, "nobody has noticed what a person did"
        assert self.now is not None
        life = self.lives[self.now]
        for item in listing:
            assert item.identity in life.delivered or not self._is_due(item, life), f"{item.position} is lost"
        if self.torn:
            life.forgive()
            self.torn = False

    def _is_ambiguous(self, identity: bytes) -> bool:
        """Whether a version carries a stamp as if an upload had made it."""
        place = self.items[identity].position
        return any(
            upload.key == place.tiebreak and abs(upload.initiated - place.value) <= TOLERANCE for upload in self.uploads
        )

    def _is_due(self, item: Item, life: Life) -> bool:
        shown, order = self.shown_at[item.identity]
        begun = self.late.get(item.identity, order)
        if begun <= self.excused:
            return False
        if begun <= life.began < order:
            return True  # in progress when this life began
        if item.identity in life.seen:
            return False
        if life.start is not None and item.position.value < life.start.value - self.lookback:
            return False
        if item.identity in self.late and order > life.began:
            return True
        stood_before = order <= life.began and (life.start is None or item.position > life.start)
        return stood_before or shown <= item.position.value + self.settle + self.lookback
