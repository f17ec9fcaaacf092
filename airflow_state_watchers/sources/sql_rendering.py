"""SQLAlchemy's dialects as this package needs them: how statements are written, for each database and its driver.

SQLAlchemy writes all SQL here. Its dialects for Snowflake, BigQuery and Redshift are packages of their own, which pin other
versions than Airflow does; the few things that matter of them stand below.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mssql, mysql, oracle, postgresql
from sqlalchemy.dialects.mysql import mysqlconnector
from sqlalchemy.dialects.sqlite.base import SQLiteDialect
from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.engine.interfaces import Dialect
from sqlalchemy.sql.compiler import IdentifierPreparer


class _Backticks(IdentifierPreparer):
    def __init__(self, dialect: Any) -> None:
        super().__init__(dialect, initial_quote="`", escape_quote="`")


class _BigQueryNames(_Backticks):
    def _escape_identifier(self, value: str) -> str:
        # A name is escaped there as a text is.
        escaped: str = value.replace("\\", "\\\\").replace("`", "\\`")
        return escaped.replace("%", "%%") if self._double_percents else escaped


class _SinglePercents(mssql.base.MSIdentifierPreparer):
    def __init__(self, dialect: Any) -> None:
        super().__init__(dialect)  # type: ignore[no-untyped-call]
        self._double_percents = False


class BigQueryDialect(DefaultDialect):
    name = "bigquery"
    preparer: Any = _BigQueryNames
    supports_statement_cache = True


class SnowflakeDialect(DefaultDialect):
    name = "snowflake"
    supports_statement_cache = True


class SqliteDialect(SQLiteDialect):
    # In double quotes SQLite takes a name that does not exist for a text, so that a missing column is no error.
    preparer: Any = _Backticks
    supports_statement_cache = True


class PymssqlDialect(mssql.base.MSDialect):
    # pymssql leaves a doubled percent sign doubled, and with named parameters looks for nothing but their names.
    preparer: Any = _SinglePercents
    supports_statement_cache = True


PARAMSTYLES = {
    "postgresql": "pyformat",
    "redshift": "format",
    "mysql": "format",
    "sqlite": "qmark",
    "mssql": "pyformat",
    "oracle": "named",
    "snowflake": "pyformat",
    "bigquery": "pyformat",
    "ansi": "format",
}
"""How the drivers of Airflow's own hooks mark parameters."""


def paramstyle_of(hook: Any) -> str | None:
    """Return how a hook's driver marks parameters where that is its connection's choice, else ``None``."""
    if getattr(hook, "conn_type", None) != "mysql":
        return None
    extra = getattr(hook.connection, "extra_dejson", {})
    # MySQL's own connector leaves a doubled percent sign doubled, and with named parameters looks for nothing but their names.
    return "pyformat" if extra.get("client") == "mysql-connector-python" else None


def rendering_of(name: str, paramstyle: str | None = None) -> Dialect:
    """Return the SQLAlchemy dialect that writes statements for a database and a driver that marks parameters so."""
    style: Any = paramstyle or PARAMSTYLES[name]
    classes: dict[str, Any] = {
        "postgresql": postgresql.dialect,
        "redshift": postgresql.base.PGDialect,
        "mysql": mysqlconnector.dialect if style == "pyformat" else mysql.dialect,
        "sqlite": SqliteDialect,
        "mssql": PymssqlDialect if style == "pyformat" else mssql.base.MSDialect,
        "oracle": oracle.dialect,
        "snowflake": SnowflakeDialect,
        "bigquery": BigQueryDialect,
        "ansi": DefaultDialect,
    }
    return classes[name](paramstyle=style)  # type: ignore[no-any-return]


class SqlType(sa.types.UserDefinedType[Any]):
    """A type by the database's own name, for casts. The name comes from this package or from the database, never from a user."""

    cache_ok = True

    def __init__(self, name: str) -> None:
        self.name = name

    def get_col_spec(self, **_: Any) -> str:
        return self.name


def bound(value: Any) -> sa.BindParameter[Any]:
    """Return a parameter without a type, so that no cast is written around it."""
    return sa.bindparam("p", value, unique=True, type_=sa.types.NullType())


def verbatim(text: str) -> sa.TextClause:
    """Return trusted SQL that comes out as it is; a ``:name`` in it is no parameter."""
    return sa.text(text.replace(":", "\\:"))


def call(name: str, *arguments: Any) -> sa.Function[Any]:
    """Return a call of a function by its name as it is; texts and numbers among the arguments become parts of the statement."""
    # Not through sa.func, which knows some names better and gives them types.
    return sa.Function(name, *(constant(each) for each in arguments), type_=sa.types.NullType())


def constant(value: Any) -> Any:
    """Return a constant of this package's own as SQL; expressions are returned as they are."""
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        return value
    if isinstance(value, int):
        return sa.literal_column(str(value))
    return sa.literal_column("'" + value.replace("'", "''") + "'")


def cast(expression: Any, type_name: str) -> sa.Cast[Any]:
    return sa.cast(expression, SqlType(type_name))
