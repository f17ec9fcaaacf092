"""Opening an inbox: find out what is done, take over what failed, read what is new, and take it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from airflow_state_watchers.core.bookmark import Bookmark
from airflow_state_watchers.core.micros import micros_of
from airflow_state_watchers.core.numbers import Numbers
from airflow_state_watchers.core.takes import Slot, Take, cut, flatten
from airflow_state_watchers.tasks.news import read_news, sifted, without_repeats
from airflow_state_watchers.tasks.past import Given, fates_of, missed, own_again, taken_over
from airflow_state_watchers.tasks.reading import Findings
from airflow_state_watchers.tasks.rules import Rules
from airflow_state_watchers.tasks.shelf import Shelf
from airflow_state_watchers.tasks.surroundings import Surroundings

log = logging.getLogger(__name__)

REPEATS_DROPPED = "state_watchers.repeats_dropped"


@dataclass(frozen=True, slots=True)
class Opened:
    """An inbox that was opened: the bookmark as stored, this task's take in it, where its items are, and what was read."""

    bookmark: Bookmark
    take: Take
    slots: Sequence[Slot]
    findings: Findings


def open_inbox(place: Surroundings, shelf: Shelf, rules: Rules) -> Opened:
    """Take what is this task's to do, and store that it was taken before anything of it is handed out."""
    me, findings = place.opener.holder, Findings(place.log, place.read_manifest)
    bookmark, floor = _begin(place, shelf, rules)
    bookmark, over = bookmark.settled(me, fates_of(bookmark.questions(me), place.tasks))
    own = own_again(bookmark.take_of(me) or Take(me, place.opener.max_tries), findings, rules)
    given = [part for take, numbers in over for part in taken_over(take, numbers, findings, rules)]
    news = read_news(bookmark, floor, findings)
    bookmark = replace(bookmark, chains=bookmark.chains.add(news.skipped))
    result = sifted(bookmark, news, findings, rules)
    new, dropped = without_repeats(result, findings)
    given += [*missed(bookmark, place.opener, findings), *new]
    again = own.resumed(place.opener.max_tries)
    take, slots = _taken(own, again, given, place.opener.max_tries, findings)
    bookmark = bookmark.advanced(news.read, news.newest, micros_of(place.now()))
    bookmark = replace(bookmark, chains=bookmark.chains.add(result.fresh)).with_take(take)
    bookmark = shelf.save(bookmark)
    findings.keep({slot.event.id for slot in slots})
    log.info(
        "inbox %s of asset %r: %d items (%d its own again, %d taken over from tasks that failed), %d repeats dropped",
        *(rules.consumer, rules.asset, len(take.left), len(again), sum(len(numbers) for _, numbers in over), dropped),
    )
    if dropped:
        place.count(REPEATS_DROPPED, dropped)
    return Opened(bookmark, take, slots, findings)


def _begin(place: Surroundings, shelf: Shelf, rules: Rules) -> tuple[Bookmark, int | None]:
    """Return the bookmark, and for a new consumer the time from which on events are given to it.

    It begins with the events that triggered its run, and with all that came after them. A run that no event triggered
    begins after the newest event there is; those before it go to the runs that they triggered.
    """
    bookmark = shelf.load()
    if bookmark is not None or rules.start == "earliest":
        return bookmark or Bookmark(), None
    times = [micros_of(time) for time, _ in place.opener.triggered_by]
    if not times:
        newest = place.log.page(after=None, before=None, limit=1, ascending=False)
        times = [micros_of(raw.time) + 1 for raw in newest]
    floor = min(times, default=None)
    return (Bookmark(), None) if floor is None else (Bookmark(time=floor, begin=floor - 1), floor)


def _taken(
    own: Take, again: Numbers, given: Iterable[Given], max_tries: int, findings: Findings
) -> tuple[Take, list[Slot]]:
    """Return this task's take, its own part first, and the slots of all its items."""
    pieces = (*own.pieces, *cut(given))
    slots, _ = flatten(pieces, findings.events)
    size = slots[-1].stop if slots else 0
    fresh = Numbers.span(own.size, size)
    return Take(own.holder, max_tries, pieces, size, own.numbers | fresh, again | fresh), slots
