"""Checkpoints: how a delivery, its confirmation, an empty poll and a new beginning change what is known."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_state_watchers.core import ledger as ledger_module
from airflow_state_watchers.core.checkpoint import MAX_REPLACED, Checkpoint, Intent, Start, later
from airflow_state_watchers.core.ledger import Ledger
from airflow_state_watchers.core.position import Item, Position
from tests.core.items import at, blank, checkpoints, intents, item, items, positions, seconds


def place(stamp: float, key: str = "") -> Position:
    return Position(at(stamp), key)


def intent(batch_id: str, upto: float, *replaces: str) -> Intent:
    return Intent(batch_id, place(upto), replaces)


def commit(checkpoint: Checkpoint, batch: str, upto: float, *found: Item, lookback: float = 10) -> Checkpoint:
    return checkpoint.commit(intent(batch, upto), found, lookback=seconds(lookback), segment=f"s-{batch}")


def names(checkpoint: Checkpoint) -> list[str]:
    return [known.batch_id for known in checkpoint.intents]


# Before a delivery.


def test_an_intent_is_stored_in_its_place() -> None:
    checkpoint = blank().intend(intent("b2", 2)).intend(intent("b1", 1)).intend(intent("b3", 3))
    assert names(checkpoint) == ["b1", "b2", "b3"]


def test_an_intent_that_is_stored_again_takes_its_own_place() -> None:
    checkpoint = blank(intents=(intent("b1", 1), intent("b2", 2)))
    assert checkpoint.intend(intent("b1", 1, "b0")).intents == (intent("b1", 1, "b0"), intent("b2", 2))


def test_an_intent_takes_the_place_of_those_it_closes() -> None:
    checkpoint = blank(intents=(intent("b1", 1), intent("b2", 2), intent("b3", 3)))
    assert names(checkpoint.intend(intent("c", 2), closes=("b1", "b2"))) == ["c", "b3"]


def test_intents_with_one_end_keep_their_order() -> None:
    assert names(blank(intents=(intent("b2", 1),)).intend(intent("b1", 1))) == ["b2", "b1"]


def test_an_intent_changes_nothing_else() -> None:
    before = blank(watermark=place(1), frontier=place(2), last_batch="b0")
    assert before.intend(intent("b1", 3)) == blank(
        watermark=place(1), frontier=place(2), last_batch="b0", intents=(intent("b1", 3),)
    )


def test_names_that_are_replaced_are_bounded() -> None:
    assert len(Intent("b", place(0), tuple("abcdefghijk")).replaces) == MAX_REPLACED


# After its confirmation.


def test_a_commit_moves_watermark_and_frontier_and_remembers_the_items() -> None:
    before = blank(intents=(intent("b1", 5), intent("b2", 9)))
    after = commit(before, "b1", 5, item(1, "a"), item(2, "b"))
    assert (after.watermark, after.frontier, after.last_batch) == (place(2, "b"), place(5), "b1")
    assert names(after) == ["b2"]
    assert item(1, "a").identity in after.ledger
    assert item(2, "b").identity in after.ledger
    assert list(after.ledger) == ["s-b1"]


def test_a_commit_of_late_items_moves_nothing_back() -> None:
    after = commit(blank(watermark=place(7, "x"), frontier=place(9)), "b1", 3, item(2))
    assert (after.watermark, after.frontier) == (place(7, "x"), place(9))
    assert item(2).identity in after.ledger


def test_the_frontier_is_never_behind_the_watermark() -> None:
    assert commit(blank(), "b1", 1, item(2, "b")).frontier == place(2, "b")


@given(checkpoints, intents, st.lists(items, min_size=1), st.integers(0, 10))
def test_a_commit_never_moves_back(before: Checkpoint, intent: Intent, found: list[Item], lookback: int) -> None:
    found.sort(key=lambda item: item.position)
    after = before.commit(intent, found, lookback=seconds(lookback), segment="s")
    greatest = found[-1].position
    assert after.watermark == max(greatest, before.watermark or greatest)
    assert after.frontier is not None
    assert after.frontier >= max(intent.upto, after.watermark, before.frontier or intent.upto)
    assert intent.batch_id not in names(after)
    assert after.last_batch == intent.batch_id
    remembered = [item for item in found if item.position.value >= after.frontier.value - seconds(lookback)]
    assert all(item.identity in after.ledger for item in remembered)


def test_a_commit_forgets_what_no_poll_reads_again() -> None:
    first = commit(blank(), "b1", 3, item(1), lookback=2)
    assert list(first.ledger) == ["s-b1"], "a poll still reads from 1 on"
    # The frontier may turn out to be false, so it is the watermark that counts.
    assert first.scanned(place(4)).pruned(seconds(2)) == first.scanned(place(4))
    second = replace(first, watermark=place(4)).pruned(seconds(2))
    assert (list(second.ledger), second.dropped) == ([], ("s-b1",))


def test_a_frontier_that_the_sources_clock_belies_is_taken_back_to_the_watermark() -> None:
    first = commit(blank(), "b1", 3, item(1))
    for ahead, horizon, expected in ((9, 7, place(9)), (9, 6, first.watermark)):
        found = first.scanned(place(ahead)).credible(at(horizon), lookback=seconds(2))
        assert found.frontier == expected
        assert (found.watermark, found.ledger) == (first.watermark, first.ledger)
    assert blank().scanned(place(9)).credible(at(1), lookback=seconds(2)).frontier is None
    moved = blank(watermark=place(9), frontier=place(9))
    assert moved.credible(at(1), lookback=seconds(2)) is moved, "a person may move the watermark ahead of the clock"


def test_a_segment_that_a_commit_replaces_is_dropped() -> None:
    after = commit(commit(blank(), "b1", 1, item(1, "a")), "b2", 2, item(2, "b"))
    assert (list(after.ledger), after.dropped) == (["s-b2"], ("s-b1",))


def test_what_is_still_to_be_deleted_is_not_forgotten() -> None:
    assert commit(blank(dropped=("old",)), "b1", 1, item(1)).dropped == ("old",)


# After a poll that found nothing.


def test_an_empty_poll_moves_the_frontier_alone_and_clears_intents() -> None:
    before = commit(blank(intents=(intent("b2", 9),)), "b1", 3, item(1))
    after = before.scanned(place(9))
    assert (after.watermark, after.frontier, after.intents) == (before.watermark, place(9), ())
    assert after.last_batch == "b1"


def test_an_empty_poll_does_not_move_the_frontier_back() -> None:
    assert blank(frontier=place(9)).scanned(place(3)).frontier == place(9)


def test_an_empty_poll_forgets_nothing_until_it_is_stored() -> None:
    """A restart reads from the stored frontier."""
    after = commit(blank(), "b1", 3, item(1), lookback=2).scanned(place(1000))
    assert item(1).identity in after.ledger
    assert list(after.ledger) == ["s-b1"]


def test_nothing_is_forgotten_before_there_is_a_frontier() -> None:
    before = blank(ledger=Ledger().with_items([item(1)], name="s"))
    assert before.pruned(seconds(0)) == before


def test_a_lookback_longer_than_time_itself_forgets_nothing() -> None:
    before = commit(blank(), "b1", 1, item(1))
    assert before.pruned(timedelta.max) == before


# Who has come further.


@pytest.mark.parametrize(
    ("behind", "ahead"),
    [
        (blank(watermark=place(1)), blank(watermark=place(2))),
        (blank(watermark=place(1, "a")), blank(watermark=place(1, "b"))),
        (blank(), blank(watermark=place(1))),
        (blank(watermark=place(9)), blank(watermark=place(1), generation=2)),
        (blank(watermark=place(1)), blank(generation=2)),
    ],
)
def test_a_later_generation_or_a_greater_watermark_is_further(behind: Checkpoint, ahead: Checkpoint) -> None:
    assert behind.is_behind(ahead)
    assert not ahead.is_behind(behind)


@pytest.mark.parametrize("watermark", [None, place(1)])
def test_nobody_is_behind_by_the_frontier_alone(watermark: Position | None) -> None:
    """It runs ahead in memory; and who overwrote a root for that would forget the deliveries it speaks of."""
    stored = blank(watermark=watermark, frontier=place(1), intents=(intent("b1", 2),))
    assert not stored.is_behind(blank(watermark=watermark, frontier=place(9)))


marked = st.builds(blank, watermark=st.none() | positions, generation=st.integers(1, 2))


@given(marked, marked)
def test_of_two_checkpoints_at_most_one_is_behind(one: Checkpoint, other: Checkpoint) -> None:
    assert not (one.is_behind(other) and other.is_behind(one))
    assert not one.is_behind(one)


# A new generation.


def test_the_start_policies() -> None:
    now, settle = at(100), seconds(2)
    assert Start.at("latest", None, now, settle) == Start(place(98), everything=True)
    assert Start.at("earliest", None, now, settle) == Start(None)
    assert Start.at("latest", at(7), now, settle) == Start(place(7))


def test_the_initial_value_is_inclusive() -> None:
    start = Start.at("latest", at(7), at(100), seconds(2))
    assert not start.sees(item(7))
    assert start.sees(item(6, "\uffff"))


def test_latest_counts_all_that_stands_there_as_seen() -> None:
    start = Start.at("latest", None, at(100), seconds(2))
    assert all(start.sees(item(stamp)) for stamp in (0, 99, 100, 101))


def test_earliest_counts_nothing_as_seen() -> None:
    assert not Start.at("earliest", None, at(100), seconds(2)).sees(item(-1000))


def test_a_moved_watermark_counts_what_stands_up_to_it_as_seen() -> None:
    start = Start(place(5, "b"))
    assert [start.sees(item(5, key)) for key in "abc"] == [True, True, False]


def test_a_first_look_begins_at_the_lookback() -> None:
    assert Start(place(5)).low(seconds(3)) == at(2)
    assert Start(None).low(seconds(3)) is None
    assert Start(Position(datetime.min.replace(tzinfo=timezone.utc))).low(seconds(3)) is None


def test_a_generation_begins_with_nothing_but_what_it_has_seen() -> None:
    ledger = Ledger().with_items([item(1, "old")], name="old")
    base = blank(
        watermark=place(9),
        frontier=place(9),
        generation=3,
        last_batch="b1",
        intents=(intent("b2", 9),),
        ledger=ledger,
        dropped=("older",),
        by="p1",
        n=7,
    )
    first = Start(place(5)).begin(base, Ledger().with_items([item(4, "a"), item(5, "b")], name="s-g3"), floor=at(-9))
    assert first == blank(
        watermark=place(5),
        frontier=place(5),
        generation=3,
        ledger=Ledger().with_items([item(4, "a"), item(5, "b")], name="s-g3"),
        floor=at(-9),
        dropped=("older", "old"),
        by="p1",
        n=7,
    )
    assert item(4, "a").identity in first.ledger
    assert item(1, "old").identity not in first.ledger


def test_a_generation_from_the_beginning_has_no_watermark() -> None:
    first = Start(None).begin(blank(watermark=place(9), frontier=place(9)), Ledger(), floor=None)
    assert (first.watermark, first.frontier, len(first.ledger)) == (None, None, 0)


def test_a_first_look_at_many_items_is_stored_in_several_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_module, "FULL_SEGMENT", 2)
    first = Start(place(9)).begin(
        blank(), Ledger().with_items([item(stamp) for stamp in range(5)], name="s"), floor=at(0)
    )
    assert list(first.ledger) == ["s", "s.1", "s.2"]


# Small things.


@given(st.none() | positions, st.none() | positions)
def test_later_is_the_greater_where_none_is_the_beginning(one: Position | None, other: Position | None) -> None:
    known = [position for position in (one, other) if position is not None]
    assert later(one, other) == (max(known) if known else None)


def test_an_unchanged_ledger_is_the_same_checkpoint() -> None:
    checkpoint = blank(ledger=Ledger().with_items([item(1)], name="s"))
    assert checkpoint.with_ledger(checkpoint.ledger) is checkpoint
