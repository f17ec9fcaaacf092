"""A SQL watcher's table and columns, checked at DAG parse."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from airflow_state_watchers.exceptions import WatcherArgumentError
from airflow_state_watchers.sources.sql_relation import Relation
from airflow_state_watchers.triggers.arguments import text

if TYPE_CHECKING:
    from airflow_state_watchers.triggers.sql import SqlUpdatedAtTrigger

_PART = re.compile(
    r"""\s*(?:"((?:[^"]|"")+)"|`((?:[^`]|``)+)`|\[((?:[^\]]|\]\])+)\]|([^."`\[\]\s][^."`\[\]]*))\s*(\.|$)"""
)
_READS = re.compile(r"\s*(?:\(|--|/\*|select\b|with\b|values\b|table\b|from\b)", re.IGNORECASE)


def relation_of(trigger: SqlUpdatedAtTrigger) -> Relation:
    """Return what the arguments name. Raises :class:`WatcherArgumentError` for what cannot be read so."""
    if (trigger.table is None) == (trigger.sql is None):
        raise WatcherArgumentError("give exactly one of table='schema.table' and sql='SELECT ...'")
    if trigger.sql is not None and not _READS.match(trigger.sql):
        raise WatcherArgumentError(f"sql={trigger.sql!r}: give a SELECT; a table's name goes into table=...")
    if trigger.timezone is not None:
        _check_zone(trigger.timezone)
    names = [*trigger.key_columns]
    if len(set(names)) < len(names):
        raise WatcherArgumentError(f"key_columns={names!r} name a column twice")
    sql = None if trigger.sql is None else trigger.sql.strip().rstrip(";").rstrip()
    return Relation(
        trigger.watermark_column,
        table=() if trigger.table is None else table_parts(trigger.table),
        sql=sql,
        key_columns=tuple(trigger.key_columns),
        where=trigger.where,
        columns=tuple(trigger.columns or ()),
        timezone=trigger.timezone,
    )


def table_parts(table: str | Sequence[str]) -> tuple[str, ...]:
    """Return the parts of a table's name: text is split at dots outside quotes, a sequence is taken literally."""
    if not isinstance(table, str):
        parts = tuple(text("table", part) for part in table)
        if not 1 <= len(parts) <= 4:
            raise WatcherArgumentError(
                f"table={list(table)!r}: give the parts of one name, such as ['public', 'orders']"
            )
        return parts
    text("table", table)
    found: list[str] = []
    place = 0
    while place < len(table) or (found and table[place - 1] == "."):
        match = _PART.match(table, place)
        if match is None:
            raise WatcherArgumentError(
                f"table={table!r} is no name. Write 'schema.table', quote parts with dots or quotes in them "
                '(\'public."Order ""x"""\'), or give the literal parts as a list'
            )
        quoted = (match[1] and match[1].replace('""', '"')) or (match[2] and match[2].replace("``", "`"))
        found.append(quoted or (match[3] and match[3].replace("]]", "]")) or match[4].strip())
        place = match.end()
    if len(found) > 4:
        raise WatcherArgumentError(f"table={table!r} has {len(found)} parts; quote those with dots in them")
    return tuple(found)


def columns_of(argument: str, value: Any) -> list[str]:
    """Return names of columns. One text alone is a mistake: it would be taken letter by letter."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise WatcherArgumentError(f"{argument}={value!r}: give a list of column names, such as [{str(value)!r}]")
    names = [text(argument, name) for name in value]
    if len(set(names)) < len(names):
        raise WatcherArgumentError(f"{argument}={names!r} names a column twice")
    return names


def watcher_name(relation: Relation) -> str:
    """Return the readable default name."""
    if relation.sql is not None:
        digest = hashlib.blake2b(relation.sql.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
        return f"query-{digest}/{relation.watermark_column}"
    return f"{relation.label}/{relation.watermark_column}"


def _check_zone(name: str) -> None:
    try:
        ZoneInfo(name)
    except Exception:
        raise WatcherArgumentError(
            f"timezone={name!r} is no time zone that this machine knows. Write one such as 'Europe/Berlin' or 'UTC'"
        ) from None
