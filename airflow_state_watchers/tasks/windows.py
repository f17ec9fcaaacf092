"""The windows of rows that a SQL watcher found, typed.

``SqlWindow`` passes through XCom and ``.expand()`` as itself, as :mod:`~airflow_state_watchers.tasks.objects` says of
``S3Object``. It holds bounds, not rows: reading it asks the database, with the Airflow hook of its connection.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from airflow.sdk.serde import allow_class

from airflow_state_watchers.core.cut import Cut, Span
from airflow_state_watchers.sources.sql_relation import Relation

if TYPE_CHECKING:
    from airflow_state_watchers.tasks.window_sql import Predicate

Upper: TypeAlias = Literal["window", "now"]
DfType: TypeAlias = Literal["pandas", "polars", "arrow"]


@dataclass(frozen=True, slots=True)
class SqlWindow:
    """The rows of a table whose watermark column lies between two values: ``[low, high)``. Repeatable.

    Read twice it gives the same rows, unless they were updated in between: those have a newer value, and lie in a later window.
    A row that was deleted is simply not there.

    ``low`` and ``high`` are the database's own text of the values, also of numbers; ``low`` is ``None`` where the window has
    no beginning. ``columns`` are what a reader gets: all of the table, in its order, if empty. ``count`` is how many rows the
    watcher saw, some of which may have been updated since. ``reread``: rows that may have been delivered before; a consumer
    merges by key.

    ``bounds`` says which of the two values belong to it, as PostgreSQL writes ranges; ``timezone`` and ``column_type`` are the
    watcher's ``timezone`` and the database's name for the type of the watermark column.
    """

    conn_id: str
    table: tuple[str, ...] | None
    sql: str | None
    where: str | None
    columns: tuple[str, ...]
    watermark_column: str
    key_columns: tuple[str, ...]
    low: str | None
    high: str | None
    count: int
    reread: bool
    bounds: str = "[)"
    timezone: str | None = None
    column_type: str | None = None
    hook_params: Mapping[str, Any] | None = field(default=None, hash=False)
    is_last: bool = field(default=True, compare=False, repr=False)

    __version__: ClassVar[int] = 1

    def __str__(self) -> str:
        low = "" if self.low is None else self.low
        high = "" if self.high is None else self.high
        return (
            f"{self.conn_id}:{self.relation.label}/{self.watermark_column}{self.bounds[0]}{low}, {high}{self.bounds[1]}"
        )

    def rows(self, chunksize: int = 5000, upper: Upper = "window") -> Iterator[list[dict[str, Any]]]:
        """Yield the rows in lists of up to ``chunksize``, each row a dictionary by column, as the driver gives its values.

        With ``key_columns`` each list is one short statement that goes on after the last row, in the order of watermark and
        key; a window of any size takes the memory of one list. The keys must tell all rows apart and never be NULL: this raises
        where they do not. Without keys it is one statement that streams, in one transaction.

        With ``upper="now"`` the last window of an inbox has no upper bound. So a row is read, too, that is updated again and
        again and for that reason is in no window any more when it is read. Other windows stay as they are.
        """
        from airflow_state_watchers.tasks.window_rows import rows_of

        return rows_of(self, chunksize, upper)

    def frames(self, chunksize: int = 50_000, df_type: DfType = "pandas", upper: Upper = "window") -> Iterator[Any]:
        """Yield the rows as data frames (pandas, Polars) or tables (Arrow) of up to ``chunksize`` rows. See :meth:`rows`."""
        from airflow_state_watchers.tasks.window_frames import frames_of

        return frames_of(self, chunksize, df_type, upper)

    def predicate(self, alias: str | None = None, upper: Upper = "window") -> Predicate:
        """Return the window as a condition, ``.sql`` and ``.parameters``, in the paramstyle and quoting of its connection.

        For statements that run on the same connection, with its hook::

            p = window.predicate("o")
            hook.run(f"INSERT INTO copy SELECT o.* FROM orders o WHERE {p.sql}", parameters=p.parameters)

        ``alias`` is how that statement calls the table, as it stands in the text. The watcher's ``where`` is part of it.
        """
        from airflow_state_watchers.tasks.window_rows import predicate_of

        return predicate_of(self, alias, upper)

    def split(self, n: int) -> list[SqlWindow]:
        """Return up to ``n`` windows that tile this one, with about equally many rows each, for ``.expand()``.

        They are cut at values that lie in the database now, never inside a tie: with too few values there are fewer windows.
        Rows that share one value stay together. How many rows a part has nobody has counted: its ``count`` is 0.
        """
        from airflow_state_watchers.tasks.window_split import split_of

        return split_of(self, n)

    @property
    def relation(self) -> Relation:
        """What the window is a window of."""
        return Relation(
            watermark_column=self.watermark_column,
            table=self.table or (),
            sql=self.sql,
            key_columns=self.key_columns,
            where=self.where,
            columns=self.columns,
            timezone=self.timezone,
        )

    def span(self, upper: Upper = "window") -> Span:
        """Return the two cuts between which the window lies."""
        if upper not in ("window", "now"):
            raise ValueError(f"upper={upper!r} is none of 'window', 'now'.")
        low = None if self.low is None else Cut(self.low, after=self.bounds[0] == "(")
        opened = self.high is None or (upper == "now" and self.is_last)
        return Span(low, None if opened or self.high is None else Cut(self.high, after=self.bounds[1] == "]"))

    def serialize(self) -> dict[str, Any]:
        """Return the JSON-plain form that Airflow stores in XCom."""
        found = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}

    @staticmethod
    def deserialize(data: dict[str, Any], version: int) -> SqlWindow:
        """Read :meth:`serialize`'s form; Airflow calls it with the version that wrote it."""
        if version > SqlWindow.__version__:
            raise TypeError(f"this SqlWindow was written by a newer release (version {version}); upgrade this one")
        plain: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in data.items()}
        return SqlWindow(**plain)

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any], *, is_last: bool = True) -> SqlWindow:
        """Read an event of a SQL watcher."""
        return cls(
            conn_id=payload["connection"],
            table=tuple(payload["table"]) if payload.get("table") else None,
            sql=payload.get("sql"),
            where=payload.get("where"),
            columns=tuple(payload.get("columns") or ()),
            watermark_column=payload["watermark_column"],
            key_columns=tuple(payload.get("key_columns") or ()),
            low=payload["low"],
            high=payload["high"],
            count=payload["count"],
            reread=bool(payload.get("reread")),
            bounds=payload.get("bounds", "[)"),
            timezone=payload.get("timezone"),
            column_type=payload.get("column_type"),
            hook_params=payload.get("hook_params"),
            is_last=is_last,
        )


allow_class(SqlWindow)
