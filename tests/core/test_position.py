"""Positions: a total order that is S3's own, and identities that tell every version apart."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_state_watchers.core.position import IDENTITY_BYTES, Item, Position, identity_of
from tests.core.items import NOON, at, item, positions, texts


def as_s3(position: Position) -> tuple[datetime, bytes]:
    return (position.value, position.tiebreak.encode())


@given(positions, positions)
def test_the_order_is_value_then_utf8_bytes(one: Position, other: Position) -> None:
    assert (one < other) == (as_s3(one) < as_s3(other))
    assert (one <= other) == (as_s3(one) <= as_s3(other))
    assert (one > other) == (as_s3(one) > as_s3(other))
    assert (one >= other) == (as_s3(one) >= as_s3(other))
    assert (one == other) == (as_s3(one) == as_s3(other))


@pytest.mark.parametrize(
    ("smaller", "greater"),
    [
        ("", "\x00"),
        ("A", "a"),
        ("a", "a/"),
        ("a+", "a-"),
        ("z", "\u00e9"),
        ("e\u0301", "\u00e9"),  # the same letter, decomposed and composed: two keys
        ("\uffff", "\U0001f600"),  # UTF-16 has the emoji first
    ],
)
def test_ties_are_broken_as_s3_lists_keys(smaller: str, greater: str) -> None:
    assert Position(NOON, smaller) < Position(NOON, greater)
    assert not Position(NOON, greater) < Position(NOON, smaller)


def test_a_tiebreak_that_utf8_does_not_have_still_has_its_place() -> None:
    lone = Position(NOON, "\udc80")
    assert Position(NOON, "\ud7ff") < lone < Position(NOON, "\uffff")


@given(texts.filter(bool))
def test_the_empty_tiebreak_stands_before_every_item_of_its_value(key: str) -> None:
    assert Position(at(-1e-6), key) < Position(NOON) < Position(NOON, key)


def test_one_moment_in_two_time_zones_is_one_position() -> None:
    there = NOON.astimezone(timezone(timedelta(hours=9)))
    assert Position(there, "a") == Position(NOON, "a")
    assert hash(Position(there, "a")) == hash(Position(NOON, "a"))


def test_a_position_needs_a_time_zone() -> None:
    with pytest.raises(
        ValueError, match=r"needs a value with a time zone, got datetime.datetime\(2026, 1, 31, 12, 0\)"
    ):
        Position(NOON.replace(tzinfo=None))


def test_positions_and_items_do_not_change() -> None:
    with pytest.raises(AttributeError):
        Position(NOON).tiebreak = "a"  # type: ignore[misc]
    with pytest.raises(AttributeError):
        item(0).position = Position(NOON)  # type: ignore[misc]


parts = st.lists(texts, max_size=4)


@given(parts, parts)
def test_identities_differ_where_any_part_does(one: list[str], other: list[str]) -> None:
    assert (identity_of(*one) == identity_of(*other)) == (one == other)


def test_what_stands_in_which_part_makes_a_difference() -> None:
    assert identity_of("ab", "c") != identity_of("a", "bc") != identity_of("abc")


@given(parts)
def test_an_identity_is_twelve_bytes(drawn: list[str]) -> None:
    assert len(identity_of(*drawn)) == IDENTITY_BYTES == 12


def test_identities_are_those_of_earlier_releases() -> None:
    """They are stored: another digest would deliver everything inside the lookback again."""
    assert identity_of("orders/a.csv", "9e10", "2026-01-31T12:00:00+00:00").hex() == "9b9c41cb3b9c3e3ca95f0fbb"


def test_items_of_one_version_are_equal() -> None:
    assert item(0) == Item(item(0).position, item(0).identity, dict(item(0).data))
    assert item(0) != item(0, etag="2")
