"""What is written for each database: the statements that no test can run on all of them are looked at here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from airflow_state_watchers.core.cut import Cut, Span
from airflow_state_watchers.sources.sql_column import Column, Kind
from airflow_state_watchers.sources.sql_dialects import Dialect, dialect_of
from airflow_state_watchers.sources.sql_relation import Relation
from airflow_state_watchers.sources.sql_statements import Place, Query, Statements, clock_query

HOSTILE = 'Order "x" %s; --'
TIMES = {
    "postgresql": "timestamp with time zone",
    "redshift": "timestamp with time zone",
    "mysql": "timestamp",
    "sqlite": "timestamp",
    "mssql": "datetimeoffset",
    "oracle": "timestamp with time zone",
    "snowflake": "timestamp_tz",
    "bigquery": "timestamp",
    "ansi": "timestamp with time zone",
}
"""Each dialect's type for a point in time (SQLite has but local ones)."""


def statements(dialect: Dialect, column: Column | None = None) -> Statements:
    relation = Relation("updatedAt", table=("sales", HOSTILE), key_columns=("Group",), where="kind LIKE 'a%'")
    column = column or dialect.column("updatedAt", TIMES[dialect.name])
    return Statements(relation, dialect, column, [Column("Group", "bigint", Kind.INTEGER)])


def one_line(query: Query) -> str:
    return " ".join(query.text.split())


