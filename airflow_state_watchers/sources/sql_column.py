"""What kind of values a watermark column has, by the database's name for its type."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """What is to be known of a type: how its values are bound and read, and whether they are times."""

    MOMENT = "a time with its zone"
    NAIVE = "a time without a zone"
    DATE = "a date"
    INTEGER = "an integer"
    NUMBER = "a number"
    FLOAT = "a floating-point number"
    ROWVERSION = "a row version"
    TEXT = "text"

    @property
    def has_clock(self) -> bool:
        return self in (Kind.MOMENT, Kind.NAIVE, Kind.DATE)


_NAMES = {
    Kind.MOMENT: ("timestamp with time zone", "timestamptz", "datetimeoffset", "timestamp_tz", "timestamp_ltz",
                  "timestamp with local time zone"),
    Kind.NAIVE: ("timestamp", "timestamp without time zone", "datetime", "datetime2", "smalldatetime", "timestamp_ntz"),
    Kind.DATE: ("date",),
    Kind.INTEGER: ("int", "integer", "bigint", "smallint", "tinyint", "mediumint", "int2", "int4", "int8", "int64",
                   "bigserial", "serial", "xid8", "byteint", "int unsigned", "bigint unsigned", "smallint unsigned",
                   "mediumint unsigned", "tinyint unsigned", "unsigned big int"),
    Kind.NUMBER: ("numeric", "decimal", "number", "money", "bignumeric", "dec", "fixed"),
    Kind.FLOAT: ("float", "double", "double precision", "real", "float4", "float8", "float64", "binary_double"),
    Kind.ROWVERSION: ("rowversion",),
}  # fmt: skip
_KINDS = {name: kind for kind, names in _NAMES.items() for name in names}
_ELSEWHERE = {
    # One name, another meaning.
    ("mysql", "timestamp"): Kind.MOMENT,  # kept in UTC, shown in the session's zone, which is set to UTC
    ("bigquery", "timestamp"): Kind.MOMENT,
    ("mssql", "timestamp"): Kind.ROWVERSION,
    ("oracle", "date"): Kind.NAIVE,  # has a time of day
}


@dataclass(frozen=True, slots=True)
class Column:
    """A watermark column's type. ``type_name`` is the database's own name, with precision, as it can be written in a cast."""

    type_name: str
    timezone: str | None = None
    database: str = "postgresql"
    separator: str = " "
    """Between date and time, where times are kept as text."""
    is_time: bool = False
    """Whether the column holds text that is a time."""

    @property
    def kind(self) -> Kind:
        """Anything that has no name here is compared as the database compares it, and known as text."""
        name = re.sub(r"\([^)]*\)", "", self.type_name.lower())
        name = re.sub(r"\s+", " ", name).strip()
        if self.is_time:
            return Kind.NAIVE
        return _ELSEWHERE.get((self.database, name)) or _KINDS.get(name, Kind.TEXT)
