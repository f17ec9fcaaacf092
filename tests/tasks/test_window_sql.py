"""The statements that read a window, as text, for databases that are not here."""

from __future__ import annotations

import pytest

from airflow_state_watchers.core.cut import Cut, Span
from airflow_state_watchers.sources.sql_relation import Relation
from airflow_state_watchers.tasks.window_sql import Statements, dialect_of

ORDERS = Relation("updatedAt", table=("shop", "orders"), key_columns=("id",), where="a LIKE '%:x'")
SPAN = Span(Cut("1"), Cut("2", after=True))


def statements(name: str, placeholder: str, column_type: str | None = None, relation: Relation = ORDERS) -> Statements:
    return Statements(relation, dialect_of(name, placeholder), column_type)


@pytest.mark.parametrize(
    ("name", "placeholder", "sql"),
    [
        ("postgresql", "%s", '"updatedAt" >= %s AND "updatedAt" <= %s AND (a LIKE \'%%:x\')'),
        ("sqlite", "?", '"updatedAt" >= ? AND "updatedAt" <= ? AND (a LIKE \'%:x\')'),
        ("mysql", "%s", "`updatedAt` >= %s AND `updatedAt` <= %s AND (a LIKE '%%:x')"),
        ("mssql", "?", "[updatedAt] >= ? AND [updatedAt] <= ? AND (a LIKE '%:x')"),
    ],
)
def test_a_predicate_is_in_the_words_of_the_database(name: str, placeholder: str, sql: str) -> None:
    found = statements(name, placeholder).predicate(SPAN, None)
    assert (found.sql, found.parameters) == (sql, ("1", "2"))


def test_names_where_a_driver_takes_no_positions() -> None:
    found = statements("oracle", ":1").predicate(SPAN, "o")
    assert found.sql == 'o."updatedAt" >= :param_1 AND o."updatedAt" <= :param_2 AND (a LIKE \'%:x\')'
    assert found.parameters == {"param_1": "1", "param_2": "2"}


@pytest.mark.parametrize("name", ["postgresql", "sqlite", "mysql", "mssql"])
def test_the_next_page_begins_after_a_place(name: str) -> None:
    placeholder = "%s" if name in ("postgresql", "mysql") else "?"
    found = statements(name, placeholder).page(SPAN, ("1", 7), 11)
    assert isinstance(found.parameters, tuple)
    assert found.sql.count(placeholder) == len(found.parameters)
    row_values = '(t."updatedAt", t.id) > (' in found.sql
    assert row_values == (name in ("postgresql", "sqlite"))
    assert ("TOP 11" in found.sql) == (name == "mssql")


def test_values_never_stand_in_the_text() -> None:
    value = "'; DROP TABLE orders; --"
    span = Span(Cut(value), Cut(value))
    for name, placeholder in [("postgresql", "%s"), ("sqlite", "?"), ("mysql", "%s"), ("mssql", "?"), ("oracle", ":1")]:
        made = statements(name, placeholder)
        for found in (
            made.predicate(span, "o"),
            made.page(span, (value, value), 5),
            made.stream(span),
            made.tiles(span, 3),
        ):
            assert "DROP" not in found.sql


@pytest.mark.parametrize(
    ("column_type", "value"), [("BIGINT", 1), ("decimal(38,2)", 1), ("double", 1.0), ("datetime(6)", "1"), (None, "1")]
)
def test_elsewhere_than_in_postgresql_numbers_are_bound_as_numbers(column_type: str | None, value: object) -> None:
    found = statements("mysql", "%s", column_type).predicate(Span(Cut("1"), None), None).parameters
    assert found == (value,)
    assert type(found[0]) is not str or column_type in ("datetime(6)", None)


def test_a_name_of_three_parts_is_quoted_part_by_part() -> None:
    relation = Relation("v", table=("Lake", "a.b", "t%"), key_columns=("id",))
    assert 'FROM "Lake"."a.b"."t%%" AS t' in statements("postgresql", "%s", relation=relation).stream(SPAN).sql


def test_a_query_may_hold_colons_and_signs() -> None:
    relation = Relation("v", sql="SELECT ':x' AS a, 1::int AS v, 7 % 2 AS b, '10:30:00' AS c, E'\\:' AS d")
    sql = statements("postgresql", "%s", relation=relation).stream(SPAN).sql
    assert "SELECT ':x' AS a, 1::int AS v, 7 %% 2 AS b, '10:30:00' AS c, E'\\:' AS d" in sql
