"""Times are exact both ways, as numbers and as text."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_state_watchers.core.micros import micros_of, moment_of, read_text, text_of
from tests.core.items import moments


@given(moments)
def test_times_are_exact_both_ways(moment: datetime) -> None:
    assert moment_of(micros_of(moment)) == moment
    assert read_text(text_of(micros_of(moment))) == micros_of(moment)


@given(st.integers(-(10**15), 2 * 10**17))
def test_microseconds_are_exact_both_ways(micros: int) -> None:
    assert micros_of(moment_of(micros)) == micros


def test_the_text_is_a_time() -> None:
    assert (
        text_of(micros_of(datetime(2026, 1, 31, 12, 0, 0, 5, tzinfo=timezone.utc)))
        == "2026-01-31T12:00:00.000005+00:00"
    )


@pytest.mark.parametrize("text", ["", "yesterday", "2026-01-31T12:00:00"])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"Invalid isoformat|no time zone"):
        read_text(text)
