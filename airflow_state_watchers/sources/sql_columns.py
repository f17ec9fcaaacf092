"""Finding out what a watermark column is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import bindparam, column, func, select, table
from sqlalchemy.types import String

from airflow_state_watchers.exceptions import SourceError
from airflow_state_watchers.sources.sql_column import Column, Kind
from airflow_state_watchers.sources.sql_dialects import Dialect
from airflow_state_watchers.sources.sql_relation import Relation
from airflow_state_watchers.sources.sql_scan import Database, Run
from airflow_state_watchers.sources.sql_statements import Predicate, Statements

_TIME = re.compile(r"\d{4}-\d\d-\d\d(?:(?P<separator>[T ])\d\d:\d\d(?::\d\d.*)?)?")


async def column_of(relation: Relation, database: Database, run: Run) -> Column:
    """Return the watermark column as the database has it now. Raises :class:`SourceError`."""
    dialect = database.dialect
    unknown = Column("", relation.timezone, dialect.name)
    statements = Statements(relation, dialect, unknown)
    if dialect.tells_types:
        ((name,),) = await run(statements.types())
        zone = relation.timezone
        if zone is None and Column(name).kind in (Kind.NAIVE, Kind.DATE):
            ((zone,),) = await run(
                Predicate("SELECT reset_val FROM pg_catalog.pg_settings WHERE name = 'TimeZone'", {})
            )
        return Column(str(name), zone, dialect.name)
    name = await _declared(relation, dialect, run)
    if dialect.name == "sqlite":
        return await _in_sqlite(name, relation, statements, run)
    if name is None:
        rows = await run(statements.sample())
        name = _of_value(rows[0][0]) if rows else None
    if name is None:
        raise SourceError(
            f"{relation.label}: what type {relation.watermark_column} has is not known before there is a row. Waiting for one"
        )
    return Column(name, relation.timezone, dialect.name)


async def _declared(relation: Relation, dialect: Dialect, run: Run) -> str | None:
    """Ask the catalogue; ``None`` for a query, and where there is no such catalogue."""
    if not relation.table:
        return None
    if dialect.name == "sqlite":
        pragma = func.pragma_table_info(bindparam(None, relation.table[-1], type_=String())).table_valued(
            "name", "type"
        )
        query: Any = select(pragma.c.type).where(pragma.c.name == relation.watermark_column)
    else:
        query = _in_catalogue(relation, dialect)
    sql, parameters = dialect.render(query)
    try:
        rows = await run(Predicate(sql, parameters))
    except SourceError:
        if dialect.name in ("mysql", "sqlite"):
            raise
        return None
    return str(rows[0][0]) if rows and rows[0][0] is not None else None


def _in_catalogue(relation: Relation, dialect: Dialect) -> Any:
    schema = relation.table[-2] if len(relation.table) > 1 else None
    names = ("data_type", "table_schema", "table_name", "column_name", "column_type")
    columns = table("columns", *(column(name) for name in names), schema="information_schema")
    kind = columns.c.column_type if dialect.name == "mysql" else columns.c.data_type
    query = select(kind).where(columns.c.table_name == relation.table[-1])
    query = query.where(columns.c.column_name == relation.watermark_column)
    if schema is not None:
        return query.where(columns.c.table_schema == schema)
    if dialect.name == "mysql":
        return query.where(columns.c.table_schema == func.database())
    return query


async def _in_sqlite(declared: str | None, relation: Relation, statements: Statements, run: Run) -> Column:
    """SQLite's columns hold anything: whether text is a time the greatest value tells."""
    name = declared or ""
    rows: Sequence[tuple[Any, ...]] = await run(statements.sample(greatest=True))
    value = rows[0][0] if rows else None
    found = _TIME.fullmatch(value) if isinstance(value, str) else None
    plain = Column(name, relation.timezone, "sqlite")
    if found is None and not (value is None and plain.kind is Kind.NAIVE):
        return Column(name if name or value is None else _of_value(value) or "", relation.timezone, "sqlite")
    if plain.kind is Kind.DATE and (found is None or found["separator"] is None):
        return plain
    separator = (found["separator"] if found else None) or " "
    return Column(name, relation.timezone, "sqlite", separator=separator, is_time=True)


def _of_value(value: Any) -> str | None:
    """Return a type's name by what a driver makes of a value."""
    if isinstance(value, datetime):
        return "timestamp with time zone" if value.tzinfo else "timestamp without time zone"
    names = ((date, "date"), (bool, "boolean"), (int, "integer"), (Decimal, "numeric"), (float, "double precision"))
    return next((name for kind, name in names if isinstance(value, kind)), "text" if isinstance(value, str) else None)
