"""What differs from database to database, as little as can be: quoting, parameters, row limits, exact text of values, a clock.

SQLAlchemy's dialects write the SQL. A value travels as text that the database made (:meth:`Dialect.text_of`) and takes again
(:meth:`Dialect.value_of`), so that none is ever rounded. The warehouses have a module of their own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timezone
from decimal import Decimal
from functools import cache
from typing import Any

from sqlalchemy import BINARY, CHAR, Text, bindparam, cast, column, func, literal_column, select, table, text
from sqlalchemy.dialects.mysql import INTEGER
from sqlalchemy.dialects.mysql.pymysql import MySQLDialect_pymysql
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.sql.elements import quoted_name
from sqlalchemy.types import NullType, UserDefinedType

from airflow_state_watchers.sources.sql_column import Column, Kind
from airflow_state_watchers.sources.sql_relation import Relation


class NamedType(UserDefinedType[Any]):
    """A type as the database itself writes it."""

    cache_ok = True

    def __init__(self, name: str) -> None:
        self.name = name

    def get_col_spec(self, **_: Any) -> str:
        return self.name


class Dialect:
    """ANSI SQL; the base of all others."""

    name = "ansi"
    row_values = False
    """Whether ``(a, b) > (x, y)`` is read from an index. Spelt out it is 500 times slower on PostgreSQL."""
    explain_prefix = "EXPLAIN "
    tells_types = False
    """Whether :meth:`type_of` tells an expression's type, also of an empty table."""
    reads_plans = False

    def __init__(self) -> None:
        self._sqlalchemy = self.make()

    def make(self) -> Any:
        """Return SQLAlchemy's dialect, with the paramstyle of the driver that the provider uses."""
        return DefaultDialect(paramstyle="format")

    def render(self, clause: Any) -> tuple[str, Any]:
        """Return SQL text and parameters: a mapping, or a tuple in their order."""
        compiled: Any = clause.compile(dialect=self._sqlalchemy, compile_kwargs={"render_postcompile": True})
        parameters = compiled.construct_params()
        if compiled.positional:
            return str(compiled), tuple(parameters[name] for name in compiled.positiontup)
        return str(compiled), dict(parameters)

    def quoted(self, name: str) -> str:
        return str(self._sqlalchemy.identifier_preparer.quote_identifier(name))

    def source(self, relation: Relation, columns: Sequence[Any]) -> Any:
        """Return what stands after FROM, called ``t``."""
        if relation.sql is not None:
            return text(_verbatim(relation.sql)).columns(*columns).subquery("t")
        full = ".".join(self.quoted(part) for part in relation.table)
        return table(quoted_name(full, False), *columns).alias("t")

    def everything(self, source: Any) -> Any:
        return literal_column("t.*")

    def trusted(self, sql: str) -> Any:
        """Return text that the DAG's author wrote, as it is."""
        return text(_verbatim(sql))

    def limited(self, query: Any, most: int) -> Any:
        return query.limit(literal_column(str(int(most))))

    def text_of(self, value: Any, column: Column) -> Any:
        """Return the exact text of a value."""
        return cast(value, Text())

    def key_text(self, key: Any) -> Any:
        """Return text of a key, for checksums: the same for the same key."""
        return cast(key, Text())

    def value_of(self, value: str, column: Column) -> Any:
        """Return a value of the column's type, of its text."""
        return bindparam(None, _plain(value, column), type_=NullType())

    def typed_value_of(self, value: str, column: Column) -> Any:
        """Return a value that has its type even where nothing stands beside it that says so."""
        return self.value_of(value, column)

    def clock(self) -> Any:
        """Return the database's time now, in UTC, as text or as a driver's ``datetime``."""
        return literal_column("CURRENT_TIMESTAMP")

    def now(self) -> Any:
        """Return the statement that reads the clock."""
        return select(self.clock())

    def checksum(self, parts: Sequence[Any]) -> Any:
        """Return a number for a row, from the texts of what makes it this version; ``None`` if there is no such function."""
        return None

    def total(self, checksums: Any) -> Any:
        return func.coalesce(func.sum(checksums), literal_column("0"))

    def type_of(self, value: Any) -> Any:
        """Return the name of an expression's type."""
        raise NotImplementedError(f"{self.name} has no function that tells a type")

    def nullable(self, relation: Relation) -> Any:
        """Return a statement that tells in one row whether the watermark column may be NULL; ``None`` if that is not known."""
        return None

    def full_scan(self, plan: str) -> str | None:
        """Return what a plan calls it if it reads the whole table."""
        return None

    def moment(self, value: datetime, column: Column) -> str:
        """Return the text of a time that the column can be compared with: aware for MOMENT, naive else."""
        if column.kind is Kind.DATE:
            return value.date().isoformat()
        if column.kind is Kind.MOMENT:
            return value.astimezone(timezone.utc).isoformat(sep=" ", timespec="microseconds")
        return value.replace(tzinfo=None).isoformat(sep=" ", timespec="microseconds")


def _verbatim(sql: str) -> str:
    """Keep colons from being taken for parameters."""
    return sql.replace("\\", "\\\\").replace(":", "\\:") if ":" in sql else sql


def _plain(value: str, column: Column) -> Any:
    """Return what the driver is given: numbers as numbers, exact ones; many databases compare text with them as floats."""
    if column.kind is Kind.INTEGER:
        return int(value)
    if column.kind is Kind.NUMBER:
        return Decimal(value)
    if column.kind is Kind.FLOAT:
        return float(value)
    return value


