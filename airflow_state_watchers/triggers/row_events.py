"""The event that a window of rows becomes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_state_watchers.core.envelope import VERSION, check_json
from airflow_state_watchers.core.rows import RowBatch, RowCheckpoint

SQL_WINDOW, SQL_ROWS = "sql_window", "sql_rows"


@dataclass(frozen=True, slots=True)
class RowEvents:
    """``source`` are the flat fields by which a reader finds the rows again; ``max_bytes`` bounds what an event carries."""

    source: Mapping[str, Any]
    max_bytes: int

    def payload(
        self, batch: RowBatch, checkpoint: RowCheckpoint, *, trigger_run_id: str, sequence_index: int
    ) -> dict[str, Any]:
        intent = batch.intent
        items = [dict(row) for row in batch.rows or ()]
        carries = batch.rows is not None and len(json.dumps(items, default=repr)) <= self.max_bytes
        payload: dict[str, Any] = {
            "v": VERSION,
            "kind": SQL_ROWS if carries else SQL_WINDOW,
            "watcher": checkpoint.name,
            "generation": checkpoint.generation,
            "trigger_run_id": trigger_run_id,
            "sequence_index": sequence_index,
            "batch_id": batch.batch_id,
            "previous": batch.previous,
            "low": None if intent.low is None else intent.low.value,
            "high": intent.high.value,
            "bounds": f"{'(' if intent.low is not None and intent.low.after else '['}{']' if intent.high.after else ')'}",
            "count": batch.count,
            "bytes": 0,
            "reread": intent.reread,
            **self.source,
            "column_type": checkpoint.column,
            "items": items if carries else [],
        }
        check_json(payload)
        return payload
