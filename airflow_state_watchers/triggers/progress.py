"""Where one watcher stands: its checkpoint in memory, and every look at the stored one.

Each write looks first, so that a person's edit or a second triggerer is seen before anything is written over it.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

from airflow_state_watchers.core.codec import AnyCheckpoint
from airflow_state_watchers.core.verdict import Verdict
from airflow_state_watchers.exceptions import CheckpointError
from airflow_state_watchers.ports import Clock
from airflow_state_watchers.state.checkpoint_store import CheckpointStore, Found, StoreRefused, ledger_name
from airflow_state_watchers.triggers.beginning import Beginning, changed
from airflow_state_watchers.triggers.reading import Look, Read, Reading
from airflow_state_watchers.triggers.settings import Settings

log = logging.getLogger(__name__)

CLAIM_STEP = 0.1
CLAIM_WARNING = 100
"""Steps to wait for another watcher of the same name to leave before saying so."""

_MINE = (Verdict.UNCHANGED, Verdict.STALE, Verdict.LOST)


class Interrupted(Exception):
    """The stored checkpoint is no longer this process's: plan anew. Never leaves the producer."""

    def __init__(self, why: str, *, at_once: bool = True) -> None:
        super().__init__(why)
        self.at_once = at_once


class Progress:
    """The checkpoint of one watcher on one asset, as this process knows it. ``None``: a generation is about to begin.

    ``owners`` is shared by all watchers of a process: two instances of one name (an edited DAG's old and new trigger)
    never work at the same time.
    """

    def __init__(
        self,
        settings: Settings,
        store: CheckpointStore,
        reading: Reading,
        *,
        asset: str,
        owners: dict[tuple[str, str], object],
    ) -> None:
        self.store = store
        self.checkpoint: AnyCheckpoint | None = None
        self.began_at_latest = False
        self._settings, self._reading = settings, reading
        self._owners, self._key = owners, (asset, settings.name)
        self._blank: AnyCheckpoint = reading.blank(uuid4().hex[:8])
        self._source = self._blank.source
        self._lock = asyncio.Lock()
        self._beginning: Beginning | None = None
        self._looked_at: datetime | None = None
        self._refresh_after = timedelta(0)
        self._generation = 0
        self._stored_at: datetime | None = None

    async def claim(self, clock: Clock) -> None:
        """Wait until no other instance of this name works for this asset."""
        steps = 0
        while self._owners.setdefault(self._key, self) is not self:
            steps += 1
            if steps == CLAIM_WARNING:
                log.error(
                    "%s: another watcher of asset %r has the same name. Give each its own: name=...",
                    self._settings.name, self._key[0],
                )  # fmt: skip
            await clock.sleep(CLAIM_STEP)

    def release(self) -> None:
        if self._owners.get(self._key) is self:
            del self._owners[self._key]

    async def current(self, now: datetime) -> AnyCheckpoint | None:
        """Return the checkpoint, read at the first call and looked at again every ``state_refresh`` seconds."""
        if self._beginning is not None:
            return None
        if self.checkpoint is None or _is_over(self._looked_at, now, self._refresh_after):
            async with self._lock:
                verdict = await self._look()
                if verdict is Verdict.LOST:
                    await self._save(self.checkpoint, now)
            self._looked_at = now
            self._refresh_after = timedelta(seconds=self._settings.state_refresh * random.uniform(0.8, 1.0))  # noqa: S311
            self._stored_at = self._stored_at or now
        return self.checkpoint

    async def begin(self, look: Look, now: datetime) -> bool:
        """Begin a generation: resolve its place, count what stands there as seen, and store both as one.

        Returns whether it has begun: what is on its way at the source may have to be waited for.
        """
        beginning = self._beginning
        assert beginning is not None
        async with self._lock:
            await self._look_again(beginning)
        if beginning.first is None:
            label = f"{self.store.by}-g{beginning.base.generation}"
            if not await look.begin(beginning, label=label):
                return False
        async with self._lock:
            await self._look_again(beginning)
            try:
                await self._save(beginning.first, now)
            except StoreRefused:
                beginning.refused = True
                raise
        self._beginning = None
        self.began_at_latest = beginning.start is not None and beginning.start.everything
        beginning.tell(self._settings)
        return True

    async def _look_again(self, beginning: Beginning) -> None:
        """Raise :class:`Interrupted` if the store no longer says what makes this generation begin."""
        found = await self.store.look(None, beginning.base)
        if not beginning.is_still(found):
            self._beginning = None
            self._meet(found)
            raise Interrupted(f"the stored state changed while a new generation began ({found.verdict.value})")

    async def read(self, look: Look) -> Read:
        """Go on with what a look shows to be new."""
        read = await look.read(self.checkpoint)
        self.checkpoint = read.checkpoint
        return read

    async def scanned(self, upto: Any, now: datetime, *, every: timedelta) -> None:
        """Note that a poll found nothing new up to ``upto``; stored once in ``every``, or to clear old intents."""
        assert self.checkpoint is not None
        had_intents = bool(self.checkpoint.intents)
        self.checkpoint = self.checkpoint.scanned(upto)
        if had_intents or _is_over(self._stored_at, now, every):
            async with self._lock:
                checkpoint = await self._still_mine()
                await self._save(checkpoint.pruned(self._reading.lookback), now)

    async def intend(self, batch: Any, now: datetime) -> AnyCheckpoint:
        """Store the intent of a delivery. Raises :class:`StoreRefused` where the asset is not active."""
        async with self._lock:
            checkpoint = await self._still_mine()
            return await self._save(checkpoint.intend(batch.intent, closes=batch.closes), now)

    async def commit(self, batches: Sequence[Any], now: datetime, *, valid: Callable[[], bool]) -> None:
        """Store the checkpoint after these confirmed deliveries, in one write of the root.

        ``valid`` says whether they still stand: what they were planned on may change while this waits for its turn.
        """
        async with self._lock:
            if not valid():
                raise Interrupted("what was delivered has been planned anew meanwhile")
            checkpoint = await self._still_mine()
            for batch in batches:
                segment = ledger_name(self.store.by, checkpoint.n + 1, batch.batch_id)
                checkpoint = checkpoint.commit(
                    batch.intent, batch.items, lookback=self._reading.lookback, segment=segment
                )
            await self._save(checkpoint, now)

    async def _save(self, checkpoint: AnyCheckpoint | None, now: datetime) -> AnyCheckpoint:
        assert checkpoint is not None
        self.checkpoint = await self.store.save(checkpoint)
        self._stored_at = now
        return self.checkpoint

    async def _still_mine(self) -> AnyCheckpoint:
        """Look before a write. Raises :class:`Interrupted` if what this process goes by no longer holds."""
        verdict = await self._look()
        if self.checkpoint is None or verdict not in _MINE:
            raise Interrupted(verdict.value, at_once=verdict is not Verdict.ADOPT)
        return self.checkpoint

    async def _look(self) -> Verdict:
        found = await self.store.look(self.checkpoint, self._blank)
        if found.verdict is Verdict.LOST:
            log.error("%s: the asset's state was lost (its DAG file was broken, or gone for a minute?); this process "
                      "remembers it and writes it back", self._settings.name)  # fmt: skip
        elif found.verdict not in _MINE:
            self._meet(found)
        return found.verdict

    def _meet(self, found: Found) -> None:
        """Take over what was found stored, or prepare the generation that it begins."""
        mine: Any = self.checkpoint
        self.checkpoint = None
        self._generation = max(self._generation, found.generation, mine.generation if mine else 0)
        generation = self._generation + 1
        if found.checkpoint is None:
            base = replace(self._blank, origin=uuid4().hex[:8]) if mine is None else replace(mine, intents=())
            self._begin_at(Beginning(replace(base, generation=generation), None, found.verdict))
            return
        stored = found.checkpoint
        policy = self._settings.on_source_change
        if stored.source != self._source:
            if policy == "stop":
                raise CheckpointError(changed(self._settings.name, stored.source, self._source))
            stored = stored.of_source(self._source)
        if found.verdict is Verdict.MOVED or (found.checkpoint.source != self._source and policy == "start"):
            start = stored.restart() if found.verdict is Verdict.MOVED else None
            self._begin_at(Beginning(replace(stored, generation=generation), start, found.verdict))
        else:
            self.checkpoint = stored

    def _begin_at(self, beginning: Beginning) -> None:
        self._beginning, self._generation = beginning, beginning.base.generation


def _is_over(since: datetime | None, now: datetime, span: timedelta) -> bool:
    """Whether ``span`` has passed; also when the clock was set back, so that nothing waits until it has caught up."""
    return since is None or not timedelta(0) <= now - since < span
