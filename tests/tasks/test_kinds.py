"""Events of a SQL watcher in an inbox: windows beside objects."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import serde

from airflow_state_watchers import Inbox, InboxError, S3Object, SqlWindow, WatcherEvent
from airflow_state_watchers.core.cut import Cut, Span
from airflow_state_watchers.tasks.doubles import InMemoryAirflow
from airflow_state_watchers.tasks.events import payload_of
from airflow_state_watchers.tasks.recorded import inbox
from tests.tasks.sender import ORDERS, START, WINDOW, Sender

ROWS = [{"id": 1, "updated_at": "5"}, {"id": 2, "updated_at": "6"}]


def window(low: str | None, high: str, **more: Any) -> SqlWindow:
    known: dict[str, Any] = {
        "conn_id": "shop",
        "table": ("public", "orders"),
        "sql": None,
        "where": None,
        "columns": (),
        "watermark_column": "updated_at",
        "key_columns": ("id",),
        "count": 3,
        "reread": False,
        "timezone": "UTC",
        "column_type": "timestamptz",
    }
    return SqlWindow(low=low, high=high, **{**known, **more})


@pytest.fixture
def airflow() -> InMemoryAirflow:
    return InMemoryAirflow(asset="orders")


@pytest.fixture
def sender(airflow: InMemoryAirflow) -> Sender:
    return Sender(airflow, watcher="public.orders/updated_at")


def test_windows_come_in_order_and_repeats_are_dropped(airflow: InMemoryAirflow, sender: Sender) -> None:
    sender.send_window(None, "5")
    sent = sender.send_window("5", "9")
    sender.post(sent)  # delivered again after a crash
    with airflow.task("r1"), Inbox(ORDERS) as box:
        assert len(box) == 2
        assert list(box.windows()) == [window(None, "5"), window("5", "9")]
    assert airflow.counted == {"state_watchers.repeats_dropped": 1}


def test_only_the_last_window_of_each_watcher_is_the_last(airflow: InMemoryAirflow, sender: Sender) -> None:
    other = Sender(airflow, watcher="public.refunds/updated_at")
    sender.send_window("1", "5")
    sender.send_window("5", "9")
    other.clock = sender.clock
    other.send_window("1", "2", table=["public", "refunds"])
    with airflow.task("r1"), Inbox(ORDERS) as box:
        assert [(str(found), found.is_last) for found in box.windows()] == [
            ("shop:public.orders/updated_at[1, 5)", False),
            ("shop:public.orders/updated_at[5, 9)", True),
            ("shop:public.refunds/updated_at[1, 2)", True),
        ]
        assert [event.items[0].is_last for event in box.events()] == [False, True, True]


def test_a_window_that_was_committed_is_done(airflow: InMemoryAirflow, sender: Sender) -> None:
    for low in "1234":
        sender.send_window(low, low + "9")
    with airflow.task("r1"), Inbox(ORDERS) as box:
        for number, _ in enumerate(box.windows()):
            if number == 2:
                break
            box.commit()
    airflow.set_state("r1", "failed")
    with airflow.task("r2"), Inbox(ORDERS) as box:
        assert [found.low for found in box.windows()] == ["3", "4"]


def test_windows_are_taken_for_mapped_tasks(airflow: InMemoryAirflow, sender: Sender) -> None:
    for low in "123":
        sender.send_window(low, low + "9")
    with airflow.task("r1"):
        taken = Inbox(ORDERS).take(done_by="copy")
    assert through_xcom(taken) == taken
    assert [found.is_last for found in through_xcom(taken)] == [False, False, True]
    for index, state in enumerate(["success", "failed", "success"]):
        airflow.set_state("r1", state, task_id="copy", map_index=index)
    with airflow.task("r2"):
        assert Inbox(ORDERS).take(group=5) == [[window("2", "29")]]


def test_each_kind_has_its_reader(airflow: InMemoryAirflow, sender: Sender) -> None:
    sender.send_window("1", "5")
    with (
        pytest.raises(
            InboxError,
            match=r"asset 'orders' has events of kind 'sql_window', which hold no objects but windows of rows\. "
            r"Read them with windows\(\), or with events\(\), which reads any kind\.",
        ),
        airflow.task("r1"),
        Inbox(ORDERS) as box,
    ):
        list(box.objects())
    other = InMemoryAirflow(asset="orders")
    Sender(other).send("a")
    with (
        pytest.raises(InboxError, match=r"'s3_objects', which hold no windows but objects\. Read them with objects"),
        other.task("r1"),
        Inbox(ORDERS) as box,
    ):
        list(box.windows())


def test_events_of_every_kind_are_read_together(airflow: InMemoryAirflow, sender: Sender) -> None:
    objects = Sender(airflow)
    objects.send("a", "b")
    sender.clock = objects.clock
    sender.send_window(None, "5")
    sender.send_window("5", "7", kind="sql_rows", items=ROWS, count=2)
    with airflow.task("r1"), Inbox(ORDERS) as box:
        assert len(box) == 4
        found = list(box.events())
    assert [(event.low, event.high, event.count) for event in found] == [
        (START, START, 2),
        (None, "5", 3),
        ("5", "7", 2),
    ]
    assert found[0].items == (S3Object("lake", "a", 1, "e", START), S3Object("lake", "b", 1, "e", START))
    assert found[1].items == (window(None, "5"),)
    assert found[2].items == tuple(ROWS)


def test_rows_in_events_are_read_as_windows_too(airflow: InMemoryAirflow, sender: Sender) -> None:
    sender.send_window("5", "7", kind="sql_rows", items=ROWS, count=2)
    with airflow.task("r1"), Inbox(ORDERS) as box:
        assert len(box) == 1
        assert list(box.windows()) == [window("5", "7", count=2)]


def test_an_asset_event_with_rows_is_read_typed(sender: Sender) -> None:
    payload = sender.send_window("5", "7", kind="sql_rows", items=ROWS, count=2)
    raw = SimpleNamespace(asset=SimpleNamespace(name="orders"), extra={"from_trigger": True, "payload": payload})
    event = WatcherEvent.from_asset_event(raw)
    assert event is not None
    assert (event.count, event.bytes, event.items) == (2, 0, tuple(ROWS))


@pytest.mark.parametrize("kind", [None, 1, [], {}, "sql_windows", ""])
def test_other_kinds_are_not_ours(kind: Any) -> None:
    assert payload_of({"payload": {**WINDOW, "kind": kind, "watcher": "w", "batch_id": "b"}}) is None


def through_xcom(value: Any) -> Any:
    return serde.deserialize(json.loads(json.dumps(serde.serialize(value))))


FULL = window(
    "0001-01-01 00:00:00 BC",
    "infinity",
    table=None,
    sql="SELECT 1",
    where="a > 'é😀'",
    columns=("Group", "updatedAt"),
    key_columns=(),
    bounds="(]",
    hook_params={"database": "x", "options": {"a": [1, 2]}},
    is_last=False,
)


@pytest.mark.parametrize("value", [window(None, "5"), FULL])
def test_a_window_passes_through_xcom_as_itself(value: SqlWindow) -> None:
    found = through_xcom([value])[0]
    assert found == value
    assert (found.is_last, found.hook_params) == (value.is_last, value.hook_params)
    assert hash(found) == hash(value)


def test_a_window_of_a_newer_release_is_refused() -> None:
    stored = serde.serialize(FULL)
    assert isinstance(stored, dict)
    with pytest.raises(TypeError, match="newer release"):
        serde.deserialize({**stored, "__version__": 2})


def test_a_window_is_readable_text() -> None:
    assert str(window(None, "5")) == "shop:public.orders/updated_at[, 5)"
    assert str(FULL) == "shop:the query/updated_at(0001-01-01 00:00:00 BC, infinity]"


def test_the_bounds_say_what_belongs_to_a_window() -> None:
    assert window("1", "5").span() == Span(Cut("1"), Cut("5"))
    assert window("1", "5", bounds="(]").span() == Span(Cut("1", after=True), Cut("5", after=True))
    assert window("1", "5").span("now") == Span(Cut("1"), None)
    assert window("1", "5", is_last=False).span("now") == Span(Cut("1"), Cut("5"))
    with pytest.raises(ValueError, match="upper='later' is none of 'window', 'now'"):
        window("1", "5").span("later")  # type: ignore[arg-type]


def test_a_test_gives_windows_to_a_task() -> None:
    given: list[S3Object | SqlWindow] = [
        window("1", "5"),
        S3Object("lake", "a", 1, "e", START),
        window("5", "9"),
        window("9", "10"),
    ]
    with inbox(ORDERS, given) as recorded, Inbox(ORDERS) as box:
        events = box.events()
        assert [next(events).items for _ in range(3)] == [(given[0],), (given[1],), (given[2],)]
    assert recorded.done == given[:3]
    assert recorded.left == given[3:]
