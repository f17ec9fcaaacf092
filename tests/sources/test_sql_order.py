"""Numbers stand in the order of numbers in every statement, though their exact texts are what a statement gives."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

import pytest

from airflow_state_watchers.core.cut import Cut, Span
from airflow_state_watchers.sources.sql_column import Column, Kind
from airflow_state_watchers.sources.sql_dialects import dialect_of
from airflow_state_watchers.sources.sql_relation import Relation
from airflow_state_watchers.sources.sql_statements import Query, Statements

NUMBERS = [9, 10, 100, 11, -5, 1000]


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE t (w INTEGER)")
    connection.executemany("INSERT INTO t VALUES (?)", [(number,) for number in NUMBERS])
    yield connection
    connection.close()


# "w" is also what the statements call a value of their own.
@pytest.mark.parametrize("name", ["v", "w"])
def test_the_greatest_the_next_and_the_first(connection: sqlite3.Connection, name: str) -> None:
    connection.execute(f"ALTER TABLE t RENAME COLUMN w TO {name}" if name != "w" else "SELECT 1")

    def run(query: Query) -> tuple[object, ...]:
        (row,) = connection.execute(query.text, query.parameters)
        return tuple(row)

    relation = Relation(table=("t",), watermark_column=name)
    statements = Statements(relation, dialect_of("sqlite"), Column(name, "integer", Kind.INTEGER))
    assert run(statements.greatest())[0] == "1000"
    assert run(statements.next_after(Cut("9", after=True))) == ("10",)
    assert run(statements.next_after(Cut("-9"))) == ("-5",)
    assert run(statements.first(Span(None, None), 2)) == (3, "-5", "10", 2)
    assert run(statements.first(Span(Cut("9"), None), 9)) == (5, "9", "1000", 4)
