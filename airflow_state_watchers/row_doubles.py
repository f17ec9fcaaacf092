"""A table in memory, with transactions. Public through :mod:`airflow_state_watchers.testing`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from itertools import count, pairwise
from typing import Any

from airflow_state_watchers.core.cut import Cut, Span
from airflow_state_watchers.core.position import identity_of
from airflow_state_watchers.core.transactions import Openness, Transaction
from airflow_state_watchers.doubles import FrozenClock
from airflow_state_watchers.exceptions import CheckpointError
from airflow_state_watchers.ports import Clock

_FUTURE = 1000


@dataclass
class InMemoryTransaction:
    """An open transaction: what is put in it is seen once it is committed, stamped when it was put."""

    table: InMemoryTable
    key: str
    since: datetime
    puts: dict[str, Any] = field(default_factory=dict)
    is_prepared: bool = False

    def put(self, key: str, value: Any = None) -> Any:
        """Insert or update a row. Its value is the next of the sequence, or the beginning of this transaction (SQL's now())."""
        if value is None:
            value = next(self.table.sequence) if self.table.is_sequence else self.since
        self.puts[key] = value
        return value

    def prepare(self) -> None:
        """Prepare it: from now on it belongs to no session, has another key, and nobody can tell when it began."""
        self.is_prepared, self.key = True, f"prepared {self.key}"

    def commit(self) -> None:
        self.table.values.update(self.puts)
        self.rollback()

    def rollback(self) -> None:
        self.table.open_transactions.remove(self)


class InMemoryTable:
    """A table with a key and a watermark column: set it as a :class:`SqlUpdatedAtTrigger`'s ``source``.

    ``is_sequence``: the column holds numbers and no times. ``exact = False`` makes it a database that does not show its open
    transactions. ``error`` is raised by the next polls for as long as it is set.
    """

    def __init__(self, clock: Clock | None = None, *, is_sequence: bool = False) -> None:
        self.clock: Any = clock or FrozenClock()
        self.is_sequence = is_sequence
        self.exact = True
        self.error: Exception | None = None
        self.column = "bigint" if is_sequence else "timestamp with time zone"
        self.values: dict[str, Any] = {}
        self.open_transactions: list[InMemoryTransaction] = []
        self.sequence = count(1)
        self._keys = count(1)

    def begin(self) -> InMemoryTransaction:
        transaction = InMemoryTransaction(self, f"transaction {next(self._keys)}", self.clock.now())
        self.open_transactions.append(transaction)
        return transaction

    def put(self, key: str, value: Any = None) -> Any:
        """Insert or update a row in a transaction of its own."""
        transaction = self.begin()
        value = transaction.put(key, value)
        transaction.commit()
        return value

    def delete(self, key: str) -> None:
        self.values.pop(key, None)

    def read(self, low: str | None, high: str | None, bounds: str = "[)") -> dict[str, Any]:
        """Return the rows of an event's window as they are now, by key."""
        span = Span(
            None if low is None else Cut(low, after=bounds[0] == "("),
            None if high is None else Cut(high, after=bounds[1] == "]"),
        )
        return {key: value for key, value in self.values.items() if self._within(value, span)}

    def fields(self) -> dict[str, Any]:
        return {"kind": "memory"}

    async def open(self) -> InMemoryRowScan:
        if self.error is not None:
            raise self.error
        found = tuple(
            Transaction(each.key, None if each.is_prepared else each.since, each.key) for each in self.open_transactions
        )
        return InMemoryRowScan(self, Openness(self.clock.now(), self.exact, found if self.exact else ()))

    async def aclose(self) -> None:
        """Nothing to release."""

    @property
    def parse(self) -> Callable[[str], Any]:
        return int if self.is_sequence else datetime.fromisoformat

    def text(self, value: Any) -> str:
        return str(value) if self.is_sequence else value.astimezone(timezone.utc).isoformat()

    def _within(self, value: Any, span: Span) -> bool:
        return (span.low is None or not self._before(value, span.low)) and (
            span.high is None or self._before(value, span.high)
        )

    def _before(self, value: Any, cut: Cut) -> bool:
        place = self.parse(cut.value)
        return bool(value <= place if cut.after else value < place)


@dataclass(frozen=True)
class InMemoryPart:
    high: Cut
    count: int
    is_ahead: bool


@dataclass(frozen=True)
class InMemoryBeyond:
    recent: bool
    future: int


class InMemoryRowScan:
    """One look at an :class:`InMemoryTable`; each method sees what is committed when it is called."""

    note: str | None = None

    def __init__(self, table: InMemoryTable, opened: Openness) -> None:
        self._table, self.opened = table, opened
        self.column = table.column
        self.has_clock = not table.is_sequence

    def at(self, moment: datetime) -> Cut:
        return Cut(self._table.text(moment))

    async def placed(self, cut: Cut) -> Cut:
        try:
            return Cut(self._table.text(self._table.parse(cut.value)), cut.after)
        except ValueError:
            raise CheckpointError(f"{cut.value!r} is no value of the column") from None

    async def greatest(self) -> tuple[Cut | None, datetime]:
        value = max(self._table.values.values(), default=None)
        return (None if value is None else Cut(str(value + 1))), self._table.clock.now()

    async def begin(self, span: Span, *, most: int | None) -> InMemoryPart:
        assert span.high is not None
        if span.low is not None and not self._ahead(span.low, span.high):
            return InMemoryPart(span.high, 0, False)
        values = sorted(self._values(span))
        if most is None or len(values) <= most:
            return InMemoryPart(span.high, len(values), True)
        end = values[most]
        if end == values[0]:
            later = [value for value in values if value > end]
            if not later:
                return InMemoryPart(span.high, len(values), True)
            end = later[0]
        return InMemoryPart(Cut(self._table.text(end)), sum(value < end for value in values), True)

    async def beyond(self, cut: Cut) -> InMemoryBeyond:
        values = list(self._values(Span(cut, None)))
        if self._table.is_sequence:
            return InMemoryBeyond(bool(values), 0)
        future = sum(value > self.opened.now for value in values)
        return InMemoryBeyond(len(values) > future, min(future, _FUTURE))

    async def sums(self, cuts: Sequence[Cut | None]) -> list[tuple[int, int]]:
        found = []
        for low, high in pairwise(cuts):
            rows = [row for row in self._table.values.items() if self._table._within(row[1], Span(low, high))]
            digests = [int.from_bytes(identity_of(key, str(value))[:8], "big") for key, value in rows]
            found.append((len(rows), sum(digests) % 2**64))
        return found

    async def rows(self, span: Span) -> list[dict[str, Any]]:
        found = [(value, key) for key, value in self._table.values.items() if self._table._within(value, span)]
        return [{"id": key, "updated_at": self._table.text(value)} for value, key in sorted(found)]

    def _values(self, span: Span) -> Sequence[Any]:
        return [value for value in self._table.values.values() if self._table._within(value, span)]

    def _ahead(self, low: Cut, high: Cut) -> bool:
        first, last = self._table.parse(low.value), self._table.parse(high.value)
        return bool((first, low.after) < (last, high.after))
