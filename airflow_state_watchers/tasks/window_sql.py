"""The statements that read a window, in the words of its database.

Built with SQLAlchemy: identifiers are quoted by its dialect, values are bound, in the paramstyle of the Airflow hook. Values go
back to the database as the text that came from it, and are compared there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeAlias

import sqlalchemy as sa
from sqlalchemy.dialects import registry
from sqlalchemy.engine.interfaces import Dialect

from airflow_state_watchers.core.cut import Cut, Span
from airflow_state_watchers.sources.sql_relation import Relation

Place: TypeAlias = tuple[Any, ...]
"""Where a row stands: its value of the watermark column, then of the key columns."""

_STYLES = {"%s": "format", "?": "qmark"}
_TEXT_ON = ("postgresql",)
_ROW_VALUES = ("postgresql", "sqlite")


@dataclass(frozen=True, slots=True)
class Predicate:
    """A condition, or a whole statement: its text, and the parameters to run it with.

    By position; by name where the driver takes only that.
    """

    sql: str
    parameters: tuple[Any, ...] | dict[str, Any]


def dialect_of(name: str, placeholder: str) -> Dialect:
    """Return SQLAlchemy's dialect for a database, with the paramstyle that the hook's driver takes."""
    dialect: Dialect = registry.load(name)(paramstyle=_STYLES.get(placeholder, "named"))
    return dialect


class Statements:
    """``column_type`` is the database's name for the type of the watermark column, or ``None``."""

    def __init__(self, relation: Relation, dialect: Dialect, column_type: str | None) -> None:
        self._relation = relation
        self._dialect = dialect
        self._type = (column_type or "").lower()
        self._text = dialect.name in _TEXT_ON
        names = dict.fromkeys((relation.watermark_column, *relation.key_columns, *relation.columns))
        self._from = _from(relation, dialect, [sa.column(name) for name in names])
        self._order = [self._from.c[name] for name in (relation.watermark_column, *relation.key_columns)]

    def predicate(self, span: Span, alias: str | None) -> Predicate:
        """Return what is true of the rows of a span; ``alias`` is SQL text."""
        column: Any = sa.column(self._relation.watermark_column)
        if alias:
            column = sa.table(sa.quoted_name(alias, quote=False), column).c[column.name]
        found = self._compiled(sa.and_(*self._within(column, span)))
        if found.parameters:
            return found
        # Without parameters a hook passes none on, and the driver would not read a "%%" as "%".
        return self._compiled(sa.and_(*self._within(column, span), _bound(1) == sa.literal_column("1")))

    def stream(self, span: Span) -> Predicate:
        """Return the statement that reads all rows of a span, in the order of their values."""
        return self._compiled(self._select(span, self._columns()).order_by(self._order[0]))

    def page(self, span: Span, after: Place | None, limit: int) -> Predicate:
        """Return the statement that reads up to ``limit`` rows after a place; each ends with its own :data:`Place`."""
        place = [sa.cast(each, sa.Text) if self._text else each for each in self._order]
        labelled = [each.label(f"state_watchers_{number}") for number, each in enumerate(place)]
        query = self._select(span, [*self._columns(), *labelled])
        if after is not None:
            query = query.where(self._follows(after))
        return self._compiled(query.order_by(*self._order).limit(limit))

    def null_keys(self, span: Span, place: Place) -> Predicate:
        """Return the statement that finds a row with the same value as at ``place``, and a key that is NULL."""
        first, *keys = self._order
        tied = self._select(span, [sa.literal_column("1").label("found")]).where(first == _bound(place[0]))
        return self._compiled(tied.where(sa.or_(*(key.is_(None) for key in keys))).limit(1))

    def tiles(self, span: Span, n: int) -> Predicate:
        """Return the statement that cuts a span into ``n`` of equally many rows, and reads the least value of each."""
        numbered = self._select(
            span, [self._order[0].label("v"), sa.func.ntile(n).over(order_by=self._order[0]).label("n")]
        )
        rows = numbered.subquery("numbered")
        least = sa.select(sa.func.min(rows.c.v).label("v")).group_by(rows.c.n).subquery("least")
        values = sa.select(least.c.v).distinct().subquery("tiles")
        shown = sa.cast(values.c.v, sa.Text) if self._text else values.c.v
        return self._compiled(sa.select(shown.label("t")).order_by(values.c.v))

    def _select(self, span: Span, columns: Sequence[Any]) -> sa.Select[Any]:
        return sa.select(*columns).select_from(self._from).where(*self._within(self._order[0], span))

    def _columns(self) -> list[Any]:
        names = self._relation.columns
        return [self._from.c[name] for name in names] or [sa.literal_column("t.*")]

    def _within(self, column: Any, span: Span) -> list[Any]:
        found = []
        if span.low is not None:
            value = self._value(span.low)
            found.append(column > value if span.low.after else column >= value)
        if span.high is not None:
            value = self._value(span.high)
            found.append(column <= value if span.high.after else column < value)
        if self._relation.where is not None:
            found.append(sa.literal_column(f"({_ended(self._relation.where)})"))
        return found if span.low or span.high else [column.is_not(None), *found]

    def _value(self, cut: Cut) -> Any:
        """Bind a value. PostgreSQL reads its text as the column's type; elsewhere text is no number, or an inexact one."""
        if not self._text and "int" in self._type:
            return _bound(int(cut.value))
        if (
            not self._text
            and self._type.startswith(("decimal", "numeric", "number"))
            and self._dialect.name != "sqlite"
        ):
            return _bound(Decimal(cut.value))
        if not self._text and self._type.startswith(("real", "float", "double")):
            return _bound(float(cut.value))
        return _bound(cut.value)

    def _follows(self, after: Place) -> Any:
        bound = [_bound(value) for value in after]
        if self._dialect.name in _ROW_VALUES:
            # One range of an index to PostgreSQL, which reads the other form by a filter, 500 times slower.
            return sa.tuple_(*self._order) > sa.tuple_(*bound)
        first, steps = self._order[0] >= bound[0], []
        for number, column in enumerate(self._order):
            same = [one == value for one, value in zip(self._order[:number], bound, strict=False)]
            steps.append(sa.and_(*same, column > bound[number]))
        return sa.and_(first, sa.or_(*steps))

    def _compiled(self, clause: Any) -> Predicate:
        compiled = clause.compile(dialect=self._dialect, compile_kwargs={"render_postcompile": True})
        values = dict(compiled.params)
        if not compiled.positional:
            return Predicate(str(compiled), values)
        return Predicate(str(compiled), tuple(values[name] for name in compiled.positiontup))


def _bound(value: Any) -> Any:
    """A parameter without a type: SQLAlchemy would write a cast, to its own idea of what text is."""
    return sa.bindparam(None, value, type_=sa.types.NullType())


def _ended(text: str) -> str:
    """Return the author's SQL so that a comment at its end hides nothing that follows."""
    return f"{text}\n" if "--" in text or "#" in text else text


def _from(relation: Relation, dialect: Dialect, columns: Sequence[Any]) -> Any:
    if relation.sql is not None:
        text = sa.text(_ended(relation.sql).replace(":", "\\:"))  # nothing in it is a parameter
        return text.columns(*columns).subquery("t")
    *outer, name = relation.table
    schema = sa.quoted_name(".".join(map(dialect.identifier_preparer.quote, outer)), quote=False) if outer else None
    return sa.table(name, *columns, schema=schema).alias("t")
