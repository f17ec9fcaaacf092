"""The pieces that statements are made of: what they read from, and which of its rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from airflow_state_watchers.core.cut import Cut, Span
from airflow_state_watchers.sources.sql_column import Column
from airflow_state_watchers.sources.sql_dialects import Dialect
from airflow_state_watchers.sources.sql_relation import Relation
from airflow_state_watchers.sources.sql_rendering import verbatim


def source(relation: Relation, dialect: Dialect) -> Any:
    """Return what to select from: the table, or the author's query as ``q``."""
    if relation.table:
        return sa.table(dialect.table_name(relation.table))
    sql = (relation.sql or "").strip().rstrip(";")
    return verbatim(sql + _break(sql)).columns().subquery("q")


def _break(text: str) -> str:
    """Return what ends a comment at the end of a text, so that it hides nothing."""
    return "\n" if "--" in text or "#" in text else ""


def chosen(relation: Relation) -> list[Any]:
    """Return the author's ``where`` as conditions."""
    where = relation.where
    return [verbatim(f"({where}{_break(where)})")] if where else []


def star(source: Any, dialect: Dialect) -> Any:
    """Return all columns, to stand first among others: MySQL wants that. Oracle takes them beside others only with a name."""
    if dialect.name != "oracle":
        return sa.literal_column("*")
    name = source.name
    is_ready = getattr(name, "quote", None) is False
    return sa.literal_column(f"{name if is_ready else dialect.rendering.identifier_preparer.quote(name)}.*")


def between(dialect: Dialect, value: Any, column: Column, span: Span) -> list[Any]:
    """Return the conditions for rows of a span. NULL fulfils none of them."""
    conditions = []
    if span.low is not None:
        low = dialect.value_of(span.low.value, column)
        conditions.append(value > low if span.low.after else value >= low)
    if span.high is not None:
        conditions.append(before(dialect, value, column, span.high))
    return conditions or [value.is_not(None)]


def before(dialect: Dialect, value: Any, column: Column, high: Cut) -> Any:
    """Return the condition for rows before a cut."""
    bound = dialect.value_of(high.value, column)
    return value <= bound if high.after else value < bound


def beyond(columns: Sequence[Any], values: Sequence[Any]) -> Any:
    """``a >= x AND (a > x OR (b >= y AND (...)))``: a range on the first column for planners that see none in an OR."""
    (column, *columns), (value, *values) = columns, values
    if not columns:
        return column > value
    return sa.and_(column >= value, sa.or_(column > value, sa.and_(beyond(columns, values))))


def labelled(texts: Sequence[Any]) -> list[Any]:
    """Return columns under names that are in no table."""
    return [text.label(f"state_watchers_{number}") for number, text in enumerate(texts)]
