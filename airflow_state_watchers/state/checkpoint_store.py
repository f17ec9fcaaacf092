"""One watcher's checkpoint in an asset's state store.

Keys: the root, which is the only commit; its marker, which tells a deleted root from a lost one; the segments of the ledger
and of the uploads; the health record. New segments are written under new names, then the root that names them, then the old
ones are deleted: a crash between any two writes leaves either the old checkpoint or the new one.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from airflow_state_watchers.core.codec import AnyCheckpoint, Root, dump_root, dump_segment, load_root, load_segment
from airflow_state_watchers.core.ledger import Ledger, Segment
from airflow_state_watchers.core.rows import RowCheckpoint
from airflow_state_watchers.core.stored import Unreadable
from airflow_state_watchers.core.upload_codec import dump_uploads, load_uploads
from airflow_state_watchers.core.uploads import UploadSegment
from airflow_state_watchers.core.verdict import Verdict, judge
from airflow_state_watchers.exceptions import CheckpointError
from airflow_state_watchers.ports import StateStore

log = logging.getLogger(__name__)

PREFIX = "state_watchers"
MAX_KEY = 500
"""Airflow's key column holds 512 characters."""

S = TypeVar("S", Segment, UploadSegment)


class StoreRefused(CheckpointError):
    """The store did not take a write: the asset is not active, or the store is not reachable."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a look at the store showed. ``checkpoint`` is set for ADOPT (whole) and MOVED (its watermark and its uploads)."""

    verdict: Verdict
    checkpoint: AnyCheckpoint | None = None
    generation: int = 0


def key_of(kind: str, name: str) -> str:
    """Return the state key for ``name``; ``kind`` is ``""`` for the root itself. Long names end in a digest."""
    prefix = f"{PREFIX}.{kind}:" if kind else f"{PREFIX}:"
    key = prefix + name
    if len(key) <= MAX_KEY:
        return key
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
    return f"{key[: MAX_KEY - 25]}~{digest}"


def _generation_of(marker: Any) -> int:
    generation = marker.get("generation") if isinstance(marker, dict) else None
    return generation if type(generation) is int else 1


def ledger_name(by: str, n: int, batch_id: str) -> str:
    """Name the ledger's segment that a commit writes before root number ``n``; short, as a root may name hundreds.

    With the number no later commit has the name: another process may still be about to delete what is called so.
    """
    return f"{by}-{n:x}-{batch_id[:12]}"


def uploads_name(by: str, n: int) -> str:
    """Name the uploads' segments that a process writes before its root number ``n``."""
    return f"{by}-u{n}"


def _orphans(checkpoint: AnyCheckpoint) -> list[str]:
    """Name what a process that died between a commit's segment and its root may have left behind.

    Only of the ledger: if that process was but frozen, and stores its root after all, what is gone then may be delivered
    again. An upload that is not remembered may be missed, so what is left behind of those stays: it is small and seldom.
    """
    return [ledger_name(checkpoint.by, checkpoint.n + 1, intent.batch_id) for intent in checkpoint.intents]


