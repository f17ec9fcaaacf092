"""The statements that only a reader of windows needs, as text; those of the watcher have tests of their own."""

from __future__ import annotations

import pytest

from airflow_state_watchers.core.cut import Cut, Span
from airflow_state_watchers.sources.sql_relation import Relation
from airflow_state_watchers.sources.sql_statements import Place
from airflow_state_watchers.tasks.window_sql import WindowStatements

ORDERS = Relation("updatedAt", table=("shop", "orders"), key_columns=("id",), where="a LIKE '%:x'")
SPAN = Span(Cut("1"), Cut("2", after=True))
DATABASES = [
    ("postgresql", "%s"),
    ("sqlite", "?"),
    ("mysql", "%s"),
    ("mysql", "%(name)s"),
    ("mssql", "%s"),
    ("mssql", "?"),
    ("oracle", ":1"),
    ("snowflake", "%s"),
    ("bigquery", "%s"),
    ("redshift", "%s"),
    ("somethingelse", "%s"),
]


@pytest.mark.parametrize(("database", "placeholder"), DATABASES)
def test_values_never_stand_in_the_text(database: str, placeholder: str) -> None:
    value = "'; DROP TABLE orders; --"
    made = WindowStatements.of(ORDERS, database, placeholder, "text")
    span = Span(Cut(value), Cut(value))
    found = [made.page(span, Place(value, (value,)), 5), made.null_keys(Place(value, (value,))), made.tiles(span, 3)]
    for text in [made.condition(span, "o").sql, *(query.text for query in found)]:
        assert "DROP" not in text
        assert "POSTCOMPILE" not in text


@pytest.mark.parametrize(("database", "placeholder"), DATABASES)
def test_a_condition_without_bounds_has_a_parameter_all_the_same(database: str, placeholder: str) -> None:
    found = WindowStatements.of(ORDERS, database, placeholder, "text").condition(Span(None, None), None)
    assert len(found.parameters) == 1
    assert "IS NOT NULL AND (a LIKE '%" in found.sql


def test_the_hook_says_how_parameters_are_marked() -> None:
    assert "?" in WindowStatements.of(ORDERS, "mssql", "?", "int").condition(SPAN, None).sql
    assert "%(" in WindowStatements.of(ORDERS, "mssql", "%s", "int").condition(SPAN, None).sql


def test_numbers_are_given_as_numbers_once_a_key_was_seen() -> None:
    made = WindowStatements.of(ORDERS, "mysql", "%s", "bigint")
    assert made.null_keys(Place("5", ("7",))).parameters == (5,)
    assert made.page(SPAN, Place("5", ("7",)), 9).parameters.count("7") == 1  # type: ignore[union-attr]
    assert "7" not in made.with_keys([7]).page(SPAN, Place("5", ("7",)), 9).parameters
