"""What is said at a watcher's first poll of a table: what makes it slow, or makes it miss rows, and what to do about it."""

from __future__ import annotations

import re

from airflow_state_watchers.core.cut import Cut, Span
from airflow_state_watchers.exceptions import SourceError
from airflow_state_watchers.sources.sql_column import Kind
from airflow_state_watchers.sources.sql_columns import Found
from airflow_state_watchers.sources.sql_dialects import read_text
from airflow_state_watchers.sources.sql_relation import Relation
from airflow_state_watchers.sources.sql_scan import Run
from airflow_state_watchers.sources.sql_statements import Query, Statements

LARGE = 10_000
"""Rows of a table that is worth an index."""
_PLANS = {"postgresql": "EXPLAIN ", "mysql": "EXPLAIN ", "sqlite": "EXPLAIN QUERY PLAN "}
_FULL = {
    "postgresql": (r"Seq Scan", "Seq Scan"),
    "mysql": (
        r"""(?<!>)['"](?:, None)?, 'ALL'""",
        "type ALL",
    ),  # of a table: what is derived from one is <derived2> there
    "sqlite": (r"\bSCAN\b(?![^']*USING (?:COVERING )?INDEX)", "SCAN"),
}


async def notes_on(relation: Relation, found: Found, statements: Statements, run: Run) -> str:
    """Return all of it as one text, empty if there is nothing to say."""
    column = f"{relation.label}: {relation.watermark_column}"
    notes = []
    if found.column.kind is Kind.NAIVE and relation.timezone is None:
        notes.append(
            f"{column} has no time zone, and is taken for {found.zone}. Declare timezone=..., or rows may be late or missed"
        )
    if found.column.is_nullable:
        notes.append(
            f'{column} may be NULL, and such rows are never delivered. Declare it NOT NULL, or say nulls="raise" to be told'
        )
    scan = await _full_scan(statements, run)
    if scan is not None:
        keys = ", ".join((relation.watermark_column, *relation.key_columns))
        notes.append(
            f"{relation.label}: polling by {relation.watermark_column} reads the whole table ({scan}). Create an index on ({keys})"
        )
    return "; ".join(notes)


async def _full_scan(statements: Statements, run: Run) -> str | None:
    """Look at the plan of a poll that has nothing to read; return what it calls a scan of the whole of a large table."""
    name = statements.dialect.name
    if name not in _PLANS:
        return None
    try:
        ((value, _),) = await run(statements.greatest())
        if value is None:
            return None
        query = statements.next_after(Cut(read_text(value)))  # of the table alone: a scan is one of the table then
        plan = repr(await run(Query(_PLANS[name] + query.text, query.parameters)))
        pattern, words = _FULL[name]
        if re.search(pattern, plan) and await _is_large(statements, run):
            return words
    except SourceError:  # a plan that cannot be had is no reason to stop
        pass
    return None


async def _is_large(statements: Statements, run: Run) -> bool:
    ((count, *_),) = await run(statements.first(Span(None, None), LARGE))
    return int(count) > LARGE
