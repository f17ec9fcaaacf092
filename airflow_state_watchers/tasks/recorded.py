"""Running a task's function on given items, and what of them it has finished."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from airflow_state_watchers.core.bookmark_codec import load
from airflow_state_watchers.core.numbers import Numbers
from airflow_state_watchers.core.takes import Fate, Take
from airflow_state_watchers.tasks.doubles import InMemoryAirflow
from airflow_state_watchers.tasks.events import VERSION
from airflow_state_watchers.tasks.kinds import S3_OBJECTS, SQL_WINDOW
from airflow_state_watchers.tasks.objects import S3Object
from airflow_state_watchers.tasks.windows import SqlWindow

if TYPE_CHECKING:
    from airflow_state_watchers.tasks.surroundings import AnyAsset

Item = TypeVar("Item", bound="S3Object | SqlWindow")


class Recorded(Generic[Item]):
    """Which items a task has finished: ``done`` and ``left``, each in order.

    While the task has not failed, what it was handed out counts as finished as soon as it has left the inbox.
    """

    def __init__(self, airflow: InMemoryAirflow, items: Sequence[Item]) -> None:
        self._airflow = airflow
        self._items = list(items)
        self.failed = False

    @property
    def done(self) -> list[Item]:
        return [item for number, item in enumerate(self._items) if number in self._done()]

    @property
    def left(self) -> list[Item]:
        return [item for number, item in enumerate(self._items) if number not in self._done()]

    def _done(self) -> set[int]:
        """Return the places of what is done. The items came in events in their order, so an item's number is its place."""
        bookmarks = [load(json.loads(copy)) for copy in self._airflow.xcoms.values()]
        return {number for bookmark in bookmarks for take in bookmark.takes for number in self._done_of(take)}

    def _done_of(self, take: Take) -> Numbers:
        everything = Numbers.span(0, take.size)
        if self.failed or not take.left:
            return everything - take.left
        mine, *copies = take.questions()
        after, over = take.settled({mine: {take.holder.map_index: Fate.DONE}, **{other: {} for other in copies}})
        return everything - over - after.left


@contextmanager
def inbox(asset: AnyAsset, items: Sequence[Item]) -> Iterator[Recorded[Item]]:
    """Let ``Inbox(asset)`` hand out these items inside the block.

    ::

        with inbox(orders, [S3Object(...)]) as recorded:
            load.function()
        assert not recorded.left

    A :class:`~airflow_state_watchers.SqlWindow` reads its rows through the Airflow connection that it names.
    """
    name = getattr(asset, "name", None) or getattr(asset, "uri", None)
    airflow = InMemoryAirflow(asset=str(name))
    for number, batch in enumerate(_batches(items)):
        airflow.deliver(_payload(batch, number))
    recorded = Recorded(airflow, items)
    try:
        with airflow.task("test"):
            yield recorded
    except BaseException:
        recorded.failed = True
        raise


def _batches(items: Iterable[S3Object | SqlWindow]) -> Iterator[dict[str, Any]]:
    """Yield what is particular to each event: objects of one bucket that follow each other, or one window."""
    for bucket, group in groupby(items, key=lambda item: item.bucket if isinstance(item, S3Object) else None):
        objects: list[S3Object] = []
        for item in group:
            if isinstance(item, S3Object):
                objects.append(item)
            else:
                yield _window(item)
        if bucket is not None:
            yield _objects(bucket, objects)


def _objects(bucket: str, objects: Sequence[S3Object]) -> dict[str, Any]:
    items = [{key: value for key, value in item.serialize().items() if key != "bucket"} for item in objects]
    return {
        "kind": S3_OBJECTS.name,
        "low": items[0]["last_modified"],
        "high": items[-1]["last_modified"],
        "count": len(items),
        "bytes": sum(item.size for item in objects),
        "bucket": bucket,
        "items": items,
    }


def _window(window: SqlWindow) -> dict[str, Any]:
    found = window.serialize()
    return {"kind": SQL_WINDOW.name, "connection": found.pop("conn_id"), "bytes": 0, "items": [], **found}


def _payload(batch: dict[str, Any], number: int) -> dict[str, Any]:
    return {
        "v": VERSION,
        "watcher": "test",
        "generation": 1,
        "trigger_run_id": "test",
        "sequence_index": number,
        "batch_id": f"batch-{number}",
        "previous": f"batch-{number - 1}" if number else None,
        **batch,
    }
