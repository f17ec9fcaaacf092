"""The kinds of events there are, and what an inbox has to know of each.

An inbox counts *units*: what it hands out and keeps account of, one by one. An event with objects has one for each object; an
event of a SQL watcher is one unit, the window, whether the rows lie in the event or not: a window is done or it is not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, Protocol, TypeAlias

from airflow_state_watchers.tasks.objects import S3Object
from airflow_state_watchers.tasks.windows import SqlWindow

Payload: TypeAlias = Mapping[str, Any]
Identity: TypeAlias = tuple[str, ...]
Reader: TypeAlias = Literal["objects", "windows"]


class Kind(Protocol):
    """``name`` is the payload's ``kind``; ``reader`` the method of an inbox that hands out units of this kind."""

    @property
    def name(self) -> str: ...

    @property
    def reader(self) -> Reader: ...

    def size(self, payload: Payload) -> int:
        """Return how many units an event has, in it or in its manifest."""

    def identities(self, payload: Payload) -> list[Identity]:
        """Return what tells each unit from those of other batches."""

    def units(self, payload: Payload, *, is_last: bool = True) -> Sequence[Any]:
        """Return the units. ``is_last``: nothing that was found later lies in the same inbox."""

    def bound(self, value: Any) -> Any:
        """Return ``low`` or ``high`` of an event as a typed event has it."""

    def contents(self, payload: Payload, units: Sequence[Any]) -> tuple[int, int, tuple[Any, ...]]:
        """Return ``count``, ``bytes`` and ``items`` of a typed event of which only these units are wanted."""


class _Objects:
    name = "s3_objects"
    reader: Reader = "objects"

    def size(self, payload: Payload) -> int:
        return int(payload["count"]) if payload.get("manifest") else len(payload["items"])

    def identities(self, payload: Payload) -> list[Identity]:
        return [(item["key"], item["etag"], item["last_modified"]) for item in payload["items"]]

    def units(self, payload: Payload, *, is_last: bool = True) -> Sequence[S3Object]:
        return [S3Object.from_item(item, payload["bucket"]) for item in payload["items"]]

    def bound(self, value: Any) -> datetime:
        return datetime.fromisoformat(value)

    def contents(self, payload: Payload, units: Sequence[S3Object]) -> tuple[int, int, tuple[Any, ...]]:
        return len(units), sum(unit.size for unit in units), tuple(units)


class _Windows:
    name = "sql_window"
    reader: Reader = "windows"

    def size(self, payload: Payload) -> int:
        return 1

    def identities(self, payload: Payload) -> list[Identity]:
        # A window delivered again has the same bounds, and so the same id; with other bounds it is another window.
        return [(payload["batch_id"],)]

    def units(self, payload: Payload, *, is_last: bool = True) -> Sequence[SqlWindow]:
        return [SqlWindow.from_payload(payload, is_last=is_last)]

    def bound(self, value: Any) -> str | None:
        return None if value is None else str(value)

    def contents(self, payload: Payload, units: Sequence[SqlWindow]) -> tuple[int, int, tuple[Any, ...]]:
        return int(payload["count"]), int(payload.get("bytes", 0)), tuple(units)


class _Rows(_Windows):
    name = "sql_rows"

    def contents(self, payload: Payload, units: Sequence[SqlWindow]) -> tuple[int, int, tuple[Any, ...]]:
        return len(payload["items"]), int(payload.get("bytes", 0)), tuple(payload["items"])


S3_OBJECTS: Kind = _Objects()
SQL_WINDOW: Kind = _Windows()
SQL_ROWS: Kind = _Rows()

KINDS: Mapping[str, Kind] = {kind.name: kind for kind in (S3_OBJECTS, SQL_WINDOW, SQL_ROWS)}


def kind_of(payload: Payload) -> Kind:
    """Return the kind of a payload that :func:`~airflow_state_watchers.tasks.events.payload_of` let through."""
    return KINDS[payload["kind"]]
