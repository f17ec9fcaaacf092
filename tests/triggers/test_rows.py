"""The SQL watcher's rules, on a table in memory whose transactions the test commits when it likes."""

from __future__ import annotations

import json
from itertools import count
from typing import Any

import pytest

from airflow_state_watchers.testing import WatcherHarness
from tests.triggers.rows import Copied

ROOT = "state_watchers:orders/w"


def begun(**arguments: Any) -> Copied:
    copied = Copied(**arguments)
    for _ in range(3):
        copied.poll()
        copied.pass_time(61)
    copied.consume()
    return copied


@pytest.fixture(params=[False, True], ids=["times", "sequence"])
def kind(request: pytest.FixtureRequest) -> dict[str, Any]:
    return {"is_sequence": request.param}


def note(copied: Copied) -> Any:
    return copied.harness.store.get("state_watchers.health:orders/w")["note"]


def test_a_new_row_is_in_a_window(kind: dict[str, Any]) -> None:
    copied = begun(**kind)
    copied.table.put("a")
    copied.rest()
    assert copied.target == copied.table.values != {}


def test_what_stands_at_the_start_is_skipped_or_delivered(kind: dict[str, Any]) -> None:
    for start, expected in (("latest", set()), ("earliest", {"old"})):
        copied = Copied(start=start, **kind)
        copied.table.put("old")
        copied.pass_time(100)
        copied.rest()
        assert set(copied.target) == expected


def test_a_late_commit_is_not_passed(kind: dict[str, Any]) -> None:
    copied = begun(**kind)
    late = copied.table.begin()
    late.put("late")
    copied.table.put("early")
    for _ in range(5):
        copied.pass_time(61)
        copied.poll()
        copied.consume()
    assert "late" not in copied.target
    late.commit()
    copied.rest()
    assert copied.target == copied.table.values


def test_a_transaction_open_at_a_start_at_the_latest_is_new() -> None:
    copied = Copied()
    late = copied.table.begin()
    late.put("late")
    copied.table.put("other")
    for _ in range(4):
        copied.pass_time(61)
        copied.poll()
    late.commit()
    copied.rest()
    assert "late" in copied.target


def test_a_start_at_the_latest_value_of_a_sequence_waits_until_it_is_known() -> None:
    copied = Copied(is_sequence=True)
    late = copied.table.begin()
    late.put("late")
    copied.table.put("other")
    copied.pass_time(61)
    copied.poll()
    assert ROOT not in copied.harness.store.data
    late.commit()
    copied.pass_time(61)
    copied.poll()
    assert copied.harness.store.get(ROOT)["watermark"] == {"value": "3"}


@pytest.mark.parametrize("lost", [False, True])
def test_a_fixed_lag_loses_what_the_exact_horizon_does_not(lost: bool) -> None:
    arguments = {"horizon": "clock", "settle": 1, "lookback": 0, "exact": False} if lost else {}
    copied = begun(**arguments)
    late = copied.table.begin()
    late.put("late")
    copied.pass_time(61)
    copied.poll()
    late.commit()
    copied.rest()
    assert ("late" in copied.target) is not lost


def test_a_late_commit_inside_the_lookback_is_read_again_elsewhere(kind: dict[str, Any]) -> None:
    copied = begun(exact=False, settle=5, lookback=600, **kind)
    late = copied.table.begin()
    late.put("late")
    copied.table.put("early")
    copied.pass_time(61)
    copied.poll()
    copied.pass_time(61)
    copied.poll()
    copied.consume()
    assert set(copied.target) == {"early"}
    late.commit()
    copied.pass_time(61)
    (event,) = copied.poll()
    assert event["reread"]
    copied.consume()
    assert copied.target == copied.table.values
    copied.pass_time(61)
    assert copied.poll() == []


def test_max_hold_lets_go_and_reads_again_what_was_passed(kind: dict[str, Any]) -> None:
    copied = begun(max_hold=100, **kind)
    late = copied.table.begin()
    late.put("late")
    copied.pass_time(30)
    copied.table.put("early")
    for _ in range(4):
        copied.pass_time(61)
        copied.poll()
        copied.consume()
    assert set(copied.target) == {"early"}
    copied.harness.restart()
    copied.pass_time(61)
    copied.poll()
    late.commit()
    copied.pass_time(61)
    again = [event for event in copied.poll() if event["reread"]]
    assert again
    copied.consume()
    assert copied.target == copied.table.values


def test_a_passed_transaction_that_is_prepared_is_read_again_when_it_commits() -> None:
    copied = begun(max_hold=100)
    late = copied.table.begin()
    late.put("late")
    for number in range(4):
        copied.pass_time(61)
        copied.table.put(f"other-{number}")
        copied.poll()
        copied.consume()
    late.prepare()
    for number in range(4, 8):
        copied.pass_time(61)
        copied.table.put(f"other-{number}")
        copied.poll()
        copied.consume()
    late.commit()
    copied.rest()
    assert copied.target == copied.table.values


def test_an_idle_table_makes_no_event_and_no_write(kind: dict[str, Any]) -> None:
    copied = begun(**kind)
    copied.table.put("a")
    copied.rest()
    writes = len(copied.harness.store.writes)
    for _ in range(20):
        copied.pass_time(60)
        assert copied.poll() == []
    assert [key for key in copied.harness.store.writes[writes:] if "health" not in key] == []