SNOWFLAKE = "TO_TIMESTAMP_TZ({}, 'YYYY-MM-DD\"T\"HH24:MI:SS.FF9TZH:TZM')"
ORACLE = "FROM_TZ(TO_TIMESTAMP({}, 'YYYY-MM-DD\"T\"HH24:MI:SS.FF'), 'UTC')"
MYSQL = "convert_tz(CAST({} AS DATETIME(6)), '+00:00', @@session.time_zone)"
PAGES: dict[str, tuple[str, Any]] = {
    # A page after a place: names in quotes, the author's condition, the end of the span, the keys, the limit.
    "postgresql": (
        'SELECT "Group", to_jsonb("updatedAt") #>> \'{}\' AS state_watchers_0, CAST("Group" AS text) AS state_watchers_1 '
        'FROM "sales"."Order ""x"" %%s; --" '
        "WHERE (kind LIKE 'a%%') AND \"updatedAt\" < %(p_1)s "
        'AND ("updatedAt", "Group") > (%(p_2)s, %(p_3)s) ORDER BY "updatedAt", "Group" LIMIT 50',
        {"p_1": "HIGH", "p_2": "LOW", "p_3": "7"},
    ),
    "redshift": (
        'SELECT "Group", CAST("updatedAt" AS VARCHAR(65535)) AS state_watchers_0, '
        'CAST("Group" AS VARCHAR(65535)) AS state_watchers_1 FROM "sales"."Order ""x"" %%s; --" '
        'WHERE (kind LIKE \'a%%\') AND "updatedAt" < CAST(%s AS TIMESTAMPTZ) AND "updatedAt" >= CAST(%s AS TIMESTAMPTZ) '
        'AND ("updatedAt" > CAST(%s AS TIMESTAMPTZ) OR "Group" > %s) ORDER BY "updatedAt", "Group" LIMIT 50',
        ("HIGH", "LOW", "LOW", 7),
    ),
    "mysql": (
        "SELECT `Group`, CAST(convert_tz(`updatedAt`, @@session.time_zone, '+00:00') AS CHAR) AS state_watchers_0, "
        'CAST(`Group` AS CHAR) AS state_watchers_1 FROM `sales`.`Order "x" %%s; --` '
        f"WHERE (kind LIKE 'a%%') AND `updatedAt` < {MYSQL.format('%s')} AND `updatedAt` >= {MYSQL.format('%s')} "
        f"AND (`updatedAt` > {MYSQL.format('%s')} OR `Group` > %s) ORDER BY `updatedAt`, `Group` LIMIT 50",
        ("HIGH", "LOW", "LOW", 7),
    ),
    "sqlite": (
        "SELECT `Group`, CAST(`updatedAt` AS TEXT) AS state_watchers_0, CAST(`Group` AS TEXT) AS state_watchers_1 "
        "FROM `sales`.`Order \"x\" %s; --` WHERE (kind LIKE 'a%') AND `updatedAt` < ? "
        "AND (`updatedAt`, `Group`) > (?, ?) ORDER BY `updatedAt`, `Group` LIMIT ? OFFSET ?",
        ("HIGH", "LOW", 7, 50, 0),
    ),
    "mssql": (
        "SELECT TOP 50 [Group], CONVERT(VARCHAR(40), [updatedAt], 126) AS state_watchers_0, "
        "CAST([Group] AS NVARCHAR(4000)) AS state_watchers_1 FROM [sales].[Order \"x\" %s; --] WHERE (kind LIKE 'a%') "
        "AND [updatedAt] < CONVERT(DATETIMEOFFSET(7), %(p_1)s, 126) "
        "AND [updatedAt] >= CONVERT(DATETIMEOFFSET(7), %(p_2)s, 126) "
        "AND ([updatedAt] > CONVERT(DATETIMEOFFSET(7), %(p_2)s, 126) OR [Group] > %(p_3)s) ORDER BY [updatedAt], [Group]",
        {"p_1": "HIGH", "p_2": "LOW", "p_3": 7},
    ),
    "oracle": (
        'SELECT "Group", TO_CHAR(SYS_EXTRACT_UTC("updatedAt"), \'YYYY-MM-DD"T"HH24:MI:SS.FF9\') AS state_watchers_0, '
        "TO_CHAR(\"Group\", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''') AS state_watchers_1 "
        'FROM "SALES"."Order ""x"" %s; --" '
        f'WHERE (kind LIKE \'a%\') AND "updatedAt" < {ORACLE.format(":p_1")} AND "updatedAt" >= {ORACLE.format(":p_2")} '
        f'AND ("updatedAt" > {ORACLE.format(":p_2")} OR "Group" > :p_3) '
        'ORDER BY "updatedAt", "Group" FETCH FIRST 50 ROWS ONLY',
        {"p_1": "HIGH", "p_2": "LOW", "p_3": 7},
    ),
    "snowflake": (
        'SELECT "Group", TO_VARCHAR(CONVERT_TIMEZONE(\'UTC\', "updatedAt"), \'YYYY-MM-DD"T"HH24:MI:SS.FF9TZH:TZM\') '
        'AS state_watchers_0, CAST("Group" AS VARCHAR) AS state_watchers_1 FROM "SALES"."Order ""x"" %%s; --" '
        f"WHERE (kind LIKE 'a%%') AND \"updatedAt\" < {SNOWFLAKE.format('%(p_1)s')} "
        f'AND "updatedAt" >= {SNOWFLAKE.format("%(p_2)s")} '
        f'AND ("updatedAt" > {SNOWFLAKE.format("%(p_2)s")} OR "Group" > %(p_3)s) ORDER BY "updatedAt", "Group" LIMIT 50',
        {"p_1": "HIGH", "p_2": "LOW", "p_3": 7},
    ),
    "bigquery": (
        "SELECT `Group`, CAST(`updatedAt` AS STRING) AS state_watchers_0, CAST(`Group` AS STRING) AS state_watchers_1 "
        "FROM `sales`.`Order \"x\" %%s; --` WHERE (kind LIKE 'a%%') AND `updatedAt` < CAST(%(p_1)s AS TIMESTAMP) "
        "AND `updatedAt` >= CAST(%(p_2)s AS TIMESTAMP) AND (`updatedAt` > CAST(%(p_2)s AS TIMESTAMP) "
        "OR `Group` > CAST(%(p_3)s AS INT64)) ORDER BY `updatedAt`, `Group` LIMIT 50",
        {"p_1": "HIGH", "p_2": "LOW", "p_3": "7"},
    ),
    "ansi": (
        'SELECT "Group", CAST("updatedAt" AS VARCHAR) AS state_watchers_0, CAST("Group" AS VARCHAR) AS state_watchers_1 '
        'FROM "sales"."Order ""x"" %%s; --" WHERE (kind LIKE \'a%%\') '
        'AND "updatedAt" < CAST(%s AS TIMESTAMP WITH TIME ZONE) AND "updatedAt" >= CAST(%s AS TIMESTAMP WITH TIME ZONE) '
        'AND ("updatedAt" > CAST(%s AS TIMESTAMP WITH TIME ZONE) OR "Group" > %s) ORDER BY "updatedAt", "Group" LIMIT 50',
        ("HIGH", "LOW", "LOW", 7),
    ),
}


