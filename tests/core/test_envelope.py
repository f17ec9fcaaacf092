"""The event: flat, strict JSON, and nothing that Airflow's triggerer would crash on or change silently."""

from __future__ import annotations

import enum
import json
from collections import UserString
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given

from airflow_state_watchers.core.batch import Batch, step
from airflow_state_watchers.core.checkpoint import Checkpoint
from airflow_state_watchers.core.envelope import NotJson, check_json, event_of, summary_of
from airflow_state_watchers.core.position import Item, Position
from airflow_state_watchers.core.window import Selected
from tests.core.items import at, blank, item, plain


def batch(checkpoint: Checkpoint, *found: Item) -> Batch:
    return step(checkpoint, Selected(found, Position(at(9)), complete=True), max_items=10)[0]


def event(checkpoint: Checkpoint, *found: Item, **source: Any) -> dict[str, Any]:
    return event_of(
        batch(checkpoint, *found),
        checkpoint,
        kind="s3_objects",
        trigger_run_id="9f",
        sequence_index=3,
        source=source,
    )


def test_a_large_batch_has_an_address_instead_of_its_items() -> None:
    found = (item(1, "orders/a.csv"), item(3, "orders/b.csv"))
    checkpoint, address = blank(), {"uri": "s3://m/x.jsonl.gz", "connection": None, "region": None}
    large = event_of(
        batch(checkpoint, *found),
        checkpoint,
        kind="s3_objects",
        trigger_run_id="9f",
        sequence_index=3,
        source={"bucket": "lake"},
        manifest=address,
    )
    assert large == {**event(checkpoint, *found, bucket="lake"), "items": [], "manifest": address}
    assert summary_of(large) == summary_of(event(checkpoint, *found))


def test_the_documented_shape() -> None:
    checkpoint = blank(generation=2, last_batch="b0")
    found = (item(1, "orders/a.csv"), item(3, "orders/b.csv"))
    assert event(checkpoint, *found, bucket="lake") == {
        "v": 1,
        "kind": "s3_objects",
        "watcher": "s3://lake/orders/",
        "generation": 2,
        "trigger_run_id": "9f",
        "sequence_index": 3,
        "batch_id": batch(checkpoint, *found).batch_id,
        "previous": "b0",
        "low": "2026-01-31T12:00:01+00:00",
        "high": "2026-01-31T12:00:03+00:00",
        "count": 2,
        "bytes": 2,
        "bucket": "lake",
        "items": [
            {"key": "orders/a.csv", "size": 1, "etag": "1", "last_modified": "2026-01-31T12:00:01+00:00"},
            {"key": "orders/b.csv", "size": 1, "etag": "1", "last_modified": "2026-01-31T12:00:03+00:00"},
        ],
    }


def test_a_replay_with_other_content_names_what_it_replaces() -> None:
    checkpoint = blank()
    first = batch(checkpoint, item(1))
    replayed = checkpoint.intend(first.intent)
    assert "replaces" not in event(replayed, item(1))
    assert event(replayed, item(1), item(2))["replaces"] == [first.batch_id]


def test_the_first_event_of_a_generation_has_nothing_before_it() -> None:
    assert event(blank(), item(1))["previous"] is None


def test_items_without_a_size_count_no_bytes() -> None:
    row = Item(Position(at(1)), b"x" * 12, {"id": 7})
    assert event(blank(), row)["bytes"] == 0


def test_an_event_does_not_share_its_items_with_the_batch() -> None:
    found = item(1)
    event(blank(), found)["items"][0]["key"] = "changed"
    assert found.data["key"] == "a"


def test_an_item_that_is_not_json_makes_no_event() -> None:
    broken = Item(Position(at(1)), b"x" * 12, {"key": "a", "at": at(1)})
    with pytest.raises(NotJson, match=r"payload\.items\[0\]\.at is a datetime; only text, numbers, true, false, null"):
        event(blank(), broken)


class Name(str):
    __slots__ = ()


class Number(enum.IntEnum):
    ONE = 1


REFUSED = [
    at(0),
    date(2026, 1, 31),
    timedelta(1),
    b"bytes",
    Decimal("1.5"),
    UUID(int=1),
    {1, 2},
    (1, 2),
    Name("a"),
    UserString("a"),
    Number.ONE,
    object(),
    1j,
    float("nan"),
    float("inf"),
    float("-inf"),
    2**64,
    -(2**63) - 1,
    "\ud800",
    "a\udfffb",
    {1: "integer key"},
    {("a", "b"): "tuple key"},
    {None: "no key"},
    {"\udc80": "surrogate key"},
]


@pytest.mark.parametrize("value", REFUSED, ids=repr)
@pytest.mark.parametrize("wrapped", ["bare", "in a list", "in an object"])
def test_what_does_not_survive_is_refused(value: Any, wrapped: str) -> None:
    payload = {"bare": value, "in a list": [0, [value]], "in an object": {"a": {"b": value}}}[wrapped]
    where = {"bare": "payload", "in a list": "payload[1][0]", "in an object": "payload.a.b"}[wrapped]
    with pytest.raises(NotJson) as refused:
        check_json(payload)
    assert str(refused.value).startswith(where)


@pytest.mark.parametrize(
    "value", [2**64 - 1, -(2**63), 1.5, -0.0, "", "\uffff\U0001f600", True, None, [], {}], ids=repr
)
def test_what_survives_is_let_through(value: Any) -> None:
    check_json({"value": value})


@given(plain)
def test_all_json_is_let_through_and_comes_back_as_it_was(value: Any) -> None:
    check_json(value)
    assert json.loads(json.dumps(value)) == value


def test_a_refusal_is_a_value_error() -> None:
    assert issubclass(NotJson, ValueError)


def test_the_summary_is_one_short_line_without_any_item() -> None:
    found = [item(number, f"secret-{number}") for number in range(5)]
    line = summary_of(event(blank(), *found, bucket="lake"))
    batch_id = batch(blank(), *found).batch_id
    assert line == (
        f"s3_objects s3://lake/orders/ generation=1 batch={batch_id} count=5 bytes=5 "
        "low=2026-01-31T12:00:00+00:00 high=2026-01-31T12:00:04+00:00"
    )


def test_low_and_high_are_values_as_the_source_gave_them() -> None:
    precise = datetime.fromisoformat("2026-01-31T12:00:01.250000+00:00")
    assert event(blank(), Item(Position(precise, "a"), b"x" * 12, {}))["low"] == "2026-01-31T12:00:01.250000+00:00"
