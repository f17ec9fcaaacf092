"""PostgreSQL, MySQL and MariaDB, SQLite: the databases that the tests really run."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from airflow_state_watchers.sources.sql_column import CLOCKS, Column, Kind
from airflow_state_watchers.sources.sql_dialects import Dialect, python_value
from airflow_state_watchers.sources.sql_rendering import bound, call, cast


class PostgresDialect(Dialect):
    name = "postgresql"
    has_row_values = True
    has_checksum = True
    text_type = "text"

    def text_of(self, expression: Any, column: Column) -> Any:
        if column.kind in CLOCKS:
            # ISO 8601 whatever DateStyle says, and infinity as the word.
            return call("to_jsonb", expression).op("#>>")(sa.literal_column("'{}'"))
        return self.as_text(expression)

    def value_of(self, text: str, column: Column) -> Any:
        # A parameter without a type takes that of the column, exactly; a cast could cut (char) or lose an index (collation).
        return bound(text)

    def typed(self, text: str, column: Column) -> Any:
        return cast(bound(text), "bpchar" if column.type_name == "character" else column.type_name)

    def moment_text(self, moment: datetime, column: Column) -> str:
        return moment.date().isoformat() if column.kind is Kind.DATE else moment.isoformat(timespec="microseconds")

    def clock(self) -> Any:
        utc = call("timezone", "UTC", call("clock_timestamp"))
        return call("to_char", utc, 'YYYY-MM-DD"T"HH24:MI:SS.US')

    def checksum(self, texts: Sequence[Any]) -> Any:
        return cast(call("hashtextextended", self.as_text(call("jsonb_build_array", *texts)), 0), "numeric")


class MysqlDialect(Dialect):
    """Parameters have the column's type: MySQL compares a number with a text by turning both into doubles."""

    name = "mysql"
    has_row_values = False  # its optimizer takes the long form for a range of the index, and the short one for a filter
    has_checksum = True

    def as_text(self, expression: Any) -> Any:
        return sa.cast(expression, sa.CHAR())

    def text_of(self, expression: Any, column: Column) -> Any:
        if column.kind is Kind.TIMESTAMP:
            return self.as_text(call("convert_tz", expression, sa.literal_column("@@session.time_zone"), "+00:00"))
        return self.as_text(expression)

    def value_of(self, text: str, column: Column) -> Any:
        if column.kind is Kind.DATE:
            return sa.cast(bound(text), sa.DATE())
        if column.kind is Kind.NAIVE:
            return sa.cast(bound(text), mysql.DATETIME(fsp=6))
        if column.kind is Kind.TIMESTAMP:
            # A TIMESTAMP is shown in the session's zone, which is UTC for a watcher, but not for those who use a predicate.
            utc = sa.cast(bound(text), mysql.DATETIME(fsp=6))
            return call("convert_tz", utc, "+00:00", sa.literal_column("@@session.time_zone"))
        return bound(python_value(text, column.kind))

    def moment_text(self, moment: datetime, column: Column) -> str:
        return super().moment_text(moment.replace(tzinfo=None), column)

    def clock(self) -> Any:
        # SYSDATE is read while the statement runs; UTC_TIMESTAMP would be when it began, before its snapshot.
        # A literal, since SQLAlchemy writes every function of that name without its digits.
        now = call("convert_tz", sa.literal_column("SYSDATE(6)"), sa.literal_column("@@session.time_zone"), "+00:00")
        return self.as_text(now)

    def checksum(self, texts: Sequence[Any]) -> Any:
        digits = call("left", call("md5", self.joined(texts)), 16)
        return sa.cast(call("conv", digits, 16, 10), mysql.BIGINT(unsigned=True))


class SqliteDialect(Dialect):
    """A column holds what was stored, whatever its type; times are text in UTC, and are compared as text."""

    name = "sqlite"
    has_row_values = True
    limits_inline = False
    text_type = "TEXT"

    def text_of(self, expression: Any, column: Column) -> Any:
        if column.kind in (Kind.FLOAT, Kind.NUMERIC):
            is_real = call("typeof", expression) == sa.literal_column("'real'")
            return sa.case((is_real, call("printf", "%!.17g", expression)), else_=self.as_text(expression))
        return self.as_text(expression)

    def value_of(self, text: str, column: Column) -> Any:
        if column.kind in (Kind.INTEGER, Kind.FLOAT, Kind.NUMERIC):
            return bound(_number(text))
        return bound(text)

    def moment_text(self, moment: datetime, column: Column) -> str:
        if column.kind is Kind.DATE:
            return moment.date().isoformat()
        # Whole seconds without a zone: as text this is before all times within that second, however they are written.
        return moment.replace(tzinfo=None).isoformat(sep=column.separator, timespec="seconds")

    def clock(self) -> Any:
        return call("strftime", "%Y-%m-%dT%H:%M:%f", "now")


def _number(text: str) -> int | float | str:
    for python in (int, float):
        try:
            return python(text)
        except ValueError:
            continue
    return text


DIALECTS: tuple[type[Dialect], ...] = (PostgresDialect, MysqlDialect, SqliteDialect)