@pytest.mark.parametrize("name", PAGES)
def test_a_page(name: str) -> None:
    query = statements(dialect_of(name)).page(Span(Cut("LOW"), Cut("HIGH")), Place("LOW", ("7",)), 50, ("Group",))
    assert (one_line(query), query.parameters) == PAGES[name]


@pytest.mark.parametrize(
    ("name", "style", "text"),
    [
        ("mssql", "qmark", "o.[updatedAt] >= CONVERT(DATETIMEOFFSET(7), ?, 126)"),  # pyodbc
        ("oracle", "qmark", f'o."updatedAt" >= {ORACLE.format("?")}'),  # JDBC
        ("snowflake", "qmark", f'o."updatedAt" >= {SNOWFLAKE.format("?")}'),
        ("ansi", "qmark", 'o."updatedAt" >= CAST(? AS TIMESTAMP WITH TIME ZONE)'),
    ],
)
def test_another_driver(name: str, style: str, text: str) -> None:
    query = statements(dialect_of(name, style)).predicate(Span(Cut("LOW"), None), "o")
    assert one_line(query) == f"{text} AND (kind LIKE 'a%')"
    assert query.parameters == ("LOW",)


LITERALS = [
    # What a bound text is made into, by the column's own type
    ("postgresql", "timestamp without time zone", "%(p_1)s", "V"),
    ("postgresql", "bigint", "%(p_1)s", "5"),
    ("redshift", "timestamp without time zone", "CAST(%s AS TIMESTAMP)", "V"),
    ("redshift", "date", "CAST(%s AS DATE)", "V"),
    ("redshift", "bigint", "%s", 5),
    ("mysql", "datetime", "CAST(%s AS DATETIME(6))", "V"),
    ("mysql", "date", "CAST(%s AS DATE)", "V"),
    ("mysql", "bigint", "%s", 5),
    ("sqlite", "integer", "?", 5),
    ("mssql", "datetime2", "CONVERT(DATETIME2(7), %(p_1)s, 126)", "V"),
    ("mssql", "datetime", "CONVERT(DATETIME, %(p_1)s, 126)", "V"),
    ("mssql", "date", "CONVERT(DATE, %(p_1)s, 23)", "V"),
    ("mssql", "rowversion", "CONVERT(BINARY(8), %(p_1)s, 1)", "V"),
    ("mssql", "varchar", "CAST(%(p_1)s AS VARCHAR(8000))", "V"),
    ("mssql", "nvarchar", "%(p_1)s", "V"),
    ("oracle", "DATE", "TO_DATE(:p_1, 'YYYY-MM-DD\"T\"HH24:MI:SS')", "V"),
    ("oracle", "TIMESTAMP(6)", "TO_TIMESTAMP(:p_1, 'YYYY-MM-DD\"T\"HH24:MI:SS.FF')", "V"),
    ("snowflake", "TIMESTAMP_NTZ", "TO_TIMESTAMP_NTZ(%(p_1)s, 'YYYY-MM-DD\"T\"HH24:MI:SS.FF9')", "V"),
    ("snowflake", "DATE", "TO_DATE(%(p_1)s, 'YYYY-MM-DD')", "V"),
    ("bigquery", "DATETIME", "CAST(%(p_1)s AS DATETIME)", "V"),
    ("bigquery", "INT64", "CAST(%(p_1)s AS INT64)", "5"),
]


