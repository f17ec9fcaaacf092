"""What kind of values a column holds, by the name that its database gives to its type."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any


class Kind(Enum):
    """What has to be known of a type to write its values as text, to read them back, and to set a horizon."""

    TIMESTAMP = "timestamp"
    """A point in time, whatever zone it is shown in."""
    NAIVE = "naive"
    """A local time without its zone."""
    DATE = "date"
    INTEGER = "integer"
    NUMERIC = "numeric"
    FLOAT = "float"
    TEXT = "text"
    """Also whatever else the database orders and reads from text: an UUID, an address."""
    ROWVERSION = "rowversion"
    """Eight bytes that the database counts up, as ``0x`` and hexadecimal digits."""


CLOCKS = frozenset({Kind.TIMESTAMP, Kind.NAIVE, Kind.DATE})


@dataclass(frozen=True, slots=True)
class Column:
    """A column and its type. ``type_name`` is the database's own word for it, without length and precision.

    ``separator`` stands between date and time where the database keeps times as text and so compares them as text.
    """

    name: str
    type_name: str = ""
    kind: Kind = Kind.TEXT
    is_nullable: bool = True
    separator: str = " "

    @property
    def has_clock(self) -> bool:
        """Whether its values are times, so that an old value is known by itself."""
        return self.kind in CLOCKS

    @property
    def is_naive(self) -> bool:
        """Whether its values are local times or dates of a zone that the column does not say."""
        return self.kind in (Kind.NAIVE, Kind.DATE)


_KINDS: tuple[tuple[str, Kind], ...] = (
    # Tried in this order; the first pattern that fits the whole name decides.
    (r"timestamp.* with(?: local)? time zone|timestamptz|timestamp_(?:l?tz)|datetimeoffset", Kind.TIMESTAMP),
    (r"timestamp.*|datetime2?|smalldatetime", Kind.NAIVE),
    (r"date", Kind.DATE),
    (r"(?:tiny|small|medium|big)?int(?:eger|2|4|8|64)?(?: unsigned)?|(?:small|big)?serial|byteint", Kind.INTEGER),
    (r"(?:big)?numeric|(?:big)?decimal|number|dec|fixed|(?:small)?money", Kind.NUMERIC),
    (r"float(?:4|8|64)?|real|double(?: precision)?|binary_(?:float|double)", Kind.FLOAT),
)
_EXCEPTIONS: dict[str, dict[str, Kind]] = {
    # What the same word means elsewhere than in standard SQL.
    "mysql": {"timestamp": Kind.TIMESTAMP},
    "bigquery": {"timestamp": Kind.TIMESTAMP},
    "mssql": {"timestamp": Kind.ROWVERSION, "rowversion": Kind.ROWVERSION},
    "oracle": {"date": Kind.NAIVE},
}


def plain_type(type_name: str) -> str:
    """Return a type's name in lower case without length and precision: ``TIMESTAMP(6) WITH TIME ZONE`` has none either."""
    return " ".join(re.sub(r"\([^)]*\)", "", type_name).lower().split())


def kind_of(dialect: str, type_name: str) -> Kind:
    """Return what a type's values are. A type that is not known counts as text, which every database can order."""
    name = plain_type(type_name)
    if kind := _EXCEPTIONS.get(dialect, {}).get(name):
        return kind
    return next((kind for pattern, kind in _KINDS if re.fullmatch(pattern, name)), Kind.TEXT)


def kind_of_value(value: Any) -> tuple[str, Kind]:
    """Return a type's name and kind by a value that the driver gave, where the database does not tell the type."""
    if isinstance(value, datetime):
        return ("timestamp", Kind.NAIVE) if value.tzinfo is None else ("timestamp with time zone", Kind.TIMESTAMP)
    for python, name, kind in (
        (date, "date", Kind.DATE),
        (int, "integer", Kind.INTEGER),
        (Decimal, "numeric", Kind.NUMERIC),
        (float, "float", Kind.FLOAT),
        ((bytes, bytearray), "rowversion", Kind.ROWVERSION),
    ):
        if isinstance(value, python):
            return name, kind
    return "text", Kind.TEXT


_DAY = r"\d{4}-\d\d-\d\d"
_TIME = rf"{_DAY}([T ])\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]00:?00)?"


def sqlite_column(name: str, declared: str, greatest: Any, *, is_nullable: bool) -> Column:
    """Return what a column of SQLite holds, which keeps any type in any column.

    What is stored decides, by the example of the greatest value; the declared type only while there is none. Times are text in
    UTC there, and compared as text: those with another offset have no order by time and count as text.
    """
    column = Column(name, plain_type(declared) or "any", kind_of("sqlite", declared), is_nullable)
    if greatest is None:
        return column
    type_name, separator = column.type_name, " "
    if isinstance(greatest, (int, float)):
        # Only a column that was declared so is taken to hold nothing between two integers.
        integer = Kind.INTEGER if column.kind is Kind.INTEGER else Kind.NUMERIC
        kind = integer if isinstance(greatest, int) else Kind.FLOAT
        # All numbers stand before all texts, so a watermark that was a text has to be told from one that is a number.
        type_name = f"{type_name} of numbers" if column.has_clock or column.kind is Kind.TEXT else type_name
    elif isinstance(greatest, str) and (found := re.fullmatch(_TIME, greatest)):
        kind, separator = Kind.NAIVE, found[1]
    elif isinstance(greatest, str) and re.fullmatch(_DAY, greatest):
        kind = Kind.DATE
    else:
        kind = Kind.TEXT
    is_time = kind in (Kind.NAIVE, Kind.DATE)
    if (is_time or kind is Kind.TEXT) and column.kind in (Kind.INTEGER, Kind.NUMERIC, Kind.FLOAT):
        type_name = f"{type_name} of texts"
    if is_time and column.kind is Kind.TEXT:
        type_name = f"{type_name} of times"
    if kind is Kind.TEXT and column.has_clock:
        # One such text, perhaps "unknown", stands after all times, and nothing would ever be new behind it.
        type_name = f"{type_name} of texts that are no times"
    return Column(name, type_name, kind, is_nullable, separator)
