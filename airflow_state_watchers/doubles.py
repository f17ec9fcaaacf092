"""In-memory doubles of the ports: a clock, a store, a source, manifests. Public through :mod:`airflow_state_watchers.testing`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from itertools import count
from typing import Any

from airflow_state_watchers.core.manifest import dump, name_of
from airflow_state_watchers.core.position import Item, Position, identity_of
from airflow_state_watchers.core.uploads import Upload, upload_id
from airflow_state_watchers.ports import Clock, ManifestStore, Skip, Source


class FrozenClock:
    """A clock that moves only when told to. ``sleep`` returns at once; ``pause`` ends with the next ``advance``."""

    def __init__(self, now: datetime = datetime(2026, 1, 1, tzinfo=timezone.utc)) -> None:
        self._now = now
        self._moved = asyncio.Event()

    def now(self) -> datetime:
        return self._now

    def advance(self, seconds: float | timedelta) -> None:
        """Move the clock; a negative number moves it back."""
        self._now += seconds if isinstance(seconds, timedelta) else timedelta(seconds=seconds)
        self._moved.set()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)

    async def pause(self, seconds: float) -> None:
        self._moved.clear()
        await self._moved.wait()


class InMemoryStore:
    """An asset's state in a dictionary. Values pass through JSON, as they do in Airflow.

    ``active = False`` makes it behave as for an asset that the scheduler has deactivated: reads find nothing, writes are
    refused. ``reads`` and ``writes`` list the keys read and written, in order.
    """

    def __init__(self) -> None:
        self.data: dict[str, str] = {}
        self.active = True
        self.reads: list[str] = []
        self.writes: list[str] = []

    async def aget(self, key: str, default: Any = None) -> Any:
        return self.get(key, default)

    async def aset(self, key: str, value: Any) -> None:
        self.set(key, value)

    async def adelete(self, key: str) -> None:
        self.delete(key)

    def get(self, key: str, default: Any = None) -> Any:
        self.reads.append(key)
        return json.loads(self.data[key]) if self.active and key in self.data else default

    def set(self, key: str, value: Any) -> None:
        if not self.active:
            raise LookupError("the asset is not active")
        if value is None:
            raise ValueError("Cannot set value as None")
        self.data[key] = json.dumps(value)
        self.writes.append(key)

    def delete(self, key: str) -> None:
        if not self.active:
            raise LookupError("the asset is not active")
        self.data.pop(key, None)

    def lose(self) -> None:
        """Delete everything, as the scheduler does for an asset that no DAG names any more."""
        self.data.clear()


@dataclass
class _Stored:
    item: Item
    visible: datetime


class InMemorySource:
    """A source of objects in memory: set it as a trigger's ``source``. Stamps and its own time have whole seconds, as S3's.

    As on AWS an object uploaded in parts (:meth:`begin_upload`, :meth:`complete`) is stamped with the time its upload began.
    ``lists_uploads = False`` makes it a source that does not say which uploads are in progress.

    ``clock`` is the source's own; give the harness the same to let both move together. ``error`` is raised by the next
    polls for as long as it is set.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock: Any = clock or FrozenClock()
        self.error: Exception | None = None
        self.lists_uploads = True
        self._objects: dict[str, _Stored] = {}
        self._uploads: dict[str, Upload] = {}
        self._numbers = count()

    def put(
        self, key: str, *, etag: str = "etag", size: int = 1, at: datetime | None = None, appears_after: float = 0
    ) -> None:
        """Put an object version, last modified now (or ``at``) in whole seconds and listed ``appears_after`` seconds later."""
        now = self.clock.now()
        stamp = (at or now).replace(microsecond=0)
        data = {"key": key, "size": size, "etag": etag, "last_modified": stamp.isoformat()}
        item = Item(Position(stamp, key), identity_of(key, etag, stamp.isoformat()), data)
        self._objects[key] = _Stored(item, now + timedelta(seconds=appears_after))

    def delete(self, key: str) -> None:
        self._objects.pop(key, None)

    def begin_upload(self, key: str) -> str:
        """Begin a multipart upload; return its id."""
        upload = upload_id(f"{key} {next(self._numbers)}")
        self._uploads[upload] = Upload(key, upload, self.clock.now().replace(microsecond=0))
        return upload

    def complete(self, upload: str, *, etag: str = "etag-2", size: int = 1) -> None:
        done = self._uploads.pop(upload)
        self.put(done.key, etag=etag, size=size, at=done.initiated)

    def abort(self, upload: str) -> None:
        del self._uploads[upload]

    def fields(self) -> dict[str, Any]:
        return {"kind": "memory"}

    async def open(self) -> InMemoryScan:
        if self.error is not None:
            raise self.error
        now = self.clock.now()
        uploads = list(self._uploads.values()) if self.lists_uploads else None
        return InMemoryScan(now.replace(microsecond=0), self._visible, uploads)

    def _visible(self) -> list[Item]:
        return [stored.item for stored in self._objects.values() if stored.visible <= self.clock.now()]

    async def aclose(self) -> None:
        """Nothing is held open."""


@dataclass
class InMemoryScan:
    """Shows the uploads of the moment at which it was opened, and the objects of the moment at which it is read."""

    now: datetime
    items: Callable[[], Sequence[Item]]
    uploads: Sequence[Upload] | None = None
    note: str | None = None
    listed: int = 0
    advice: str | None = None
    cursor: str | None = None

    async def pages(
        self,
        low: datetime | None,
        high: datetime,
        *,
        also: Collection[str] = (),
        after: str | None = None,
        skip: Skip | None = None,
        whole: bool = False,
    ) -> AsyncGenerator[Sequence[Item], None]:
        items = self.items()
        self.listed = len(items)
        wanted = [
            item
            for item in items
            if item.position.value < high
            and (low is None or item.position.value >= low or item.position.tiebreak in also)
        ]
        for start in range(0, len(wanted), 1000):
            yield wanted[start : start + 1000]


class InMemoryManifests:
    """A place for manifests in memory: set it as a trigger's ``manifests``. A harness's tasks read from it.

    ``stored`` holds them by URI with the time of ``clock`` at which they were written, and ``keep`` is how old they may grow.
    ``error`` is raised by the next calls for as long as it is set.
    """

    def __init__(self, clock: Clock | None = None, *, keep: timedelta = timedelta(days=30)) -> None:
        self.clock: Any = clock or FrozenClock()
        self.keep = keep
        self.error: Exception | None = None
        self.stored: dict[str, tuple[bytes, datetime]] = {}

    async def write(self, batch_id: str, items: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        uri, now = f"s3://memory/{name_of(batch_id)}", self._now()
        _, written = self.stored.get(uri, (b"", now - self.keep))
        if now - written >= self.keep / 2:
            self.stored[uri] = dump(items), now
        return {"uri": uri, "connection": None, "region": None}

    async def clean(self) -> None:
        now = self._now()
        self.stored = {uri: found for uri, found in self.stored.items() if now - found[1] <= self.keep}

    async def aclose(self) -> None:
        """Nothing is held open."""

    def read(self, address: Mapping[str, Any]) -> bytes | None:
        """Return what is stored at an address; ``None`` if it is gone."""
        found = self.stored.get(address["uri"])
        return found and found[0]

    def _now(self) -> datetime:
        if self.error is not None:
            raise self.error
        now: datetime = self.clock.now()
        return now


_: type[Source] = InMemorySource
__: type[ManifestStore] = InMemoryManifests
