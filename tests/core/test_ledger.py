"""The ledger: segments that never change, an index that nothing leaks into, and no more than the lookback needs."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_state_watchers.core import identities
from airflow_state_watchers.core import ledger as module
from airflow_state_watchers.core.identities import Part
from airflow_state_watchers.core.ledger import FULL_SEGMENT, OPEN_SEGMENT, Ledger
from airflow_state_watchers.core.position import Item, Position, identity_of
from tests.core.items import at, item, items


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments that close at 2 identities and hold 4."""
    monkeypatch.setattr(module, "OPEN_SEGMENT", 2)
    monkeypatch.setattr(module, "FULL_SEGMENT", 4)


def some(count: int, *, stamp: float = 0, tag: str = "") -> list[Item]:
    return [item(stamp, f"{tag}{number}") for number in range(count)]


def ids(found: list[Item]) -> set[bytes]:
    return {item.identity for item in found}


def shape(ledger: Ledger) -> list[tuple[str, int]]:
    return [(segment.name, len(segment)) for segment in ledger.segments]


def test_an_empty_ledger_knows_nothing() -> None:
    assert item(0).identity not in Ledger()
    assert (len(Ledger()), list(Ledger()), Ledger()) == (0, [], Ledger.of([]))


def test_a_ledger_knows_what_was_added() -> None:
    ledger = Ledger().with_items(some(3), name="s1")
    assert all(found.identity in ledger for found in some(3))
    assert item(0, "other").identity not in ledger
    assert (len(ledger), list(ledger)) == (3, ["s1"])


def test_adding_what_is_known_changes_nothing() -> None:
    ledger = Ledger().with_items(some(3), name="s1")
    assert ledger.with_items(some(2), name="s2") is ledger


def test_an_open_segment_is_replaced_by_a_longer_copy_under_a_new_name() -> None:
    first = Ledger().with_items(some(2), name="s1")
    second = first.with_items(some(2, stamp=5, tag="x"), name="s2")
    (segment,) = second.segments
    assert (segment.name, segment.high) == ("s2", at(5))
    assert set(segment) == ids(some(2)) | ids(some(2, stamp=5, tag="x"))
    assert shape(first) == [("s1", 2)], "what a root names does not change"


def test_a_copy_keeps_the_greatest_value() -> None:
    first = Ledger().with_items(some(1, stamp=9), name="s1")
    assert first.with_items(some(1, stamp=5, tag="late"), name="s2").segments[0].high == at(9)


def test_a_closed_segment_stays() -> None:
    first = Ledger().with_items(some(OPEN_SEGMENT), name="s1")
    second = first.with_items(some(1, tag="x"), name="s2")
    assert second.segments[0] is first.segments[0]
    assert shape(second) == [("s1", OPEN_SEGMENT), ("s2", 1)]


def test_a_segment_with_one_identity_less_is_open() -> None:
    first = Ledger().with_items(some(OPEN_SEGMENT - 1), name="s1")
    assert shape(first.with_items(some(1, tag="x"), name="s2")) == [("s2", OPEN_SEGMENT)]


def test_an_open_segment_stays_where_the_copy_would_be_too_long() -> None:
    first = Ledger().with_items(some(1), name="s1")
    second = first.with_items(some(FULL_SEGMENT, tag="x"), name="s2")
    assert shape(second) == [("s1", 1), ("s2", FULL_SEGMENT)]
    third = first.with_items(some(FULL_SEGMENT - 1, tag="x"), name="s2")
    assert shape(third) == [("s2", FULL_SEGMENT)]


def test_many_identities_fill_several_segments() -> None:
    ledger = Ledger().with_items([*some(FULL_SEGMENT), item(7, "last")], name="s1")
    assert shape(ledger) == [("s1", FULL_SEGMENT), ("s1.1", 1)]
    assert [segment.high for segment in ledger.segments] == [at(0), at(7)]


def test_a_full_segment_fits_where_airflow_does_not_warn() -> None:
    """Its soft limit for one value is 64 KB; an identity is 16 characters of base64."""
    assert 16 * FULL_SEGMENT + 100 < 64 * 1024


def test_segments_go_when_all_that_is_in_them_is_too_old() -> None:
    ledger = Ledger().with_items([item(1, "a"), item(3, "b")], name="s1")
    assert ledger.pruned(at(3)) is ledger, "a poll still reads what is as old as that"
    assert list(ledger.pruned(at(3.000001))) == []


@pytest.mark.usefixtures("small")
def test_segments_go_in_any_order() -> None:
    ledger = Ledger().with_items(some(4, stamp=9), name="s1").with_items(some(2, stamp=1, tag="late"), name="s2")
    kept = ledger.pruned(at(5))
    assert list(kept) == ["s1"]
    assert all(found.identity in kept for found in some(4, stamp=9))
    assert list(ledger) == ["s1", "s2"], "the ledger it comes from does not change"


