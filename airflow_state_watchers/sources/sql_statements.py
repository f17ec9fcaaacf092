"""The statements that a SQL watcher and the readers of its windows run, built with SQLAlchemy.

Identifiers are quoted and values bound, in each database's own way (:mod:`~airflow_state_watchers.sources.sql_dialects`).
What the DAG's author wrote (``where``, ``sql``) goes into the text as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import and_, bindparam, case, column, func, literal_column, or_, select, table, text, true, tuple_
from sqlalchemy.sql.elements import quoted_name
from sqlalchemy.types import NullType

from airflow_state_watchers.core.cut import Cut, Span
from airflow_state_watchers.sources.sql_column import Column
from airflow_state_watchers.sources.sql_dialects import Dialect
from airflow_state_watchers.sources.sql_relation import Relation


@dataclass(frozen=True, slots=True)
class Predicate:
    """SQL text and its parameters, in the paramstyle of the connection's driver."""

    sql: str
    parameters: Mapping[str, Any] | Sequence[Any]


class Statements:
    """What is asked of one relation, in one database's dialect."""

    def __init__(self, relation: Relation, dialect: Dialect, watermark: Column) -> None:
        self._relation, self._dialect, self._watermark = relation, dialect, watermark
        names = dict.fromkeys((relation.watermark_column, *relation.key_columns, *relation.columns))
        self._from = dialect.source(relation, [_named(name) for name in names])
        self._w = self._from.c[relation.watermark_column]
        self._keys = [self._from.c[name] for name in relation.key_columns]

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that readers get; empty: all."""
        return self._relation.columns

    # Windows

    def count(self, span: Span) -> Predicate:
        """One row: how many rows a span has, and whether its end stands after its beginning (1 or 0)."""
        return self._render(select(func.count(), self._ahead(span)).select_from(self._from).where(self._within(span)))

    def first(self, span: Span, most: int) -> Predicate:
        """One row: of the first ``most + 1`` rows their number, least and greatest value; and whether the span is ahead."""
        value = self._w.label("w")
        inner = select(value).where(self._within(span)).order_by(self._w)
        part = self._dialect.limited(inner, most + 1).subquery("s")
        least, greatest = self._text(func.min(part.c.w)), self._text(func.max(part.c.w))
        return self._render(select(func.count(), least, greatest, self._ahead(span)).select_from(part))

    def next_after(self, low: Cut, high: Cut) -> Predicate:
        """One row: the least value of a span."""
        return self._render(select(self._text(func.min(self._w))).where(self._within(Span(low, high))))

    def greatest(self) -> Predicate:
        """One row: the greatest value, and the database's clock once it was read."""
        inner = select(self._text(func.max(self._w))).where(self._chosen()).scalar_subquery()
        return self._render(select(inner, self._dialect.clock()))

    def beyond(self, cut: Cut, future: Cut | None, most: int) -> Predicate:
        """One row: how many rows (1 at most) stand between the two cuts, and how many (``most`` at most) after the second."""
        recent = self._counted(Span(cut, future), 1)
        ahead = literal_column("0") if future is None else self._counted(Span(future, None), most)
        return self._render(select(recent, ahead))

    def nulls(self) -> Predicate:
        """One row: how many rows (1 at most) have no value."""
        inner: Any = select(literal_column("1").label("n")).select_from(self._from)
        inner = inner.where(and_(self._w.is_(None), self._where()))
        part = self._dialect.limited(inner, 1).subquery("s")
        return self._render(select(func.count()).select_from(part))

    def sums(self, cuts: Sequence[Cut | None]) -> Predicate | None:
        """A row for each part between two cuts that has rows: its number, row count and checksum; ``None``: no such function."""
        checksum = self._dialect.checksum([self._text(self._w), *(self._dialect.key_text(key) for key in self._keys)])
        if checksum is None:
            return None
        inner = select(self._part(cuts).label("p"), checksum.label("c")).where(self._within(Span(cuts[0], cuts[-1])))
        part = inner.subquery("s")
        total = self._dialect.total(part.c.c)
        return self._render(select(part.c.p, func.count(), total).group_by(part.c.p))

    def marks(self, cuts: Sequence[Cut | None]) -> Predicate:
        """For a database without a checksum: part, value and keys of each row."""
        columns = [
            self._part(cuts).label("p"),
            self._text(self._w),
            *(self._dialect.key_text(key) for key in self._keys),
        ]
        return self._render(select(*columns).where(self._within(Span(cuts[0], cuts[-1]))))

    # Rows

    def page(self, span: Span, after: Sequence[Any] | None, limit: int) -> Predicate:
        """The first ``limit`` rows of a span after (value, keys): its columns, and then the value's text and the keys again."""
        place = [self._text(self._w).label("w_"), *(key.label(f"k_{n}") for n, key in enumerate(self._keys))]
        query = select(*self._columns(), *place).select_from(self._from).where(self._within(span))
        if after is not None:
            query = query.where(self._after(after))
        return self._render(self._dialect.limited(query.order_by(self._w, *self._keys), limit))

    def stream(self, span: Span) -> Predicate:
        """All rows of a span, in order."""
        query = select(*self._columns()).select_from(self._from).where(self._within(span))
        return self._render(query.order_by(self._w, *self._keys))

    def tiles(self, span: Span, n: int) -> Predicate:
        """Rows of one value each, in order: the first of each of ``n`` tiles with about equally many rows; only different ones."""
        tile = func.ntile(literal_column(str(int(n)))).over(order_by=self._w).label("t")
        inner = select(self._w.label("v"), tile).where(self._within(span)).subquery("a")
        firsts = select(func.min(inner.c.v).label("v")).group_by(inner.c.t).subquery("b")
        different = select(firsts.c.v).distinct().subquery("c")
        return self._render(select(self._text(different.c.v)).order_by(different.c.v))

    def predicate(self, span: Span, alias: str | None = None) -> Predicate:
        """The condition alone, for a statement that calls the table ``alias``."""
        w = _named(self._relation.watermark_column)
        if alias is not None:
            w = table(quoted_name(alias, False), column(w.name)).c[w.name]
        return self._render(self._bounded(w, span) if span.low or span.high else w.is_not(None), self._where())

    def sample(self, *, greatest: bool = False) -> Predicate:
        """A value of the watermark column, as the driver gives it; no row if there is none."""
        query = select(self._w).where(self._w.is_not(None))
        return self._render(self._dialect.limited(query.order_by(self._w.desc()) if greatest else query, 1))

    def types(self) -> Predicate:
        """One row: the name of the watermark column's type, where the database has a function that tells it."""
        empty = self._dialect.limited(select(self._w).where(text("1 = 0")), 1).scalar_subquery()
        return self._render(select(self._dialect.type_of(empty)))

    def explain(self, span: Span) -> Predicate:
        """The plan of a poll."""
        query = self._render(self._dialect.limited(select(self._w).where(self._within(span)).order_by(self._w), 1000))
        return Predicate(self._dialect.explain_prefix + query.sql, query.parameters)

    # Parts

    def _render(self, *parts: Any) -> Predicate:
        sql, parameters = self._dialect.render(and_(*parts) if len(parts) > 1 else parts[0])
        return Predicate(sql, parameters)

    def _columns(self) -> list[Any]:
        wanted = self._relation.columns
        return [self._from.c[name] for name in wanted] if wanted else [self._dialect.everything(self._from)]

    def _text(self, value: Any) -> Any:
        return self._dialect.text_of(value, self._watermark)

    def _value(self, cut: Cut) -> Any:
        return self._dialect.value_of(cut.value, self._watermark)

    def _where(self) -> Any:
        return true() if self._relation.where is None else self._dialect.trusted(f"({self._relation.where})")

    def _chosen(self) -> Any:
        return self._where() if self._relation.where is not None else self._w.is_not(None)

    def _within(self, span: Span) -> Any:
        bounds = self._bounded(self._w, span) if span.low or span.high else self._w.is_not(None)
        return bounds if self._relation.where is None else and_(bounds, self._where())

    def _bounded(self, w: Any, span: Span) -> Any:
        parts = []
        if span.low is not None:
            low = self._value(span.low)
            parts.append(w > low if span.low.after else w >= low)
        if span.high is not None:
            parts.append(self._before(w, span.high))
        return and_(*parts)

    def _before(self, w: Any, cut: Cut) -> Any:
        return w <= self._value(cut) if cut.after else w < self._value(cut)

    def _ahead(self, span: Span) -> Any:
        if span.low is None or span.high is None:
            return literal_column("1")
        low, high = (self._dialect.typed_value_of(cut.value, self._watermark) for cut in (span.low, span.high))
        is_ahead = low <= high if span.high.after and not span.low.after else low < high
        return case((is_ahead, literal_column("1")), else_=literal_column("0"))

    def _counted(self, span: Span, most: int) -> Any:
        inner: Any = select(literal_column("1").label("n")).select_from(self._from).where(self._within(span))
        part = self._dialect.limited(inner, most).subquery()
        return select(func.count()).select_from(part).scalar_subquery()

    def _part(self, cuts: Sequence[Cut | None]) -> Any:
        whens: list[Any] = [
            (self._before(self._w, cut), literal_column(str(number))) for number, cut in enumerate(cuts[1:-1]) if cut
        ]
        last: Any = literal_column(str(max(len(cuts) - 2, 0)))
        return case(*whens, else_=last) if whens else last

    def _after(self, after: Sequence[Any]) -> Any:
        """What follows a row. As row values where the database reads them from its index, else spelt out."""
        columns = [self._w, *self._keys]
        bound = [self._value(Cut(after[0])), *(bindparam(None, key, type_=NullType()) for key in after[1:])]
        if self._dialect.row_values:
            return tuple_(*columns) > tuple_(*bound)
        steps = []
        for number, (left, right) in enumerate(zip(columns, bound, strict=True)):
            same = [one == other for one, other in zip(columns[:number], bound[:number], strict=True)]
            steps.append(and_(*same, left > right))
        return and_(columns[0] >= bound[0], or_(*steps))


def _named(name: str) -> Any:
    return column(quoted_name(name, True), NullType())
