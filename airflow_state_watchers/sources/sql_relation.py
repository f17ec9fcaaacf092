"""What a SQL watcher reads, as its author named it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Relation:
    """A table, or a trusted SELECT, and the columns of it that matter. Exactly one of ``table`` and ``sql`` is set.

    ``table`` is the literal parts of its name (schema and table, say); ``where`` and ``sql`` are the author's own SQL text.
    ``columns``: what a reader gets, all of them if empty. ``timezone``: the zone of a watermark column without one.
    """

    watermark_column: str
    table: tuple[str, ...] = ()
    sql: str | None = None
    key_columns: tuple[str, ...] = ()
    where: str | None = None
    columns: tuple[str, ...] = ()
    timezone: str | None = None

    @property
    def label(self) -> str:
        """How messages call it."""
        return ".".join(self.table) if self.table else "the query"
