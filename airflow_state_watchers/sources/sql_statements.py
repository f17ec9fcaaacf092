"""The statements by which a relation is watched and read, for any database.

All compare in the database. Values are parameters; names are quoted part by part; the author's ``where`` and ``sql`` stand in
them as they are. Rows whose watermark column is NULL are in none of them but :meth:`Statements.nulls`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from airflow_state_watchers.core.cut import Cut, Span
from airflow_state_watchers.sources.sql_column import Column, Kind
from airflow_state_watchers.sources.sql_conditions import (
    aliased,
    before,
    between,
    beyond,
    chosen,
    labelled,
    named_apart,
    source,
    star,
)
from airflow_state_watchers.sources.sql_dialects import Dialect, read_text
from airflow_state_watchers.sources.sql_relation import Relation
from airflow_state_watchers.sources.sql_rendering import bound, call, constant

MOST_FUTURE = 1001
"""Rows of the future are counted no further than this."""

_TEXT = "state_watchers_text"
"""What the text of a value is called: by the column's own name, ORDER BY would mean the text, and 9 would come after 10."""


@dataclass(frozen=True, slots=True)
class Query:
    """A statement and its parameters, as ``cursor.execute(text, parameters)`` takes them.

    Percent signs are doubled where the driver halves them, which most do only if they are given parameters: hand them over even
    if there are none. Where a driver does not halve them then either, they are not doubled.
    """

    text: str
    parameters: Mapping[str, Any] | tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """A row's place in the order of a relation: the exact texts of its watermark value and of its keys."""

    value: str
    keys: tuple[str, ...] = ()


