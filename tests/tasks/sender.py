"""A watcher's end of the line: sends batches to an asset that lives in memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

from airflow.sdk import Asset

from airflow_state_watchers import S3Object
from airflow_state_watchers.tasks.doubles import InMemoryAirflow

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
ORDERS = Asset("orders", uri="s3://lake/orders/")


def item(key: str, etag: str = "e") -> dict[str, Any]:
    return {"key": key, "size": 1, "etag": etag, "last_modified": START.isoformat()}


class Sender:
    """Sends one batch after another; ``clock`` is the time of the next event, a second later each time."""

    def __init__(self, airflow: InMemoryAirflow, watcher: str = "s3://lake/orders/") -> None:
        self.airflow = airflow
        self.watcher = watcher
        self.generation = 1
        self.previous: str | None = None
        self.clock = START
        self._count = 0

    def payload(
        self,
        keys: Iterable[str | dict[str, Any]],
        *,
        batch_id: str | None = None,
        replaces: Sequence[str] = (),
    ) -> dict[str, Any]:
        self._count += 1
        items = [item(key) if isinstance(key, str) else key for key in keys]
        payload: dict[str, Any] = {
            "v": 1,
            "kind": "s3_objects",
            "watcher": self.watcher,
            "generation": self.generation,
            "trigger_run_id": "life",
            "sequence_index": self._count,
            "batch_id": batch_id or f"{self.watcher}{self.generation}-{self._count}",
            "previous": self.previous,
            "low": START.isoformat(),
            "high": START.isoformat(),
            "count": len(items),
            "bytes": len(items),
            "bucket": "lake",
            "items": items,
        }
        if replaces:
            payload["replaces"] = list(replaces)
        return payload

    def send_window(self, low: str | None, high: str, **fields: Any) -> dict[str, Any]:
        """Send the next batch of the chain as a SQL watcher does; ``fields`` go over those of ``WINDOW``."""
        base = self.payload([], batch_id=fields.pop("batch_id", None))
        del base["bucket"]
        payload = {**base, **WINDOW, "low": low, "high": high, **fields}
        self.post(payload)
        self.previous = payload["batch_id"]
        return payload

    def post(
        self, payload: dict[str, Any] | None, *, late: timedelta = timedelta(0), event_id: int | None = None
    ) -> int:
        """Put a payload, as it is, into the database: ``late`` seconds after the time that it bears."""
        self.clock += timedelta(seconds=1)
        return self.airflow.deliver(payload, at=self.clock - late, event_id=event_id)

    def send(self, *keys: str | dict[str, Any], **more: Any) -> dict[str, Any]:
        """Send the next batch of the chain."""
        payload = self.payload(keys, **more)
        self.post(payload)
        self.previous = payload["batch_id"]
        return payload


WINDOW = {
    "kind": "sql_window",
    "bounds": "[)",
    "count": 3,
    "bytes": 0,
    "reread": False,
    "connection": "shop",
    "table": ["public", "orders"],
    "watermark_column": "updated_at",
    "key_columns": ["id"],
    "timezone": "UTC",
    "column_type": "timestamptz",
    "items": [],
}


def keys(objects: Iterable[S3Object]) -> list[str]:
    return [obj.key for obj in objects]
