"""One watcher's checkpoint in an asset's state store.

Keys: the root, which is the only commit; its marker, which tells a deleted root from a lost one; the ledger's segments;
the health record. New segments are written under new names, then the root that names them, then the old ones are deleted:
a crash between any two writes leaves either the old checkpoint or the new one.
"""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass, replace
from typing import Any

from airflow_state_watchers.core.checkpoint import Checkpoint
from airflow_state_watchers.core.codec import (
    Root,
    Unreadable,
    dump_root,
    dump_segment,
    load_root,
    load_segment,
    restored,
)
from airflow_state_watchers.core.ledger import Segment
from airflow_state_watchers.core.verdict import Verdict, judge
from airflow_state_watchers.exceptions import CheckpointError
from airflow_state_watchers.ports import StateStore

log = logging.getLogger(__name__)

PREFIX = "state_watchers"
MAX_KEY = 500
"""Airflow's key column holds 512 characters."""


class StoreRefused(CheckpointError):
    """The store did not take a write: the asset is not active, or the store is not reachable."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a look at the store showed. ``checkpoint`` is set for ADOPT (with its ledger) and MOVED (its watermark)."""

    verdict: Verdict
    checkpoint: Checkpoint | None = None
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


class CheckpointStore:
    """Reads, judges and writes one watcher's checkpoint as the process ``by``.

    Raises :class:`StoreRefused` where Airflow takes no write and :class:`CheckpointError` for state it cannot read.
    """

    def __init__(self, store: StateStore, name: str, *, by: str) -> None:
        self.by = by
        self._store = store
        self._name = name
        self._root, self._marker = key_of("", name), key_of("marker", name)
        self._stored: dict[str, Segment] = {}
        self._marked = False

    async def look(self, mine: Checkpoint | None, blank: Checkpoint) -> Found:
        """Read the root and say what it means. One operation, two where the root is gone or nobody has looked before."""
        stored = await self._get(self._root)
        marker = await self._get(self._marker) if stored is None or not self._marked else None
        self._marked = stored is not None and (self._marked or marker is not None)
        root = self._read(stored, mine or blank) if stored is not None else None
        verdict = judge(root, marked=marker is not None, mine=mine, by=self.by)
        if root is None:
            self._stored.clear()  # what was lost or deleted by hand took its segments along, or may have
        if verdict is Verdict.RESET:
            return Found(verdict, generation=max(_generation_of(marker), mine.generation if mine else 0))
        if root is None or verdict in (Verdict.UNCHANGED, Verdict.STALE):
            return Found(verdict)
        if verdict is Verdict.MOVED:
            self._marked = False  # the marker is written again, with the generation that begins
            dropped = (*root.checkpoint.dropped, *root.segments)
            known = max(root.checkpoint.generation, _generation_of(marker))
            return Found(verdict, replace(root.checkpoint, dropped=dropped), known)
        checkpoint = restored(root, await self._segments(root))
        if mine is None:
            # A process that died between a commit's segment and its root left that segment behind.
            orphans = tuple(f"{checkpoint.by}-{intent.batch_id}" for intent in checkpoint.intents)
            checkpoint = replace(checkpoint, dropped=(*checkpoint.dropped, *orphans))
        return Found(verdict, checkpoint, checkpoint.generation)

    async def save(self, checkpoint: Checkpoint) -> Checkpoint:
        """Store a checkpoint and return it as stored: written by this process, one write later."""
        new = replace(checkpoint, by=self.by, n=checkpoint.n + 1)
        for segment in new.ledger.segments:
            # A name alone says little: a root that was refused may have left other content under it.
            if self._stored.get(segment.name) != segment:
                await self._set(self._segment_key(segment.name), dump_segment(segment))
                self._stored[segment.name] = segment
        await self._set(self._root, dump_root(new))
        if not self._marked:
            await self._set(self._marker, {"v": 1, "generation": new.generation})
            self._marked = True
        return replace(new, dropped=await self._delete(new.dropped, keep=set(new.ledger)))

    async def write_health(self, record: dict[str, Any]) -> None:
        await self._set(key_of("health", self._name), record)

    async def _segments(self, root: Root) -> list[Segment]:
        segments = []
        for name in root.segments:
            stored = await self._get(self._segment_key(name))
            if stored is None:
                log.error("%s: segment %s of the ledger is gone; what it knew may be delivered again", self._name, name)
                continue
            try:
                segments.append(load_segment(name, stored))
            except Unreadable as error:
                raise CheckpointError(f"{self._name}: stored state cannot be read: {error}") from None
            self._stored[name] = segments[-1]
        return segments

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

    def _read(self, stored: Any, fallback: Checkpoint) -> Root:
        try:
            return load_root(stored, fallback)
        except Unreadable as error:
            raise CheckpointError(
                f"{self._name}: stored state cannot be read: {error}. It stands under the key {self._root!r} of the asset's state"
            ) from None

    def _segment_key(self, segment: str) -> str:
        return key_of("ledger", f"{segment}:{self._name}")

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