def test_a_row_updated_all_the_time_is_delivered(kind: dict[str, Any]) -> None:
    copied = begun(**kind)
    stale = 0.0
    for second in range(600):
        copied.table.put("hot")
        copied.pass_time(1)
        if second % 10 == 0:
            copied.poll()
            copied.consume(upper="now")
        if copied.target.get("hot") == copied.table.values["hot"]:
            stale = 0
        else:
            stale += 1
            assert stale < 40


def test_windows_are_cut_but_never_within_a_tie() -> None:
    copied = begun(max_rows_per_event=10)
    for number in range(25):
        copied.table.put(f"tie-{number}")
    copied.pass_time(1)
    for number in range(25):
        copied.table.put(f"single-{number}")
        copied.pass_time(1)
    copied.pass_time(60)
    events = copied.poll()
    assert [event["count"] for event in events] == [25, 10, 10, 5]
    assert [event["low"] for event in events[1:]] == [event["high"] for event in events[:-1]]
    copied.consume()
    assert copied.target == copied.table.values


@pytest.mark.parametrize("crash", ["before_confirm", "before_commit"])
def test_a_crash_repeats_the_same_batch(crash: str, kind: dict[str, Any]) -> None:
    copied = begun(**kind)
    copied.table.put("a")
    first: list[dict[str, Any]] = []
    while not first:
        copied.pass_time(61)
        first = copied.poll(crash=crash)
    copied.table.put("b")
    copied.pass_time(61)
    again = copied.poll()
    assert again[0]["batch_id"] == first[0]["batch_id"]
    copied.rest()
    assert copied.target == copied.table.values


def test_a_future_row_is_held_back_and_delivered_when_due() -> None:
    copied = begun()
    copied.table.put("future", copied.clock.now().replace(year=2099))
    copied.table.put("now")
    copied.rest()
    assert set(copied.target) == {"now"}
    note = copied.harness.store.get("state_watchers.health:orders/w")["note"]
    assert note == "1 row is dated after the database's now; it is read when its time has come"
    copied.pass_time(75 * 366 * 86400)
    copied.rest()
    assert copied.target == copied.table.values


def test_a_person_moves_the_watermark_back_and_forward() -> None:
    copied = begun(lookback=600, exact=False, settle=5)
    for number in range(10):
        copied.table.put(f"row-{number}")
        copied.pass_time(60)
    copied.rest()
    root = copied.harness.store.get(ROOT)
    copied.target.clear()
    back = copied.table.text(copied.table.values["row-5"])
    copied.harness.store.set(ROOT, {**root, "watermark": back})
    copied.pass_time(400)
    copied.rest()
    assert set(copied.target) == {f"row-{number}" for number in range(5, 10)}
    assert copied.harness.events[-1]["generation"] == 2


def test_a_root_deleted_by_a_person_resets_to_the_start() -> None:
    copied = begun(start="earliest")
    copied.table.put("a")
    copied.rest()
    copied.harness.store.delete(ROOT)
    copied.target.clear()
    copied.pass_time(400)
    copied.rest()
    assert copied.target == copied.table.values


def test_another_column_type_under_a_stored_watermark_is_loud() -> None:
    copied = begun()
    copied.table.column = "text"
    copied.table.put("a")
    copied.pass_time(61)
    assert copied.poll() == []
    error = copied.harness.store.get("state_watchers.health:orders/w")["last_error"]
    assert "timestamp with time zone" in error["message"]
    assert "text" in error["message"]


def test_numbers_that_begin_again_are_said() -> None:
    copied = begun(is_sequence=True)
    for key in "abcde":
        copied.table.put(key)
    copied.rest()
    copied.table.delete("e")
    assert "greatest value" not in str(note(copied))
    copied.table.values.clear()
    copied.table.sequence = count(1)
    copied.table.put("again")
    for _ in range(3):
        copied.pass_time(61)
        assert copied.poll() == []
    assert "the greatest value is 2" in str(note(copied))
    assert "move the watermark back" in str(note(copied))
    for key in "fghijkl":
        copied.table.put(key)
    copied.rest()
    assert note(copied) is None


def test_small_windows_may_carry_their_rows_and_large_ones_do_not() -> None:
    copied = begun(payload="rows", max_rows_per_event=3)
    copied.table.put("a")
    copied.pass_time(61)
    (event,) = copied.poll()
    assert event["kind"] == "sql_rows"
    assert [row["id"] for row in event["items"]] == ["a"]
    for number in range(5):
        copied.table.put(f"tie-{number}")
    copied.pass_time(61)
    (event,) = copied.poll()
    assert (event["kind"], event["count"], event["items"]) == ("sql_window", 5, [])


def test_the_stored_root_is_readable_and_small(kind: dict[str, Any]) -> None:
    copied = begun(exact=False, settle=5, lookback=3600, **kind)
    for number in range(200):
        copied.table.put(f"row-{number}")
        copied.pass_time(61)
        copied.poll()
    root = copied.harness.store.get(ROOT)
    assert len(json.dumps(root)) < 12_000
    assert isinstance(copied.harness, WatcherHarness)
    assert root["watermark"]["value"]
