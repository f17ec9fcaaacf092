"""The looks at a column without a clock: however often it is looked at, one is kept that is old enough to be read, and not older
than need be."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from airflow_state_watchers.core.cut import Cut
from airflow_state_watchers.core.reach import MAX_LOOKS, Seen, readable, with_look

BEGIN = datetime(2026, 1, 1, tzinfo=timezone.utc)


@pytest.mark.parametrize("settle", [1, 5, 20, 60, 100, 300, 1000])
@pytest.mark.parametrize("lookback", [0, 600])
def test_a_value_is_read_when_it_is_less_than_twice_as_old_as_settle(settle: int, lookback: int) -> None:
    """One look a second at a value that grows all the time."""
    looks: tuple[Seen, ...] = ()
    for second in range(4 * settle + lookback):
        now = BEGIN + timedelta(seconds=second)
        moment = now - timedelta(seconds=settle)
        found = readable(looks, moment)
        if second > settle:
            assert found is not None
            assert now - found.at <= timedelta(seconds=2 * settle + 2)
        looks = with_look(looks, Seen(Cut(str(second)), now), keep=moment - timedelta(seconds=lookback))
        assert len(looks) <= MAX_LOOKS
        assert list(looks) == sorted(looks, key=lambda seen: seen.at)
