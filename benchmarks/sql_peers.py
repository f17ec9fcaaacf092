"""Other ways to poll a table for new rows, each as it is commonly written. ``benchmarks.sql_polling`` runs each in a process.

Each keeps what it has seen in a variable, which costs nothing. All but the sensor read the new rows in the poll itself.
"""

from __future__ import annotations

import atexit
import os
import tempfile
from datetime import datetime
from typing import Any

import psycopg

from benchmarks.sql_ours import CONN_ID, Outcome, load_airflow
from benchmarks.sql_series import Limits, Subject, news, quiet
from benchmarks.sql_table import NEW, Table, Target

SELECT = "SELECT id, updated_at, payload FROM orders WHERE updated_at > %s ORDER BY updated_at"
COUNT = "SELECT count(*) FROM orders WHERE updated_at > %(last)s"
OFFSET = "SELECT id, updated_at, payload FROM orders ORDER BY updated_at, id LIMIT %s OFFSET %s"
PAGE = 5_000


async def compete(table: Table, name: str, subject: Subject, limits: dict[str, int]) -> Outcome:
    await subject.poll()
    subject.after()
    return {
        name: await quiet(table, subject, Limits(**limits)),
        f"{name}: {NEW:,} new": await news(table, subject, Limits(**limits)),
    }


async def stored_value(where: dict[str, Any], name: str, **limits: int) -> Outcome:
    """``>`` from a stored value, on a connection that stays open."""
    target = Target(**where)
    load_airflow(target)
    table = Table(target)
    last = table.newest()
    async with await psycopg.AsyncConnection.connect(target.conninfo, autocommit=True) as connection:

        async def poll() -> int:
            nonlocal last
            rows = await (await connection.execute(SELECT, (last,))).fetchall()
            if rows:
                last = rows[-1][1]
            return len(rows)

        return await compete(table, name, Subject(poll), limits)


async def offset(where: dict[str, Any], name: str, **limits: int) -> Outcome:
    """Pages by ``OFFSET``, from a stored number of rows."""
    target = Target(**where)
    load_airflow(target)
    table = Table(target)
    seen = target.rows
    async with await psycopg.AsyncConnection.connect(target.conninfo, autocommit=True) as connection:

        async def poll() -> int:
            nonlocal seen
            before = seen
            while True:
                rows = await (await connection.execute(OFFSET, (PAGE, seen))).fetchall()
                seen += len(rows)
                if len(rows) < PAGE:
                    return seen - before

        return await compete(table, name, Subject(poll), limits)


async def sensor(where: dict[str, Any], name: str, **limits: int) -> Outcome:
    """The ``poke`` of Airflow's SqlSensor, counting. It keeps no value: here the next one is set for it, and not measured."""
    target = Target(**where)
    load_airflow(target)
    from airflow.providers.common.sql.sensors.sql import SqlSensor

    table = Table(target)
    counts: list[int] = []

    def met(count: int) -> bool:
        counts.append(count)
        return count > 0

    parameters = {"last": table.newest()}
    subject = SqlSensor(task_id="sensor", conn_id=CONN_ID, sql=COUNT, parameters=parameters, success=met)

    async def poke() -> int:
        subject.poke({})
        return counts[-1]

    def move() -> None:
        subject.parameters = {"last": table.newest()}

    return await compete(table, name, Subject(poke, in_loop=False, after=move), limits)


class Dlt:
    """dlt's ``sql_table`` with an incremental cursor: a new resource for each poll, on an engine that stays."""

    def __init__(self, target: Target) -> None:
        home = tempfile.TemporaryDirectory()
        atexit.register(home.cleanup)
        os.environ |= {"RUNTIME__DLTHUB_TELEMETRY": "false", "DLT_DATA_DIR": home.name, "RUNTIME__LOG_LEVEL": "ERROR"}
        import dlt
        from sqlalchemy import create_engine

        self.engine = create_engine(target.uri)
        self.pipeline = dlt.pipeline("bench", pipelines_dir=home.name)

    def resource(self, last: datetime, backend: Any = "sqlalchemy") -> Any:
        import dlt
        from dlt.sources.sql_database import sql_table

        cursor: Any = dlt.sources.incremental("updated_at", initial_value=last)
        return sql_table(self.engine, table="orders", incremental=cursor, backend=backend)


async def dlt_iterated(where: dict[str, Any], name: str, **limits: int) -> Outcome:
    """The resource iterated without a pipeline. Its ``>=`` reads the last row again, which is left out here."""
    target = Target(**where)
    subject, table = Dlt(target), Table(target)
    last = table.newest()

    async def poll() -> int:
        nonlocal last
        new = [row for row in subject.resource(last) if row["updated_at"] > last]
        if new:
            last = max(row["updated_at"] for row in new)
        return len(new)

    return await compete(table, name, Subject(poll, in_loop=False), limits)


async def dlt_extracted(where: dict[str, Any], name: str, **limits: int) -> Outcome:
    """``pipeline.extract``, which stores the cursor and writes the rows to files; normalising and loading would follow."""
    target = Target(**where)
    subject, table = Dlt(target), Table(target)
    start = table.newest()

    async def poll() -> int:
        info = subject.pipeline.extract(subject.resource(start))
        metrics = [step["table_metrics"].get("orders") for steps in info.metrics.values() for step in steps]
        return sum(each.items_count for each in metrics if each is not None)

    return await compete(table, name, Subject(poll, in_loop=False), limits)