@pytest.mark.parametrize(("name", "type_name", "literal", "value"), LITERALS)
def test_a_value_is_read_as_its_columns_type(name: str, type_name: str, literal: str, value: Any) -> None:
    dialect = dialect_of(name)
    column = dialect.column("w", type_name)
    query = Statements(Relation("w", table=("t",)), dialect, column).predicate(Span(Cut(str(value)), None))
    (name_of_parameter,) = query.parameters if isinstance(query.parameters, dict) else ["p_1"]
    assert query.text.endswith(f" >= {literal.replace('p_1', name_of_parameter)}")
    assert list(query.parameters.values() if isinstance(query.parameters, dict) else query.parameters) == [value]


CANARIES = {
    Kind.TIMESTAMP: ("2031-03-04T05:06:07.012345", "2031-03-05T05:06:07.012345"),
    Kind.NAIVE: ("2031-03-04T05:06:07.012345", "2031-03-05T05:06:07.012345"),
    Kind.DATE: ("2031-03-04", "2031-03-05"),
    Kind.INTEGER: ("-9007199254740993", "9007199254740993"),
    Kind.NUMERIC: ("-31415.92653589793", "31415.92653589793"),
    Kind.FLOAT: ("-31415.92653", "31415.92653"),
    Kind.TEXT: ("canary'\"`]\\%s;--", "canary2'\"`]\\%s;--"),
    Kind.ROWVERSION: ("0x00000000DEADBEEF", "0x00000000DEADBEFF"),
}


def all_of(made: Statements, low: str, high: str) -> Iterator[Query]:
    """Every statement that takes a value, with these."""
    a, b = Cut(low), Cut(high, after=True)
    for span in (Span(a, b), Span(a, None), Span(None, b)):
        yield from (made.count(span, 5), made.first(span, 5), made.range(span, ("Group",)), made.predicate(span, "o"))
        yield made.page(span, Place(low, ("271828182",)), 50)
    yield from (made.is_ahead(a, b), made.next_after(a), made.beyond(a, b), made.sums([a, b, None]), made.meant(low))


@pytest.mark.parametrize("kind", CANARIES)
@pytest.mark.parametrize("name", TIMES)
def test_no_value_is_ever_part_of_a_statement(name: str, kind: Kind) -> None:
    dialect = dialect_of(name)
    low, high = CANARIES[kind]
    seen = 0
    for query in all_of(statements(dialect, Column("updatedAt", kind.value, kind)), low, high):
        values = query.parameters.values() if isinstance(query.parameters, dict) else query.parameters
        texts = [str(value) for value in values]
        assert low in texts or high in texts, query
        for canary in (low, high, "canary", "2031", "9007199254740993", "31415", "DEADBE", "271828182"):
            assert canary not in query.text
        seen += 1
    assert seen == 20


@pytest.mark.parametrize("name", TIMES)
def test_percent_signs_reach_the_database_as_they_are(name: str) -> None:
    """By what the drivers do: replace parameters, if they are given any or always, and so halve what is doubled."""
    dialect = dialect_of(name)
    made = statements(dialect)
    span = Span(Cut("LOW"), Cut("HIGH"))
    queries = (
        made.page(span, None, 5),
        made.greatest(),
        made.nulls(),
        made.names(),
        made.example(),
        made.count(span, 5),
    )
    for query in queries:
        text = query.text
        is_replaced = bool(query.parameters) or name not in ("bigquery", "snowflake")
        if dialect.rendering.paramstyle in ("format", "pyformat") and name != "mssql" and is_replaced:
            text = text % query.parameters
        assert " %s; --" in text
        assert "LIKE 'a%'" in text


def test_the_clock_of_bigquery_is_a_format_without_parameters() -> None:
    query = clock_query(dialect_of("bigquery"))
    assert query.text.startswith("SELECT FORMAT_TIMESTAMP('%Y-%m-%dT%H:%M:%E6S', CURRENT_TIMESTAMP())")
