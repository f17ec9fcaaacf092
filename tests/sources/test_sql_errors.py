"""What is said of a database's errors: the table, the connection, a code and a remedy; never what a driver says itself."""

from __future__ import annotations

import sqlite3
from importlib import import_module
from pathlib import Path
from typing import Any

import psycopg
import pytest
from airflow.sdk.exceptions import AirflowNotFoundException

from airflow_state_watchers.exceptions import SourceDenied, SourceError, SourceMissing, SourceUnavailable
from airflow_state_watchers.sources.sql_errors import explain, explain_hook

SECRET = "s3cret-passw0rd"
psycopg2: Any = import_module("psycopg2")  # these three ship no types
pymysql: Any = import_module("pymysql")
redshift_connector: Any = import_module("redshift_connector")
PG, MY = psycopg.errors, pymysql.err


class Coded(psycopg2.ProgrammingError):  # type: ignore[misc]
    """As psycopg2 raises, which sets the code of an error from a server alone."""

    pgcode = "42703"


class PymssqlError(Exception):
    """As pymssql raises: ``(number, bytes of text)``."""


class DatabaseError(Exception):
    """As oracledb raises: a text that begins with its number."""


def numbered(name: str, number: int) -> Exception:
    """As snowflake-connector-python and mysql-connector-python raise: with ``errno``."""
    error: Any = type(name, (Exception,), {})(f"{number}: {SECRET}")
    error.errno = number
    return error  # type: ignore[no-any-return]


Missing, Denied, Away = SourceMissing, SourceDenied, SourceUnavailable


def connector(number: int, text: str) -> Exception:
    """As mysql-connector-python raises: all in one text, and in parts."""
    error: Any = type("ProgrammingError", (Exception,), {})(number, f"{number} (42S02): {text}", "42S02")
    error.errno, error.msg, error.sqlstate = number, text, "42S02"
    return error  # type: ignore[no-any-return]


