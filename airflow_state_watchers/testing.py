"""Public doubles for tests: drive a watcher, or a task that reads its events, without Airflow running.

::

    def test_my_dag():
        trigger = S3PrefixWatermarkTrigger("lake", prefix="orders/", start="earliest")
        trigger.source = InMemorySource()
        trigger.source.put("orders/a.csv")
        harness = WatcherHarness(trigger, asset="orders")
        trigger.source.clock.advance(60)
        harness.poll_sync()
        with harness.task():
            load.function()  # what the DAG's @task does, with Inbox(orders) in it

:class:`JobHarness` does the same for a resumable operator: it dies where you say, and is tried again.

A watcher is driven through Airflow's own shared-stream manager, so what delivers here is what delivers in a triggerer.
"""

from __future__ import annotations

import asyncio
import copy
import json
import weakref
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from threading import Thread
from typing import Any, Literal, cast

from airflow.triggers.shared_stream import SharedStreamManager

from airflow_state_watchers.doubles import FrozenClock, InMemoryManifests, InMemorySource, InMemoryStore
from airflow_state_watchers.exceptions import StateWatcherError
from airflow_state_watchers.job_harness import JobHarness
from airflow_state_watchers.ports import Clock, StateStore
from airflow_state_watchers.row_doubles import InMemoryTable
from airflow_state_watchers.tasks.doubles import InMemoryAirflow
from airflow_state_watchers.tasks.recorded import Recorded, inbox
from airflow_state_watchers.triggers.watermark import WatermarkTrigger

Crash = Literal["before_confirm", "before_commit"]


class _Line:
    """A process's connection to the store; a dead process writes nothing."""

    def __init__(self, store: StateStore) -> None:
        self._store = store
        self.dead = False

    async def aget(self, key: str, default: Any = None) -> Any:
        return copy.deepcopy(await self._alive().aget(key, default))

    async def aset(self, key: str, value: Any) -> None:
        await asyncio.sleep(0)  # Airflow's store lets others have a turn as well
        await self._alive().aset(key, value)

    async def adelete(self, key: str) -> None:
        await self._alive().adelete(key)

    def _alive(self) -> StateStore:
        if self.dead:
            raise ConnectionError("this process is dead")
        return self._store


class _Assets:
    """What Airflow gives a trigger as ``asset_state_store``, as far as a watcher reads it."""

    def __init__(self, assets: dict[str, StateStore]) -> None:
        self._by_name = assets


class _PollClock:
    """The harness's clock: pauses between polls end when the harness asks for the next poll."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.paused = asyncio.Event()
        self.go = asyncio.Event()

    def now(self) -> datetime:
        return self._clock.now()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)

    async def pause(self, seconds: float) -> None:
        self.paused.set()
        self.go.clear()
        await self.go.wait()
        self.paused.clear()


@dataclass
class _Life:
    """One life of a trigger in a triggerer: the runner's part of Airflow, without its processes."""

    trigger: WatermarkTrigger
    trigger_id: int
    line: _Line
    clock: _PollClock
    manager: SharedStreamManager = field(default_factory=SharedStreamManager)
    waiting: list[tuple[dict[str, Any], int | None]] = field(default_factory=list)
    got: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None

    async def run(self) -> None:
        key, trigger_id = self.trigger.shared_stream_key(), self.trigger_id
        try:
            stream = self.manager.subscribe(trigger_id=trigger_id, trigger=self.trigger, key=key)
            async for event in self.trigger.filter_shared_stream(stream):
                seq = self.manager.bind_pending_event(trigger_id=trigger_id, key=key)
                self.waiting.append((json.loads(json.dumps(event.payload)), seq))
                self.got.set()
        finally:
            await self.manager.unsubscribe(trigger_id, key)

    async def end(self) -> None:
        self.line.dead = True
        if self.task is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)