class CheckpointStore:
    """Reads, judges and writes one watcher's checkpoint as the process ``by``.

    Raises :class:`StoreRefused` where Airflow takes no write and :class:`CheckpointError` for state it cannot read.
    """

    def __init__(self, store: StateStore, name: str, *, by: str) -> None:
        self.by = by
        self._store = store
        self._name = name
        self._root, self._marker = key_of("", name), key_of("marker", name)
        self._stored: dict[str, Segment | UploadSegment] = {}
        self._n = 0
        self._tried: set[str] = set()
        """Segments of uploads that were written, or not, for a root that was said to have failed."""
        self._marked: int | None = None
        """The generation that the stored marker names, once it is known."""

    async def look(self, mine: AnyCheckpoint | None, blank: AnyCheckpoint) -> Found:
        """Read the root and say what it means. One operation, more where the root is gone or nobody has looked before."""
        stored = await self._get(self._root)
        if stored is None or self._marked is None:
            marker = await self._get(self._marker)
            self._marked = None if marker is None else _generation_of(marker)
            if stored is None and marker is not None:
                # The asset may have been inactive when the root was read, and active again when the marker was.
                stored = await self._get(self._root)
        root = self._read(stored, mine or blank) if stored is not None else None
        verdict = judge(root, marked=self._marked is not None, mine=mine, by=self.by)
        known = max(self._marked or 0, mine.generation if mine else 0)
        if root is None:
            self._stored.clear()  # what was lost or deleted by hand took its segments along, or may have
            return Found(verdict, generation=known if verdict is Verdict.RESET else 0)
        if verdict is Verdict.STALE:
            self._stored.clear()  # who is behind may have deleted what is named here
        if verdict in (Verdict.UNCHANGED, Verdict.STALE):
            return Found(verdict)
        return await self._found(verdict, root, known, mine)

    async def _found(self, verdict: Verdict, root: Root, known: int, mine: AnyCheckpoint | None) -> Found:
        """Read what a root names, as far as it is to be gone on with."""
        if isinstance(root.checkpoint, RowCheckpoint):
            generation = root.checkpoint.generation
            return Found(verdict, root.checkpoint, max(generation, known) if verdict is Verdict.MOVED else generation)
        parts = [part for name in root.uploads if (part := await self._load(name, load_uploads)) is not None]
        uploads = {upload.id: upload for part in parts for upload in part.uploads}
        if len(parts) < len(root.uploads) and mine is not None:
            uploads = {upload.id: upload for upload in mine.uploads} | uploads
        checkpoint = replace(root.checkpoint, uploads=tuple(uploads.values()), upload_segments=tuple(parts))
        if verdict is Verdict.MOVED:
            dropped = (*checkpoint.dropped, *root.segments)
            return Found(verdict, replace(checkpoint, dropped=dropped), max(checkpoint.generation, known))
        ledger = Ledger()
        for name in root.segments:
            segment = await self._load(name, load_segment)
            ledger = ledger if segment is None else ledger.with_segment(segment)
        dropped = checkpoint.dropped if mine is not None else (*checkpoint.dropped, *_orphans(checkpoint))
        return Found(verdict, replace(checkpoint, ledger=ledger, dropped=dropped), checkpoint.generation)

    async def save(self, checkpoint: AnyCheckpoint) -> AnyCheckpoint:
        """Store a checkpoint and return it as stored: written by this process, one write later."""
        # A root that was said to have failed may stand there all the same: its number is not used for another one.
        self._n = n = max(checkpoint.n, self._n) + 1
        new = replace(checkpoint, by=self.by, n=n).with_packed_uploads(uploads_name(self.by, n))
        segments: list[Segment | UploadSegment] = [*new.ledger.segments, *new.upload_segments]
        named = {segment.name for segment in segments}
        new = replace(new, dropped=(*new.dropped, *(self._tried - named)))
        self._tried |= {segment.name for segment in new.upload_segments if segment.name not in self._stored}
        if self._marked is not None and self._marked != new.generation:
            await self._mark(new.generation)  # first: no later reset may count from an older generation
        for segment in segments:
            # A name alone says little: a root that was refused may have left other content under it.
            if self._stored.get(segment.name) != segment:
                stored = dump_segment(segment) if isinstance(segment, Segment) else dump_uploads(segment)
                await self._set(self._segment_key(segment.name), stored)
                self._stored[segment.name] = segment
        await self._set(self._root, dump_root(new))
        if self._marked is None:
            await self._mark(new.generation)
        self._tried.clear()
        return replace(new, dropped=await self._delete(new.dropped, keep=named))

    async def _mark(self, generation: int) -> None:
        await self._set(self._marker, {"v": 1, "generation": generation})
        self._marked = generation

    async def write_health(self, record: dict[str, Any]) -> None:
        await self._set(key_of("health", self._name), record)

    async def _load(self, name: str, load: Callable[[str, Any], S]) -> S | None:
        """Read a segment that the root names; one that is gone is said and left out."""
        stored = await self._get(self._segment_key(name))
        if stored is None:
            log.error("%s: segment %s of its state is gone; what it knew may be delivered again, an upload that it "
                      "remembered may be missed", self._name, name)  # fmt: skip
            return None
        try:
            segment = load(name, stored)
        except Unreadable as error:
            raise CheckpointError(
                f"{self._name}: stored state cannot be read: {error}. It stands under the key {self._segment_key(name)!r} of the "
                "asset's state; without it what it knew may be delivered again"
            ) from None
        self._stored[name] = segment
        return segment

    async def _delete(self, names: tuple[str, ...], *, keep: set[str]) -> tuple[str, ...]:
        """Delete segments that nothing names any more; return those that could not be deleted this time."""
        for number, name in enumerate(names):
            if name in keep:
                continue
            try:
                await self._store.adelete(self._segment_key(name))
            except Exception as error:
                log.debug("%s: cannot delete segment %s: %s", self._name, name, error)
                return names[number:]
            self._stored.pop(name, None)
        return ()

    def _read(self, stored: Any, fallback: AnyCheckpoint) -> Root:
        try:
            return load_root(stored, fallback)
        except Unreadable as error:
            raise CheckpointError(
                f"{self._name}: stored state cannot be read: {error}. It stands under the key {self._root!r} of the asset's state"
            ) from None

    def _segment_key(self, segment: str) -> str:
        return key_of("uploads" if "-u" in segment else "ledger", f"{segment}:{self._name}")

    async def _get(self, key: str) -> Any:
        return await self._store.aget(key)

    async def _set(self, key: str, value: Any) -> None:
        try:
            await self._store.aset(key, value)
        except Exception as error:
            raise StoreRefused(
                f"{self._name}: Airflow did not take a write to the asset's state ({type(error).__name__}): the asset is "
                "not active (is its DAG file broken, or the DAG gone?), or the database is not reachable. "
                "Nothing is delivered until it does"
            ) from error
