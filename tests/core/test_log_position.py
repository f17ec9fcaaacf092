"""How far a log has been shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_state_watchers.core.log_position import NOTHING_SHOWN, LogPosition, stamp_of, unseen


def log(*stamps: int) -> list[bytes]:
    """Lines written at these nanoseconds of one second, each with a text of its own."""
    return [f"2026-12-01T02:00:00.{at:09d}Z line {number}\n".encode() for number, at in enumerate(stamps)]


@pytest.mark.parametrize(
    ("line", "at"),
    [
        (b"1970-01-01T00:00:01Z x", 1_000_000_000),
        (b"1970-01-01T00:00:00.000000007Z", 7),
        (b"1970-01-01T01:00:00.5+01:00 x", 500_000_000),
        (b"2026-12-01T02:00:00.123456789Z \n", 1_796_090_400_123_456_789),
        (b"Traceback (most recent call last):", None),
        (b"2026-12-01 02:00:00 its own stamp", None),
        (b"\xff\xfe", None),
        (b"", None),
    ],
)
def test_stamps_keep_every_nanosecond(line: bytes, at: int | None) -> None:
    assert stamp_of(line) == at


@given(st.lists(st.integers(0, 3), max_size=8).map(sorted), st.data())
def test_a_reader_who_comes_later_sees_each_line_once(stamps: list[int], data: st.DataObject) -> None:
    lines = log(*stamps)
    seen: list[bytes] = []
    position = NOTHING_SHOWN
    while len(seen) < len(lines):
        # What there is by now, of which the reader dies having shown some.
        there = lines[: data.draw(st.integers(len(seen) + 1, len(lines)))]
        dies_after = data.draw(st.integers(1, len(there) - len(seen)))
        for count, (line, after) in enumerate(unseen(there, position), start=1):
            seen.append(line)
            position = after
            if count == dies_after:
                break
    assert seen == lines


def test_a_log_that_begins_later_has_nothing_cut_off() -> None:
    assert [line for line, _ in unseen(log(7, 8), LogPosition(0, 1))] == log(7, 8)


def test_a_clock_set_back_loses_no_line() -> None:
    lines = log(5, 9, 3, 4)
    assert [line for line, _ in unseen(lines, _position(lines[0]))] == lines[1:]


def test_a_line_without_a_stamp_goes_with_the_one_before() -> None:
    first, second = log(1, 2)
    lines = [first, b"  more\n", second, b"  more\n"]
    assert [line for line, _ in unseen(lines, _position(first))] == [second, b"  more\n"]
    assert [line for line, _ in unseen(lines, NOTHING_SHOWN)] == lines


def _position(line: bytes) -> LogPosition:
    at = stamp_of(line)
    assert at is not None
    return LogPosition(at, 1)
