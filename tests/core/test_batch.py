"""Batches: ordered, bounded, cut where an earlier process cut them, and named so that a consumer can tell repeats."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_state_watchers.core.batch import Batch, batch_id_of, size_of, step
from airflow_state_watchers.core.checkpoint import Checkpoint, Intent
from airflow_state_watchers.core.position import Item, Position
from airflow_state_watchers.core.window import Selected
from tests.core.items import KEYS, at, blank, item, items, keys

HORIZON = Position(at(100))


def selected(*found: Item, upto: Position = HORIZON, complete: bool = True) -> Selected:
    return Selected(tuple(sorted(found, key=lambda item: item.position)), upto, complete)


def steps(checkpoint: Checkpoint, *found: Item, max_items: int = 10) -> list[Batch]:
    return step(checkpoint, selected(*found), max_items=max_items)


def after(checkpoint: Checkpoint, batches: Sequence[Batch]) -> Checkpoint:
    """The checkpoint of a process that delivered these batches and died before it committed any."""
    for batch in batches:
        checkpoint = checkpoint.intend(batch.intent, closes=batch.closes)
    return checkpoint


# Without stored intents.


def test_nothing_new_makes_no_batch() -> None:
    assert steps(blank()) == []


def test_what_is_new_is_one_batch_up_to_the_end_of_the_window() -> None:
    (batch,) = steps(blank(last_batch="b0"), item(1, "b"), item(1, "a"))
    assert keys(batch.items) == "ab"
    assert batch.intent.upto == HORIZON
    assert (batch.previous, batch.closes, batch.intent.replaces) == ("b0", (), ())


def test_too_many_items_are_cut_in_order_and_chained() -> None:
    batches = steps(blank(), *(item(1, key) for key in "edcba"), max_items=2)
    assert [keys(batch.items) for batch in batches] == ["ab", "cd", "e"]
    assert [batch.intent.upto for batch in batches] == [Position(at(1), "b"), Position(at(1), "d"), HORIZON]
    assert [batch.previous for batch in batches] == [None, batches[0].batch_id, batches[1].batch_id]


def test_the_first_of_a_generation_has_nothing_before_it() -> None:
    assert steps(blank(), item(1))[0].previous is None


@given(st.lists(items, unique_by=lambda found: found.identity), st.integers(1, 4))
def test_all_items_are_in_one_batch_each_and_in_order(found: list[Item], max_items: int) -> None:
    batches = steps(blank(), *found, max_items=max_items)
    everything = [item for batch in batches for item in batch.items]
    assert {item.identity for item in everything} == {item.identity for item in found}
    assert len(everything) == len(found)
    assert [item.position for item in everything] == sorted(item.position for item in everything)
    assert all(1 <= len(batch.items) <= max_items for batch in batches)
    assert all(batch.items[-1].position <= batch.intent.upto <= HORIZON for batch in batches)
    assert not batches or batches[-1].intent.upto == HORIZON


# Bytes.

texts = st.text(st.sampled_from('a"\\\n\u00e9\U0001f600'), min_size=1, max_size=8)


def stored_size(found: Sequence[Item]) -> int:
    """What Airflow's database holds of them, brackets left out."""
    return len(json.dumps([dict(item.data) for item in found])) - len("[]")


@given(
    st.lists(st.builds(item, st.integers(0, 6), texts), unique_by=lambda found: found.identity),
    st.integers(1, 4),
    st.integers(1, 500),
)
def test_a_batch_is_as_large_as_it_may_be_and_no_larger(found: list[Item], max_items: int, max_bytes: int) -> None:
    batches = step(blank(), selected(*found), max_items=max_items, max_bytes=max_bytes)
    ordered = selected(*found).items
    assert tuple(item for batch in batches for item in batch.items) == ordered
    for batch in batches:
        assert len(batch.items) == 1 or stored_size(batch.items) <= max_bytes
        assert len(batch.items) <= max_items
    for batch, following in pairwise(batches):
        more = [*batch.items, following.items[0]]
        assert len(batch.items) == max_items or stored_size(more) + 2 > max_bytes, "the next one would have fitted"


