"""What is new in an inbox: the events that nobody has taken, without repeats and without holes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from airflow_state_watchers.core.bookmark import OVERLAP, Bookmark
from airflow_state_watchers.core.chain import Batch, Event, Sifted, sift
from airflow_state_watchers.core.micros import micros_of, moment_of
from airflow_state_watchers.core.numbers import Numbers
from airflow_state_watchers.tasks.kinds import Identity, kind_of
from airflow_state_watchers.tasks.past import Given
from airflow_state_watchers.tasks.reading import Findings, look_back, scan
from airflow_state_watchers.tasks.rules import Rules


@dataclass(slots=True)
class News:
    """What one scan found: all events of watchers ``read``; of them ``unseen`` by this consumer, ``skipped`` because they came
    before it began, and ``around``, which were handled before. ``newest`` is the time of the newest event of any kind."""

    read: list[Event] = field(default_factory=list)
    unseen: list[Event] = field(default_factory=list)
    skipped: list[Event] = field(default_factory=list)
    around: list[Event] = field(default_factory=list)
    newest: int | None = None


def read_news(bookmark: Bookmark, floor: int | None, findings: Findings) -> News:
    """Read from the bookmark on. Nothing from before ``floor`` is given."""
    news = News()
    for raw in scan(findings.log, bookmark.low):
        time = micros_of(raw.time)
        news.newest = time if news.newest is None else max(time, news.newest)
        if raw.payload is None:
            continue
        event = findings.add(raw)
        news.read.append(event)
        if event.id in bookmark.seen:
            news.around.append(event)
        elif floor is not None and time < floor:
            news.skipped.append(event)
        else:
            news.unseen.append(event)
    return news


def sifted(bookmark: Bookmark, news: News, findings: Findings, rules: Rules) -> Sifted:
    """Tell new events from repeats, and make sure that none is missing between them.

    An event that follows a batch nobody knows makes this look further back: the batch may have become visible later than
    the overlap covers (then it is given now), or have been forgotten long ago.
    """
    unseen, around = list(news.unseen), list(news.around)
    settled: set[int] = set()
    while True:
        result = sift(bookmark.chains, unseen, around)
        stranger = next((event for event in result.strangers if event.id not in settled), None)
        if stranger is None:
            return result
        settled.add(stranger.id)
        before = look_back(findings.log, stranger)
        if not before:
            rules.gap(_hole(bookmark, stranger))
        read = {*unseen, *around}
        late = {event for event in before if event not in read and _is_late(bookmark, event)}
        findings.events.update((event.id, event) for event in late)
        unseen = sorted({*unseen, *late}, key=_order)
        around = sorted({*around, *before} - {*unseen}, key=_order)


def _order(event: Event) -> tuple[int, int]:
    return event.order


def _is_late(bookmark: Bookmark, event: Event) -> bool:
    known = max(bookmark.begin or 0, bookmark.forgotten or 0)
    remembered = {batch.event_id for chain in bookmark.chains.chains for batch in chain.batches}
    return event.time > known and event.id not in remembered and event.id not in bookmark.given()


def _hole(bookmark: Bookmark, event: Event) -> str:
    batches = [batch for chain in bookmark.chains.chains if chain.key == event.chain for batch in chain.batches]
    since = max((batch.time for batch in batches if batch.time < event.time), default=event.time - OVERLAP)
    return (
        f"events of watcher {event.watcher!r} are missing between {moment_of(since)} and {moment_of(event.time)}: asset "
        f"event {event.id} follows batch {event.previous}, which no event carries."
    )


def without_repeats(result: Sifted, findings: Findings) -> tuple[list[Given], int]:
    """Return what is to be given of the new events, and how many repeated items were dropped."""
    given: list[Given] = []
    dropped = sum(event.count for event in result.repeats)
    for event in result.fresh:
        positions = Numbers.span(0, event.count)
        if kin := result.kin.get(event.id):
            positions -= _repeated(event, kin, findings)
            dropped += event.count - len(positions)
        if positions:
            given.append((event, positions))
    return given, dropped


def _repeated(event: Event, kin: Sequence[Batch], findings: Findings) -> Numbers:
    """Return the positions of the items that an event's kin has too."""
    before: set[Identity] = set()
    for batch in kin:
        before.update(_identities(batch.event_id, batch.time, findings))
    identities = _identities(event.id, event.time, findings)
    return Numbers.of(position for position, identity in enumerate(identities) if identity in before)


def _identities(event_id: int, time: int, findings: Findings) -> Iterable[Identity]:
    payload = findings.payload(event_id, time)
    return kind_of(payload).identities(payload) if payload is not None else ()