class PostgreSQL(Dialect):
    """Parameters without a type take that of the column beside them, exactly."""

    name = "postgresql"
    row_values = True
    explain_prefix = "EXPLAIN (FORMAT JSON) "
    tells_types = True
    reads_plans = True

    def make(self) -> Any:
        return PGDialect_psycopg()  # type: ignore[no-untyped-call]

    def value_of(self, value: str, column: Column) -> Any:
        return bindparam(None, value, type_=NullType())

    def typed_value_of(self, value: str, column: Column) -> Any:
        bound = self.value_of(value, column)
        return cast(bound, NamedType(column.type_name)) if column.type_name else bound

    def clock(self) -> Any:
        return cast(func.timezone(literal_column("'UTC'"), func.clock_timestamp()), Text())

    def checksum(self, parts: Sequence[Any]) -> Any:
        # Not concat_ws: it skips NULL, and does not say where one part ends.
        joined = func.jsonb_build_array(*parts)
        return cast(func.hashtextextended(cast(joined, Text()), literal_column("0")), NamedType("numeric"))

    def type_of(self, value: Any) -> Any:
        return cast(func.pg_typeof(value), Text())

    def nullable(self, relation: Relation) -> Any:
        if not relation.table:
            return None
        names = ("attrelid", "attname", "attnotnull")
        found = table("pg_attribute", *(column(name) for name in names), schema="pg_catalog")
        full = bindparam(
            None, ".".join(self.quoted(part).replace("%%", "%") for part in relation.table), type_=NullType()
        )
        query = select(~found.c.attnotnull).where(found.c.attrelid == func.to_regclass(full))
        return query.where(found.c.attname == bindparam(None, relation.watermark_column, type_=NullType()))

    def full_scan(self, plan: str) -> str | None:
        return "Seq Scan" if "Seq Scan" in plan else None


class MySQL(Dialect):
    """MySQL and MariaDB. Sessions are set to UTC; text that is compared with a number would be compared as a double."""

    name = "mysql"
    row_values = False  # MariaDB reads the whole range for a row value; spelt out it begins where it should
    reads_plans = True

    def make(self) -> Any:
        return MySQLDialect_pymysql()

    def full_scan(self, plan: str) -> str | None:
        return "type ALL" if "'ALL'" in plan else None

    def nullable(self, relation: Relation) -> Any:
        if not relation.table:
            return None
        names = ("is_nullable", "table_schema", "table_name", "column_name")
        found = table("columns", *(column(name) for name in names), schema="information_schema")
        query = select(found.c.is_nullable).where(found.c.table_name == relation.table[-1])
        query = query.where(found.c.column_name == relation.watermark_column)
        return query.where(found.c.table_schema == (relation.table[-2] if len(relation.table) > 1 else func.database()))

    def text_of(self, value: Any, column: Column) -> Any:
        return cast(value, CHAR())

    def key_text(self, key: Any) -> Any:
        return func.hex(cast(key, BINARY()))

    def clock(self) -> Any:
        return cast(func.utc_timestamp(literal_column("6")), CHAR())

    def checksum(self, parts: Sequence[Any]) -> Any:
        digest = func.md5(func.concat_ws(literal_column("'|'"), *parts))
        return cast(
            func.conv(func.left(digest, literal_column("15")), literal_column("16"), literal_column("10")),
            INTEGER(unsigned=True),
        )

    def moment(self, value: datetime, column: Column) -> str:
        if column.kind is Kind.MOMENT:
            value = value.astimezone(timezone.utc).replace(tzinfo=None)
        return super().moment(value, Column("date" if column.kind is Kind.DATE else "datetime", database=self.name))


class SQLite(Dialect):
    """A column holds values of any type. Times are text, whose order is that of the times as long as one format is kept."""

    name = "sqlite"
    row_values = True
    explain_prefix = "EXPLAIN QUERY PLAN "
    reads_plans = True

    def make(self) -> Any:
        return SQLiteDialect_pysqlite()

    def text_of(self, value: Any, column: Column) -> Any:
        return value

    def key_text(self, key: Any) -> Any:
        return key

    def value_of(self, value: str, column: Column) -> Any:
        bare = column.kind is Kind.TEXT and not re.search("char|text|clob", column.type_name, re.IGNORECASE)
        plain = int(value) if bare and re.fullmatch(r"-?\d+", value) else _plain(value, column)
        return bindparam(None, plain, type_=NullType())

    def full_scan(self, plan: str) -> str | None:
        return "SCAN" if re.search(r"\bSCAN\b(?!.*USING (COVERING )?INDEX)", plan) else None

    def clock(self) -> Any:
        return literal_column("strftime('%Y-%m-%d %H:%M:%f', 'now')")

    def moment(self, value: datetime, column: Column) -> str:
        """Return the least text of all times of that second, whatever follows the seconds."""
        if column.kind is Kind.DATE:
            return value.date().isoformat()
        naive = value.astimezone(timezone.utc).replace(tzinfo=None) if value.tzinfo else value
        return naive.isoformat(sep=column.separator, timespec="seconds")


_DIALECTS: dict[str, type[Dialect]] = {each.name: each for each in (PostgreSQL, MySQL, SQLite)}
_OTHERS = {"postgres": "postgresql", "mariadb": "mysql"}


@cache
def dialect_of(name: str) -> Dialect:
    """Return the dialect that a hook's ``dialect_name``, or a connection's type, names. An unknown one is taken for ANSI."""
    from airflow_state_watchers.sources.sql_warehouses import WAREHOUSES

    known = _DIALECTS | WAREHOUSES
    return known.get(_OTHERS.get(name, name), Dialect)()