ERRORS: list[tuple[str, Exception, type[SourceError], str]] = [
    (
        "postgresql",
        PG.UndefinedTable(f'relation "a" {SECRET}'),
        Missing,
        "there is no such table (SQLSTATE 42P01). Create it",
    ),
    (
        "postgresql",
        PG.UndefinedTable('relation "public.orders" does not exist\nLINE 1: ...'),
        Missing,
        "there is no such table: public.orders (",
    ),
    (
        "postgresql",
        PG.UndefinedColumn('column "updated_at" does not exist'),
        Missing,
        'there is no such column: "updated_at" (SQLSTATE 42703). Correct watermark_column',
    ),
    ("postgresql", PG.InvalidCatalogName(SECRET), Missing, "no such database or schema"),
    (
        "postgresql",
        PG.InsufficientPrivilege("permission denied for table other"),
        Denied,
        "reading is denied: other (SQLSTATE 42501). Grant SELECT",
    ),
    ("postgresql", PG.InsufficientPrivilege(SECRET), Denied, "reading is denied (SQLSTATE 42501)"),
    ("postgresql", PG.InvalidPassword(SECRET), Denied, "the login is not accepted"),
    ("postgresql", PG.LockNotAvailable(SECRET), Away, "it is locked"),
    ("postgresql", PG.DeadlockDetected(SECRET), Away, "it is locked"),
    ("postgresql", PG.QueryCanceled(SECRET), Away, "took too long (SQLSTATE 57014). Is there an index"),
    ("postgresql", PG.TooManyConnections(SECRET), Away, "takes no more connections"),
    ("postgresql", PG.AdminShutdown(SECRET), Away, "the connection was lost"),
    ("postgresql", PG.ConnectionFailure(SECRET), Away, "the connection was lost"),
    ("postgresql", PG.SyntaxError(f"syntax error at or near {SECRET}"), SourceError, "does not take the statement"),
    (
        "postgresql",
        PG.InvalidTextRepresentation(f"invalid input: {SECRET}"),
        SourceError,
        "a value does not fit its column's type",
    ),
    ("postgresql", PG.InternalError_(SECRET), Away, "did not answer properly (SQLSTATE XX000)"),
    # While it connects there is no SQLSTATE, only words.
    (
        "postgresql",
        psycopg.OperationalError(f'connection failed: FATAL: password authentication failed for user "{SECRET}"'),
        Denied,
        "the login is not accepted (OperationalError)",
    ),
    (
        "postgresql",
        psycopg.OperationalError(f'FATAL: role "{SECRET}" does not exist'),
        Denied,
        "the login is not accepted",
    ),
    (
        "postgresql",
        psycopg.OperationalError(f"no pg_hba.conf entry for host {SECRET}"),
        Denied,
        "the login is not accepted",
    ),
    ("postgresql", psycopg.OperationalError(f'FATAL: database "{SECRET}" does not exist'), Missing, "no such database"),
    (
        "postgresql",
        psycopg.OperationalError(f"connection to {SECRET} failed: Connection refused"),
        Away,
        "cannot connect",
    ),
    (
        "postgresql",
        psycopg.OperationalError(f"server closed the connection unexpectedly {SECRET}"),
        Away,
        "the connection was lost",
    ),
    (
        "postgresql",
        psycopg.OperationalError(f"FATAL: sorry, too many clients already {SECRET}"),
        Away,
        "takes no more connections",
    ),
    ("redshift", Coded(SECRET), Missing, "there is no such column (SQLSTATE 42703)"),
    (
        "redshift",
        redshift_connector.ProgrammingError({"S": "ERROR", "C": "42P01", "M": SECRET}),
        Missing,
        "there is no such table (SQLSTATE 42P01)",
    ),
    (
        "mysql",
        MY.ProgrammingError(1146, "Table 'shop.orders' doesn't exist"),
        Missing,
        "there is no such table: shop.orders (ProgrammingError 1146)",
    ),
    ("mysql", MY.OperationalError(1054, "Unknown column 'x' in 'SELECT'"), Missing, "there is no such column: x ("),
    ("mysql", connector(1054, "Unknown column 'x' in 'SELECT'"), Missing, "no such column: x (ProgrammingError 1054)"),
    ("mysql", connector(1142, SECRET), Denied, "reading is denied (ProgrammingError 1142)"),
    ("mysql", MY.OperationalError(1049, SECRET), Missing, "no such database"),
    ("mysql", MY.OperationalError(1045, f"Access denied for user '{SECRET}'"), Denied, "the login is not accepted"),
    ("mysql", MY.OperationalError(1044, f"Access denied for user '{SECRET}'"), Denied, "reading is denied"),
    ("mysql", MY.OperationalError(1142, SECRET), Denied, "reading is denied"),
    ("mysql", MY.OperationalError(1205, SECRET), Away, "it is locked"),
    ("mysql", MY.OperationalError(3024, SECRET), Away, "took too long"),
    ("mysql", MY.OperationalError(1969, SECRET), Away, "took too long"),
    ("mysql", MY.OperationalError(1040, SECRET), Away, "takes no more connections"),
    ("mysql", MY.OperationalError(2003, SECRET), Away, "cannot connect"),
    ("mysql", MY.OperationalError(2013, SECRET), Away, "the connection was lost"),
    ("mysql", MY.ProgrammingError(1064, SECRET), SourceError, "does not take the statement"),
    ("mysql", MY.OperationalError(1292, SECRET), SourceError, "a value does not fit"),
    ("mysql", numbered("DatabaseError", 1146), Missing, "there is no such table (DatabaseError 1146)"),
    ("mssql", PymssqlError(208, f"Invalid object name 'orders'.{SECRET}".encode()), Missing, "there is no such table"),
    ("mssql", PymssqlError(207, b"x"), Missing, "there is no such column"),
    ("mssql", PymssqlError(18456, SECRET.encode()), Denied, "the login is not accepted"),
    ("mssql", PymssqlError(1222, SECRET.encode()), Away, "it is locked"),
    (
        "mssql",
        DatabaseError(
            "42S22",
            f"[42S22] [Microsoft][ODBC Driver 18 for SQL Server][SQL Server]Invalid column name 'x'. (207) {SECRET}",
        ),
        Missing,
        "there is no such column: x (",
    ),
    (
        "mssql",
        DatabaseError("42000", f"[42000] [ODBC Driver][SQL Server]The SELECT permission was denied {SECRET} (229)"),
        Denied,
        "reading is denied (",
    ),
    (
        "oracle",
        DatabaseError(f"ORA-00942: table or view does not exist {SECRET}"),
        Missing,
        "there is no such table (DatabaseError 942)",
    ),
    (
        "oracle",
        DatabaseError('ORA-00904: "W": invalid identifier'),
        Missing,
        'there is no such column: "W" (DatabaseError 904)',
    ),
    ("oracle", DatabaseError(f"ORA-01017: {SECRET}"), Denied, "the login is not accepted"),
    ("oracle", DatabaseError(f"ORA-12541: {SECRET}"), Away, "cannot connect"),
    ("snowflake", numbered("ProgrammingError", 2003), Missing, "there is no such table"),
    ("snowflake", numbered("ProgrammingError", 904), Missing, "there is no such column"),
    ("snowflake", numbered("DatabaseError", 250001), Denied, "the login is not accepted"),
    # The same number means nothing where it is another database's.
    ("snowflake", numbered("DatabaseError", 1146), Away, "did not answer properly (DatabaseError 1146)"),
    ("bigquery", Exception(f"403 Forbidden {SECRET}"), Denied, "reading is denied"),
    ("ansi", ConnectionRefusedError(111, SECRET), Away, "cannot connect"),
    ("ansi", Exception(SECRET), Away, "did not answer properly (Exception). It is tried again"),
    ("ansi", sqlite3.ProgrammingError(SECRET), SourceError, "does not take the statement"),
    # An operating system's numbers are no database's (54 is a lock of Oracle's).
    ("oracle", ConnectionResetError(54, SECRET), Away, "cannot connect (ConnectionResetError)"),
    # Five letters are no SQLSTATE where they are all the text there is.
    ("ansi", RuntimeError("XYZZY"), Away, "did not answer properly (RuntimeError)"),
    ("sqlite", sqlite3.OperationalError("no such function: typeofs"), SourceError, "does not take the statement"),
    ("sqlite", OverflowError(SECRET), SourceError, "a value does not fit"),
]


