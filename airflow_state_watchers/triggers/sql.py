"""Asset events for the rows of a table that are new or changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Literal

from airflow_state_watchers.exceptions import WatcherArgumentError
from airflow_state_watchers.sources.sql import SqlTableSource
from airflow_state_watchers.triggers.arguments import choice, count, plain, seconds, text
from airflow_state_watchers.triggers.row_events import RowEvents
from airflow_state_watchers.triggers.rows import RowOptions, RowReading
from airflow_state_watchers.triggers.settings import MAX_EVENT_BYTES, Settings, configured
from airflow_state_watchers.triggers.sql_names import columns_of, relation_of, watcher_name
from airflow_state_watchers.triggers.watermark import WatermarkTrigger

ROWS_PER_EVENT = 1000
"""Of ``payload="rows"``, where nothing else is said."""


class SqlUpdatedAtTrigger(WatermarkTrigger):
    """One asset event per poll that found new or changed rows, by an updated-at or sequence column.

    An event names a window ``[low, high)`` of the watermark column; a task reads the rows (``Inbox(...).windows()``). Deletes
    are not seen: a deleted row is simply not there when the window is read.

    :param conn_id: the connection. PostgreSQL is read through psycopg, every other database through its ``DbApiHook``.
    :param table: the table; text is split at dots outside quotes, a sequence gives the literal parts of the name.
    :param sql: a trusted SELECT instead of a table.
    :param watermark_column: the column that grows when a row changes: a timestamp, a date, a number, text, a rowversion.
    :param key_columns: the primary key, by which readers page and merge.
    :param where: trusted SQL: only rows for which it is true.
    :param start: where a watcher without a stored checkpoint begins: ``"latest"`` skips what exists, ``"earliest"``
        delivers it.
    :param initial_value: begin at this value of the watermark column (inclusive) instead.
    :param poll_interval: seconds, or a ``timedelta``, from one poll's beginning to the next one's.
    :param name: the watcher's identity and state key; the default is made of table and column. Two assets that are watched
        with equal arguments need different names.
    :param on_source_change: what to do when connection, table or column changed under one name: ``"stop"`` loudly,
        ``"keep"`` the watermark, or ``"start"`` again.
    :param horizon: ``"transactions"``: read exactly up to the oldest open transaction (PostgreSQL); ``"clock"``: only what is
        older than ``settle``; ``"auto"`` chooses.
    :param settle: how old a value must be, by the database's clock, before it is read. 1 s with the exact horizon, else 60 s.
    :param lookback: how far behind the frontier each poll looks for rows that were committed late. 0 with the exact
        horizon, else 600 s.
    :param max_hold: wait no longer than this for an open transaction; what was passed is read again when it ends. ``None``:
        wait, and say so: lag is visible, loss is not.
    :param nulls: rows whose watermark is NULL are left out, or ``"raise"`` an error.
    :param timezone: the zone of a column without one.
    :param payload: ``"rows"``: small windows carry their rows in the event.
    :param columns: what readers get; by default all columns.
    :param max_rows_per_event: larger windows are cut, though never within rows of one value.
    :param hook_params: arguments for the connection's hook.

    Raises :class:`~airflow_state_watchers.exceptions.WatcherArgumentError` at DAG parse for arguments that cannot work.
    """

    kind = "sql_window"

    def __init__(
        self,
        conn_id: str,
        *,
        table: str | Sequence[str] | None = None,
        sql: str | None = None,
        watermark_column: str,
        key_columns: Sequence[str] = (),
        where: str | None = None,
        start: Literal["latest", "earliest"] = "latest",
        initial_value: Any = None,
        poll_interval: float | timedelta = 60,
        name: str | None = None,
        on_source_change: Literal["stop", "keep", "start"] = "stop",
        horizon: Literal["auto", "transactions", "clock"] = "auto",
        settle: float | timedelta | None = None,
        lookback: float | timedelta | None = None,
        max_hold: float | timedelta | None = None,
        nulls: Literal["exclude", "raise"] = "exclude",
        timezone: str | None = None,
        payload: Literal["window", "rows"] = "window",
        columns: Sequence[str] | None = None,
        max_rows_per_event: int | None = None,
        hook_params: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        self.conn_id = text("conn_id", conn_id)
        self.table = table if table is None or isinstance(table, str) else list(table)
        self.sql = None if sql is None else text("sql", sql)
        self.watermark_column = text("watermark_column", watermark_column)
        self.key_columns = columns_of("key_columns", key_columns)
        self.where = None if where is None else text("where", where)
        self.timezone = None if timezone is None else text("timezone", timezone)
        self.columns = None if columns is None else columns_of("columns", columns)
        self.name = None if name is None else text("name", name)
        self.horizon = choice("horizon", horizon, ("auto", "transactions", "clock"))
        self.max_hold = None if max_hold is None else seconds("max_hold", max_hold, positive=True)
        self.nulls = choice("nulls", nulls, ("exclude", "raise"))
        self.payload = choice("payload", payload, ("window", "rows"))
        self.max_rows_per_event = _most(max_rows_per_event)
        self.hook_params = _params(hook_params)
        self.relation = relation_of(self)
        super().__init__(
            watcher_name=self.name or watcher_name(self.relation),
            start=start,
            initial_value=initial_value,
            poll_interval=poll_interval,
            on_source_change=on_source_change,
            settle=settle,
            lookback=lookback,
            max_items=1,
            **kwargs,
        )
        if self.max_hold is not None and self.horizon == "clock":
            raise WatcherArgumentError('max_hold is about open transactions, which horizon="clock" does not look at')

    def check_initial_value(self, value: Any) -> Any:
        """Return the value as text: an aware time in UTC, a naive one as it is, a number in digits."""
        return _initial(value)

    def load_initial_value(self, value: Any) -> str:
        return str(value)

    def build_source(self, timeout: float) -> SqlTableSource:
        return SqlTableSource(
            self.relation,
            conn_id=self.conn_id,
            hook_params=self.hook_params,
            horizon=self.horizon,
            nulls=self.nulls,
            timeout=timeout,
            connections=max(1, int(configured("connections_per_database", 4))),
            carries_rows=self.payload == "rows",
        )

    def build_reading(self, settings: Settings) -> RowReading:
        carries_rows = self.payload == "rows"
        options = RowOptions(
            settle=_span(self.settle),
            lookback=_span(self.lookback),
            max_hold=_span(self.max_hold),
            max_rows=self.max_rows_per_event or (ROWS_PER_EVENT if carries_rows else None),
            carries_rows=carries_rows,
        )
        return RowReading(replace(settings), options, RowEvents(self.event_fields(), MAX_EVENT_BYTES))

    def event_fields(self) -> Mapping[str, Any]:
        relation = self.relation
        fields = {
            "connection": self.conn_id,
            "table": list(relation.table) or None,
            "sql": relation.sql,
            "where": relation.where,
            "columns": list(relation.columns) or None,
            "watermark_column": relation.watermark_column,
            "key_columns": list(relation.key_columns),
            "timezone": relation.timezone,
            "hook_params": self.hook_params,
        }
        return {key: value for key, value in fields.items() if value is not None}


def _span(value: float | None) -> timedelta | None:
    return None if value is None else timedelta(seconds=value)


def _most(value: Any) -> int | None:
    return None if value is None else count("max_rows_per_event", value)


def _params(value: Any) -> dict[str, Any] | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise WatcherArgumentError(f"hook_params is a {type(value).__name__}: give a dict of the hook's arguments")
    params: dict[str, Any] = plain("hook_params", value)
    return params


def _initial(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, str):
        return text("initial_value", value)
    if isinstance(value, (datetime, date)):
        return value.isoformat(sep=" ") if isinstance(value, datetime) else value.isoformat()
    if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
        return str(value)
    raise WatcherArgumentError(
        f"initial_value={value!r}: give a value of the watermark column: a time, a date, a number, or its text"
    )
