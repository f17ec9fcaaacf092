"""What is said at a watcher's first poll of a table: what makes it slow, or makes it miss rows, and what to do about it."""

from __future__ import annotations

from typing import Any

from airflow_state_watchers.core.cut import Cut, Span
from airflow_state_watchers.exceptions import SourceError
from airflow_state_watchers.sources.sql_column import Column, Kind
from airflow_state_watchers.sources.sql_relation import Relation
from airflow_state_watchers.sources.sql_scan import Database, Run
from airflow_state_watchers.sources.sql_statements import Predicate, Statements

LARGE = 10_000
"""Rows of a table that is worth an index."""


async def notes_on(relation: Relation, column: Column, statements: Statements, database: Database, run: Run) -> str:
    """Return all of it as one text, empty if there is nothing to say."""
    notes = [_zone(relation, column)]
    for look in (_nullable, _index):
        try:
            notes.append(await look(relation, statements, database, run))
        except SourceError:  # a catalogue that this user may not read is no reason to stop
            continue
    return "; ".join(note for note in notes if note)


def _zone(relation: Relation, column: Column) -> str | None:
    if relation.timezone is not None or column.kind is not Kind.NAIVE:
        return None
    return (
        f"{relation.label}: {relation.watermark_column} has no time zone, and is taken for {column.timezone or 'UTC'}. Declare "
        f"timezone=..., or rows are late or missed"
    )


async def _nullable(relation: Relation, statements: Statements, database: Database, run: Run) -> str | None:
    query = database.dialect.nullable(relation)
    if query is None:
        return None
    rows = await run(Predicate(*database.dialect.render(query)))
    if not rows or str(rows[0][0]).lower() in ("false", "0", "no", "n"):
        return None
    return (
        f"{relation.label}: {relation.watermark_column} may be NULL, and such rows are never delivered. Declare it NOT NULL, or "
        'say nulls="raise" to be told'
    )


async def _index(relation: Relation, statements: Statements, database: Database, run: Run) -> str | None:
    """Look at the plan of a poll that has nothing to read."""
    if not database.dialect.reads_plans:
        return None
    (value, _), *_rest = await run(statements.greatest())
    if value is None:
        return None
    plan = repr(await run(statements.explain(Span(Cut(str(value)), None))))
    scan = database.dialect.full_scan(plan)
    if scan is None or not await _is_large(statements, database, run):
        return None
    keys = ", ".join((relation.watermark_column, *relation.key_columns))
    return f"{relation.label}: polling by {relation.watermark_column} reads the whole table ({scan}). Create an index on ({keys})"


async def _is_large(statements: Statements, database: Database, run: Run) -> bool:
    rows: list[tuple[Any, ...]] = await run(statements.first(Span(None, None), LARGE))
    return int(rows[0][0]) > LARGE
