"""PostgreSQL's times that Python has not: ``infinity``, years before 1 and after 9999, the hour 24."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

_TIMES = ("date", "timestamp", "timestamptz", "time", "timetz")

Beyond: TypeAlias = Callable[[str, str, Exception], Any]
"""Given a type's name, a value's text and the driver's error: return what stands for the value, or raise."""


def read_texts(connection: Any) -> None:
    """Let the text stand for a value that Python has not, and for an interval: a month is no number of days."""
    from psycopg.types.string import TextLoader

    read_beyond(connection, lambda type_name, text, error: text)
    connection.adapters.register_loader("interval", TextLoader)


def read_beyond(connection: Any, beyond: Beyond) -> None:
    """Let a connection of psycopg's ask ``beyond`` about the times at which it would raise.

    One such value, perhaps in a column that nobody needs, would keep all rows beside it from being read.
    """
    from psycopg.adapt import Loader
    from psycopg.errors import DataError
    from psycopg.pq import Format

    def loader(name: str) -> type[Loader]:
        inner = connection.adapters.get_loader(connection.adapters.types[name].oid, Format.TEXT)

        class BeyondLoader(Loader):
            def __init__(self, oid: int, context: Any = None) -> None:
                super().__init__(oid, context)
                self._load = inner(oid, context).load

            def load(self, data: Any) -> Any:
                try:
                    return self._load(data)
                except DataError as error:
                    return beyond(name, bytes(data).decode(), error)

        return BeyondLoader

    for name in _TIMES:
        connection.adapters.register_loader(name, loader(name))