@pytest.mark.parametrize(("dialect", "error", "kind", "text"), ERRORS)
def test_an_error_is_told_by_its_code(dialect: str, error: Exception, kind: type[SourceError], text: str) -> None:
    told = explain(error, label="orders", conn_id="shop", dialect=dialect)
    assert type(told) is kind
    assert str(told).startswith("orders: ")
    assert text in str(told).replace("connection 'shop', ", "")
    assert "'shop'" in str(told)
    assert SECRET not in str(told)
    assert told.__cause__ is None


SQLITE = [
    ("SELECT * FROM orders", SourceMissing, "there is no such table (connection"),  # as the label says already
    ("SELECT * FROM other", SourceMissing, "there is no such table: other (connection"),
    ("SELECT updated_at FROM t", SourceMissing, "there is no such column: updated_at (connection"),
    ("SELEC 's3cret-passw0rd'", SourceError, "does not take the statement"),
    ("SELECT nothing('s3cret-passw0rd')", SourceError, "does not take the statement"),
]


@pytest.mark.parametrize(("statement", "kind", "text"), SQLITE)
def test_what_sqlite_really_says(statement: str, kind: type[SourceError], text: str) -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE t (w)")
    with pytest.raises(sqlite3.Error) as failed:
        connection.execute(statement)
    connection.close()
    told = explain(failed.value, label="orders", conn_id="shop", dialect="sqlite")
    assert type(told) is kind
    assert text in str(told)
    assert SECRET not in str(told)


def test_a_file_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(sqlite3.Error) as failed:
        sqlite3.connect(tmp_path / SECRET / "shop.db")
    told = explain(failed.value, label="orders", conn_id="shop", dialect="sqlite")
    assert type(told) is SourceMissing
    assert SECRET not in str(told)


def test_a_name_is_repeated_from_a_known_sentence_only() -> None:
    for text in (
        f"Unknown column 'x' in 'SELECT'; the row was {SECRET}",
        f'relation "a" does not exist. Row: {SECRET}',
    ):
        assert SECRET not in str(explain(PG.UndefinedTable(text), label="orders", conn_id="shop", dialect="postgresql"))


def test_what_is_explained_already_gets_the_tables_name_only() -> None:
    plain = SourceDenied("shop: no way")
    named = explain(plain, label="orders", conn_id="shop")
    assert (type(named), str(named)) == (SourceDenied, "orders: shop: no way")
    assert explain(named, label="orders", conn_id="shop") is named


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (AirflowNotFoundException(SECRET), SourceMissing, "orders: Airflow has no connection 'shop'. Create it"),
        (ModuleNotFoundError(SECRET), SourceMissing, "'shop' has no hook here (ModuleNotFoundError). Install the"),
        (Exception(f'Unknown hook type "{SECRET}"'), SourceMissing, "'shop' has no hook here (Exception). Install the"),
        (TypeError(SECRET), SourceError, "'shop' gives no SQL hook (TypeError). Correct its fields"),
        (ConnectionError(SECRET), SourceUnavailable, "'shop' cannot be read now (ConnectionError). It is tried again"),
    ],
)
def test_a_connection_without_a_hook(error: Exception, kind: type[SourceError], text: str) -> None:
    told = explain_hook(error, label="orders", conn_id="shop")
    assert type(told) is kind
    assert text in str(told)
    assert SECRET not in str(told)
