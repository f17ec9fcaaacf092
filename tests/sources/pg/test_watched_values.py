"""Values of a watermark column, exact from the table through the watcher to the consumer, whatever their type is."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from airflow_state_watchers.demo.postgres import PostgresServer
from tests.sources.pg.conftest import Define, Place, Watch
from tests.sources.pg.watched import Watched

UTC = timezone.utc


async def made(watch: Watch, kind: str, values: list[Any], **arguments: Any) -> Watched:
    """Return a watcher of a table with these values in a column ``v``, whose ids are 1 to n."""
    watched = watch(watermark_column="v", table="t", **arguments)
    await watched.run(f"CREATE TABLE t (id serial PRIMARY KEY, v {kind} NOT NULL)")
    for value in values:
        await watched.run(f"INSERT INTO t (v) VALUES (%s::{kind})", [value])
    return watched


NIL = "00000000-0000-0000-0000-0000000000"
ORDERED: list[tuple[str, list[str]]] = [
    # In order; the last one comes after the others have been delivered.
    ("timestamptz", ["0001-01-01 00:00:00+00", "2020-02-29 12:00:00.000001+00", "2020-02-29 12:00:00.000002+00", "now"]),
    ("timestamptz", ["-infinity", "4713-01-01 00:00:00+00 BC", "2020-01-01 00:00:00+00", "now"]),
    ("timestamptz(0)", ["2020-02-29 12:00:00+00", "2020-02-29 12:00:01+01", "2020-02-29 12:00:01+00", "now"]),
    ("timestamp", ["-infinity", "2020-02-29 12:00:00.000001", "2020-02-29 12:00:00.000002", "now"]),
    ("bigint", [str(-(2**63)), "-1", "0", "9", "10", str(2**63 - 2)]),
    ("smallint", ["-32768", "0", "32766"]),
    ("integer", [str(-(2**31)), "0", str(2**31 - 2)]),
    ("numeric(38,10)", ["-1e27", "0.0000000001", "0.0000000002", "9999999999999999999999999999.9999999999"]),
    ("numeric", ["-Infinity", "1.00", "1.01", "1e100", "NaN"]),
    ("double precision", ["-Infinity", "0.1", "0.30000000000000004", "1e300", "Infinity"]),
    ("real", ["0.1", "0.2"]),
    ("text", ["", "B", "a", "a'; DROP TABLE t; --", "z", "\u00e4", "\U0001f600"]),
    ("varchar(5)", ["a", "a b", "b%s"]),
    ("char(3)", ["a", "ab", "b"]),
    ("uuid", [f"{NIL}0a", f"{NIL}0b", f"{NIL}ff"]),
    ("xid8", ["0", "9", "10", str(2**64 - 1)]),
    ("pg_lsn", ["0/0", "0/A", "1/0"]),
    ("bytea", ["\\x", "\\x00", "\\x0001", "\\xff"]),
    ("inet", ["9.0.0.1", "10.0.0.1", "10.0.0.2"]),
    ("interval", ["-1 days", "1 hour", "1 mon"]),
]


@pytest.mark.parametrize(("kind", "values"), ORDERED, ids=[f"{kind}-{n}" for n, (kind, _) in enumerate(ORDERED)])
@pytest.mark.parametrize("most", [None, 1])
async def test_values_of_a_type(watch: Watch, kind: str, values: list[str], most: int | None) -> None:
    """All are delivered once and in the database's order; one by one, too; and what comes after them is."""
    *old, newest = values
    watched = await made(watch, kind, old, max_rows_per_event=most)
    assert await watched.ids(5) == list(range(1, len(values)))
    assert watched.error == ""
    await watched.restart()
    await watched.run(f"INSERT INTO t (v) VALUES (%s::{kind})", [newest])
    assert await watched.ids(4) == [len(values)]
    assert watched.error == ""
    assert await watched.polls(2) == []
