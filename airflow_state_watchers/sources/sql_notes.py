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

_SEQUENCES = """
SELECT max(s.seqcache) FROM pg_catalog.pg_attribute a
LEFT JOIN pg_catalog.pg_attrdef f ON f.adrelid = a.attrelid AND f.adnum = a.attnum
JOIN pg_catalog.pg_depend d ON
    (d.classid = 'pg_catalog.pg_attrdef'::regclass AND d.objid = f.oid AND d.refclassid = 'pg_catalog.pg_class'::regclass)
    OR (d.classid = 'pg_catalog.pg_class'::regclass AND d.refclassid = 'pg_catalog.pg_class'::regclass
        AND d.refobjid = a.attrelid AND d.refobjsubid = a.attnum AND d.deptype IN ('a', 'i'))
JOIN pg_catalog.pg_sequence s ON s.seqrelid IN (d.objid, d.refobjid)
WHERE a.attrelid = to_regclass(%(table)s::text) AND a.attname = %(column)s::text"""
"""The sequences that a column's default uses, or that belong to it."""

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
    cached = await _cached(relation, statements, run)
    if cached > 1:
        notes.append(
            f"{column} comes from a sequence with CACHE {cached}: a session keeps values for later, and writes them when greater "
            "ones have been read. Make it CACHE 1, or give lookback=... as long as a session may keep them"
        )
    scan = await _full_scan(statements, run)
    if scan is not None:
        keys = ", ".join((relation.watermark_column, *relation.key_columns))
        remedy = "Look at its plan, and index what it reads" if relation.sql else f"Create an index on ({keys})"
        notes.append(
            f"{relation.label}: polling by {relation.watermark_column} reads the whole table ({scan}). {remedy}"
        )
    return "; ".join(notes)


async def _cached(relation: Relation, statements: Statements, run: Run) -> int:
    """Return how many values of the column's sequence a session takes at once; 1 if it has none."""
    if statements.dialect.name != "postgresql" or not relation.table:
        return 1
    table = str(statements.dialect.table_name(relation.table)).replace("%%", "%")
    query = Query(_SEQUENCES, {"table": table, "column": relation.watermark_column})
    ((cached,),) = await run(query)
    return int(cached or 1)


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
