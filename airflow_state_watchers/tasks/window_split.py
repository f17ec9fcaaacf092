"""Cutting a window into windows of about equally many rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from airflow_state_watchers.tasks.refusal import InboxRefusal
from airflow_state_watchers.tasks.window_connection import ReadConnection
from airflow_state_watchers.tasks.window_rows import span_of, statements_of

if TYPE_CHECKING:
    from airflow_state_watchers.tasks.windows import SqlWindow


def split_of(window: SqlWindow, n: int) -> list[SqlWindow]:
    """See :meth:`SqlWindow.split`."""
    if n < 1:
        raise InboxRefusal(f"{window}: split({n}) makes no parts. Give the number of parts.")
    if n == 1:
        return [window]
    with ReadConnection(window.conn_id, window.hook_params) as connection:
        query = statements_of(window, connection).tiles(span_of(window, "window", connection), n)
        _, rows = connection.read(query.text, query.parameters)
    # The first row of each tile, different ones only: the first of all is the first row of the window, where nothing is to be cut.
    return _cut(window, [str(row[0]) for row in rows[1:]])


def _cut(window: SqlWindow, values: Iterable[str]) -> list[SqlWindow]:
    """Cut before each of these values. Which is the last part only matters where the whole is the last window."""
    ends = [
        (window.low, window.bounds[0], ""),
        *((value, "[", ")") for value in values),
        (window.high, "", window.bounds[1]),
    ]
    parts = [
        replace(window, low=low, high=high, bounds=start + end, count=0, is_last=False)
        for (low, start, _), (high, _, end) in pairwise(ends)
    ]
    return [*parts[:-1], replace(parts[-1], is_last=window.is_last)]
