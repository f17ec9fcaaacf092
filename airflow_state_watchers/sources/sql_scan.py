"""One poll's look at a table, over any database that runs a statement."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, Protocol
from zoneinfo import ZoneInfo

from airflow_state_watchers.core.cut import Cut, Span
from airflow_state_watchers.core.transactions import Openness
from airflow_state_watchers.core.zones import safe_local
from airflow_state_watchers.exceptions import (
    CheckpointError,
    SourceDenied,
    SourceError,
    SourceMissing,
    SourceUnavailable,
)
from airflow_state_watchers.sources.sql_column import Kind
from airflow_state_watchers.sources.sql_dialects import Dialect, read_clock, read_text
from airflow_state_watchers.sources.sql_statements import Query, Statements

FUTURE = timedelta(seconds=10)
"""Rows with a time so far ahead of the look wait for their time; younger ones were written since."""

MOST_ROWS = 5_000_000
"""Rows of a part, and of a window: to count more takes longer than a statement may, however often it is tried."""

_TOO_LARGE = {2**bits for whole in (8, 16, 24, 32, 64) for bits in (whole - 1, whole)}
"""What follows the greatest value of an integer type: no parameter of that type."""

Run = Callable[[Query], Awaitable[list[tuple[Any, ...]]]]


class Database(Protocol):
    """A database that a watcher asks. Each statement runs in a read-only transaction of its own."""

    dialect: Dialect

    async def openness(self) -> tuple[Openness, str | None]:
        """Look at the clock and at the open transactions; also return what people should know."""

    async def run(self, query: Query) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows. Raises the driver's errors."""

    async def names(self, query: Query) -> tuple[str, ...]:
        """Run a statement and return the names of its columns. Raises the driver's errors."""

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
    """See :class:`~airflow_state_watchers.ports.RowScan`. ``names`` are the columns of the rows that an event carries."""

    def __init__(
        self,
        run: Run,
        statements: Statements,
        zone: ZoneInfo,
        opened: Openness,
        note: str | None,
        names: Sequence[str] = (),
    ) -> None:
        self._run, self._statements, self._zone, self._names = run, statements, zone, names
        self.opened, self.note = opened, note
        self.column = statements.column.type_name
        self.has_clock = statements.column.has_clock

    def at(self, moment: datetime) -> Cut:
        column, dialect = self._statements.column, self._statements.dialect
        if not column.is_naive:
            return Cut(dialect.moment_text(moment.astimezone(timezone.utc), column))
        return Cut(dialect.moment_text(safe_local(moment, self._zone), column))

    async def placed(self, cut: Cut) -> Cut:
        column, dialect = self._statements.column, self._statements.dialect
        moment = _moment(cut.value) if self.has_clock else None
        if moment is not None and moment.tzinfo is not None:
            return replace(self.at(moment), after=cut.after)
        if moment is not None and dialect.name == "sqlite":
            # It compares times as texts, so they have to be written alike.
            fraction = f".{moment.microsecond:06}".rstrip(".0") if column.kind is not Kind.DATE else ""
            return Cut(dialect.moment_text(moment, column) + fraction, cut.after)
        try:
            ((text,),) = await self._run(self._statements.meant(cut.value))
        except (SourceError, ValueError) as error:
            if isinstance(error, (SourceDenied, SourceMissing, SourceUnavailable)):
                raise
            text = None
        if text is None:
            raise CheckpointError(
                f"{self._statements.relation.label}: {cut.value!r} is no value of {column.name}, which is {column.type_name}. "
                "Correct initial_value, or the watermark that was written by hand"
            )
        return Cut(read_text(text), cut.after)

    async def greatest(self) -> tuple[Cut | None, datetime]:
        ((value, now),) = await self._run(self._statements.greatest())
        return (None if value is None else self._after(read_text(value))), read_clock(now)

    def _after(self, value: str) -> Cut:
        """Return the cut after a value; for integers that is before the next one, so that windows are ``[low, high)``."""
        if self._statements.column.kind is Kind.INTEGER:
            following = int(value) + 1
            if following not in _TOO_LARGE:
                return Cut(str(following))
        return Cut(value, after=True)

    async def begin(self, span: Span, *, most: int | None) -> SqlPart:
        high = span.high
        assert high is not None
        if most is None:
            ((count,),) = await self._run(self._statements.count(span, MOST_ROWS + 1))
            if int(count) <= MOST_ROWS:
                return SqlPart(high, int(count), bool(count) or await self.is_ahead(span.low, high))
            most = MOST_ROWS
        ((count, least, greatest, below),) = await self._run(self._statements.first(span, most))
        if int(count) <= most:
            return SqlPart(high, int(count), bool(count) or await self.is_ahead(span.low, high))
        if int(below):
            return SqlPart(Cut(read_text(greatest)), int(below), True)
        # One tie of more rows than that: it ends where the next value stands.
        following = await self._run(self._statements.next_after(Cut(read_text(least), after=True)))
        end = Cut(read_text(following[0][0])) if following else high
        end = end if await self.is_ahead(end, high) else high
        ((count,),) = await self._run(self._statements.count(Span(span.low, end), MOST_ROWS))
        return SqlPart(end, int(count), True)

    async def is_ahead(self, low: Cut | None, high: Cut) -> bool:
        if low is None:
            return True
        ((ahead,),) = await self._run(self._statements.is_ahead(low, high))
        return bool(int(ahead))

    async def beyond(self, cut: Cut) -> SqlBeyond:
        future = self.at(self.opened.now + FUTURE) if self.has_clock else None
        ((recent, ahead),) = await self._run(self._statements.beyond(cut, future))
        return SqlBeyond(bool(int(recent)), int(ahead))

    async def sums(self, cuts: Sequence[Cut | None]) -> list[tuple[int, int]]:
        found = [(0, 0)] * (len(cuts) - 1)
        rows = await self._run(self._statements.sums(cuts))
        if self._statements.dialect.has_checksum:
            for part, count, checksum in rows:
                found[int(part)] = (int(count), int(checksum) % 2**64)
            return found
        for part, *marks in rows:
            digest = hashlib.blake2b(repr(marks).encode(), digest_size=8).digest()
            count, checksum = found[int(part)]
            found[int(part)] = (count + 1, (checksum + int.from_bytes(digest, "big")) % 2**64)
        return found

    async def rows(self, span: Span) -> list[dict[str, Any]]:
        query = self._statements.range(span, self._names)
        return [dict(zip(self._names, map(plain, row), strict=True)) for row in await self._run(query)]


def _moment(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None


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
