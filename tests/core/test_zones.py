"""Local times that will repeat are no horizon until they have passed for the last time."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

from airflow_state_watchers.core.zones import safe_local

MOMENTS = [
    # zone, UTC, the local time that is safe
    ("Europe/Berlin", "2026-10-24 23:59:59.999999", "2026-10-25 01:59:59.999999"),
    ("Europe/Berlin", "2026-10-25 00:00", "2026-10-25 02:00"),
    ("Europe/Berlin", "2026-10-25 00:59:59.999999", "2026-10-25 02:00"),
    ("Europe/Berlin", "2026-10-25 01:00", "2026-10-25 02:00"),
    ("Europe/Berlin", "2026-10-25 01:00:00.000001", "2026-10-25 02:00:00.000001"),
    ("Europe/Berlin", "2026-03-29 00:59:59", "2026-03-29 01:59:59"),
    ("Europe/Berlin", "2026-03-29 01:00", "2026-03-29 03:00"),
    ("America/New_York", "2026-11-01 05:30", "2026-11-01 01:00"),
    ("America/New_York", "2026-11-01 06:30", "2026-11-01 01:30"),
    ("Australia/Lord_Howe", "2026-04-04 14:40", "2026-04-05 01:30"),  # by half an hour
    ("Australia/Lord_Howe", "2026-04-04 15:10", "2026-04-05 01:40"),
    ("Antarctica/Troll", "2026-10-25 00:30", "2026-10-25 01:00"),  # by two hours
    ("Antarctica/Troll", "2026-10-24 22:30", "2026-10-25 00:30"),
    ("UTC", "2026-10-25 00:30", "2026-10-25 00:30"),
]


@pytest.mark.parametrize(("zone", "utc", "local"), MOMENTS)
def test_the_horizon_waits_where_clocks_are_put_back(zone: str, utc: str, local: str) -> None:
    moment = datetime.fromisoformat(utc).replace(tzinfo=timezone.utc)
    assert safe_local(moment, ZoneInfo(zone)) == datetime.fromisoformat(local)


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Antarctica/Troll"])
@pytest.mark.parametrize("day", ["2026-10-24", "2026-10-31", "2026-04-04", "2026-03-28", "2026-03-07"])
def test_no_later_moment_shows_an_earlier_time_than_was_safe(zone: str, day: str) -> None:
    begin = datetime.fromisoformat(day).replace(tzinfo=timezone.utc)
    moments = [begin + timedelta(minutes=7 * number) for number in range(420)]
    place = ZoneInfo(zone)
    safe = [safe_local(moment, place) for moment in moments]
    shown = [moment.astimezone(place).replace(tzinfo=None) for moment in moments]
    assert safe == sorted(safe)
    assert all(low <= min(shown[number:]) for number, low in enumerate(safe))
    assert safe[-1] == shown[-1]
