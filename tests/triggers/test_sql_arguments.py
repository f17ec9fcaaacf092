"""The SQL watcher's arguments: what can be known to be wrong is said while the DAG file is parsed."""

from __future__ import annotations

import inspect
import json
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from airflow_state_watchers import SqlUpdatedAtTrigger, WatcherArgumentError
from airflow_state_watchers.triggers.sql_names import table_parts


def make(**changes: Any) -> SqlUpdatedAtTrigger:
    arguments: dict[str, Any] = {"conn_id": "shop", "table": "public.orders", "watermark_column": "updated_at"}
    arguments |= changes
    return SqlUpdatedAtTrigger(**{key: value for key, value in arguments.items() if value is not ...})


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("orders", ("orders",)),
        ("public.orders", ("public", "orders")),
        ("Db.dbo.Orders", ("Db", "dbo", "Orders")),
        ('public."Order ""x"" %s; --"', ("public", 'Order "x" %s; --')),
        ('"a.b".c', ("a.b", "c")),
        ("`a.b`.`c``d`", ("a.b", "c`d")),
        ("[my schema].[or]]ders]", ("my schema", "or]ders")),
        ("public . orders", ("public", "orders")),
        ("daily-orders", ("daily-orders",)),
        (["public", "a.b"], ("public", "a.b")),
        (['Order "x" %s; --'], ('Order "x" %s; --',)),
    ],
)
def test_a_table_is_split_at_dots_outside_quotes(text: Any, parts: tuple[str, ...]) -> None:
    assert table_parts(text) == parts


@pytest.mark.parametrize("text", ["", ".", "a.", ".a", "a..b", '"a', 'a"b', "a.b.c.d.e", [], [""], ["a", 1]])
def test_a_table_that_is_no_name_is_refused(text: Any) -> None:
    with pytest.raises(WatcherArgumentError, match="table="):
        make(table=text)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"table": ...}, "exactly one of table"),
        ({"sql": "SELECT 1"}, "exactly one of table"),
        ({"table": ..., "sql": "orders"}, "sql='orders'"),
        ({"table": ..., "sql": "DELETE FROM orders"}, "sql="),
        ({"watermark_column": ""}, "watermark_column"),
        ({"watermark_column": None}, "watermark_column"),
        ({"key_columns": "id"}, r"key_columns='id': give a list of column names, such as \['id'\]"),
        ({"key_columns": ["id", "id"]}, "twice"),
        ({"columns": "id"}, "columns='id'"),
        ({"start": "first"}, "start="),
        ({"start": "earliest", "initial_value": 5}, "initial_value"),
        ({"initial_value": True}, "initial_value"),
        ({"initial_value": object()}, "initial_value"),
        ({"poll_interval": 0}, "poll_interval"),
        ({"horizon": "exact"}, "horizon="),
        ({"settle": -1}, "settle"),
        ({"lookback": "an hour"}, "lookback"),
        ({"max_hold": 0}, "max_hold"),
        ({"max_hold": 60, "horizon": "clock"}, "max_hold"),
        ({"nulls": "include"}, "nulls="),
        ({"timezone": "Berlin"}, "timezone='Berlin'"),
        ({"payload": "row"}, "payload="),
        ({"max_rows_per_event": 0}, "max_rows_per_event"),
        ({"hook_params": []}, "hook_params"),
        ({"conn_id": ""}, "conn_id"),
        ({"table": "orders_{{ ds }}"}, "template"),
        ({"where": "x = '{{ ds }}'"}, "template"),
        ({"watermark": "x"}, "did you mean 'watermark_column'"),
        ({"interval": 5}, "poll_interval"),
    ],
)
def test_wrong_arguments_raise_at_parse_and_are_named(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(WatcherArgumentError, match=named):
        make(**changes)


def test_secrets_in_hook_params_are_not_shown() -> None:
    with pytest.raises(WatcherArgumentError) as raised:
        make(hook_params={"password": {"s3cret"}})
    assert "s3cret" not in str(raised.value)


def test_the_signature_is_the_documented_one() -> None:
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(SqlUpdatedAtTrigger.__init__).parameters.items()
        if name not in ("self", "kwargs")
    }
    assert defaults == {
        "conn_id": inspect.Parameter.empty, "table": None, "sql": None, "watermark_column": inspect.Parameter.empty,
        "key_columns": (), "where": None, "start": "latest", "initial_value": None, "poll_interval": 60, "name": None,
        "on_source_change": "stop", "horizon": "auto", "settle": None, "lookback": None, "max_hold": None,
        "nulls": "exclude", "timezone": None, "payload": "window", "columns": None, "max_rows_per_event": None,
        "hook_params": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"table": ["public", 'Order "x" %s; --'], "key_columns": ("Group",), "columns": ("Group", "updatedAt")},
        {"table": ..., "sql": "SELECT id, greatest(a, b) AS w FROM t;", "watermark_column": "w"},
        {
            "initial_value": datetime(2026, 1, 1, tzinfo=timezone.utc),
            "settle": timedelta(seconds=5),
            "lookback": 3600.5,
        },
        {"initial_value": 2**70, "max_hold": 60, "max_rows_per_event": 5, "payload": "rows"},
        {"initial_value": Decimal("1.50"), "timezone": "Europe/Berlin", "hook_params": {"database": "x"}},
        {"initial_value": date(2026, 1, 31), "nulls": "raise", "horizon": "clock", "where": "kind = 'a'"},
    ],
)
def test_it_comes_back_from_what_airflow_stores_of_it(changes: dict[str, Any]) -> None:
    trigger = make(**changes)
    path, stored = trigger.serialize()
    assert path == "airflow_state_watchers.triggers.sql.SqlUpdatedAtTrigger"
    plain = json.loads(json.dumps(stored))
    assert plain == stored
    again = SqlUpdatedAtTrigger(**plain)
    assert again.serialize() == (path, stored) == make(**changes).serialize()
    assert again.relation == trigger.relation


def test_names_are_made_of_the_source_alone() -> None:
    assert make().watcher_name == "public.orders/updated_at"
    assert make(poll_interval=5, settle=9).watcher_name == "public.orders/updated_at"
    query = make(table=..., sql="SELECT 1 AS w", watermark_column="w")
    assert query.watcher_name == make(table=..., sql="SELECT 1 AS w;", watermark_column="w").watcher_name
    assert query.watcher_name.startswith("query-")
    assert make(name="orders").watcher_name == "orders"
