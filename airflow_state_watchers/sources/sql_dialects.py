"""What databases do differently, as far as a watcher needs it.

Values stay in the database's own text and precision: :meth:`Dialect.text_of` writes one exactly, :meth:`Dialect.value_of` reads it
back as a value of the column's type, so that an index on the column serves, and both happen in the database.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any, ClassVar

import sqlalchemy as sa
from sqlalchemy import quoted_name

from airflow_state_watchers.sources.sql_column import Column, Kind, kind_of
from airflow_state_watchers.sources.sql_rendering import bound, call, cast, rendering_of


class Dialect:
    """Standard SQL, for databases that nothing more is known of; what others do differently, their subclasses say."""

    name: ClassVar[str] = "ansi"
    has_row_values: ClassVar[bool] = False
    """Whether ``(a, b) > (x, y)`` is a range of an index. Where it is, the longer form may cost a thousand times as much."""
    has_checksum: ClassVar[bool] = False
    folds_upper: ClassVar[bool] = False
    """Whether a name that nobody has quoted is taken in upper case."""
    halves_always: ClassVar[bool] = True
    """Whether the driver halves doubled percent signs also for parameters of which there are none."""
    limits_inline: ClassVar[bool] = True
    text_type: ClassVar[str] = "VARCHAR"
    """What any value is cast to that no other rule is for."""
    casts: ClassVar[dict[Kind, str]] = {
        Kind.TIMESTAMP: "TIMESTAMP WITH TIME ZONE",
        Kind.NAIVE: "TIMESTAMP",
        Kind.DATE: "DATE",
    }
    """What a bound text is cast to in order to be a value."""

    def __init__(self, paramstyle: str | None = None) -> None:
        self.rendering = rendering_of(self.name, paramstyle)

    def quoted(self, name: str) -> quoted_name:
        """Return a name as the database knows it, always in quotes.

        Where names are upper case unless they are quoted, a plain one in lower case is taken so: ``orders`` is ``"ORDERS"``.
        """
        plain = self.folds_upper and re.fullmatch(r"[a-z_][a-z0-9_$]*", name)
        return quoted_name(name.upper() if plain else name, quote=True)

    def table_name(self, parts: Sequence[str]) -> quoted_name:
        """Return a table's name, quoted part by part, as one that is not quoted again."""
        quote = self.rendering.identifier_preparer.quote
        return quoted_name(".".join(quote(self.quoted(part)) for part in parts), quote=False)

    def column(self, name: str, type_name: str, *, is_nullable: bool = True) -> Column:
        return Column(name, type_name, kind_of(self.name, type_name), is_nullable)

    def text_of(self, expression: Any, column: Column) -> Any:
        """Return an expression for the exact text of a column's value."""
        return self.as_text(expression)

    def as_text(self, expression: Any) -> Any:
        return cast(expression, self.text_type)

    def value_of(self, text: str, column: Column) -> Any:
        """Return an expression for the value that a text means, to be compared with the column. The text is a parameter."""
        if target := self.casts.get(column.kind):
            return cast(bound(text), target)
        return bound(python_value(text, column.kind))

    def typed(self, text: str, column: Column) -> Any:
        """Return the same to be compared with another value."""
        return self.value_of(text, column)

    def moment_text(self, moment: datetime, column: Column) -> str:
        """Return the greatest text of the column's type that means no later time. Naive for a column without a zone."""
        if column.kind is Kind.DATE:
            return moment.date().isoformat()
        return moment.isoformat(sep=" ", timespec="microseconds")

    def clock(self) -> Any:
        """Return an expression for the database's time in UTC as text, when the statement has begun or later."""
        return self.as_text(sa.literal_column("CURRENT_TIMESTAMP"))

    def checksum(self, texts: Sequence[Any]) -> Any:
        """Return a row's checksum as an exact number of the database, to be added up. Only if :attr:`has_checksum`."""
        raise NotImplementedError

    def limited(self, select: sa.Select[Any], rows: int) -> sa.Select[Any]:
        return select.limit(sa.literal_column(str(int(rows))) if self.limits_inline else int(rows))

    def joined(self, texts: Sequence[Any]) -> Any:
        """Return several texts as one, apart from each other by a character that is in none of them but by malice."""
        return call("concat_ws", sa.literal_column("'|'"), *texts)


def python_value(text: str, kind: Kind) -> Any:
    """Return a text as what drivers take for a value of that kind."""
    if kind is Kind.INTEGER:
        return int(text)
    if kind is Kind.NUMERIC:
        return Decimal(text)
    return float(text) if kind is Kind.FLOAT else text


def read_text(value: Any) -> str:
    """Return what a driver gave for an exact text: some give a text's bytes."""
    return bytes(value).decode() if isinstance(value, (bytes, bytearray, memoryview)) else str(value)


def read_clock(text: Any) -> datetime:
    """Read what :meth:`Dialect.clock` gave: a time in UTC. Digits beyond microseconds are cut off. Raises ``ValueError``."""
    if isinstance(text, datetime):
        moment = text
    else:
        fits = re.fullmatch(
            r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:[.,](\d{1,6})\d*)?\s*(Z|[+-]\d\d(?::?\d\d)?|(?:Etc/)?UTC|GMT)?",
            read_text(text).strip(),
        )
        if not fits:  # also with the name of a zone, whose time would be taken for one in UTC
            raise ValueError("the database's clock has an unknown form")
        day, time, fraction, zone = fits.groups()
        moment = datetime.fromisoformat(f"{day}T{time}.{(fraction or '').ljust(6, '0')}{_offset(zone)}")
    return moment.replace(tzinfo=timezone.utc) if moment.tzinfo is None else moment.astimezone(timezone.utc)


def _offset(zone: str | None) -> str:
    if not zone or zone[0] not in "+-":
        return "+00:00"
    digits = zone[1:].replace(":", "").ljust(4, "0")
    return f"{zone[0]}{digits[:2]}:{digits[2:]}"


_ALIASES = {
    "postgres": "postgresql",
    "redshift+redshift_connector": "redshift",
    "mariadb": "mysql",
    "sqlite3": "sqlite",
    "sqlserver": "mssql",
    "oracledb": "oracle",
    "gcpbigquery": "bigquery",
    "google_cloud_platform": "bigquery",
}


def dialect_of(name: str, paramstyle: str | None = None) -> Dialect:
    """Return the dialect of a database by Airflow's name for it (a hook's ``dialect_name``, a connection's type).

    ``paramstyle`` is for a driver that marks parameters otherwise than that of Airflow's own hook.
    """
    from airflow_state_watchers.sources import sql_dialects_open, sql_dialects_warehouse

    plain = name.lower().partition("+")[0] if name.lower() not in _ALIASES else name.lower()
    plain = _ALIASES.get(plain, plain)
    for kind in (*sql_dialects_open.DIALECTS, *sql_dialects_warehouse.DIALECTS):
        if kind.name == plain:
            return kind(paramstyle)
    return Dialect(paramstyle)