def test_one_item_that_is_too_large_is_a_batch_of_its_own() -> None:
    found = [item(1, "a"), item(1, "b" * 500), item(1, "c"), item(1, "d")]
    batches = step(blank(), selected(*found), max_items=10, max_bytes=300)
    assert [len(batch.items) for batch in batches] == [1, 1, 2]


def test_equal_content_is_cut_by_bytes_as_it_was() -> None:
    found = [item(1, key * 20) for key in "abcdefg"]
    first = step(blank(), selected(*found), max_items=10, max_bytes=350)
    again = step(after(blank(), first), selected(*found), max_items=10, max_bytes=350)
    assert len(first) > 2
    assert [(batch.batch_id, batch.items, batch.previous) for batch in again] == [
        (batch.batch_id, batch.items, batch.previous) for batch in first
    ]
    assert all(batch.intent.replaces == () for batch in again)


def test_what_is_no_json_has_a_size_too() -> None:
    """It is refused later, by name."""
    assert size_of(Item(HORIZON, b"1", {"a": {1, 2}, (1, 2): float("nan"), "c": "\ud800"})) > 0  # type: ignore[dict-item]


# Batch ids.


def test_a_batch_id_is_made_of_the_versions_whatever_their_order() -> None:
    one, other = item(1, "a"), item(2, "b")
    assert batch_id_of(blank(), [one, other]) == batch_id_of(blank(), [other, one])
    assert batch_id_of(blank(), [one]) != batch_id_of(blank(), [other])
    assert batch_id_of(blank(), [item(1, "a", "1")]) != batch_id_of(blank(), [item(1, "a", "2")])


def test_a_batch_id_is_another_one_for_another_watcher_origin_or_generation() -> None:
    ids = {
        batch_id_of(checkpoint, [item(1)])
        for checkpoint in (blank(), blank(name="other"), blank(origin="1f"), blank(generation=2))
    }
    assert len(ids) == 4


def test_a_batch_id_is_the_same_however_far_the_watcher_has_come() -> None:
    further = blank(watermark=HORIZON, frontier=HORIZON, last_batch="b0", by="p2", n=9)
    assert batch_id_of(further, [item(1)]) == batch_id_of(blank(), [item(1)])