@pytest.mark.usefixtures("small")
def test_what_was_forgotten_is_known_again_when_it_is_added_again() -> None:
    ledger = Ledger().with_items(some(4, stamp=1), name="s1").with_items(some(4, stamp=9, tag="x"), name="s2")
    again = ledger.pruned(at(5)).with_items(some(4, stamp=9, tag="y"), name="s3")
    rebuilt = Ledger.of(again.segments)
    assert all(found.identity in rebuilt for found in some(4, stamp=9, tag="x") + some(4, stamp=9, tag="y"))


def test_the_index_does_not_grow_with_what_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identities, "PART", 50)
    ledger = Ledger()
    for number in range(200):
        ledger = ledger.with_items(some(5, stamp=number, tag=f"{number}-"), name=f"s{number}").pruned(at(number - 9))
        assert len(ledger._index) <= 50 + 2 * 50


def test_segments_stay_few_however_many_are_added() -> None:
    """A root names them all, and is written at each commit."""
    for each in (1, 150, 401, 1000):
        ledger, copied = Ledger(), 0
        for number in range(60_000 // each):
            before = set(ledger)
            ledger = ledger.with_items(some(each, tag=f"{number}-"), name=f"s{number}")
            copied += sum(len(segment) for segment in ledger.segments if segment.name not in before) - each
        assert len(ledger.segments) < 2.5 * 60_000 / FULL_SEGMENT + 5
        assert copied < 60_000 * (4 + OPEN_SEGMENT / each), "an identity is copied again and again"


def test_a_million_identities_take_little_memory_and_little_time_each() -> None:
    tracemalloc.start()
    ledger = Ledger()
    for number in range(200):
        names = (f"{number}-{each}" for each in range(1000))
        new = [Item(Position(at(number), name), identity_of(name), {}) for name in names]
        ledger = ledger.with_items(new, name=f"s{number}")
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(ledger) == 200_000
    assert held < 75 * 200_000, "bytes an identity; a set takes 200"
    assert identity_of("7-7") in ledger
    assert identity_of("7-1000") not in ledger


def test_an_identity_that_stands_across_two_others_is_not_known() -> None:
    one, other, across = bytes(12), bytes(2) + b"\xaa\xbb" + bytes(8), bytes(10) + b"\xaa\xbb"
    part = Part(at(0)).with_new([one, other], at(0))
    assert across in one + other
    assert one in part
    assert other in part
    assert across not in part
    assert across in part.with_new([across], at(0))


def test_two_ledgers_derived_from_one_do_not_see_each_other() -> None:
    """A commit that fails leaves nothing behind: the next one starts from the same ledger."""
    base = Ledger().with_items(some(8), name="s1")
    failed = base.with_items(some(3, tag="failed"), name="s2").with_items(some(1, tag="failed too"), name="s3")
    other = base.with_items(some(3, tag="other"), name="s4")
    assert all(found.identity in failed for found in some(3, tag="failed"))
    for ledger in (base, other):
        assert not any(found.identity in ledger for found in some(3, tag="failed") + some(1, tag="failed too"))
    assert set(other.segments[-1]) == ids(some(8)) | ids(some(3, tag="other"))


def test_equal_segments_are_equal_ledgers_however_they_were_made() -> None:
    ledger = Ledger().with_items(some(5), name="s1").with_items(some(5, tag="x"), name="s2")
    assert ledger == Ledger.of(ledger.segments)
    assert ledger != Ledger.of(replace(segment, name="other") for segment in ledger.segments)


@pytest.mark.usefixtures("small")
@given(
    st.lists(
        st.tuples(st.lists(items, max_size=6, unique_by=lambda item: item.identity), st.integers(0, 6)), max_size=8
    )
)
def test_a_ledger_knows_all_that_is_young_enough(rounds: list[tuple[list[Item], int]]) -> None:
    ledger, added, cut = Ledger(), dict[bytes, Item](), 0
    for number, (found, before) in enumerate(rounds):
        cut = max(cut, before)
        new = [item for item in found if item.position.value >= at(cut)]
        before_that = ledger
        segments = {segment.name: segment.identities for segment in ledger.segments}
        ledger = ledger.with_items(new, name=f"s{number}").pruned(at(cut))
        added |= {item.identity: item for item in new}
        young = {key for key, item in added.items() if item.position.value >= at(cut)}
        assert all(key in ledger for key in young)
        stored = set[bytes]().union(*ledger.segments)
        assert young <= stored <= set(added)
        assert all(len(segment) <= 4 for segment in ledger.segments)
        assert all(segment.identities == segments.get(segment.name, segment.identities) for segment in ledger.segments)
        assert before_that == Ledger.of(before_that.segments)
        assert len(ledger) == sum(len(segment) for segment in ledger.segments) == len(stored)
