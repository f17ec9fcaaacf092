"""Finding out what a watermark column is, by the database's catalogue, or else by a value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from airflow_state_watchers.exceptions import SourceError
from airflow_state_watchers.sources.sql_column import Column, Kind, kind_of_value, plain_type, sqlite_column
from airflow_state_watchers.sources.sql_conditions import source
from airflow_state_watchers.sources.sql_dialects import Dialect
from airflow_state_watchers.sources.sql_relation import Relation
from airflow_state_watchers.sources.sql_rendering import bound, call, cast
from airflow_state_watchers.sources.sql_scan import Run
from airflow_state_watchers.sources.sql_statements import Query, Statements, query_of

_TABLES = ("r", "p")
_FROM_ELSEWHERE = ("f", "m")
"""Foreign tables and materialized views: what is in them was committed elsewhere, or before."""

_TEXTS = ("text", "character varying", "character", "name", "uuid", "bytea")
_NOT_NULL = ("NO", "N", "0", "False", "REQUIRED")


@dataclass(frozen=True, slots=True)
class Found:
    """A watermark column, and the zone of its values if they have none. ``table``: which one has the name now, if known.

    ``is_own``: whether what is committed in this database is all that comes into it.
    """

    column: Column
    zone: str
    table: str | None = None
    is_own: bool = True


async def find_column(relation: Relation, dialect: Dialect, run: Run) -> Found:
    """Return what the watermark column is now. Raises :class:`SourceError`."""
    if dialect.name == "postgresql":
        ((type_name, nullable, table, kind),) = await run(_in_postgresql(relation, dialect))
        nullable = bool(nullable) and kind in _TABLES
        column = dialect.column(relation.watermark_column, str(type_name), is_nullable=nullable)
        while column.kind is Kind.TEXT and column.type_name not in _TEXTS:
            base = await run(_base_type(column.type_name, dialect))
            if not base:
                break
            column = dialect.column(relation.watermark_column, str(base[0][0]), is_nullable=nullable)
        zone = relation.timezone
        if zone is None and column.is_naive:
            ((zone,),) = await run(_zone_of_postgresql(dialect))
        return Found(column, zone or "UTC", table, is_own=kind not in _FROM_ELSEWHERE)
    return Found(await _elsewhere(relation, dialect, run), relation.timezone or "UTC")


def _in_postgresql(relation: Relation, dialect: Dialect) -> Query:
    """``(type, whether it may be NULL, the table's id and kind)``, also of an empty table, and of a query."""
    name: Any = sa.column(dialect.quoted(relation.watermark_column))
    value = sa.select(name).select_from(source(relation, dialect)).limit(sa.literal_column("0")).scalar_subquery()
    nullable: Any = sa.literal_column("false")
    oid: Any = sa.literal_column("NULL")
    kind: Any = sa.literal_column("NULL")
    if relation.table:
        names = ("attrelid", "attname", "attnotnull")
        found: Any = sa.table("pg_attribute", *(sa.column(each) for each in names), schema="pg_catalog")
        table = bound(str(dialect.table_name(relation.table)).replace("%%", "%"))
        named = call("to_regclass", cast(table, "text"))
        mine = (found.c.attrelid == named) & (found.c.attname == bound(relation.watermark_column))
        nullable = sa.select(~found.c.attnotnull).where(mine).scalar_subquery()
        oid = cast(cast(named, "oid"), "text")
        tables: Any = sa.table("pg_class", sa.column("oid"), sa.column("relkind"), schema="pg_catalog")
        kind = sa.select(cast(tables.c.relkind, "text")).where(tables.c.oid == named).scalar_subquery()
    return query_of(sa.select(cast(call("pg_typeof", value), "text"), nullable, oid, kind), dialect)


def _base_type(name: str, dialect: Dialect) -> Query:
    """``(type,)`` that a domain is made of; no row for any other type."""
    names = ("oid", "typtype", "typbasetype")
    types: Any = sa.table("pg_type", *(sa.column(each) for each in names), schema="pg_catalog")
    base = call("format_type", types.c.typbasetype, sa.literal_column("NULL"))
    mine = (types.c.oid == call("to_regtype", cast(bound(name), "text"))) & (types.c.typtype == bound("d"))
    return query_of(sa.select(base).where(mine), dialect)


def _zone_of_postgresql(dialect: Dialect) -> Query:
    """``(zone,)`` that a session has which sets none. Not asked for without need: to read it takes all of the server's settings."""
    setting: Any = sa.table("pg_settings", sa.column("reset_val"), sa.column("name"), schema="pg_catalog")
    return query_of(sa.select(setting.c.reset_val).where(setting.c.name == bound("TimeZone")), dialect)


async def _elsewhere(relation: Relation, dialect: Dialect, run: Run) -> Column:
    name = relation.watermark_column
    declared = await _declared(relation, dialect, run)
    if declared is not None and dialect.name != "sqlite":
        return dialect.column(name, declared[0], is_nullable=declared[1])
    example = await run(Statements(relation, dialect, Column(name)).example())
    value = example[0][0] if example else None
    if dialect.name == "sqlite":
        type_name, nullable = declared or ("", False)
        return sqlite_column(name, type_name, value, is_nullable=nullable)
    if value is None:
        raise SourceError(
            f"{relation.label}: what type {name} has is not known before there is a row. It is looked at again"
        )
    type_name, kind = kind_of_value(value)
    return Column(name, type_name, kind, is_nullable=False)


async def _declared(relation: Relation, dialect: Dialect, run: Run) -> tuple[str, bool] | None:
    """Ask the catalogue for ``(type, may be NULL)``; ``None`` for a query, and where there is no such catalogue."""
    if not relation.table:
        return None
    try:
        rows: Sequence[tuple[Any, ...]] = await run(query_of(_catalogue(relation, dialect), dialect))
    except SourceError:
        if dialect.name in ("mysql", "sqlite"):
            raise
        return None
    if not rows or rows[0][0] is None:
        return None
    type_name, nullable = (each.decode() if isinstance(each, bytes) else each for each in rows[0])
    return plain_type(str(type_name)), str(nullable) not in _NOT_NULL


def _catalogue(relation: Relation, dialect: Dialect) -> Any:
    if dialect.name == "sqlite":
        found: Any = sa.func.pragma_table_info(bound(relation.table[-1])).table_valued("name", "type", "notnull", "pk")
        nullable = sa.case(((found.c.notnull == 1) | (found.c.pk > 0), 0), else_=1)
        return sa.select(found.c.type, nullable).where(found.c.name == relation.watermark_column)
    kind = "column_type" if dialect.name == "mysql" else "data_type"
    names = (kind, "is_nullable", "table_schema", "table_name", "column_name")
    columns: Any = sa.table("columns", *(sa.column(each) for each in names), schema="information_schema")
    query = sa.select(columns.c[kind], columns.c.is_nullable)
    query = query.where(columns.c.table_name == bound(str(dialect.quoted(relation.table[-1]))))
    query = query.where(columns.c.column_name == bound(str(dialect.quoted(relation.watermark_column))))
    if len(relation.table) > 1:
        return query.where(columns.c.table_schema == bound(str(dialect.quoted(relation.table[-2]))))
    return query.where(columns.c.table_schema == call("database")) if dialect.name == "mysql" else query
