"""A consumer's place: where reading begins, what is remembered, and how it is stored."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_state_watchers.core.bookmark import OVERLAP, REMEMBERED_RUNS, Bookmark
from airflow_state_watchers.core.bookmark_codec import MAX_BYTES, Unreadable, dump, fitted, load
from airflow_state_watchers.core.chain import Batch, Chain, Chains, Event
from airflow_state_watchers.core.numbers import Numbers
from airflow_state_watchers.core.takes import Copies, Fate, Holder, Piece, Take, cut

MINUTE = 60_000_000
NOW = 100 * OVERLAP
ME = Holder("dag", "me", "task")


def event(number: int, time: int) -> Event:
    return Event(number, time, "w", 1, f"b{number}", None, 1)


def take(number: int, *, ids: int = 1, left: bool = False, time: int | None = None) -> Take:
    events = [event(number * 10_000 + 7 * n, number if time is None else time) for n in range(ids)]
    everything = Numbers.span(0, ids)
    pieces = cut((one, Numbers.span(0, 1)) for one in events)
    return Take(Holder("dag", f"r{number}", "task"), 0, pieces, ids, everything, everything if left else Numbers())


def test_reading_begins_an_overlap_before_the_newest_event() -> None:
    assert Bookmark().low is None
    bookmark = Bookmark().advanced([event(1, NOW - MINUTE), event(2, NOW)], NOW, NOW + MINUTE)
    assert bookmark.low == NOW - OVERLAP
    assert list(bookmark.seen) == [1, 2]


def test_seen_ids_are_those_inside_the_overlap() -> None:
    read = [event(1, NOW - OVERLAP - 1), event(2, NOW - OVERLAP), event(3, NOW)]
    assert list(Bookmark().advanced(read, NOW, NOW).seen) == [2, 3]


def test_a_clock_that_is_ahead_does_not_hide_what_others_send() -> None:
    bookmark = Bookmark().advanced([event(1, NOW + 60 * MINUTE)], NOW + 60 * MINUTE, NOW)
    assert bookmark.time == NOW
    assert list(bookmark.seen) == [1], "it is not given twice for that"


def test_the_bookmark_never_goes_back_and_moves_over_the_events_of_others() -> None:
    assert Bookmark(time=NOW).advanced([], NOW - 5, NOW).time == NOW
    assert Bookmark(time=NOW).advanced([], None, NOW).time == NOW
    assert Bookmark().advanced([], NOW, NOW).time == NOW


def test_only_the_open_takes_of_others_are_asked_about() -> None:
    mine = replace(take(1, left=True), holder=ME)
    bookmark = Bookmark(takes=(take(2, left=True), take(3), mine))
    assert bookmark.questions(ME) == {("dag", "task", "r2")}


def test_settling_gives_what_is_to_be_taken_over() -> None:
    failed, active, mine = take(2, left=True), take(3, left=True), replace(take(1, left=True), holder=ME)
    fates = {("dag", "task", "r2"): {-1: Fate.FAILED}, ("dag", "task", "r3"): {-1: Fate.ACTIVE}}
    bookmark, over = Bookmark(takes=(failed, active, mine)).settled(ME, fates)
    assert over == [(failed, failed.left)]
    assert bookmark.takes == (failed.emptied(), active, mine)


def test_the_last_hundred_runs_are_remembered() -> None:
    bookmark = Bookmark(takes=tuple(take(n) for n in range(150))).trimmed()
    assert [one.holder.run_id for one in bookmark.takes] == [f"r{n}" for n in range(50, 150)]
    assert bookmark.forgotten == 49


def test_what_is_open_is_never_forgotten() -> None:
    opened = take(0, left=True)
    bookmark = Bookmark(takes=(opened, *(take(n) for n in range(1, 150)))).trimmed()
    assert bookmark.takes[0] == opened
    assert len(bookmark.takes) == REMEMBERED_RUNS + 1


def test_several_tasks_of_a_run_count_as_one() -> None:
    takes = [replace(take(n), holder=Holder("dag", f"r{n}", name)) for n in range(100) for name in ("a", "b")]
    assert len(Bookmark(takes=tuple(takes)).trimmed().takes) == 200


def test_a_run_gets_its_own_events_when_nobody_remembers_them() -> None:
    bookmark = Bookmark(begin=NOW, forgotten=NOW + MINUTE, takes=(take(1),))
    span = bookmark.missed
    assert span(ME, [NOW - 5, NOW - 1, NOW + 1], cleared=False) == (NOW - 5, NOW - 1), "from before it began"
    assert span(ME, [NOW + 5], cleared=False) is None
    assert span(ME, [NOW + 5, NOW + MINUTE + 1], cleared=True) == (NOW + 5, NOW + 5), "from beyond what is remembered"
    assert span(take(1).holder, [NOW - 5], cleared=True) is None, "this one is remembered"
    assert Bookmark().missed(ME, [1], cleared=True) is None


def test_the_value_is_kept_small_enough_to_store() -> None:
    takes = tuple(take(n, ids=2000) for n in range(40))
    bookmark = fitted(Bookmark(takes=takes), ME)
    assert len(json.dumps(dump(bookmark))) <= MAX_BYTES
    assert 0 < len(bookmark.takes) < 40
    assert bookmark.takes[-1] == takes[-1], "the oldest go first"
    assert bookmark.forgotten == takes[39 - len(bookmark.takes)].pieces[-1].last


def test_three_thousand_events_in_one_take_are_stored_whole() -> None:
    huge = take(1, ids=3000, left=True)
    bookmark = fitted(Bookmark(takes=(huge,)), huge.holder)
    assert bookmark.takes == (huge,)
    assert len(json.dumps(dump(bookmark))) < 10_000


numbers = st.frozensets(st.integers(0, 10**6), max_size=5).map(Numbers.of)
texts = st.text(max_size=8)
times = st.integers(0, 250_000_000_000_000_000)
holders = st.builds(Holder, texts, texts, texts, st.integers(-1, 5))
pieces = st.builds(Piece, numbers, times, times, st.dictionaries(st.integers(0, 99), numbers, max_size=2))
takes = st.builds(
    Take,
    holders,
    st.integers(0, 9),
    st.lists(pieces, min_size=1, max_size=2).map(tuple),
    st.integers(0, 99),
    numbers,
    numbers,
    st.integers(0, 99),
    st.booleans(),
    st.none() | st.builds(Copies, texts, st.integers(1, 9), numbers),
)
batches = st.builds(Batch, texts, st.integers(0, 99), times, st.lists(texts, max_size=2).map(tuple))
chains = st.builds(Chain, texts, st.integers(1, 9), st.lists(batches, max_size=3).map(tuple))
bookmarks = st.builds(
    Bookmark,
    st.none() | times,
    numbers,
    st.none() | times,
    st.lists(takes, max_size=3).map(tuple),
    st.builds(Chains, st.lists(chains, max_size=2).map(tuple)),
    st.none() | times,
    st.integers(0, 99),
    st.none() | holders,
)


@given(bookmarks)
def test_what_is_stored_comes_back(bookmark: Bookmark) -> None:
    assert load(json.loads(json.dumps(dump(bookmark), allow_nan=False))) == bookmark


@pytest.mark.parametrize(
    "stored",
    [
        None,
        [],
        "text",
        {},
        {"v": 2},
        {"v": 1},
        {**dump(Bookmark()), "takes": [{}]},
        {**dump(Bookmark()), "seen": 3},
        {**dump(Bookmark()), "time": 3},
        {**dump(Bookmark()), "time": "2026-01-31T12:00:00"},
        {**dump(Bookmark()), "chains": [{"watcher": "w", "generation": 1, "batches": [[1]]}]},
    ],
)
def test_what_cannot_be_read_is_refused(stored: Any) -> None:
    with pytest.raises(Unreadable):
        load(stored)
