"""The dialects of databases that cannot be run where this package is tested: what is known of them is tested as text."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import bindparam, cast, func, literal_column
from sqlalchemy.dialects.mssql.pymssql import MSDialect_pymssql
from sqlalchemy.dialects.oracle.oracledb import OracleDialect_oracledb
from sqlalchemy.dialects.postgresql.base import PGDialect
from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.sql.compiler import IdentifierPreparer
from sqlalchemy.types import NullType

from airflow_state_watchers.sources.sql_column import Column, Kind
from airflow_state_watchers.sources.sql_dialects import Dialect, NamedType


def _text(value: str) -> Any:
    return literal_column(f"'{value}'")


class MsSql(Dialect):
    """``datetime2(7)`` has 100 ns, and a ``rowversion`` is eight bytes: both travel as text."""

    name = "mssql"

    def make(self) -> Any:
        return MSDialect_pymssql(paramstyle="pyformat")  # type: ignore[no-untyped-call]

    def limited(self, query: Any, most: int) -> Any:
        return query.limit(int(most))

    def text_of(self, value: Any, column: Column) -> Any:
        style = {Kind.ROWVERSION: ("varchar(18)", "1"), Kind.FLOAT: ("varchar(50)", "3")}
        name, number = style.get(column.kind, ("nvarchar(4000)", "121"))
        return func.convert(literal_column(name), value, literal_column(number))

    def key_text(self, key: Any) -> Any:
        return cast(key, NamedType("nvarchar(4000)"))

    def value_of(self, value: str, column: Column) -> Any:
        bound = super().value_of(value, column)
        if column.kind is Kind.ROWVERSION:
            return func.convert(literal_column("binary(8)"), bound, literal_column("1"))
        types = {Kind.NAIVE: "datetime2(7)", Kind.MOMENT: "datetimeoffset(7)", Kind.DATE: "date"}
        return cast(bound, NamedType(types[column.kind])) if column.kind in types else bound

    def clock(self) -> Any:
        return func.convert(literal_column("varchar(34)"), func.sysutcdatetime(), literal_column("121"))

    def checksum(self, parts: Sequence[Any]) -> Any:
        digest = func.hashbytes(_text("SHA2_256"), func.concat_ws(_text("|"), *parts))
        # A substring of seven bytes stays positive and leaves room for the sum.
        return cast(cast(func.substring(digest, 1, 7), NamedType("bigint")), NamedType("decimal(38, 0)"))


class Oracle(Dialect):
    """A DATE has a time of day; text is turned into times by a format that is said, never by the session's."""

    name = "oracle"

    def make(self) -> Any:
        return OracleDialect_oracledb()  # type: ignore[no-untyped-call]

    def limited(self, query: Any, most: int) -> Any:
        return query.limit(int(most))

    def _format(self, column: Column) -> str | None:
        if column.kind is Kind.MOMENT:
            return 'YYYY-MM-DD"T"HH24:MI:SS.FF9TZH:TZM'
        if column.kind is Kind.NAIVE:
            return 'YYYY-MM-DD"T"HH24:MI:SS' + ("" if column.type_name.lower() == "date" else ".FF9")
        return None

    def text_of(self, value: Any, column: Column) -> Any:
        form = self._format(column)
        if form is not None:
            return func.to_char(value, _text(form))
        return value if column.kind is Kind.TEXT else func.to_char(value, _text("TM9"))

    def key_text(self, key: Any) -> Any:
        return func.to_char(key)

    def value_of(self, value: str, column: Column) -> Any:
        form = self._format(column)
        bound = super().value_of(value, column)
        if form is None:
            return bound
        if column.type_name.lower() == "date":
            return func.to_date(bound, _text(form))
        return (func.to_timestamp_tz if column.kind is Kind.MOMENT else func.to_timestamp)(bound, _text(form))

    def clock(self) -> Any:
        now = func.sys_extract_utc(literal_column("SYSTIMESTAMP"))
        return func.to_char(now, _text("YYYY-MM-DD HH24:MI:SS.FF6"))

    def checksum(self, parts: Sequence[Any]) -> Any:
        joined = parts[0]
        for part in parts[1:]:
            joined = joined.op("||")(_text("|")).op("||")(part)
        return func.ora_hash(joined)

    def moment(self, value: datetime, column: Column) -> str:
        short = column.kind is Kind.NAIVE and column.type_name.lower() == "date"
        if short:
            return value.replace(tzinfo=None).isoformat(timespec="seconds")
        return super().moment(value, column).replace(" ", "T")


class _Double(IdentifierPreparer):
    """Quotes names with percent signs for drivers that read those as parameters."""

    def __init__(self, dialect: Any) -> None:
        super().__init__(dialect)
        self._double_percents = True