class WatcherHarness:
    """Drives one watcher poll by poll, on a store that outlives it.

    :param trigger: any :class:`~airflow_state_watchers.WatermarkTrigger`; its ``source``, and its ``manifests`` if it has a
        ``manifest_uri``, are set to doubles.
    :param asset: the name of the asset that it watches.
    :param store: an :class:`InMemoryStore`; :attr:`store` is the one in use.
    :param clock: this process's clock (health record, ``state_refresh``); the source has its own.

    ``events`` collects the payloads that reached the database. Use it from a plain test with :meth:`poll_sync`, or from an
    async test with :meth:`poll`; not both on one harness.
    """

    def __init__(
        self,
        trigger: WatermarkTrigger,
        *,
        asset: str = "test",
        store: InMemoryStore | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.store = store or InMemoryStore()
        self.clock = clock or FrozenClock()
        self.asset = asset
        self.events: list[dict[str, Any]] = []
        self._trigger = trigger
        self._airflow = InMemoryAirflow(asset=asset, store=self.store, now=self.clock.now)
        if isinstance(trigger.manifests, InMemoryManifests):
            self._airflow.read_manifest = trigger.manifests.read
        self._trigger_id = 0
        self._life: _Life | None = None
        self._crashed = False
        self._tasks: list[asyncio.Task[None]] = []
        weakref.finalize(self, _end, self._tasks)

    async def poll(self, *, crash: Crash | None = None) -> list[dict[str, Any]]:
        """Deliver, confirm and commit one poll; return the payloads of its events.

        ``crash="before_confirm"`` ends the process when the first event was delivered: it never reached the database.
        ``crash="before_commit"`` ends it when the first event is in the database and nothing of it was committed. Then
        call :meth:`restart`. A poll that fails returns no events and shows in the health record.
        """
        if self._crashed:
            raise StateWatcherError("this watcher has crashed; call restart() first")
        life = self._life or self._start()
        if life.clock.paused.is_set():
            life.clock.paused.clear()
            life.clock.go.set()
        payloads: list[dict[str, Any]] = []
        while True:
            await self._wait(life)
            while life.waiting:
                payload, seq = life.waiting.pop(0)
                payloads.append(payload)
                if crash == "before_confirm":
                    await self._die()
                    return payloads
                self.events.append(payload)
                self._airflow.deliver(payload)
                if crash == "before_commit":
                    await self._die()
                    return payloads
                if seq is not None:
                    life.manager.confirm_persisted([seq])
            if life.clock.paused.is_set() and not life.waiting:
                return payloads

    def poll_sync(self, *, crash: Crash | None = None) -> list[dict[str, Any]]:
        """:meth:`poll` for plain tests: it runs in an event loop of this module's, in a thread of its own."""
        return asyncio.run_coroutine_threadsafe(self.poll(crash=crash), _background_loop()).result()

    def task(self, run_id: str = "r1", try_number: int = 1) -> AbstractContextManager[None]:
        """Be a running task: inside the block, ``Inbox(asset)`` works on what was delivered so far.

        The task succeeds, fails or is skipped as the block does; the same run again is its retry, or its clear.
        """
        return self._airflow.task(run_id, try_number)

    def restart(self) -> None:
        """Begin a new process: a new instance of the trigger, from what Airflow stores of it, on the same store."""
        life, self._life, self._crashed = self._life, None, False
        if life is not None:
            life.line.dead = True
            _end(self._tasks)
            self._tasks.clear()
        old = self._trigger
        _, kwargs = old.serialize()
        self._trigger = type(old)(**json.loads(json.dumps(kwargs)))
        self._trigger.source, self._trigger.manifests = old.source, old.manifests

    def _start(self) -> _Life:
        self._trigger_id += 1
        trigger, line = self._trigger, _Line(self.store)
        trigger.trigger_id = self._trigger_id
        trigger.asset_state_store = cast(Any, _Assets({self.asset: line}))
        trigger.owners = {}
        clock = _PollClock(self.clock)
        trigger.clock = clock
        life = _Life(trigger, self._trigger_id, line, clock)
        life.task = asyncio.ensure_future(life.run())
        self._tasks.append(life.task)
        self._life = life
        return life

    async def _wait(self, life: _Life) -> None:
        """Wait until the poll has ended or an event has come."""
        assert life.task is not None
        waits = [asyncio.ensure_future(life.clock.paused.wait()), asyncio.ensure_future(life.got.wait())]
        try:
            await asyncio.wait([*waits, life.task], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        life.got.clear()
        if life.task.done():
            self._crashed = True
            life.task.result()
            raise StateWatcherError("the watcher has ended by itself")

    async def _die(self) -> None:
        self._crashed = True
        if self._life is not None:
            await self._life.end()
            self._life = None


@cache
def _background_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    Thread(target=loop.run_forever, name="watcher-harness", daemon=True).start()
    return loop


def _end(tasks: list[asyncio.Task[None]]) -> None:
    """End what a harness that is gone has left running."""
    for task in tasks:
        loop = task.get_loop()
        if not task.done() and not loop.is_closed():
            loop.call_soon_threadsafe(task.cancel)


__all__ = [
    "FrozenClock",
    "InMemoryManifests",
    "InMemorySource",
    "InMemoryStore",
    "InMemoryTable",
    "JobHarness",
    "Recorded",
    "WatcherHarness",
    "inbox",
]