def test_a_batch_id_is_the_same_however_it_is_sorted(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [item(number % 3, f"k{number}") for number in range(20)]
    whole = batch_id_of(blank(), found)
    monkeypatch.setattr("airflow_state_watchers.core.batch._PIECE", 3)
    assert batch_id_of(blank(), found) == whole


def test_batch_ids_are_those_of_earlier_releases() -> None:
    """An upgrade must not make a new batch of one that is on its way."""
    assert batch_id_of(blank(), [item(1), item(2, "b")]) == "bd344a1c5dfea7e1d11cea8b"


# Replays.


def test_equal_content_is_replayed_in_the_same_batches() -> None:
    found = [item(1, key) for key in "abcde"]
    first = steps(blank(), *found, max_items=2)
    again = steps(after(blank(), first), *found, max_items=2)
    assert [(batch.batch_id, batch.items, batch.previous) for batch in again] == [
        (batch.batch_id, batch.items, batch.previous) for batch in first
    ]
    assert [batch.closes for batch in again] == [(batch.batch_id,) for batch in first]
    assert all(batch.intent.replaces == () for batch in again)
    assert after(after(blank(), first), again) == after(blank(), first)


def test_a_replay_is_cut_where_it_was_whatever_the_size_is_now() -> None:
    found = [item(1, key) for key in "abcd"]
    first = steps(blank(), *found, max_items=2)
    again = steps(after(blank(), first), *found, max_items=100)
    assert [keys(batch.items) for batch in again] == ["ab", "cd"]


def test_a_late_item_makes_another_batch_that_names_the_one_it_replaces() -> None:
    first = steps(blank(), item(1, "a"), item(1, "c"), item(2, "d"), max_items=2)
    again = steps(after(blank(), first), item(1, "a"), item(1, "b"), item(1, "c"), item(2, "d"), max_items=3)
    assert [keys(batch.items) for batch in again] == ["abc", "d"]
    assert again[0].batch_id != first[0].batch_id
    assert again[0].intent.replaces == (first[0].batch_id,)
    assert again[1].batch_id == first[1].batch_id, "the second batch has not changed"
    assert again[1].previous == again[0].batch_id


def test_replays_of_replays_name_all_that_they_replace_newest_first() -> None:
    checkpoint = blank()
    names: list[str] = []
    for number, key in enumerate(KEYS[:3]):
        (batch,) = steps(checkpoint, *(item(1, key) for key in KEYS[: number + 1]))
        assert batch.intent.replaces == tuple(reversed(names)), key
        names.append(batch.batch_id)
        checkpoint = after(checkpoint, [batch])
    assert [intent.batch_id for intent in checkpoint.intents] == names[-1:]
    (back,) = steps(checkpoint, item(1, "a"))
    assert back.batch_id == names[0], "the first content is there again"
    assert back.intent.replaces == (names[2], names[1])


def test_a_batch_that_has_grown_too_big_is_replaced_by_several() -> None:
    first = steps(blank(), item(1, "b"), item(1, "c"), max_items=2)
    checkpoint = after(blank(), first)
    again = steps(checkpoint, item(1, "a"), item(1, "b"), item(1, "c"), max_items=2)
    assert [keys(batch.items) for batch in again] == ["ab", "c"]
    assert [batch.intent.replaces for batch in again] == [(first[0].batch_id,), (first[0].batch_id,)]
    assert [batch.closes for batch in again] == [(), (first[0].batch_id,)]
    half = after(checkpoint, again[:1])
    assert [intent.upto for intent in half.intents] == [Position(at(1), "b"), HORIZON], "the rest is still to come"
    (rest,) = steps(half.commit(again[0].intent, again[0].items, lookback=at(1) - at(0), segment="s"), item(1, "c"))
    assert (rest.batch_id, rest.intent.replaces) == (again[1].batch_id, (first[0].batch_id,))


def test_what_has_vanished_is_not_delivered_again() -> None:
    first = steps(blank(), *(item(1, key) for key in "abc"), max_items=1)
    again = steps(after(blank(), first), item(1, "c"), max_items=1)
    assert [keys(batch.items) for batch in again] == ["c"]
    assert again[0].closes == tuple(batch.batch_id for batch in first), "it takes over the end of those before it"
    assert steps(after(blank(), first)) == []


def test_a_part_that_was_not_read_to_its_end_is_not_closed() -> None:
    """More late items than one poll can hold: what is left of the old batch still has to name it."""
    first = steps(blank(), item(1, "b"), item(1, "c"), max_items=2)
    checkpoint = after(blank(), first)
    cut = selected(item(1, "a"), item(1, "b"), upto=Position(at(1), "b"), complete=False)
    (part,) = step(checkpoint, cut, max_items=2)
    assert part.intent.upto == Position(at(1), "b")
    assert part.intent.replaces == (first[0].batch_id,)
    assert part.closes == ()
    checkpoint = after(checkpoint, [part]).commit(part.intent, part.items, lookback=at(1) - at(0), segment="s")
    (rest,) = steps(checkpoint, item(1, "c"))
    assert rest.intent.replaces == (first[0].batch_id,)
    assert rest.closes == (first[0].batch_id,)


def test_a_part_that_was_not_reached_is_not_closed() -> None:
    first = steps(blank(), item(1, "b"), item(2, "c"), max_items=1)
    cut = selected(item(1, "a"), upto=Position(at(1), "a"), complete=False)
    (part,) = step(after(blank(), first), cut, max_items=1)
    assert part.closes == ()


def test_an_intent_keeps_its_last_eight_names() -> None:
    names = tuple("abcdefghij")
    assert Intent("z", HORIZON, names).replaces == names[:8]


def test_an_intent_whose_first_items_are_a_batch_of_their_own_again_stays_until_that_is_committed() -> None:
    """The batch has the old id and ends earlier; what comes after it must not close what is still on its way."""
    checkpoint = blank()
    (first,) = step(checkpoint, Selected((item(1), item(2)), Position(at(9)), True), max_items=2)
    stored = checkpoint.intend(first.intent)
    again = step(stored, Selected((item(1), item(2), item(3)), Position(at(9)), True), max_items=2)
    assert [batch.batch_id == first.batch_id for batch in again] == [True, False]
    for batch in again:
        stored = stored.intend(batch.intent, closes=batch.closes)
    assert stored.intents == tuple(batch.intent for batch in again)