class Statements:
    """The statements for one relation. ``column``: its watermark column; ``keys``: its key columns, types and all, for paging."""

    def __init__(self, relation: Relation, dialect: Dialect, column: Column, keys: Sequence[Column] = ()) -> None:
        self.relation = relation
        self.dialect = dialect
        self.column = column
        self.keys = tuple(keys)
        self._value = self._name(column.name)
        self._from = source(relation, dialect)
        self._chosen = chosen(relation)
        if dialect.name == "postgresql" and column.kind in (Kind.NUMERIC, Kind.FLOAT):
            # Left out as NULL is: PostgreSQL has it after all numbers, and nothing would ever be new behind it.
            self._chosen.append(self._value < sa.literal_column("'NaN'"))

    def nulls(self) -> Query:
        """One row if the watermark column is NULL anywhere, else none."""
        return self._query(self._limited(self._select(constant(1)).where(self._value.is_(None)), 1))

    def greatest(self) -> Query:
        """``(text of the greatest value or NULL, clock)``; the clock is read in the same statement, not before the value."""
        top = self._select(self._text().label(_TEXT)).where(self._value.is_not(None)).order_by(self._value.desc())
        return self._query(sa.select(self._limited(top, 1).scalar_subquery(), self.dialect.clock()))

    def count(self, span: Span, most: int) -> Query:
        """``(rows,)``, counted no further than to ``most``."""
        rows = self._limited(self._select(constant(1).label("n")).where(*self._within(span)), most)
        return self._query(sa.select(sa.func.count()).select_from(rows.subquery("r")))

    def first(self, span: Span, most: int) -> Query:
        """``(rows, least text, greatest text, rows below the greatest)`` of the span's first ``most + 1`` rows."""
        w: Any = sa.column("w")
        smallest = self._select(self._value.label("w")).where(*self._within(span)).order_by(self._value)
        part = self._limited(smallest, most + 1).cte("part")
        text = self.dialect.text_of(w, self.column).label(_TEXT)

        def one(what: Any, order: Any) -> Any:  # rather than MIN and MAX, which PostgreSQL has not for an uuid
            return self._limited(sa.select(what).select_from(part).order_by(order), 1).scalar_subquery()

        below = sa.select(sa.func.count()).select_from(part).where(w < one(w, w.desc())).scalar_subquery()
        return self._query(sa.select(sa.func.count(), one(text, w), one(text, w.desc()), below).select_from(part))

    def is_ahead(self, low: Cut, high: Cut) -> Query:
        """``(1,)`` if ``high`` stands after ``low``, else ``(0,)``."""
        a, b = self._of_column(low.value), self._of_column(high.value)
        ahead = a <= b if high.after and not low.after else a < b
        return self._query(sa.select(sa.case((ahead, constant(1)), else_=constant(0))))

    def meant(self, value: str) -> Query:
        """``(exact text,)`` of what a text means as a value of the column; NULL, or an error, if it means none."""
        return self._query(sa.select(self.dialect.text_of(self.dialect.typed(value, self.column), self.column)))

    def next_after(self, cut: Cut) -> Query:
        """``(text,)`` of the smallest value beyond a cut, or no row."""
        rest = self._select(self._text().label(_TEXT)).where(*self._within(Span(cut, None))).order_by(self._value)
        return self._query(self._limited(rest, 1))

    def beyond(self, cut: Cut, now: Cut | None) -> Query:
        """``(1 if there are rows from cut up to now else 0, rows from now on)``, counted up to :data:`MOST_FUTURE`.

        Without ``now``, for columns that have no clock, no row is of the future.
        """
        recent = self._counted(Span(cut, now), 1)
        return self._query(
            sa.select(recent, constant(0) if now is None else self._counted(Span(now, None), MOST_FUTURE))
        )

    def sums(self, cuts: Sequence[Cut | None]) -> Query:
        """For each stretch between two cuts that has rows: ``(index, rows, sum of checksums)``, in one range scan.

        Where the database has no checksum, instead for each row: ``(index, text of the value, text of each key...)``.
        """
        index = self._index(cuts[1:])
        select = self._select(index.label("i")).where(*self._within(Span(cuts[0], cuts[-1])))
        texts = [self._text(), *(self.dialect.text_of(self._name(key.name), key) for key in self.keys)]
        if not self.dialect.has_checksum:
            return self._query(select.add_columns(*labelled(texts)))
        rows = select.add_columns(self.dialect.checksum(texts).label("h")).subquery("r")
        i: Any = sa.column("i")
        h: Any = sa.column("h")
        return self._query(sa.select(i, sa.func.count(), sa.func.sum(h)).select_from(rows).group_by(i))

    def range(self, span: Span, columns: Sequence[str] = ()) -> Query:
        """A span's rows in order, with these columns or all of them."""
        return self._query(self._columns(columns).where(*self._within(span)).order_by(*self._order()))

    def page(self, span: Span, after: Place | None, limit: int, columns: Sequence[str] = ()) -> Query:
        """The span's next rows after a place: their columns, then the exact texts of value and keys, for the next place.

        The relation has to have keys, and they must tell its rows apart.
        """
        texts = [self._text(), *(self.dialect.text_of(self._name(key.name), key) for key in self.keys)]
        select = self._columns(columns).add_columns(*labelled(texts))
        rest = span if after is None else Span(None, span.high)
        select = select.where(*self._within(rest))
        if after is not None:
            select = select.where(self._after(after))
        return self._query(self._limited(select.order_by(*self._order()), limit))

    def place_of(self, row: Sequence[Any]) -> Place:
        """Return the place of a row that :meth:`page` gave."""
        value, *keys = (read_text(text) for text in row[len(row) - 1 - len(self.keys) :])
        return Place(value, tuple(keys))

    def predicate(self, span: Span, alias: str | None = None) -> Query:
        """The condition alone, ``where`` included, for a statement of the reader's own whose table is called ``alias``."""
        value = self._value
        if alias is not None:
            value = aliased(self._value, alias)
        conditions = [*between(self.dialect, value, self.column, span), *chosen(self.relation)]
        return written(named_apart(sa.and_(*conditions), repr((self.relation, span))), self.dialect)

    def names(self, columns: Sequence[str] = ()) -> Query:
        """No rows, of these columns or all: the driver then describes them, unless one does not exist."""
        return self._query(self._columns(columns).where(constant(1) == constant(0)))

    def example(self) -> Query:
        """``(value,)``, the greatest, as the driver gives it; or no row."""
        top = self._select(self._value).where(self._value.is_not(None)).order_by(self._value.desc())
        return self._query(self._limited(top, 1))

    def _name(self, name: str) -> sa.ColumnClause[Any]:
        return sa.column(self.dialect.quoted(name))

    def _of_column(self, text: str) -> Any:
        """Return a value to be compared with another: texts by the collation of the column, which may not be the database's."""
        if self.dialect.name != "postgresql" or self.column.kind is not Kind.TEXT:
            return self.dialect.typed(text, self.column)
        none = self._select(self._value).where(constant(1) == constant(0)).scalar_subquery()
        return call("coalesce", none, bound(text))

    def _text(self) -> Any:
        return self.dialect.text_of(self._value, self.column)

    def _order(self) -> list[Any]:
        return [self._value, *(self._name(key.name) for key in self.keys)]

    def _select(self, *what: Any) -> sa.Select[Any]:
        return sa.select(*what).select_from(self._from).where(*self._chosen)

    def _columns(self, columns: Sequence[str]) -> sa.Select[Any]:
        if columns:
            return self._select(*(self._name(name) for name in columns))
        return self._select(star(self._from, self.dialect))

    def _within(self, span: Span) -> list[Any]:
        return between(self.dialect, self._value, self.column, span)

    def _after(self, place: Place) -> Any:
        columns = self._order()
        values = [self.dialect.value_of(place.value, self.column)]
        values += [self.dialect.value_of(text, key) for text, key in zip(place.keys, self.keys, strict=True)]
        if self.dialect.has_row_values:
            return sa.tuple_(*columns) > sa.tuple_(*values)
        return beyond(columns, values)

    def _counted(self, span: Span, most: int) -> Any:
        # Ordered, so that a planner takes the index rather than look for the first row of the whole table that fits.
        rows = self._select(constant(1).label("n")).where(*self._within(span)).order_by(self._value)
        return sa.select(sa.func.count()).select_from(self._limited(rows, most).subquery("r")).scalar_subquery()

    def _index(self, highs: Sequence[Cut | None]) -> Any:
        whens = []
        for number, high in enumerate(highs[:-1]):
            assert high is not None
            whens.append((before(self.dialect, self._value, self.column, high), constant(number)))
        last = constant(len(highs) - 1)
        return sa.case(*whens, else_=last) if whens else last

    def _limited(self, select: sa.Select[Any], rows: int) -> sa.Select[Any]:
        return self.dialect.limited(select, rows)

    def _query(self, clause: Any) -> Query:
        return query_of(clause, self.dialect)


def query_of(clause: Any, dialect: Dialect) -> Query:
    """Write a whole statement of SQLAlchemy's for a database and its driver."""
    query = written(clause, dialect)
    if query.parameters or dialect.halves_always or not dialect.rendering.identifier_preparer._double_percents:
        return query
    return Query(query.text.replace("%%", "%"), query.parameters)


def written(clause: Any, dialect: Dialect) -> Query:
    """Write a part of a statement, which may get parameters elsewhere."""
    compiled = clause.compile(dialect=dialect.rendering, compile_kwargs={"render_postcompile": True})
    parameters = compiled.construct_params()
    if compiled.positiontup is not None:
        return Query(str(compiled), tuple(parameters[name] for name in compiled.positiontup))
    return Query(str(compiled), dict(parameters))


def clock_query(dialect: Dialect) -> Query:
    """``(clock,)``, for :func:`~airflow_state_watchers.sources.sql_dialects.read_clock`."""
    return query_of(sa.select(dialect.clock()), dialect)
