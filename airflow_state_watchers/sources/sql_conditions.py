"""The pieces that statements are made of: what they read from, and which of its rows."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from itertools import count
from typing import Any

import sqlalchemy as sa
from sqlalchemy.sql import visitors

from airflow_state_watchers.core.cut import Cut, Span
from airflow_state_watchers.sources.sql_column import Column
from airflow_state_watchers.sources.sql_dialects import Dialect
from airflow_state_watchers.sources.sql_relation import Relation
from airflow_state_watchers.sources.sql_rendering import verbatim

_NAME = r"""(?:[A-Za-z_][A-Za-z0-9_$]*|"[^"]+"|`[^`]+`|\[[^]]+\])"""
_WRITTEN = rf"{_NAME}(?:\.{_NAME})*"
"""A name as it stands in a statement, in parts or whole, each plain or in quotes."""


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


def named_apart(clause: Any, what: str) -> Any:
    """Give the parameters names that those of another clause do not have: both may stand in one statement."""
    digest = hashlib.blake2b(what.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
    number = count(1)

    def rename(parameter: Any) -> None:
        parameter.key, parameter.unique = f"p_{digest}_{next(number)}", False

    return visitors.cloned_traverse(clause, {}, {"bindparam": rename})


def aliased(value: sa.ColumnClause[Any], alias: str) -> Any:
    """Return a column of what is called ``alias`` by its author: a name that has no quotes there must have none here."""
    is_written = re.fullmatch(_WRITTEN, alias) is not None
    return sa.table(sa.quoted_name(alias, quote=not is_written), sa.column(value.name)).c[value.name]
