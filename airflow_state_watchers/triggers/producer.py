"""The one delivery path: plan, scan, step, intend, deliver; then confirm, commit.

It runs in the triggerer's shared stream in ack mode, the only way in which Airflow says that an event is in its database:
:meth:`WatermarkProducer.open_stream` delivers, and Airflow calls :meth:`WatermarkProducer.advance` once what was delivered
is confirmed. Only then is the checkpoint stored that lets the next poll leave it out.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

from airflow.triggers.shared_stream import AdvanceItem, SharedStreamProducer

from airflow_state_watchers.ports import Clock
from airflow_state_watchers.triggers.event import Delivery, WatcherTriggerEvent
from airflow_state_watchers.triggers.health import Health
from airflow_state_watchers.triggers.progress import Interrupted, Progress
from airflow_state_watchers.triggers.reading import Reading
from airflow_state_watchers.triggers.settings import Settings

log = logging.getLogger(__name__)

FRONTIER_INTERVAL = timedelta(hours=1)
GUARD_STEPS = 25
GUARD_STEP = 0.1
SOON = 2.0
"""Seconds after which a watcher that could not begin yet looks again."""


class WatermarkProducer(SharedStreamProducer):
    """Polls one watcher's source and delivers what is new, for as long as the triggerer keeps it.

    Nothing but cancellation leaves :meth:`open_stream`: Airflow restarts a watcher that raises every two seconds for ever,
    without a trace in the UI, so every error is met here by backing off.
    """

    def __init__(self, settings: Settings, reading: Reading, progress: Progress, health: Health, clock: Clock) -> None:
        self.closing = False
        self._settings, self._reading, self._progress = settings, reading, progress
        self._health, self._clock = health, clock
        self._in_flight: list[Delivery] = []
        self._epoch = 0
        self._changed = asyncio.Event()
        self._again = False
        self._soon: float | None = None
        self._run_id = uuid4().hex
        self._sequence = 0

    def close(self) -> None:
        """Commit nothing more: the trigger is being removed, and what was in flight may have been dropped."""
        self.closing = True
        self._changed.set()

    async def open_stream(self) -> AsyncGenerator[tuple[Delivery, Delivery], None]:
        try:
            await self._progress.claim(self._clock)
            while True:
                async with aclosing(self._cycle()) as deliveries:
                    async for delivery in deliveries:
                        yield delivery, delivery
        finally:
            self.close()
            self._progress.release()

    async def aclose(self) -> None:
        self.close()
        await self._reading.aclose()

    async def _cycle(self) -> AsyncGenerator[Delivery, None]:
        """One poll and the wait after it."""
        self._again, self._soon, delay = False, None, None
        began = self._clock.now()
        self._health.polling(began)
        try:
            async with aclosing(self._poll()) as deliveries:
                async for delivery in deliveries:
                    yield delivery
        except Interrupted as found:
            self._interrupt(found)
        except Exception as error:
            self._again = False
            delay = self._health.failed(self._clock.now(), error)
        else:
            self._health.succeeded(self._clock.now())
            if not self._again:
                await self._reading.clean(self._clock.now())
        if not self._again or self._health.lag_seconds is not None:
            await self._tell()
        if self._again:
            await asyncio.sleep(0)
        else:
            await self._clock.pause(delay if delay is not None else self._rest(began))

    def _rest(self, began: datetime) -> float:
        """Seconds until the next poll, counted from the beginning of this one and jittered."""
        interval = self._settings.poll_interval * random.uniform(0.95, 1.0)  # noqa: S311
        if self._soon is not None:
            interval = min(interval, self._soon)
        # A clock that was set back meanwhile must not make it longer.
        return min(interval, max(1.0, interval - (self._clock.now() - began).total_seconds()))

    async def _poll(self) -> AsyncGenerator[Delivery, None]:
        await self._all_committed()  # an earlier poll may have failed with deliveries on their way
        checkpoint = await self._progress.current(self._clock.now())
        look = await self._reading.open()
        self._health.noted(look.note)
        if checkpoint is None:
            has_begun = await self._progress.begin(look, self._clock.now())
            # What was asked for is delivered at once; a watcher that starts at the latest has nothing to deliver yet.
            self._again = has_begun and not self._progress.began_at_latest
            self._soon = None if has_begun else SOON
            return
        read = await self._progress.read(look)
        self._soon = read.soon
        self._health.scanned(self._clock.now(), lag=read.lag)
        if not read.batches:
            await self._progress.scanned(read.upto, self._clock.now(), every=FRONTIER_INTERVAL)
        epoch = self._epoch
        for batch in read.batches:
            while len(self._in_flight) >= self._settings.max_in_flight:
                await self._change()
            if self._epoch != epoch:
                return
            delivery = await self._intend(batch, epoch)
            if self._epoch != epoch:
                return
            self._in_flight.append(delivery)
            yield delivery
        await self._all_committed()
        if self._epoch == epoch:
            self._again = not read.complete

    async def _intend(self, batch: Any, epoch: int) -> Delivery:
        """Store that this batch is about to be delivered; an asset that takes no write gets no event."""
        checkpoint = await self._progress.intend(batch, self._clock.now())
        payload = await self._reading.payload(
            batch, checkpoint, trigger_run_id=self._run_id, sequence_index=self._sequence
        )
        self._sequence += 1
        return Delivery(batch, WatcherTriggerEvent(payload), epoch)

    async def _all_committed(self) -> None:
        while self._in_flight:
            await self._change()

    async def _change(self) -> None:
        """Wait until something in flight was committed or given up: the shared stream has no back-pressure of its own."""
        self._changed.clear()
        await self._changed.wait()

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        """Commit what Airflow has confirmed, up to the first delivery that was not clean."""
        if not await self._guard():
            return
        clean: list[Delivery] = []
        for item in batch:
            delivery: Delivery = item.broker_payload
            if delivery.epoch != self._epoch:
                continue
            if not (item.outcome.is_clean and delivery.accepted):
                break
            clean.append(delivery)
        else:
            await self._commit(clean)
            return
        await self._commit(clean)
        if delivery.epoch == self._epoch:
            self._interrupt(Interrupted("a delivery was not confirmed; it is delivered again"))

    async def _guard(self) -> bool:
        """Wait before a commit, and give up once the stream is closing.

        When an edit or a pause removes the trigger's row, an event in flight is dropped silently *and confirmed*; the
        cancellation follows within two rounds of the triggerer. Many short sleeps, never one long one and never a deadline:
        a blocked event loop uses those up at once, before it has run the cancellation.
        """
        for _ in range(GUARD_STEPS):
            if self.closing:
                return False
            await self._clock.sleep(GUARD_STEP)
        return not self.closing

    async def _commit(self, deliveries: Sequence[Delivery]) -> None:
        """Store the checkpoint after these deliveries, trying for as long as the stream lives."""

        def valid() -> bool:
            return deliveries[0].epoch == self._epoch

        while deliveries and not self.closing and valid():
            try:
                batches = [delivery.batch for delivery in deliveries]
                await self._progress.commit(batches, self._clock.now(), valid=valid)
            except Interrupted as found:
                if valid():
                    self._interrupt(found)
                return
            except Exception as error:
                delay = self._health.failed(self._clock.now(), error)
                await self._tell()
                for _ in range(int(delay / GUARD_STEP)):
                    if self.closing:
                        return
                    await self._clock.sleep(GUARD_STEP)
                continue
            self._in_flight = [delivery for delivery in self._in_flight if delivery not in deliveries]
            for delivery in deliveries:
                self._health.committed(delivery.batch.count)
            self._changed.set()
            return

    def _interrupt(self, found: Interrupted) -> None:
        """Drop what is in flight: its place has changed, and the next poll plans anew."""
        log.warning("%s: %s", self._settings.name, found)
        self._epoch += 1
        self._in_flight.clear()
        self._again = found.at_once
        self._changed.set()

    async def _tell(self) -> None:
        now = self._clock.now()
        if self._health.due(now):
            try:
                await self._progress.store.write_health(self._health.record(self._progress.checkpoint, now))
            except Exception as error:
                log.debug("%s: cannot write the health record: %s", self._settings.name, error)
