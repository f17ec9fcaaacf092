"""Kinds of columns, by what databases call their types."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_state_watchers.sources.sql_column import Kind, kind_of, sqlite_column

TYPES = [
    ("postgresql", "timestamp with time zone", Kind.TIMESTAMP),
    ("postgresql", "timestamp(3) with time zone", Kind.TIMESTAMP),
    ("postgresql", "timestamp without time zone", Kind.NAIVE),
    ("postgresql", "date", Kind.DATE),
    ("postgresql", "bigint", Kind.INTEGER),
    ("postgresql", "numeric(38,5)", Kind.NUMERIC),
    ("postgresql", "double precision", Kind.FLOAT),
    ("postgresql", "character varying", Kind.TEXT),
    ("postgresql", "uuid", Kind.TEXT),
    ("postgresql", "interval", Kind.TEXT),
    ("mysql", "timestamp", Kind.TIMESTAMP),
    ("mysql", "datetime", Kind.NAIVE),
    ("mysql", "bigint unsigned", Kind.INTEGER),
    ("mysql", "decimal", Kind.NUMERIC),
    ("mssql", "datetimeoffset", Kind.TIMESTAMP),
    ("mssql", "datetime2", Kind.NAIVE),
    ("mssql", "smalldatetime", Kind.NAIVE),
    ("mssql", "timestamp", Kind.ROWVERSION),
    ("oracle", "DATE", Kind.NAIVE),
    ("oracle", "TIMESTAMP(6)", Kind.NAIVE),
    ("oracle", "TIMESTAMP(6) WITH LOCAL TIME ZONE", Kind.TIMESTAMP),
    ("oracle", "NUMBER", Kind.NUMERIC),
    ("snowflake", "TIMESTAMP_NTZ", Kind.NAIVE),
    ("snowflake", "TIMESTAMP_TZ", Kind.TIMESTAMP),
    ("snowflake", "TIMESTAMP_LTZ", Kind.TIMESTAMP),
    ("bigquery", "TIMESTAMP", Kind.TIMESTAMP),
    ("bigquery", "DATETIME", Kind.NAIVE),
    ("bigquery", "INT64", Kind.INTEGER),
    ("bigquery", "BIGNUMERIC", Kind.NUMERIC),
    ("redshift", "timestamp without time zone", Kind.NAIVE),
]


@pytest.mark.parametrize(("dialect", "type_name", "kind"), TYPES)
def test_the_kind_of_a_type(dialect: str, type_name: str, kind: Kind) -> None:
    assert kind_of(dialect, type_name) is kind


STORED = [
    ("TIMESTAMP", None, Kind.NAIVE, " "),
    ("", None, Kind.TEXT, " "),
    ("TEXT", "2026-01-01 10:00:00", Kind.NAIVE, " "),
    ("TEXT", "2026-01-01T10:00:00.123Z", Kind.NAIVE, "T"),
    ("TEXT", "2026-01-01T10:00:00+00:00", Kind.NAIVE, "T"),
    ("TEXT", "2026-01-01T10:00:00+02:00", Kind.TEXT, " "),  # no order by time
    ("TEXT", "2026-01-01", Kind.DATE, " "),
    ("TIMESTAMP", 1767261600, Kind.NUMERIC, " "),  # 1767261600.5 may come yet
    ("BIGINT", 1767261600, Kind.INTEGER, " "),
    ("TIMESTAMP", 1767261600.5, Kind.FLOAT, " "),
    ("INTEGER", "x", Kind.TEXT, " "),
]


@pytest.mark.parametrize(("declared", "greatest", "kind", "separator"), STORED)
def test_what_is_stored_says_what_a_column_of_sqlite_is(
    declared: str, greatest: Any, kind: Kind, separator: str
) -> None:
    column = sqlite_column("w", declared, greatest, is_nullable=True)
    assert (column.kind, column.separator) == (kind, separator)


NAMES = [
    # Numbers and texts in one column have no order that a watermark could follow, whatever the column is called.
    ("TIMESTAMP", None, "timestamp"),
    ("TIMESTAMP", "2026-01-01 10:00:00", "timestamp"),
    ("TIMESTAMP", 5, "timestamp of numbers"),
    ("TIMESTAMP", 5.5, "timestamp of numbers"),
    ("", "x", "any"),
    ("", 5, "any of numbers"),
    ("BIGINT", 5, "bigint"),
    ("BIGINT", "2026-01-01", "bigint of texts"),
    ("NUMERIC(10, 2)", 5.5, "numeric"),
]


@pytest.mark.parametrize(("declared", "greatest", "name"), NAMES)
def test_a_columns_name_tells_numbers_from_texts(declared: str, greatest: Any, name: str) -> None:
    assert sqlite_column("w", declared, greatest, is_nullable=True).type_name == name
