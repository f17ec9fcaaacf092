"""What of a take is done, what is taken over, and what comes again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_state_watchers.core.chain import Event
from airflow_state_watchers.core.numbers import Numbers
from airflow_state_watchers.core.takes import Copies, Fate, Holder, Question, Slot, Take, cut, flatten, select

HOUR = 3_600_000_000
MINE: Question = ("dag", "task", "r1")
COPY: Question = ("dag", "copy", "r1")


def event(number: int, count: int = 3, *, time: int | None = None) -> Event:
    return Event(number, number if time is None else time, "w", 1, f"b{number}", None, count)


def whole(*events: Event) -> list[tuple[Event, Numbers]]:
    return [(one, Numbers.span(0, one.count)) for one in events]


def take(size: int = 10, *, yielded: int | None = None, copies: Copies | None = None) -> Take:
    everything = Numbers.span(0, size)
    return Take(
        Holder("dag", "r1", "task"),
        3,
        cut(whole(event(1, size))),
        size,
        everything,
        everything,
        size if yielded is None else yielded,
        copies=copies,
    )


def settled(taken: Take, fate: Fate, copies: Mapping[int, Fate] | None = None) -> tuple[Take, list[int]]:
    after, over = taken.settled({MINE: {-1: fate}, COPY: copies or {}})
    return after, list(over)


def test_a_success_finishes_what_was_handed_out() -> None:
    after, over = settled(take(), Fate.DONE)
    assert not over
    assert not after.left
    assert list(after.numbers) == list(range(10))


def test_what_was_taken_and_not_handed_out_is_not_done() -> None:
    after, over = settled(take(yielded=4), Fate.DONE)
    assert over == [4, 5, 6, 7, 8, 9]
    assert list(after.resumed(99)) == [0, 1, 2, 3], "cleared, it gets its own again"


def test_a_failure_is_taken_over_but_for_what_was_committed() -> None:
    committed = replace(take(), left=Numbers.span(4, 10))
    after, over = settled(committed, Fate.FAILED)
    assert over == [4, 5, 6, 7, 8, 9]
    assert after == Take(after.holder, 3), "cleared, it gets nothing that others have taken over"


def test_a_task_instance_that_is_gone_has_failed() -> None:
    assert take().settled({MINE: {}})[1] == take().left


def test_a_task_that_may_still_finish_is_left_alone() -> None:
    assert settled(take(), Fate.ACTIVE) == (take(), [])


def test_nothing_is_asked_about_what_is_done() -> None:
    finished = replace(take(), left=Numbers())
    assert finished.questions() == ()
    assert finished.settled({}) == (finished, Numbers())
    assert take().questions() == (MINE,)
    assert take(copies=Copies("copy", 1, Numbers.span(0, 10))).questions() == (MINE, COPY)


def test_copies_finish_their_own_items_only() -> None:
    mapped = take(copies=Copies("copy", 4, Numbers.span(0, 10)))
    fates = {0: Fate.DONE, 1: Fate.FAILED, 2: Fate.DONE}
    after, over = settled(mapped, Fate.DONE, fates)
    assert over == [4, 5, 6, 7]
    assert after == Take(after.holder, 3)


def test_copies_at_work_keep_their_items() -> None:
    mapped = take(copies=Copies("copy", 4, Numbers.span(0, 10)))
    after, over = settled(mapped, Fate.DONE, {0: Fate.DONE, 1: Fate.FAILED, 2: Fate.ACTIVE})
    assert over == [4, 5, 6, 7]
    assert list(after.left) == [8, 9]
    assert settled(after, Fate.DONE, {0: Fate.DONE, 1: Fate.FAILED, 2: Fate.FAILED})[1] == [8, 9]


def test_all_copies_done_is_done() -> None:
    mapped = take(copies=Copies("copy", 4, Numbers.span(0, 10)))
    after, over = settled(mapped, Fate.DONE, dict.fromkeys(range(3), Fate.DONE))
    assert not over
    assert not after.left
    assert list(after.resumed(99)) == list(range(10))


@pytest.mark.parametrize(("state", "over"), [(Fate.DONE, []), (Fate.FAILED, list(range(10)))])
def test_a_task_that_is_not_mapped_finishes_all(state: Fate, over: list[int]) -> None:
    assert settled(take(copies=Copies("copy", 1, Numbers.span(0, 10))), Fate.DONE, {-1: state})[1] == over


def test_a_list_that_never_reached_its_copies_is_taken_over() -> None:
    mapped = take(copies=Copies("copy", 1, Numbers.span(0, 10)))
    assert settled(mapped, Fate.FAILED, {-1: Fate.ACTIVE})[1] == list(range(10))
    assert settled(mapped, Fate.DONE, {})[1] == list(range(10))


def test_copies_count_through_what_was_left_when_they_were_made() -> None:
    base = Numbers.of([2, 3, 7, 9])
    mapped = replace(take(copies=Copies("copy", 2, base)), left=base)
    assert settled(mapped, Fate.DONE, {0: Fate.DONE, 1: Fate.FAILED})[1] == [7, 9]


def test_a_retry_gets_what_is_not_done() -> None:
    assert list(replace(take(), left=Numbers.span(4, 10)).resumed(3)) == [4, 5, 6, 7, 8, 9]


def test_a_clear_after_success_gets_everything_of_its_own() -> None:
    ended = replace(take(), left=Numbers.span(4, 10), ended=True)
    assert list(ended.resumed(4)) == list(range(10))
    assert list(ended.resumed(3)) == [4, 5, 6, 7, 8, 9], "the same max_tries is a retry"


def test_a_clear_after_failure_gets_what_is_not_done() -> None:
    assert list(replace(take(), left=Numbers.span(4, 10)).resumed(4)) == [4, 5, 6, 7, 8, 9]


def test_pieces_are_cut_where_nothing_came_for_an_hour() -> None:
    events = [event(1, time=0), event(2, time=HOUR), event(3, time=2 * HOUR + 1), event(4, time=2 * HOUR + 2)]
    pieces = cut(whole(*reversed(events)))
    assert [(list(piece.ids), piece.first, piece.last) for piece in pieces] == [
        ([1, 2], 0, HOUR),
        ([3, 4], 2 * HOUR + 1, 2 * HOUR + 2),
    ]
    assert cut([]) == ()


def test_positions_given_twice_are_united() -> None:
    (piece,) = cut([(event(1), Numbers.of([0])), (event(1), Numbers.of([2])), *whole(event(2))])
    assert piece.parts == {1: Numbers.of([0, 2])}


def test_items_are_numbered_through_the_pieces() -> None:
    one, two, three = event(5, 2, time=1), event(4, 2, time=2), event(3, 2, time=2)
    pieces = (*cut(whole(one, two)), *cut([(three, Numbers.of([1]))]))
    slots, missing = flatten(pieces, {one.id: one, two.id: two, three.id: three})
    assert slots == [
        Slot(one, Numbers.span(0, 2), 0),
        Slot(two, Numbers.span(0, 2), 2),
        Slot(three, Numbers.of([1]), 4),
    ]
    assert not missing
    assert flatten(pieces, {one.id: one, three.id: three})[1] == [4]


@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 31)), min_size=1, max_size=6),
    st.frozensets(st.integers(0, 20)),
)
def test_selecting_by_number_and_cutting_again_keeps_the_items(
    shapes: list[tuple[int, int]], chosen: frozenset[int]
) -> None:
    """However a take is cut into events and positions, the items of a set of numbers are found again."""
    given_now = [
        (event(n, count, time=n), Numbers.of(p for p in range(count) if mask >> p & 1) or Numbers.of([0]))
        for n, (count, mask) in enumerate(shapes)
    ]
    events = {one.id: one for one, _ in given_now}
    slots, _ = flatten(cut(given_now), events)
    items = [(slot.event.id, position) for slot in slots for position in slot.positions]
    picked = select(slots, Numbers.of(chosen))
    wanted = [item for number, item in enumerate(items) if number in chosen]
    assert [(slot.event.id, position) for slot in picked for position in slot.positions] == wanted
    again, _ = flatten(cut((slot.event, slot.positions) for slot in picked), events)
    assert [(slot.event.id, position) for slot in again for position in slot.positions] == wanted
