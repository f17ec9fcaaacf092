"""Reading the rows of a window: page after page by key, or one statement that streams."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from airflow_state_watchers.core.cut import Cut, Span
from airflow_state_watchers.sources.sql_statements import Place
from airflow_state_watchers.tasks.refusal import InboxRefusal
from airflow_state_watchers.tasks.window_connection import Names, ReadConnection, Rows
from airflow_state_watchers.tasks.window_sql import Predicate, WindowStatements

if TYPE_CHECKING:
    from airflow_state_watchers.tasks.windows import SqlWindow, Upper


def rows_of(window: SqlWindow, chunksize: int, upper: Upper) -> Iterator[list[dict[str, Any]]]:
    """See :meth:`SqlWindow.rows`."""
    pages = pages_of(window, chunksize, upper)
    return ([dict(zip(names, row, strict=True)) for row in rows] for names, rows in pages)


def pages_of(window: SqlWindow, chunksize: int, upper: Upper) -> Iterator[tuple[Names, Rows]]:
    """Return pages of up to ``chunksize`` rows, never an empty one, each with the names of its columns."""
    if chunksize < 1:
        raise InboxRefusal(
            f"{window}: chunksize={chunksize} makes no pages. Give the number of rows that one list has."
        )
    read = _by_key if window.key_columns else _streamed
    window.span(upper)  # refuses a wrong one before anything is read
    return read(window, upper, chunksize)


def predicate_of(window: SqlWindow, alias: str | None, upper: Upper) -> Predicate:
    """See :meth:`SqlWindow.predicate`."""
    with ReadConnection(window.conn_id, window.hook_params) as connection:
        return statements_of(window, connection).condition(span_of(window, upper, connection), alias)


def statements_of(window: SqlWindow, connection: ReadConnection) -> WindowStatements:
    return WindowStatements.of(window.relation, connection.name, connection.placeholder, window.column_type)


def span_of(window: SqlWindow, upper: Upper, connection: ReadConnection) -> Span:
    """Return what is read. Without an upper bound ``infinity`` would be read as well, which is held back from every window."""
    span = window.span(upper)
    if span.high is None and connection.name == "postgresql" and _is_moment(window.column_type or ""):
        return Span(span.low, Cut("infinity"))
    return span


def _is_moment(column_type: str) -> bool:
    return column_type.lower().startswith(("timestamp", "date"))


def _streamed(window: SqlWindow, upper: Upper, size: int) -> Iterator[tuple[Names, Rows]]:
    with ReadConnection(window.conn_id, window.hook_params) as connection:
        query = statements_of(window, connection).range(span_of(window, upper, connection), window.columns)
        yield from connection.stream(query.text, query.parameters, size)


def _by_key(window: SqlWindow, upper: Upper, size: int) -> Iterator[tuple[Names, Rows]]:
    """Each page asks for one row more than it gives: the one that the next page begins with.

    A row has the window's columns, then its keys if they are not among those, then the texts of its place.
    """
    columns = window.columns and (*window.columns, *(key for key in window.key_columns if key not in window.columns))
    hidden = len(columns) - len(window.columns) + 1 + len(window.key_columns)
    with ReadConnection(window.conn_id, window.hook_params) as connection:
        statements, span = statements_of(window, connection), span_of(window, upper, connection)
        after: Place | None = None
        while True:
            query = statements.page(span, after, size + 1, columns)
            names, rows = connection.read(query.text, query.parameters)
            _check_places(window, rows, size)
            if rows:
                yield names[:-hidden], [row[:-hidden] for row in rows[:size]]
            if len(rows) <= size:
                return
            if after is None:
                statements = statements.with_keys([rows[0][_index(names, key)] for key in window.key_columns])
            place = statements.place_of(rows[size - 1])
            if place == after:
                raise _same_keys(window)  # the database does not find that this row is not after itself
            if after is None or place.value != after.value:
                query = statements.null_keys(place)
                _check_no_nulls(window, connection.read(query.text, query.parameters)[1])
            after = place


def _index(names: Names, key: str) -> int:
    """Return where a column stands, also where the database shows a name that nobody quoted in upper case."""
    return names.index(key if key in names else key.upper())


def _check_places(window: SqlWindow, rows: Rows, size: int) -> None:
    """Raise if the page after this one would leave a row out: it begins after the last row's place, whose equal follows."""
    places = [row[-1 - len(window.key_columns) :] for row in rows]
    _check_no_nulls(window, [place for place in places if None in place])
    if len(places) > size and all(map(_is_same, places[size], places[size - 1])):
        raise _same_keys(window)


def _is_same(one: Any, other: Any) -> bool:
    """Return whether two exact texts are one value to a database: 1.0 and 1.00 are."""
    try:
        return bool(one == other or Decimal(one) == Decimal(other))
    except (ArithmeticError, TypeError, ValueError):
        return False


def _same_keys(window: SqlWindow) -> InboxRefusal:
    return InboxRefusal(
        f"{window}: the key columns {', '.join(window.key_columns)} do not tell all rows apart. Name more of them "
        "(key_columns=... of the watcher), or none: then a window is read by one statement."
    )


def _check_no_nulls(window: SqlWindow, found: Sequence[Any]) -> None:
    """Raise if there is a row with a NULL in its key: it is neither before nor after any place, so a page could not reach it."""
    if found:
        raise InboxRefusal(
            f"{window}: the key columns {', '.join(window.key_columns)} are NULL in a row. Name key columns that are never NULL "
            "and tell all rows apart (key_columns=... of the watcher), or none: then a window is read by one statement."
        )
