"""The demo's second half: rows of a PostgreSQL table become windows, and a copy of the table ends up equal to it."""

from __future__ import annotations

from typing import Any

from airflow_state_watchers.demo.airflow import Airflow
from airflow_state_watchers.demo.shop import Shop
from airflow_state_watchers.demo.story import beside

ASSET, DAG_ID = "shop_orders", "copy_orders"
NAME = "public.orders/updated_at"
TIME_LIMIT = 300

DAG = '''
"""The demo's DAG: it merges each window of changed rows into a copy, in the database."""
from airflow.providers.postgres.hooks.postgres import PostgresHook
from airflow.sdk import DAG, Asset, AssetWatcher, task
from airflow_state_watchers import Inbox, SqlUpdatedAtTrigger

orders = Asset("shop_orders", watchers=[AssetWatcher(name="changed_orders", trigger=SqlUpdatedAtTrigger(
    "shop", table="public.orders", watermark_column="updated_at", key_columns=["id"], start="earliest",
    poll_interval=5))]) 

with DAG("copy_orders", schedule=[orders], max_active_runs=1):
    @task(inlets=[orders], retries=3)
    def merge():
        hook = PostgresHook("shop")
        with Inbox(orders) as inbox:
            for window in inbox.windows():
                where = window.predicate("o")
                hook.run([
                    "INSERT INTO copied SELECT o.* FROM orders o WHERE " + where.sql
                    + " ON CONFLICT (id) DO UPDATE SET amount = excluded.amount, updated_at = excluded.updated_at"],
                    parameters=where.parameters)
                hook.run("INSERT INTO reads (low, high, rows) VALUES (%s, %s, %s)",
                         parameters=[window.low, window.high, window.count])
                inbox.commit()
    merge()
'''


def tell(airflow: Airflow, shop: Shop, board: Any, seconds: float) -> bool:
    """Write, kill, wait, compare; return whether the copy is equal."""
    board.say("")
    board.say(
        "== rows of a table: 4 writers with long, idle, prepared and undone transactions, and a row dated in 73 years"
    )
    shop.put_future_row()
    airflow.write_dag(DAG_ID, DAG)
    airflow.wait_for_dag(DAG_ID)
    airflow.wait_for(
        lambda: airflow.rest.state(ASSET, f"state_watchers:{NAME}"), 120, "the table watcher's first checkpoint"
    )
    with beside(lambda: shop.write(seconds)):
        airflow.wait_for(lambda: shop.reads()[0], TIME_LIMIT, "the first window to be read")
        board.say("   " + _line(airflow, shop))
        board.say("kill -9 of the triggerer")
        airflow.kill("triggerer")
        airflow.start("triggerer")
        board.say("a new triggerer is running")
    board.say("   the writers have ended: " + ", ".join(f"{count} {how}" for how, count in sorted(shop.counts.items())))
    airflow.wait_for(lambda: shop.different() == 0, TIME_LIMIT, "the copy to be equal to the table")
    return _end(airflow, shop, board)


def _line(airflow: Airflow, shop: Shop) -> str:
    windows, rows = shop.reads()
    runs = len(airflow.rest.dag_runs(DAG_ID))
    return f"rows {shop.rows()}, windows read {windows} ({rows} rows), DAG runs {runs}, rows that differ {shop.different()}"


def _end(airflow: Airflow, shop: Shop, board: Any) -> bool:
    equal, held = shop.different() == 0, not shop.copied_future_row()
    board.say("   " + _line(airflow, shop))
    board.say(f"the copy is {'equal to' if equal else 'DIFFERENT from'} the table")
    board.say(f"the row dated in 73 years is {'held back' if held else 'NOT HELD BACK'}")
    return equal and held
