"""MySQL's statements as text, where SQLAlchemy or a driver has ways of its own; a real MariaDB has system tests."""

from __future__ import annotations

from typing import Any

from airflow_state_watchers.core.cut import Cut, Span
from airflow_state_watchers.sources.sql_column import Column, Kind
from airflow_state_watchers.sources.sql_dialects import dialect_of
from airflow_state_watchers.sources.sql_relation import Relation
from airflow_state_watchers.sources.sql_rendering import paramstyle_of
from airflow_state_watchers.sources.sql_statements import Statements, clock_query

HOSTILE = Relation("updatedAt", table=('Order "x" %s; -- `y`',), where="a LIKE 'x%' AND b % 2 = 1")
SPAN = Span(Cut("1"), None)


class Hook:
    conn_type = "mysql"

    def __init__(self, extra: dict[str, Any]) -> None:
        self.connection = type("Connection", (), {"extra_dejson": extra})


def test_the_clock_has_microseconds() -> None:
    # A clock that says less than the time lets a look count as earlier than it was.
    assert "SYSDATE(6)" in clock_query(dialect_of("mysql")).text


def test_a_driver_that_halves_percent_signs_gets_them_doubled() -> None:
    assert paramstyle_of(Hook({})) is None
    made = Statements(HOSTILE, dialect_of("mysql", None), Column("updatedAt", "bigint", Kind.INTEGER)).range(SPAN)
    assert made.parameters == (1,)
    text = made.text % 7
    assert '`Order "x" %s; -- ``y```' in text
    assert "(a LIKE 'x%' AND b % 2 = 1) AND `updatedAt` >= 7" in text


def test_a_driver_that_leaves_percent_signs_gets_them_single_and_parameters_by_name() -> None:
    style = paramstyle_of(Hook({"client": "mysql-connector-python"}))
    made = Statements(HOSTILE, dialect_of("mysql", style), Column("updatedAt", "bigint", Kind.INTEGER)).range(SPAN)
    assert made.parameters == {"p_1": 1}
    assert '`Order "x" %s; -- ``y```' in made.text
    assert "(a LIKE 'x%' AND b % 2 = 1) AND `updatedAt` >= %(p_1)s" in made.text
