"""The statements that a window is read with: those of its watcher, and the few more that only a reader needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from airflow_state_watchers.core.cut import Span
from airflow_state_watchers.sources.sql_column import Column, kind_of_value
from airflow_state_watchers.sources.sql_dialects import dialect_of
from airflow_state_watchers.sources.sql_relation import Relation
from airflow_state_watchers.sources.sql_rendering import bound, constant
from airflow_state_watchers.sources.sql_statements import Place, Query, Statements

_STYLES = {"?": "qmark", "%(name)s": "pyformat"}


@dataclass(frozen=True, slots=True)
class Predicate:
    """A condition and the parameters to run it with: a dictionary, or a tuple where the driver takes them by position."""

    sql: str
    parameters: Mapping[str, Any] | tuple[Any, ...]


class WindowStatements(Statements):
    """The statements for one relation, as far as they are known before a row was read: keys count as text until then."""

    @classmethod
    def of(cls, relation: Relation, database: str, placeholder: str, column_type: str | None) -> WindowStatements:
        """``database`` and ``placeholder`` are as the Airflow hook says, ``column_type`` is the watermark column's."""
        dialect = dialect_of(database, _STYLES.get(placeholder))
        column = dialect.column(relation.watermark_column, column_type or "")
        return cls(relation, dialect, column, [Column(name) for name in relation.key_columns])

    def with_keys(self, values: Sequence[Any]) -> WindowStatements:
        """Return the same, now that a row's keys were seen: a database that is given a text for a number may compare inexactly."""
        kinds = zip(self.keys, map(kind_of_value, values), strict=True)
        keys = [Column(key.name, name, kind) for key, (name, kind) in kinds]
        return WindowStatements(self.relation, self.dialect, self.column, keys)

    def condition(self, span: Span, alias: str | None) -> Predicate:
        """Return :meth:`predicate` with at least one parameter: an Airflow hook hands none over as if nothing had been said, and
        a driver that doubles percent signs would leave them doubled."""
        found = self.predicate(span, alias)
        if found.parameters:
            return Predicate(found.text, found.parameters)
        more = self._query(bound(1) == constant(1))
        return Predicate(f"{found.text} AND {more.text}", more.parameters)

    def null_keys(self, place: Place) -> Query:
        """Return the statement that finds a row with the same value as at ``place``, and a key that is NULL."""
        tied = self._value == self.dialect.value_of(place.value, self.column)
        missing = sa.or_(*(self._name(key.name).is_(None) for key in self.keys))
        return self._query(self._limited(self._select(constant(1).label("found")).where(tied, missing), 1))

    def tiles(self, span: Span, n: int) -> Query:
        """Cut a span into ``n`` of equally many rows: ``(text,)`` of the least value of each, each different value once."""
        number = sa.func.ntile(constant(n)).over(order_by=self._value)
        v: sa.ColumnClause[Any] = sa.column("v")
        tile: sa.ColumnClause[Any] = sa.column("n")
        numbered = self._select(self._value.label("v"), number.label("n")).where(*self._within(span)).subquery("a")
        if self.dialect.name == "postgresql":  # which has no MIN for an uuid
            first = sa.func.first_value(v).over(partition_by=tile, order_by=v)
            least = sa.select(first.label("v")).select_from(numbered).subquery("b")
        else:  # MariaDB takes no window function within another one's window
            least = sa.select(sa.func.min(v).label("v")).select_from(numbered).group_by(tile).subquery("b")
        values = sa.select(v).distinct().select_from(least).subquery("c")
        text = self.dialect.text_of(v, self.column).label("text")
        return self._query(sa.select(text).select_from(values).order_by(values.c.v))
