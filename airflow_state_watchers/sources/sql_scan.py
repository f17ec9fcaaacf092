"""One poll's look at a table, over any database that runs a statement."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, Protocol
from zoneinfo import ZoneInfo

from airflow_state_watchers.core.cut import Cut, Span
from airflow_state_watchers.core.transactions import Openness
from airflow_state_watchers.core.zones import safe_local
from airflow_state_watchers.exceptions import SourceError
from airflow_state_watchers.sources.sql_column import Column, Kind
from airflow_state_watchers.sources.sql_dialects import Dialect
from airflow_state_watchers.sources.sql_statements import Predicate, Statements

FUTURE_COUNTED = 1001
FUTURE = timedelta(seconds=10)
"""Rows with a time so far ahead of the look wait for their time; younger ones were written since."""

Run = Callable[[Predicate], Awaitable[list[tuple[Any, ...]]]]


class Database(Protocol):
    """A database that a watcher asks. Each statement runs in a read-only transaction of its own."""

    dialect: Dialect

    async def openness(self) -> tuple[Openness, str | None]:
        """Look at the clock and at the open transactions; also return what people should know."""

    async def run(self, query: Predicate) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows. Raises the driver's errors."""

    async def aclose(self) -> None: ...


@dataclass(frozen=True, slots=True)
class SqlPart:
    high: Cut
    count: int
    is_ahead: bool


@dataclass(frozen=True, slots=True)
class SqlBeyond:
    recent: bool
    future: int


class SqlScan:
    """See :class:`~airflow_state_watchers.ports.RowScan`."""

    def __init__(
        self, run: Run, statements: Statements, dialect: Dialect, column: Column, opened: Openness, note: str | None
    ) -> None:
        self._run, self._statements, self._dialect, self._column = run, statements, dialect, column
        self.opened, self.note = opened, note
        self.column = column.type_name
        self.has_clock = column.kind.has_clock

    def at(self, moment: datetime) -> Cut:
        if self._column.kind is Kind.MOMENT:
            return Cut(self._dialect.moment(moment, self._column))
        local = safe_local(moment, ZoneInfo(self._column.timezone or "UTC"))
        return Cut(self._dialect.moment(local, self._column))

    async def greatest(self) -> tuple[Cut | None, datetime]:
        ((value, now),) = await self._run(self._statements.greatest())
        return (None if value is None else self._after(_text(value))), utc(now)

    def _after(self, value: str) -> Cut:
        """Return the cut after a value; for integers that is before the next one, so that windows are ``[low, high)``."""
        return Cut(str(int(value) + 1)) if self._column.kind is Kind.INTEGER else Cut(value, after=True)

    async def begin(self, span: Span, *, most: int | None) -> SqlPart:
        assert span.high is not None
        if most is None:
            ((count, ahead),) = await self._run(self._statements.count(span))
            return SqlPart(span.high, int(count) if int(ahead) else 0, bool(int(ahead)))
        ((count, least, greatest, ahead),) = await self._run(self._statements.first(span, most))
        if not int(ahead):
            return SqlPart(span.high, 0, False)
        if int(count) <= most:
            return SqlPart(span.high, int(count), True)
        end = Cut(_text(greatest))
        if _text(least) == _text(greatest):  # one tie of more rows than that: it ends where the next value stands
            ((following,),) = await self._run(self._statements.next_after(Cut(end.value, after=True), span.high))
            end = span.high if following is None else Cut(_text(following))
        ((count, _),) = await self._run(self._statements.count(Span(span.low, end)))
        return SqlPart(end, int(count), True)

    async def beyond(self, cut: Cut) -> SqlBeyond:
        future = self.at(self.opened.now + FUTURE) if self.has_clock else None
        ((recent, ahead),) = await self._run(self._statements.beyond(cut, future, FUTURE_COUNTED))
        return SqlBeyond(bool(int(recent)), int(ahead))

    async def sums(self, cuts: Sequence[Cut | None]) -> list[tuple[int, int]]:
        found = [(0, 0)] * (len(cuts) - 1)
        query = self._statements.sums(cuts)
        if query is not None:
            for part, count, checksum in await self._run(query):
                found[int(part)] = (int(count), int(checksum) % 2**64)
            return found
        for part, *marks in await self._run(self._statements.marks(cuts)):
            digest = hashlib.blake2b(repr(marks).encode(), digest_size=8).digest()
            count, checksum = found[int(part)]
            found[int(part)] = (count + 1, (checksum + int.from_bytes(digest, "big")) % 2**64)
        return found

    async def rows(self, span: Span) -> list[dict[str, Any]]:
        names = self._statements.names
        if not names:
            raise SourceError('payload="rows" needs columns=[...]: the names of what an event carries')
        return [
            dict(zip(names, map(plain, row), strict=True)) for row in await self._run(self._statements.stream(span))
        ]


def _text(value: Any) -> str:
    """Return a driver's value as the text that the database takes again."""
    return value if isinstance(value, str) else str(value)


def utc(value: Any) -> datetime:
    """Return the database's clock, given in UTC, as text or as a driver gives it."""
    if isinstance(value, bytes):
        value = value.decode()
    if isinstance(value, str):
        head, _, fraction = value.replace("T", " ").removesuffix("+00:00").removesuffix("+00").partition(".")
        value = datetime.strptime(f"{head}.{(fraction or '0')[:6]}", "%Y-%m-%d %H:%M:%S.%f")  # noqa: DTZ007
    aware: datetime = value if value.tzinfo else value.replace(tzinfo=timezone.utc)
    return aware.astimezone(timezone.utc)


def plain(value: Any) -> Any:
    """Return a value as an event can carry it: exact numbers and times as text, bytes in hex."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**63 else str(value)
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else str(value)
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).hex()
    if isinstance(value, dict):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    return str(value) if isinstance(value, Decimal) else f"{value}"