class _Ticks(IdentifierPreparer):
    def __init__(self, dialect: Any) -> None:
        super().__init__(dialect, initial_quote="`", final_quote="`", escape_quote="`")
        self._double_percents = True

    def _escape_identifier(self, value: str) -> str:
        return value.replace("\\", "\\\\").replace("`", "\\`").replace("%", "%%")


class _Pyformat(DefaultDialect):
    default_paramstyle = "pyformat"
    preparer: Any = _Double


class _BigQuery(DefaultDialect):
    default_paramstyle = "pyformat"
    preparer: Any = _Ticks


class Snowflake(Dialect):
    name = "snowflake"

    def make(self) -> Any:
        return _Pyformat(paramstyle="pyformat")

    def text_of(self, value: Any, column: Column) -> Any:
        forms = {
            Kind.MOMENT: 'YYYY-MM-DD"T"HH24:MI:SS.FF9TZH:TZM',
            Kind.NAIVE: 'YYYY-MM-DD"T"HH24:MI:SS.FF9',
            Kind.DATE: "YYYY-MM-DD",
        }
        return func.to_varchar(value, _text(forms[column.kind])) if column.kind in forms else func.to_varchar(value)

    def key_text(self, key: Any) -> Any:
        return func.to_varchar(key)

    def value_of(self, value: str, column: Column) -> Any:
        bound = super().value_of(value, column)
        makers = {Kind.MOMENT: func.to_timestamp_tz, Kind.NAIVE: func.to_timestamp_ntz, Kind.DATE: func.to_date}
        return makers[column.kind](bound) if column.kind in makers else bound

    def clock(self) -> Any:
        return func.to_varchar(literal_column("SYSDATE()"), _text("YYYY-MM-DD HH24:MI:SS.FF6"))

    def checksum(self, parts: Sequence[Any]) -> Any:
        return cast(func.hash(*parts), NamedType("NUMBER(38, 0)"))


class BigQuery(Dialect):
    name = "bigquery"

    def make(self) -> Any:
        return _BigQuery(paramstyle="pyformat")

    def text_of(self, value: Any, column: Column) -> Any:
        if column.kind is Kind.MOMENT:
            return func.format_timestamp(_text("%FT%H:%M:%E6S+00:00"), value)
        if column.kind is Kind.NAIVE:
            return func.format_datetime(_text("%FT%H:%M:%E6S"), value)
        return cast(value, NamedType("STRING"))

    def key_text(self, key: Any) -> Any:
        return cast(key, NamedType("STRING"))

    def value_of(self, value: str, column: Column) -> Any:
        types = {
            Kind.MOMENT: "TIMESTAMP",
            Kind.NAIVE: "DATETIME",
            Kind.DATE: "DATE",
            Kind.INTEGER: "INT64",
            Kind.NUMBER: "BIGNUMERIC",
            Kind.FLOAT: "FLOAT64",
        }
        bound = bindparam(None, value, type_=NullType())
        return cast(bound, NamedType(types[column.kind])) if column.kind in types else bound

    def clock(self) -> Any:
        return func.format_timestamp(_text("%FT%H:%M:%E6S+00:00"), func.current_timestamp())

    def checksum(self, parts: Sequence[Any]) -> Any:
        joined = [part for each in parts for part in (_text("|"), func.coalesce(each, _text("")))]
        return cast(func.farm_fingerprint(func.concat(*joined)), NamedType("BIGNUMERIC"))


class Redshift(Dialect):
    """PostgreSQL's text and casts, without its transactions' horizon."""

    name = "redshift"

    def make(self) -> Any:
        return PGDialect(paramstyle="format")  # type: ignore[no-untyped-call]

    def text_of(self, value: Any, column: Column) -> Any:
        return cast(value, NamedType("VARCHAR"))

    def key_text(self, key: Any) -> Any:
        return cast(key, NamedType("VARCHAR"))

    def value_of(self, value: str, column: Column) -> Any:
        bound = bindparam(None, value, type_=NullType())
        return cast(bound, NamedType(column.type_name)) if column.type_name else bound

    def clock(self) -> Any:
        return cast(func.getdate(), NamedType("VARCHAR"))

    def checksum(self, parts: Sequence[Any]) -> Any:
        joined = parts[0]
        for part in parts[1:]:
            joined = joined.op("||")(_text("|")).op("||")(func.coalesce(part, _text("")))
        return cast(func.fnv_hash(joined), NamedType("DECIMAL(38, 0)"))


WAREHOUSES: dict[str, type[Dialect]] = {each.name: each for each in (MsSql, Oracle, Snowflake, BigQuery, Redshift)}
