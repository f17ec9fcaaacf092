"""The examples of docs/howto/load_rows.rst, run as they stand."""

from __future__ import annotations

import json
import os
import runpy
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from airflow_state_watchers.testing import inbox
from tests.tasks.databases import Database

EXAMPLES = Path(__file__).with_name("examples")
WHOLE = "SELECT id, status, total, updated_at FROM {} ORDER BY id"


def example(name: str) -> tuple[Any, Callable[[], None]]:
    """Return the asset of an example and what its task does."""
    found = runpy.run_path(str(EXAMPLES / f"{name}.py"))
    return found["orders"], found["load"].function


@pytest.fixture
def orders(shop: Database) -> Database:
    shop.run("CREATE TABLE orders (id integer PRIMARY KEY, status text, total numeric, updated_at timestamptz)")
    shop.run(
        "INSERT INTO orders SELECT n, 'new', n / 4.0, timestamptz '2026-01-01 00:00+00' + n * interval '1 minute' "
        "FROM generate_series(1, 20) n"
    )
    return shop


def windows(orders: Database, *bounds: str) -> list[Any]:
    known = {"table": ("public", "orders"), "watermark_column": "updated_at", "column_type": "timestamptz"}
    days = [f"2026-01-01 00:{minute}:00+00" for minute in bounds]
    return [orders.window(low, high, **known) for low, high in pairwise(days)]


def load_twice_with_an_update_between(orders: Database, name: str, target: str) -> None:
    asset, load = example(name)
    first = windows(orders, "00", "05", "15")
    with inbox(asset, first) as recorded:
        load()
    assert recorded.done == first
    assert orders.run(f"SELECT count(*) FROM {target}") == [(14,)]
    orders.run("UPDATE orders SET status = 'paid', updated_at = '2026-01-01 00:30+00' WHERE id IN (2, 17)")
    # The first windows a second time, as after a failure, and then the next ones.
    with inbox(asset, [*first, *windows(orders, "15", "25", "59")]) as recorded:
        load()
    assert not recorded.left
    assert orders.run(WHOLE.format(target)) == orders.run(WHOLE.format("orders"))


@pytest.mark.parametrize("name", ["load_with_sql", "load_with_merge"])
def test_a_copy_is_kept_by_sql(orders: Database, name: str) -> None:
    orders.run("CREATE SCHEMA warehouse; CREATE TABLE warehouse.orders (LIKE public.orders INCLUDING ALL)")
    load_twice_with_an_update_between(orders, name, "warehouse.orders")


def test_a_late_retry_puts_no_older_row_over_a_newer_one(orders: Database) -> None:
    orders.run("CREATE SCHEMA warehouse; CREATE TABLE warehouse.orders (LIKE public.orders INCLUDING ALL)")
    orders.run("INSERT INTO warehouse.orders VALUES (2, 'newer', 0, '2027-01-01')")
    for name in ("load_with_sql", "load_with_merge"):
        asset, load = example(name)
        with inbox(asset, windows(orders, "00", "05")):
            load()
        assert orders.run("SELECT status FROM warehouse.orders WHERE id = 2") == [("newer",)]


@pytest.mark.filterwarnings("default")
def test_a_copy_is_kept_by_dlt(orders: Database, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DLT_DATA_DIR", str(tmp_path / "dlt"))
    monkeypatch.setenv("RUNTIME__DLTHUB_TELEMETRY", "false")
    monkeypatch.setenv("PROVIDERS__ENABLE_AIRFLOW_SECRETS", "false")  # it would look into Airflow's own database
    orders.run("DROP SCHEMA IF EXISTS raw CASCADE; DROP SCHEMA IF EXISTS raw_staging CASCADE")
    warehouse = {**json.loads(os.environ["AIRFLOW_CONN_SHOP"]), "password": "none is asked for"}
    monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", json.dumps(warehouse))
    load_twice_with_an_update_between(orders, "load_with_dlt", "raw.orders")
