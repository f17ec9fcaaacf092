"""Windows and selections: what a poll reads, and the smallest new items of it, whatever order they come in."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_state_watchers.core.checkpoint import Intent
from airflow_state_watchers.core.ledger import Ledger
from airflow_state_watchers.core.position import Item, Position
from airflow_state_watchers.core.window import END, Selected, Selection, Window, plan
from tests.core.items import at, blank, item, items, keys, seconds

SETTLE, LOOKBACK = seconds(2), seconds(10)


def place(stamp: float, key: str = "") -> Position:
    return Position(at(stamp), key)


# plan


def test_the_first_poll_reads_from_the_beginning_to_the_horizon() -> None:
    assert plan(blank(), at(100), settle=SETTLE, lookback=LOOKBACK) == Window(None, place(98))


def test_a_poll_reads_again_from_the_lookback_behind_the_frontier() -> None:
    checkpoint = blank(watermark=place(1), frontier=place(50, "x"))
    assert plan(checkpoint, at(100), settle=SETTLE, lookback=LOOKBACK) == Window(at(40), place(98))


def test_a_replay_reads_what_was_read_then() -> None:
    intents = (Intent("b1", place(60)), Intent("b2", place(70, "k")))
    checkpoint = blank(frontier=place(50), intents=intents)
    assert plan(checkpoint, at(100), settle=SETTLE, lookback=LOOKBACK) == Window(at(40), place(70, "k"))


def test_a_clock_that_goes_back_makes_an_empty_window() -> None:
    window = plan(blank(frontier=place(50)), at(0), settle=SETTLE, lookback=seconds(0))
    assert (window.low, window.upto) == (at(50), place(-2))
    assert place(50) not in window
    assert place(-3) not in window


def test_a_lookback_longer_than_time_itself_reads_from_the_beginning() -> None:
    checkpoint = blank(frontier=place(50))
    assert plan(checkpoint, at(100), settle=SETTLE, lookback=timedelta.max).low is None
    first = blank(frontier=Position(datetime.min.replace(tzinfo=timezone.utc)))
    assert plan(first, at(100), settle=SETTLE, lookback=LOOKBACK).low is None


# Window


def test_a_window_is_half_open_by_value() -> None:
    window = Window(at(1), place(3))
    assert [place(stamp, "a") in window for stamp in (0.999999, 1, 2.999999, 3)] == [False, True, True, False]
    assert window.high == at(3)


def test_a_window_may_end_inside_a_tie() -> None:
    window = Window(None, place(3, "b"))
    assert [place(3, key) in window for key in "abc"] == [True, True, False]
    assert window.high == at(3.000001), "a source asked for values below it lists the whole tie"
    assert place(-(10**9)) in window


def test_every_place_in_a_window_is_below_its_high() -> None:
    for upto in (place(3), place(3, "b")):
        assert all(found.value < Window(None, upto).high for found in (place(2, "z"), upto) if found.tiebreak)


def test_the_end_is_after_everything() -> None:
    assert at(10**10) < END
    assert END.utcoffset() == timedelta(0)


# Selection


def select(
    *pages: list[Item],
    upto: Position | None = None,
    low: float | None = None,
    limit: int = 100,
    known: Ledger | None = None,
) -> Selected:
    window = Window(None if low is None else at(low), upto or place(1000))
    selection = Selection(window, known or Ledger(), limit=limit)
    for page in pages:
        selection.add(page)
    return selection.result()


def test_an_empty_listing_is_complete() -> None:
    assert select() == Selected((), place(1000), complete=True)
    assert select([], []) == Selected((), place(1000), complete=True)


def test_items_come_in_order_whatever_order_they_are_listed_in() -> None:
    assert keys(select([item(2, "c"), item(1, "b")], [item(2, "a")]).items) == "bac"


def test_what_is_outside_the_window_is_left_out() -> None:
    found = select([item(stamp, key) for stamp in (0, 1, 2, 3) for key in "ab"], low=1, upto=place(2, "a"))
    assert [(item.position.value, item.position.tiebreak) for item in found.items] == [
        (at(1), "a"),
        (at(1), "b"),
        (at(2), "a"),
    ]


def test_what_is_known_is_left_out() -> None:
    known = Ledger().with_items([item(1, "a", "1")], name="s")
    found = select([item(1, "a", "1"), item(1, "a", "2")], known=known)
    assert [item.identity for item in found.items] == [item(1, "a", "2").identity]


def test_an_item_on_two_pages_is_one_item() -> None:
    assert keys(select([item(1, "a"), item(2, "b")], [item(1, "a")]).items) == "ab"


def test_doubles_do_not_count_towards_the_limit() -> None:
    page = [item(1, "a"), item(1, "a"), item(2, "b")]
    assert select(page, page, limit=2) == Selected((item(1, "a"), item(2, "b")), place(1000), complete=True)


def test_too_many_items_are_cut_and_the_next_poll_knows_where() -> None:
    found = select([item(1, key) for key in "edcba"], limit=3)
    assert (keys(found.items), found.upto, found.complete) == ("abc", place(1, "c"), False)


def test_just_enough_items_are_not_cut() -> None:
    found = select([item(1, key) for key in "cba"], limit=3)
    assert (keys(found.items), found.upto, found.complete) == ("abc", place(1000), True)


def test_versions_of_one_place_are_never_parted() -> None:
    versions = [item(1, "b", etag) for etag in "123"]
    found = select([item(2, "c"), *versions, item(1, "a")], limit=2)
    assert {item.identity for item in found.items[1:]} == {item.identity for item in versions}
    assert (keys(found.items), found.upto, found.complete) == ("abbb", place(1, "b"), False)


def test_a_tie_at_the_cut_is_read_by_the_next_poll() -> None:
    page = [item(1, key) for key in "abcd"]
    first = select(page, limit=2)
    assert keys(first.items) == "ab"
    known = Ledger().with_items(first.items, name="s")
    assert keys(select(page, low=first.upto.value.timestamp() - at(0).timestamp(), known=known).items) == "cd"


@pytest.mark.parametrize("limit", [1, 2, 7])
def test_memory_is_bounded_by_twice_the_limit(limit: int) -> None:
    selection = Selection(Window(None, place(10**6)), Ledger(), limit=limit)
    for stamp in reversed(range(100)):
        selection.add([item(stamp)])
        assert len(selection._items) <= 2 * limit
    assert [found.position for found in selection.result().items] == [item(stamp).position for stamp in range(limit)]


@given(
    st.lists(st.lists(items, max_size=6), max_size=6),
    st.integers(1, 8),
    st.none() | st.integers(0, 6),
    st.integers(0, 7),
    st.lists(items, max_size=4),
)
def test_the_smallest_new_items_are_selected(
    pages: list[list[Item]], limit: int, low: int | None, end: int, delivered: list[Item]
) -> None:
    known = Ledger().with_items(delivered, name="s")
    listed = {found.identity: found for page in pages for found in page}
    gone = {found.identity for found in delivered}
    window = Window(None if low is None else at(low), place(end, "b"))
    new = [found for key, found in listed.items() if key not in gone and found.position in window]
    wanted = sorted(new, key=lambda found: found.position)

    result = select(*pages, low=low, upto=window.upto, limit=limit, known=known)

    assert {found.identity for found in result.items} == {
        found.identity for found in wanted if found.position <= result.upto
    }
    assert len(result.items) == len({found.identity for found in result.items})
    assert [found.position for found in result.items] == sorted(found.position for found in result.items)
    assert result.complete == (len(wanted) <= limit)
    if result.complete:
        assert (len(result.items), result.upto) == (len(wanted), window.upto)
    else:
        assert result.upto == wanted[limit - 1].position
