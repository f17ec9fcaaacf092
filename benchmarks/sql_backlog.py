"""Reading many rows at once, as after a night's pause: the newest of the original ones, all after a stored value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg

from benchmarks.heartbeat import Run, measure_without_loop, memory
from benchmarks.sql_ours import CONN_ID, load_airflow
from benchmarks.sql_peers import OFFSET, PAGE, SELECT, Dlt
from benchmarks.sql_table import Table, Target

if TYPE_CHECKING:
    from airflow_state_watchers.tasks.windows import SqlWindow

Work = Callable[[], int]


async def backlog(where: dict[str, Any], name: str, *, rows: int, way: str) -> dict[str, Read]:
    """Read the newest ``rows`` of the original rows."""
    target = Target(**where)
    table = Table(target)
    make = WAYS[way]
    make(table, 1)()
    work = make(table, rows)
    held = memory()
    found: list[int] = []
    run = measure_without_loop(lambda: found.append(work()))
    if found[0] != rows:
        raise RuntimeError(f"{found[0]:,} rows were read, and not {rows:,}")
    run.peak -= held
    return {name: Read(rows, run)}


@dataclass
class Read:
    rows: int
    run: Run

    def figures(self) -> dict[str, float]:
        return {"rows": self.rows, "rows/s": self.rows / self.run.seconds, **self.run.figures()}


def window_of(table: Table, rows: int) -> SqlWindow:
    """Return a window as a watcher's event names it."""
    from airflow_state_watchers.tasks.windows import SqlWindow

    load_airflow(table.target, triggerer=False)
    low = table.value_at(table.target.rows - rows + 1)
    high = table.newest() + timedelta(microseconds=1)
    return SqlWindow(
        conn_id=CONN_ID,
        table=("public", "orders"),
        sql=None,
        where=None,
        columns=(),
        watermark_column="updated_at",
        key_columns=("id",),
        low=low.isoformat(sep=" "),
        high=high.isoformat(sep=" "),
        count=rows,
        reread=False,
        column_type="timestamp with time zone",
    )


def ours_rows(table: Table, rows: int, chunk: int = PAGE) -> Work:
    window = window_of(table, rows)
    return lambda: sum(len(page) for page in window.rows(chunksize=chunk))


def ours_frames(df_type: Any) -> Callable[[Table, int], Work]:
    def make(table: Table, rows: int) -> Work:
        window = window_of(table, rows)
        return lambda: sum(len(frame) for frame in window.frames(df_type=df_type))

    return make


def select(table: Table, rows: int) -> Work:
    start, connection = _before(table, rows), psycopg.connect(table.target.conninfo, autocommit=True)
    return lambda: len(connection.execute(SELECT, (start,)).fetchall())


def stream(table: Table, rows: int) -> Work:
    start, connection = _before(table, rows), psycopg.connect(table.target.conninfo)

    def work() -> int:
        with connection.transaction(), connection.cursor("orders") as cursor:
            cursor.itersize = PAGE
            cursor.execute(SELECT, (start,))
            return sum(1 for _ in cursor)

    return work


def offset(table: Table, rows: int) -> Work:
    connection = psycopg.connect(table.target.conninfo, autocommit=True)

    def work() -> int:
        found = 0
        while page := connection.execute(OFFSET, (PAGE, table.target.rows - rows + found)).fetchall():
            found += len(page)
        return found

    return work


def dlt(backend: str) -> Callable[[Table, int], Work]:
    def make(table: Table, rows: int) -> Work:
        start, subject = _before(table, rows, closed=True), Dlt(table.target)
        if backend == "pyarrow":
            return lambda: sum(len(page) for page in subject.resource(start, backend))
        return lambda: sum(1 for _ in subject.resource(start, backend))

    return make


def _before(table: Table, rows: int, *, closed: bool = False) -> datetime:
    """Return the value to read from: of the first row itself, or of the one before it."""
    return table.value_at(table.target.rows - rows + int(closed))


WAYS: dict[str, Callable[[Table, int], Work]] = {
    "ours, rows": ours_rows,
    "ours, rows, chunks of 50,000": lambda table, rows: ours_rows(table, rows, 50_000),
    "ours, frames (Polars)": ours_frames("polars"),
    "ours, frames (Arrow)": ours_frames("arrow"),
    "psycopg's SELECT, all at once": select,
    "psycopg's SELECT, server-side cursor": stream,
    "dlt's resource": dlt("sqlalchemy"),
    "dlt's resource, pyarrow": dlt("pyarrow"),
    f"OFFSET, pages of {PAGE:,}": offset,
}
