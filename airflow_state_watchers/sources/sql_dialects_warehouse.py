"""SQL Server, Oracle, Snowflake, BigQuery and Redshift: databases that the tests know as text alone."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, ClassVar

import sqlalchemy as sa

from airflow_state_watchers.sources.sql_column import CLOCKS, Column, Kind, plain_type
from airflow_state_watchers.sources.sql_dialects import Dialect, python_value
from airflow_state_watchers.sources.sql_rendering import bound, call, cast

_ISO = 'YYYY-MM-DD"T"HH24:MI:SS'


class MssqlDialect(Dialect):
    name = "mssql"
    has_checksum = True
    limits_inline = False
    text_type = "NVARCHAR(4000)"

    def text_of(self, expression: Any, column: Column) -> Any:
        if column.kind is Kind.ROWVERSION:
            return self._convert("VARCHAR(18)", expression, 1)
        if column.kind in (Kind.TIMESTAMP, Kind.NAIVE):
            return self._convert("VARCHAR(40)", expression, 126)
        if column.kind is Kind.DATE:
            return self._convert("VARCHAR(10)", expression, 23)
        if column.kind is Kind.FLOAT:
            return self._convert("VARCHAR(40)", expression, 3)
        return self.as_text(expression)

    def value_of(self, text: str, column: Column) -> Any:
        name = plain_type(column.type_name)
        if column.kind is Kind.ROWVERSION:
            return self._convert("BINARY(8)", bound(text), 1)
        if column.kind in CLOCKS:
            # Its own type: a datetime counts in 1/300 s, and is another time than the datetime2 of the same text.
            exact = name if name in ("datetime", "smalldatetime", "date") else f"{name}(7)"
            return self._convert(exact.upper(), bound(text), 126 if column.kind is not Kind.DATE else 23)
        if column.kind is Kind.TEXT and name in ("varchar", "char"):
            return cast(
                bound(text), "VARCHAR(8000)"
            )  # a Unicode parameter would turn the column into Unicode, past its index
        return bound(python_value(text, column.kind))

    def moment_text(self, moment: datetime, column: Column) -> str:
        if column.kind is Kind.DATE:
            return moment.date().isoformat()
        name = plain_type(column.type_name)
        if name == "smalldatetime":  # minutes, to which it rounds
            moment = moment.replace(second=0, microsecond=0)
        if name == "datetime":  # 0, 3 and 7 milliseconds, to which it rounds
            moment = moment.replace(microsecond=moment.microsecond // 10_000 * 10_000)
        return moment.isoformat(timespec="milliseconds" if name in ("datetime", "smalldatetime") else "microseconds")

    def clock(self) -> Any:
        return self._convert("VARCHAR(40)", call("SYSUTCDATETIME"), 126)

    def checksum(self, texts: Sequence[Any]) -> Any:
        half = call("SUBSTRING", call("HASHBYTES", "MD5", self.joined(texts)), 1, 8)
        return cast(cast(half, "BIGINT"), "NUMERIC(38, 0)")

    @staticmethod
    def _convert(type_name: str, expression: Any, style: int) -> Any:
        return call("CONVERT", sa.literal_column(type_name), expression, style)


class OracleDialect(Dialect):
    name = "oracle"
    has_checksum = True
    folds_upper = True
    limits_inline = False
    text_type = "VARCHAR2(4000)"

    def text_of(self, expression: Any, column: Column) -> Any:
        if column.kind is Kind.TIMESTAMP:
            return call("TO_CHAR", call("SYS_EXTRACT_UTC", expression), f"{_ISO}.FF9")
        if column.kind is Kind.NAIVE:
            return call("TO_CHAR", expression, _ISO if _is_date(column) else f"{_ISO}.FF9")
        if column.kind in (Kind.INTEGER, Kind.NUMERIC):
            return call("TO_CHAR", expression, "TM9", "NLS_NUMERIC_CHARACTERS='.,'")
        return self.as_text(expression)

    def value_of(self, text: str, column: Column) -> Any:
        if column.kind is Kind.TIMESTAMP:
            return call("FROM_TZ", call("TO_TIMESTAMP", bound(text), f"{_ISO}.FF"), "UTC")
        if column.kind is Kind.NAIVE and _is_date(column):
            return call("TO_DATE", bound(text), _ISO)
        if column.kind is Kind.NAIVE:
            return call("TO_TIMESTAMP", bound(text), f"{_ISO}.FF")
        return bound(python_value(text, column.kind))

    def moment_text(self, moment: datetime, column: Column) -> str:
        precision = "seconds" if _is_date(column) else "microseconds"
        return moment.replace(tzinfo=None).isoformat(timespec=precision)

    def clock(self) -> Any:
        return call("TO_CHAR", call("SYS_EXTRACT_UTC", sa.literal_column("SYSTIMESTAMP")), f"{_ISO}.FF6")

    def checksum(self, texts: Sequence[Any]) -> Any:
        digits = call("SUBSTR", call("RAWTOHEX", call("STANDARD_HASH", self.joined(texts), "MD5")), 1, 16)
        return call("TO_NUMBER", digits, "X" * 16)

    def joined(self, texts: Sequence[Any]) -> Any:
        first, *others = texts
        for text in others:
            first = first.op("||")(sa.literal_column("'|'")).op("||")(text)
        return first


def _is_date(column: Column) -> bool:
    return plain_type(column.type_name) == "date"


class SnowflakeDialect(Dialect):
    name = "snowflake"
    has_checksum = True
    halves_always = False
    folds_upper = True
    _forms: ClassVar = {Kind.TIMESTAMP: f"{_ISO}.FF9TZH:TZM", Kind.NAIVE: f"{_ISO}.FF9", Kind.DATE: "YYYY-MM-DD"}
    _readers: ClassVar = {Kind.TIMESTAMP: "TO_TIMESTAMP_TZ", Kind.NAIVE: "TO_TIMESTAMP_NTZ", Kind.DATE: "TO_DATE"}

    def text_of(self, expression: Any, column: Column) -> Any:
        if column.kind is Kind.TIMESTAMP:
            expression = call("CONVERT_TIMEZONE", "UTC", expression)
        if form := self._forms.get(column.kind):
            return call("TO_VARCHAR", expression, form)
        return self.as_text(expression)

    def value_of(self, text: str, column: Column) -> Any:
        if form := self._forms.get(column.kind):
            return call(self._readers[column.kind], bound(text), form)
        return bound(python_value(text, column.kind))

    def moment_text(self, moment: datetime, column: Column) -> str:
        return super().moment_text(moment, column).replace(" ", "T")

    def clock(self) -> Any:
        return call("TO_VARCHAR", call("SYSDATE"), f"{_ISO}.FF6")  # UTC there, unlike anywhere else

    def checksum(self, texts: Sequence[Any]) -> Any:
        return cast(call("HASH", *texts), "NUMBER(38, 0)")


class BigQueryDialect(Dialect):
    name = "bigquery"
    has_checksum = True
    halves_always = False
    text_type = "STRING"
    casts: ClassVar = {
        Kind.TIMESTAMP: "TIMESTAMP",
        Kind.NAIVE: "DATETIME",
        Kind.DATE: "DATE",
        Kind.INTEGER: "INT64",
        Kind.NUMERIC: "BIGNUMERIC",
        Kind.FLOAT: "FLOAT64",
    }

    def clock(self) -> Any:
        return call("FORMAT_TIMESTAMP", "%Y-%m-%dT%H:%M:%E6S", call("CURRENT_TIMESTAMP"))

    def checksum(self, texts: Sequence[Any]) -> Any:
        return cast(call("FARM_FINGERPRINT", self.joined(texts)), "BIGNUMERIC")

    def joined(self, texts: Sequence[Any]) -> Any:
        return call("TO_JSON_STRING", call("STRUCT", *texts))


class RedshiftDialect(Dialect):
    name = "redshift"
    has_checksum = True
    text_type = "VARCHAR(65535)"

    def value_of(self, text: str, column: Column) -> Any:
        if column.kind is Kind.TIMESTAMP:
            return cast(bound(text), "TIMESTAMPTZ")
        return super().value_of(text, column)

    def clock(self) -> Any:
        return self.as_text(call("GETDATE"))  # UTC

    def checksum(self, texts: Sequence[Any]) -> Any:
        return cast(call("FARMFINGERPRINT64", self.joined(texts)), "DECIMAL(38, 0)")

    def joined(self, texts: Sequence[Any]) -> Any:
        return OracleDialect.joined(self, texts)  # type: ignore[arg-type] # neither has CONCAT_WS


DIALECTS: tuple[type[Dialect], ...] = (MssqlDialect, OracleDialect, SnowflakeDialect, BigQueryDialect, RedshiftDialect)
