"""Repeats are dropped, replaced batches compared, late events found, and holes are said (law 6)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from airflow_state_watchers import Inbox, InboxError
from airflow_state_watchers.tasks import reading
from airflow_state_watchers.tasks.doubles import InMemoryAirflow
from tests.tasks.sender import ORDERS, START, Sender, item, keys


@pytest.fixture
def airflow() -> InMemoryAirflow:
    return InMemoryAirflow(asset="orders")


@pytest.fixture
def sender(airflow: InMemoryAirflow) -> Sender:
    return Sender(airflow)


def read(airflow: InMemoryAirflow, run_id: str, **arguments: Any) -> list[str]:
    with airflow.task(run_id), Inbox(ORDERS, skip_if_empty=False, start="earliest", **arguments) as inbox:
        return keys(inbox.objects())


def dropped(airflow: InMemoryAirflow) -> int:
    return airflow.counted.get("state_watchers.repeats_dropped", 0)


def test_a_batch_delivered_again_is_dropped_and_counted(airflow: InMemoryAirflow, sender: Sender) -> None:
    batch = sender.send("a", "b")
    sender.post(batch)
    assert read(airflow, "r1") == ["a", "b"]
    sender.post(batch)
    sender.send("c")
    assert read(airflow, "r2") == ["c"]
    assert dropped(airflow) == 4
    assert read(airflow, "r3") == []
    assert dropped(airflow) == 4, "counted once"


def test_a_repeat_long_after_is_dropped(airflow: InMemoryAirflow, sender: Sender) -> None:
    """The triggerer was down for a day and delivers what it had not committed."""
    batch = sender.send("a")
    assert read(airflow, "r1") == ["a"]
    sender.clock += timedelta(days=1)
    sender.post(batch)
    assert read(airflow, "r2") == []


def test_a_replacement_brings_only_what_is_new(airflow: InMemoryAirflow, sender: Sender) -> None:
    old = sender.send("a", "b")
    assert read(airflow, "r1") == ["a", "b"]
    sender.previous = old["previous"]
    sender.send("b", "c", item("a", etag="overwritten"), replaces=[old["batch_id"]])
    with airflow.task("r2"), Inbox(ORDERS) as inbox:
        assert [(obj.key, obj.etag) for obj in inbox.objects()] == [("c", "e"), ("a", "overwritten")]
    assert dropped(airflow) == 1


def test_a_replacement_read_together_with_what_it_replaces(airflow: InMemoryAirflow, sender: Sender) -> None:
    old = sender.send("a", "b")
    sender.previous = old["previous"]
    sender.send("a", "c", replaces=[old["batch_id"]])
    assert read(airflow, "r1") == ["a", "b", "c"]


def test_several_that_replace_one_batch_are_compared_with_each_other(airflow: InMemoryAirflow, sender: Sender) -> None:
    """Of the replaced batch no event exists; the second crash repeats what the first replacement brought."""
    sender.send("x")
    lost = sender.payload(["a", "b"], batch_id="lost")
    previous = sender.previous
    first = sender.send("a", replaces=["lost"])
    sender.previous = previous
    sender.send("a", "c", replaces=["lost", first["batch_id"]])
    assert read(airflow, "r1") == ["x", "a", "c"]
    sender.post(lost)
    assert read(airflow, "r2") == ["b"], "the transaction of the replaced one was open all the time"


def test_a_replacement_with_nothing_new_is_no_work(airflow: InMemoryAirflow, sender: Sender) -> None:
    old = sender.send("a", "b")
    read(airflow, "r1")
    sender.previous = old["previous"]
    sender.send("b", replaces=[old["batch_id"]])
    assert read(airflow, "r2") == []
    assert read(airflow, "r3") == []
    assert dropped(airflow) == 1


def test_what_a_failed_task_took_comes_with_the_same_repeats_dropped(airflow: InMemoryAirflow, sender: Sender) -> None:
    old = sender.send("a", "b")
    sender.previous = old["previous"]
    sender.send("b", "c", "d", replaces=[old["batch_id"]])
    with airflow.task("r1"), Inbox(ORDERS, start="earliest") as inbox:
        for obj in inbox.objects():
            if obj.key == "c":
                break
    assert read(airflow, "r2") == ["d"]


def test_the_replaced_event_is_read_again_when_it_is_not_at_hand(
    airflow: InMemoryAirflow, sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "CACHED_ITEMS", 0)
    old = sender.send("a", "b")
    read(airflow, "r1")
    sender.clock += timedelta(days=1)
    sender.previous = old["previous"]
    sender.send("b", "c", replaces=[old["batch_id"]])
    assert read(airflow, "r2") == ["c"]


def test_a_moved_watermark_delivers_again_and_raises_nothing(airflow: InMemoryAirflow, sender: Sender) -> None:
    sender.send("a", "b")
    read(airflow, "r1")
    sender.generation, sender.previous = 2, None
    sender.send("b")
    assert read(airflow, "r2") == ["b"], "what a person asked for is no repeat"
    sender.generation, sender.previous = 3, None
    sender.send("z")
    assert read(airflow, "r3") == ["z"]


def test_a_watcher_that_lost_its_state_raises_nothing(airflow: InMemoryAirflow, sender: Sender) -> None:
    sender.send("a")
    read(airflow, "r1")
    sender.generation, sender.previous = 1, None
    sender.send("b")
    sender.send("c")
    assert read(airflow, "r2") == ["b", "c"]


def test_two_watchers_of_one_asset_do_not_disturb_each_other(airflow: InMemoryAirflow, sender: Sender) -> None:
    other = Sender(airflow, "s3://lake/other/")
    for number in range(3):
        other.clock = sender.clock
        sender.send(f"a{number}")
        other.send(f"b{number}")
    assert read(airflow, "r1") == ["a0", "b0", "a1", "b1", "a2", "b2"]


def test_a_hole_raises_with_the_two_times_and_the_way_out(airflow: InMemoryAirflow, sender: Sender) -> None:
    sender.send("a")
    read(airflow, "r1")
    sender.clock += timedelta(days=3)
    lost = sender.send("b")
    sender.send("c")
    airflow.events = [event for event in airflow.events if (event.payload or {})["batch_id"] != lost["batch_id"]]
    with pytest.raises(InboxError) as raised:
        read(airflow, "r2")
    message = str(raised.value)
    assert "asset 'orders'" in message
    assert "watcher 's3://lake/orders/'" in message
    assert f"missing between {START + timedelta(seconds=1)} and {START + timedelta(days=3, seconds=3)}" in message
    assert 'on_gap="skip"' in message
    assert "move the watcher's watermark back" in message
    with pytest.raises(InboxError):
        read(airflow, "r3")
    assert read(airflow, "r4", on_gap="skip") == ["c"]
    sender.send("d")
    assert read(airflow, "r5") == ["d"]


def test_events_cleaned_before_a_consumer_began_are_no_hole(airflow: InMemoryAirflow, sender: Sender) -> None:
    sender.send("a")
    sender.send("b")
    del airflow.events[0]
    assert read(airflow, "r1") == ["b"]


def test_events_cleaned_after_they_were_read_are_no_hole(airflow: InMemoryAirflow, sender: Sender) -> None:
    for number in range(30):
        sender.send(f"k{number}")
    read(airflow, "r1")
    airflow.events.clear()
    sender.clock += timedelta(days=30)
    sender.send("later")
    assert read(airflow, "r2") == ["later"]


def test_an_open_take_whose_events_were_cleaned_is_a_hole(airflow: InMemoryAirflow, sender: Sender) -> None:
    sender.send("a")
    kept = sender.send("b", "c")
    read(airflow, "r1")
    airflow.set_state("r1", "failed")
    del airflow.events[0]
    with pytest.raises(InboxError, match=r"task task of run r1 took between .* and .*, 1 are missing"):
        read(airflow, "r2")
    assert read(airflow, "r3", on_gap="skip") == ["b", "c"]
    assert kept["count"] == 2


def test_a_retry_whose_events_were_cleaned_is_a_hole(airflow: InMemoryAirflow, sender: Sender) -> None:
    sender.send("a")
    sender.send("b")
    read(airflow, "r1")
    airflow.set_state("r1", "failed")
    del airflow.events[0]
    with pytest.raises(InboxError, match="1 are missing"):
        read(airflow, "r1")
    assert read(airflow, "r1", on_gap="skip") == ["b"]


def test_events_cleaned_while_they_are_handed_out_are_a_hole(
    airflow: InMemoryAirflow, sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "CACHED_ITEMS", 1)
    for number in range(3):
        sender.send(f"k{number}")
    with airflow.task("r1"), Inbox(ORDERS, start="earliest") as inbox:
        objects = inbox.objects()
        assert next(objects).key == "k0"
        del airflow.events[1]
        with pytest.raises(InboxError, match="is gone since it was taken"):
            next(objects)


@pytest.mark.parametrize("behind", [5, 300, 599])
def test_another_hosts_clock_may_be_behind(airflow: InMemoryAirflow, sender: Sender, behind: int) -> None:
    """Two triggerers: what the second sends bears times from before what was read already."""
    sender.clock += timedelta(hours=1)
    other = Sender(airflow, "s3://lake/other/")
    sender.send("a")
    assert read(airflow, "r1") == ["a"]
    other.clock = sender.clock - timedelta(seconds=behind)
    other.send("b")
    assert read(airflow, "r2") == ["b"]
    assert read(airflow, "r3") == []


def test_a_transaction_held_open_shows_a_smaller_id_later(airflow: InMemoryAirflow, sender: Sender) -> None:
    sender.post(sender.payload(["b"]), event_id=20)
    assert read(airflow, "r1") == ["b"]
    late = Sender(airflow, "s3://lake/other/")
    late.clock = sender.clock - timedelta(seconds=30)
    late.post(late.payload(["a"]), event_id=10)
    assert read(airflow, "r2") == ["a"]


def test_an_event_of_a_clock_far_ahead_hides_nothing(airflow: InMemoryAirflow, sender: Sender) -> None:
    now = START + timedelta(hours=1)
    airflow.now = lambda: now
    sender.clock = now
    sender.send("a")
    ahead = Sender(airflow, "s3://lake/other/")
    ahead.clock = now + timedelta(hours=5)
    ahead.send("future")
    assert read(airflow, "r1") == ["a", "future"]
    sender.send("b")
    assert read(airflow, "r2") == ["b"]
    assert read(airflow, "r3") == []


def test_an_event_visible_later_than_the_overlap_is_found_through_its_chain(
    airflow: InMemoryAirflow, sender: Sender
) -> None:
    """Its transaction was open for an hour. Nothing read from the bookmark on shows it, but the next event names it."""
    other = Sender(airflow, "s3://lake/other/")
    sender.send("a")
    held = sender.payload(["b"])
    sender.previous = held["batch_id"]
    other.clock = sender.clock + timedelta(hours=1)
    other.send("x")
    assert read(airflow, "r1") == ["a", "x"]
    airflow.deliver(held, at=sender.clock + timedelta(seconds=1))
    sender.clock = other.clock
    sender.send("c")
    assert read(airflow, "r2") == ["b", "c"]
    assert read(airflow, "r3") == []


def test_a_triggerer_that_was_frozen_for_long_is_no_hole(airflow: InMemoryAirflow, sender: Sender) -> None:
    """Thawed, it sends what follows a batch of long ago; that batch's event is still there."""
    old = sender.send("a")
    for number in range(40):
        sender.send(f"k{number}")
        sender.clock += timedelta(minutes=1)
    read(airflow, "r1")
    sender.previous = old["batch_id"]
    sender.send("thawed")
    assert read(airflow, "r2") == ["thawed"]


