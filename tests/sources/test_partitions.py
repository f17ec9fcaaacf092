"""Dated partitions: which ones a poll lists, and what a pattern may be."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from airflow_state_watchers.exceptions import WatcherArgumentError
from airflow_state_watchers.sources.partitions import DatePattern


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=timezone.utc)


def listed(pattern: str, since: str, now: str, zone: str = "UTC") -> list[str] | None:
    return DatePattern(pattern, zone).partitions(at(since), at(now))


def test_days_from_two_before_the_oldest_to_one_after_the_current_one() -> None:
    assert listed("dt=%Y-%m-%d/", "2026-11-30T23:30", "2026-12-01T00:30") == [
        "dt=2026-11-28/", "dt=2026-11-29/", "dt=2026-11-30/", "dt=2026-12-01/", "dt=2026-12-02/",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("%Y/", ["2024/", "2025/", "2026/", "2027/"]),
        ("%Y/%m/", ["2026/09/", "2026/10/", "2026/11/", "2026/12/"]),
        ("%G-W%V/", ["2026-W46/", "2026-W47/", "2026-W48/", "2026-W49/"]),
        ("%Y-%j/", ["2026-330/", "2026-331/", "2026-332/", "2026-333/"]),
        ("y=%Y/m=%m/d=%d/h=%H/", [f"y=2026/m=11/d=28/h={hour}/" for hour in ("10", "11", "12", "13")]),
        ("%Y%m%dT%H%M", [f"20261128T12{minute:02}" for minute in (28, 29, 30, 31)]),
        ("100%%/%y%m%d", [f"100%/2611{day}" for day in (26, 27, 28, 29)]),
    ],
)
def test_every_unit(pattern: str, expected: list[str]) -> None:
    assert listed(pattern, "2026-11-28T12:30", "2026-11-28T12:30") == expected


def test_dates_are_those_of_the_time_zone() -> None:
    assert listed("%d", "2026-11-28T23:30", "2026-11-28T23:30", "Europe/Berlin") == ["27", "28", "29", "30"]
    assert listed("%d", "2026-11-28T04:30", "2026-11-28T04:30", "America/New_York") == ["25", "26", "27", "28"]


def test_no_hour_is_left_out_when_the_clocks_change() -> None:
    """Berlin, 2026: 02:00 does not come on 29 March, and comes twice on 25 October. Lord Howe shifts by half an hour."""
    spring = listed("%dT%H", "2026-03-28T22:00", "2026-03-29T02:00", "Europe/Berlin")
    assert spring == ["28T21", "28T22", "28T23", "29T00", "29T01", "29T03", "29T04", "29T05"]
    autumn = listed("%dT%H", "2026-10-24T22:30", "2026-10-25T02:30", "Europe/Berlin")
    assert autumn == ["24T22", "24T23", "25T00", "25T01", "25T02", "25T03", "25T04"]
    assert autumn is not None
    howe = listed("%H", "2026-04-04T13:00", "2026-04-04T16:00", "Australia/Lord_Howe")
    assert howe is not None
    assert {"00", "01", "02"} <= set(howe)


def test_a_month_of_idle_hours_costs_what_an_hour_costs() -> None:
    pattern = DatePattern("dt=%Y-%m-%d/%H/")
    start = at("2026-01-01T00:00")
    counts = set()
    for hour in range(24 * 31):
        now = start + timedelta(hours=hour)
        found = pattern.partitions(now - timedelta(hours=1), now)
        assert found is not None
        counts.add(len(found))
    assert counts == {5}


def test_too_many_partitions_are_not_listed_one_by_one() -> None:
    assert listed("%Y%m%d%H%M", "2026-01-01", "2026-03-01") is None
    days = listed("%Y%m%d", "2022-01-01", "2026-01-01")
    assert days is not None
    assert len(days) == 4 * 365 + 1 + 1 + 3
    assert listed("%Y%m%d", "0001-01-01", "2026-01-01") is None


def test_the_beginning_and_the_end_of_time_are_no_crash() -> None:
    assert listed("%Y/", "0001-01-01", "0001-01-02") is not None
    assert listed("%d/", "9999-12-30", "9999-12-31T23:00") is not None


@pytest.mark.parametrize(
    ("pattern", "rest", "matches"),
    [
        ("dt=%Y-%m-%d/", "dt=2026-11-28/a.csv", True),
        ("dt=%Y-%m-%d/", "dt=2026-11-2/a.csv", False),
        ("dt=%Y-%m-%d/", "other/dt=2026-11-28/", False),
        ("%Y.%m", "2026x11", False),
        ("100%%-%Y", "100%-2026", True),
    ],
)
def test_what_lies_in_a_partition(pattern: str, rest: str, matches: bool) -> None:
    assert DatePattern(pattern).matches(rest) is matches


@pytest.mark.parametrize("pattern", ["", "day", "%%", "%b", "%Y-%A", "%-d", "%", "%Y/%", "%\n"])
def test_a_pattern_that_cannot_be_used_is_named(pattern: str) -> None:
    with pytest.raises(WatcherArgumentError, match="date_pattern="):
        DatePattern(pattern)


@pytest.mark.parametrize("zone", ["Mars/Base", "", "../etc/passwd", "Europe/Berlin\0"])
def test_a_time_zone_that_is_not_known_is_named(zone: str) -> None:
    with pytest.raises(WatcherArgumentError, match="timezone="):
        DatePattern("%Y", zone)
