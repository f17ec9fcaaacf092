"""Sets of numbers: like Python's, and short as text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_state_watchers.core.numbers import Numbers

sets = st.frozensets(st.integers(0, 60) | st.integers(0, 10**9))


@given(sets, sets)
def test_it_is_a_set(one: frozenset[int], other: frozenset[int]) -> None:
    a, b = Numbers.of(one), Numbers.of(other)
    assert list(a) == sorted(one)
    assert len(a) == len(one)
    assert set(a | b) == one | other
    assert set(a & b) == one & other
    assert set(a - b) == one - other
    assert all((number in a) == (number in one) for number in one | other)
    assert (a == b) == (one == other)


@given(sets, st.integers(0, 70), st.integers(0, 70))
def test_members_are_picked_by_their_place(numbers: frozenset[int], start: int, stop: int) -> None:
    assert list(Numbers.of(numbers).pick(start, stop)) == sorted(numbers)[start:stop]
    assert list(Numbers.of(numbers).below(start)) == sorted(number for number in numbers if number < start)


@given(sets)
def test_the_text_comes_back(numbers: frozenset[int]) -> None:
    assert Numbers.load(Numbers.of(numbers).dump()) == Numbers.of(numbers)


def test_runs_and_neighbours_are_short() -> None:
    assert len(Numbers.span(1_000_000, 1_003_000).dump()) == 8
    assert len(Numbers.of(range(1_000_000, 1_090_000, 30)).dump()) <= 2 * 3000 + 4


def test_touching_runs_are_one() -> None:
    assert Numbers.join([(3, 5), (5, 7), (1, 1)]).runs == ((3, 7),)
    assert Numbers.span(3, 3) == Numbers()


@pytest.mark.parametrize("text", ["x y!", "+", "1+", "é"])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="int"):
        Numbers.load(text)
