"""What do the events of a million objects cost Airflow's metadata database?

Airflow's own ``asset_event`` table on a PostgreSQL of one's own; one transaction for each event, as when a triggerer hands
them over. Once as events of a thousand objects each, as this package makes them; once as events that only name a manifest,
an object in which the objects are listed.

    make bench-event_cost ARGS="--objects 100000"
"""

from __future__ import annotations

import argparse
import hashlib
import os
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

from airflow_state_watchers.core.batch import Batch, step
from airflow_state_watchers.core.checkpoint import Checkpoint
from airflow_state_watchers.core.envelope import event_of
from airflow_state_watchers.core.position import Item, Position, identity_of
from airflow_state_watchers.core.window import Selected
from airflow_state_watchers.demo.postgres import PostgresServer
from airflow_state_watchers.sources.s3_scan import item
from benchmarks.result import Result

BEGINNING = datetime(2026, 11, 1, tzinfo=timezone.utc)
CHECKPOINT = Checkpoint("s3://lake/orders/", {"kind": "s3", "bucket": "lake", "prefix": "orders/"}, origin="benchmark")
PER_EVENT, PER_MANIFEST = 1_000, 50_000
ITEMS, MANIFESTS = "events with their objects", "events with a manifest's address"


def listed(number: int) -> Item:
    stamp = BEGINNING + timedelta(seconds=number // 7)
    etag = hashlib.blake2b(str(number).encode(), digest_size=16).hexdigest()
    key = f"orders/dt={stamp:%Y-%m-%d}/part-{number:09d}.parquet"
    return item(key, stamp, 100_000_000 + number, f'"{etag}"', identity_of(key, etag), "")


def batches(objects: int, most: int) -> Iterator[Batch]:
    for start in range(0, objects, most):
        items = tuple(listed(number) for number in range(start, min(start + most, objects)))
        yield from step(CHECKPOINT, Selected(items, Position(items[-1].position.value), True), max_items=most)


def payloads(objects: int, most: int, *, manifest: bool) -> Iterator[dict[str, Any]]:
    for number, batch in enumerate(batches(objects, most)):
        source = {"bucket": "lake"}
        payload = event_of(
            batch, CHECKPOINT, kind="s3_objects", trigger_run_id="0" * 32, sequence_index=number, source=source
        )
        if manifest:
            uri = f"s3://lake/.manifests/{CHECKPOINT.origin}/{batch.batch_id}.jsonl.gz"
            payload |= {"items": [], "manifest": {"uri": uri}}
        yield payload


class Database:
    """A database with nothing but the table of asset events."""

    def __init__(self, uri: str) -> None:
        from airflow.models.asset import AssetEvent
        from sqlalchemy import Table, create_engine

        self.engine = create_engine(uri)
        table = AssetEvent.__table__
        assert isinstance(table, Table)
        self.table = table
        table.drop(self.engine, checkfirst=True)
        table.create(self.engine)

    def insert(self, payload: dict[str, Any]) -> None:
        """Insert one event as Airflow does one that a trigger has fired."""
        extra = {"from_trigger": True, "payload": payload}
        with self.engine.begin() as connection:
            connection.execute(self.table.insert().values(asset_id=1, extra=extra))

    def size(self) -> int:
        from sqlalchemy import text

        with self.engine.connect() as connection:
            return int(connection.execute(text("SELECT pg_total_relation_size('asset_event')")).scalar_one())


def measure(uri: str, objects: int, most: int, *, manifest: bool) -> dict[str, float]:
    """Insert the events of so many objects into a new table. What making the payloads takes is not counted."""
    database = Database(uri)
    empty, events, seconds = database.size(), 0, 0.0
    for payload in payloads(objects, most, manifest=manifest):
        begun = time.perf_counter()
        database.insert(payload)
        seconds += time.perf_counter() - begun
        events += 1
    size = database.size() - empty
    database.engine.dispose()
    return {"events": events, "bytes": size, "bytes an object": size / objects, "seconds": seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--objects", type=int, default=1_000_000)
    objects = parser.parse_args().objects
    result = Result("event_cost", {"objects": objects})
    with tempfile.TemporaryDirectory() as home, PostgresServer() as server:
        os.environ["AIRFLOW_HOME"] = home
        uri = server.create_database("events", driver="psycopg2")
        costs = {
            ITEMS: measure(uri, objects, PER_EVENT, manifest=False),
            MANIFESTS: measure(uri, objects, PER_MANIFEST, manifest=True),
        }
    result.figures |= {f"{name}: {what}": value for name, cost in costs.items() for what, value in cost.items()}
    for what in ("bytes", "seconds"):
        result.ratios[f"{what}: {ITEMS} over {MANIFESTS}"] = costs[ITEMS][what] / costs[MANIFESTS][what]
    result.finish()


if __name__ == "__main__":
    main()
