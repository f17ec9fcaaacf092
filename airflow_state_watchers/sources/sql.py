"""A table, or a query, as a source of rows."""

from __future__ import annotations

from typing import Any

from airflow_state_watchers.ports import RowScan
from airflow_state_watchers.sources.sql_relation import Relation


class SqlTableSource:
    """Placeholder until the database layers are merged."""

    def __init__(self, relation: Relation, *, conn_id: str, **options: Any) -> None:
        self._relation, self._conn_id, self._options = relation, conn_id, options

    def fields(self) -> dict[str, Any]:
        raise NotImplementedError

    async def open(self) -> RowScan:
        raise NotImplementedError

    async def aclose(self) -> None:
        raise NotImplementedError