def test_events_of_one_moment_are_ordered_by_id(airflow: InMemoryAirflow, sender: Sender) -> None:
    for number in range(130):
        airflow.deliver(payload := sender.payload([f"k{number:03}"]), at=START)
        sender.previous = payload["batch_id"]
    assert read(airflow, "r1") == [f"k{number:03}" for number in range(130)]


def test_three_thousand_large_events_are_read_in_bounded_memory(
    airflow: InMemoryAirflow, sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "CACHED_ITEMS", 2_000)
    names = [f"orders/{number}" for number in range(100)]
    items = [item(name) for name in names]
    for number in range(3000):
        sender.send(*[{**one, "etag": str(number)} for one in items[:20]])
        if number == 0:
            airflow.create_run("r1")
    with airflow.task("r1"), Inbox(ORDERS) as inbox:
        assert len(inbox) == 60_000
        assert inbox._session is not None
        assert len(inbox._session._findings._payloads) == 100, "no more was kept than may be"
        assert sum(1 for _ in inbox.objects()) == 60_000
    assert max(airflow.pages) <= 500
    assert sum(airflow.pages) < 8_000, "two passes"
    assert all(len(value) < 64 * 1024 for value in airflow.store.data.values())  # type: ignore[attr-defined]
    assert read(airflow, "r2") == []
