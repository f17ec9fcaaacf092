"""A table that is written, copied and watched three times while processes are killed, on a real Airflow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from airflow_state_watchers.demo.airflow import Airflow
from airflow_state_watchers.demo.shop import Shop
from airflow_state_watchers.demo.story import beside

WINDOWS, ROWS, REFUSED = "sql_windows", "sql_rows", "sql_refused"
ALL = (WINDOWS, ROWS, REFUSED)
"""Each is the name of an asset, of the DAG that reads it and of its copy of the table."""

WATCHER = "public.orders/updated_at"
ROLE, WRONG, RIGHT = "guarded", "wr0ng-secret", "r1ght-secret"
WRITING = 30
LATE, PREPARED, UNDONE = 900_001, 900_002, 900_003

DAGS = '''
import os, signal
from contextlib import closing
from datetime import timedelta
from pathlib import Path

from airflow.providers.postgres.hooks.postgres import PostgresHook
from airflow.sdk import DAG, Asset, AssetWatcher, task
from airflow_state_watchers import Inbox, SqlUpdatedAtTrigger

def asset(name, conn_id="shop", **arguments):
    return Asset(name, watchers=[AssetWatcher(name="changed", trigger=SqlUpdatedAtTrigger(
        conn_id, table="public.orders", watermark_column="updated_at", key_columns=["id"], start="earliest",
        poll_interval=5, **arguments))])

def merge(rows, into):
    with closing(PostgresHook("shop").get_conn()) as connection, connection, connection.cursor() as cursor:
        cursor.executemany(f"""INSERT INTO {{into}} VALUES (%(id)s, %(amount)s, %(updated_at)s)
            ON CONFLICT (id) DO UPDATE SET amount = excluded.amount, updated_at = excluded.updated_at""", rows)

def die_if_told():
    told = Path("{die}")
    if told.exists():
        told.unlink()
        os.kill(os.getpid(), signal.SIGKILL)

windows, rows, refused = asset("sql_windows"), asset("sql_rows", payload="rows"), asset("sql_refused", "shop_refused")
often = {{"retries": 5, "retry_delay": timedelta(seconds=1)}}

with DAG("sql_windows", schedule=[windows], max_active_runs=1):
    @task(inlets=[windows], **often)
    def load():
        with Inbox(windows) as inbox:
            for window in inbox.windows():
                for frame in window.frames(chunksize=50, df_type="polars"):
                    merge(frame.to_dicts(), into="sql_windows")
                    die_if_told()
                inbox.commit()
    load()

with DAG("sql_rows", schedule=[rows], max_active_runs=1):
    @task(inlets=[rows], **often)
    def load():
        with Inbox(rows) as inbox:
            for event in inbox.events():
                merge(event.items, into="sql_rows")
                inbox.commit()
    load()

with DAG("sql_refused", schedule=[refused], max_active_runs=1):
    @task(inlets=[refused], **often)
    def load():
        with Inbox(refused) as inbox:
            for window in inbox.windows():
                for part in window.rows(chunksize=50):
                    merge(part, into="sql_refused")
                inbox.commit()
    load()
'''
DIFFERENT = """
SELECT count(*) FROM (SELECT * FROM orders WHERE updated_at < now()) AS source FULL JOIN {} AS copy USING (id)
WHERE (source.amount, source.updated_at) IS DISTINCT FROM (copy.amount, copy.updated_at)
"""


@dataclass
class Story:
    """What happens, and what was seen of the watcher that is refused before it was helped."""

    airflow: Airflow
    shop: Shop
    die: Path
    refused: dict[str, Any] = field(default_factory=dict)
    events_while_refused: int = -1

    def play(self) -> None:
        self._prepare()
        with beside(lambda: self.shop.write(WRITING)):
            self.airflow.wait_for(lambda: self.payloads(WINDOWS) and self.payloads(ROWS), 120, "the first events")
            self._kill("tree")
            with self._held():
                self._kill("main")
            seen = len(self.payloads(WINDOWS))
            self.airflow.wait_for(lambda: len(self.payloads(WINDOWS)) > seen, 120, "an event after the second kill")
            self._kill("tree")
        self.wait_for_copies(WINDOWS, ROWS)
        self.refused = self.airflow.rest.state(REFUSED, f"state_watchers.health:{WATCHER}")
        self.events_while_refused = len(self.payloads(REFUSED))
        self._correct_the_password()
        self.wait_for_copies(*ALL)
        self.wait_until_idle()

    def payloads(self, name: str) -> list[dict[str, Any]]:
        return [event["extra"]["payload"] for event in self.airflow.rest.asset_events(name)]

    def counts(self) -> dict[str, tuple[int, int]]:
        """Return how many events and DAG runs each has."""
        rest = self.airflow.rest
        return {name: (len(rest.asset_events(name)), len(rest.dag_runs(name))) for name in ALL}

    def wait_for_copies(self, *names: str) -> None:
        for name in names:
            self.airflow.wait_for(lambda name=name: self._differing(name) == 0, 240, f"{name} to equal the table")

    def wait_until_idle(self) -> None:
        """Wait until no run is left, and no delivery that is not committed."""
        rest = self.airflow.rest

        def idle() -> bool:
            ended = all(run["state"] in ("success", "failed") for name in ALL for run in rest.dag_runs(name))
            return ended and not any(rest.state(name, f"state_watchers:{WATCHER}")["intents"] for name in ALL)

        self.airflow.wait_for(idle, 60, "the last runs and commits")

    def _prepare(self) -> None:
        connection = self.shop.connection
        for name in ALL:
            connection.execute(sql.SQL("CREATE TABLE {} (LIKE orders INCLUDING ALL)").format(sql.Identifier(name)))
        connection.execute("INSERT INTO orders SELECT 5000 + n, n FROM generate_series(1, 120) AS n")
        self.shop.put_future_row()
        self._guard()
        self._connect("shop", "postgres")
        self._connect("shop_refused", ROLE, WRONG)
        self.die.touch()
        self.airflow.write_dag("sql_watchers", DAGS.format(die=self.die))
        for name in ALL:
            self.airflow.wait_for_dag(name)

    def _guard(self) -> None:
        """Make a role that must give a password and may read the one table, and nothing of others' sessions."""
        connection = self.shop.connection
        create = sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(sql.Identifier(ROLE), sql.Literal(RIGHT))
        connection.execute(create)
        connection.execute(sql.SQL("GRANT SELECT ON orders TO {}").format(sql.Identifier(ROLE)))
        rules = Path(only_row(connection, "SHOW hba_file")[0])
        rules.write_text(f"local all {ROLE} scram-sha-256\n{rules.read_text()}")
        connection.execute("SELECT pg_reload_conf()")

    def _connect(self, conn_id: str, login: str, password: str | None = None) -> None:
        host = self.shop.connection.info.host
        known = {"connection_id": conn_id, "conn_type": "postgres", "host": host, "schema": "postgres", "login": login}
        self.airflow.rest.request("POST", "/connections", json={**known, "password": password})

    def _correct_the_password(self) -> None:
        self.airflow.rest.request("DELETE", "/connections/shop_refused")
        self._connect("shop_refused", ROLE, RIGHT)

    def _kill(self, scope: Any) -> None:
        self.airflow.kill("triggerer", scope)
        self.airflow.start("triggerer")

    @contextmanager
    def _held(self) -> Iterator[None]:
        """While the block runs a long transaction holds a row, another one a second, a prepared one a third."""
        row = "INSERT INTO orders (id, amount) VALUES (%s, 1)"
        with psycopg.connect(self.shop.env["AIRFLOW_CONN_SHOP"]) as late, psycopg.connect(late.info.dsn) as undone:
            late.execute(row, [LATE])
            undone.execute(row, [UNDONE])
            with psycopg.connect(late.info.dsn, autocommit=True) as preparing:
                preparing.execute("BEGIN")
                preparing.execute(row, [PREPARED])
                preparing.execute("PREPARE TRANSACTION 'held'")
            yield
            undone.rollback()
        self.shop.connection.execute("COMMIT PREPARED 'held'")

    def _differing(self, name: str) -> int:
        return int(only_row(self.shop.connection, sql.SQL(DIFFERENT).format(sql.Identifier(name)))[0])


def only_row(connection: psycopg.Connection[Any], query: Any) -> tuple[Any, ...]:
    (row,) = connection.execute(query).fetchall()
    return tuple(row)
