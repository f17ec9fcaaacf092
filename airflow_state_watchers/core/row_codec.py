"""Between a SQL watcher's checkpoint and the JSON of its root.

A person edits the root's ``watermark``: a value in the database's own text, or a number; all rows with that value come again.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from airflow_state_watchers.core.cut import Cut
from airflow_state_watchers.core.reach import Seen
from airflow_state_watchers.core.rows import Passed, RowCheckpoint, RowIntent
from airflow_state_watchers.core.slices import Slice, Sums
from airflow_state_watchers.core.stored import Unreadable, load_time


def dump_cut(cut: Cut | None) -> dict[str, Any] | None:
    if cut is None:
        return None
    return {"value": cut.value, "after": True} if cut.after else {"value": cut.value}


def load_cut(stored: Any, where: str) -> Cut | None:
    """Read a cut; a person may write the bare value."""
    if stored is None:
        return None
    value = stored.get("value") if isinstance(stored, Mapping) else stored
    after = stored.get("after", False) if isinstance(stored, Mapping) else False
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        value = repr(value)
    if not isinstance(value, str) or not value or not isinstance(after, bool):
        raise Unreadable(f'{where} is {stored!r}; write a value of the watermark column, such as "2026-01-31", or null')
    return Cut(value, after)


def dump_rows(checkpoint: RowCheckpoint) -> dict[str, Any]:
    """Return the fields of a root that are its kind's own."""
    return {
        "rows": {
            "column": checkpoint.column,
            "at": _dump_time(checkpoint.at),
            "commits": checkpoint.commits,
            "slices": [_dump_slice(each) for each in checkpoint.slices],
            "looks": [[dump_cut(seen.cut), _dump_time(seen.at)] for seen in checkpoint.looks],
            "passed": [[passed.key, dump_cut(passed.low)] for passed in checkpoint.passed],
        },
        "watermark": dump_cut(checkpoint.watermark),
        "frontier": dump_cut(checkpoint.frontier),
        "intents": [_dump_intent(intent) for intent in checkpoint.intents],
    }


def load_rows(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Read what :func:`dump_rows` has written, all but the watermark. Raises :class:`Unreadable`."""
    try:
        rows = stored["rows"]
        return {
            "frontier": load_cut(stored["frontier"], "frontier"),
            "intents": tuple(_load_intent(intent) for intent in stored["intents"]),
            "column": None if rows["column"] is None else str(rows["column"]),
            "at": _load_time(rows["at"]),
            "commits": int(rows["commits"]),
            "slices": tuple(_load_slice(each) for each in rows["slices"]),
            "looks": tuple(Seen(_cut(cut), load_time(at, "looks")) for cut, at in rows["looks"]),
            "passed": tuple(Passed(key, load_cut(low, "passed")) for key, low in rows["passed"]),
        }
    except Unreadable:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise Unreadable(f"the root is not complete ({error!r}); delete the key to reset") from None


def _dump_intent(intent: RowIntent) -> dict[str, Any]:
    return {
        "batch": intent.batch_id,
        "low": dump_cut(intent.low),
        "high": dump_cut(intent.high),
        "count": intent.count,
        "at": _dump_time(intent.at),
        "reread": intent.reread,
        "slice": None if intent.slice is None else _dump_slice(intent.slice),
        "ends": list(intent.ends),
    }


def _load_intent(stored: Mapping[str, Any]) -> RowIntent:
    return RowIntent(
        batch_id=str(stored["batch"]),
        low=load_cut(stored["low"], "intents.low"),
        high=_cut(stored["high"]),
        count=int(stored["count"]),
        at=load_time(stored["at"], "intents.at"),
        reread=bool(stored["reread"]),
        slice=None if stored["slice"] is None else _load_slice(stored["slice"]),
        ends=tuple(map(str, stored["ends"])),
    )


def _dump_slice(each: Slice) -> list[Any]:
    # The checksum as text: JSON's numbers are not exact to 64 bits everywhere.
    return [dump_cut(each.low), dump_cut(each.high), each.sums.count, f"{each.sums.checksum:x}", _dump_time(each.at)]


def _load_slice(stored: Any) -> Slice:
    low, high, count, checksum, at = stored
    return Slice(load_cut(low, "slices"), _cut(high), Sums(int(count), int(checksum, 16)), load_time(at, "slices"))


def _cut(stored: Any) -> Cut:
    cut = load_cut(stored, "a bound")
    if cut is None:
        raise Unreadable("a bound is null; delete the key to reset")
    return cut


def _dump_time(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


def _load_time(stored: Any) -> datetime | None:
    return None if stored is None else load_time(stored, "at")
