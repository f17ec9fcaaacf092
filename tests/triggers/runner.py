"""The part of Airflow's trigger runner that matters to delivery, with every step under the test's control.

It does what ``TriggerRunner.run_trigger`` of Airflow 3.3 does, in the same order, around Airflow's own stream manager: a log
call is awaited between the filter's ``yield`` and the moment the event is queued, a cancellation unsubscribes.
"""

from __future__ import annotations

import asyncio
from datetime import datetime, timezone
from typing import Any, cast

from airflow.triggers.shared_stream import SharedStreamManager

from airflow_state_watchers.ports import StateStore
from airflow_state_watchers.triggers.watermark import WatermarkTrigger


class Assets:
    def __init__(self, **by_name: StateStore) -> None:
        self._by_name = by_name


class StepClock:
    """Counts the guard's sleeps and lets a test hold them; pauses between polls last until :meth:`next_poll`."""

    def __init__(self) -> None:
        self.sleeps = 0
        self.hold_at: int | None = None
        self.held = asyncio.Event()
        self.released = asyncio.Event()
        self.paused = asyncio.Event()
        self._go = asyncio.Event()
        self.pauses: list[float] = []

    def now(self) -> datetime:
        return datetime.now(timezone.utc)

    async def sleep(self, seconds: float) -> None:
        self.sleeps += 1
        if self.hold_at == self.sleeps:
            self.held.set()
            await self.released.wait()
        await asyncio.sleep(0)

    async def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.paused.set()
        self._go.clear()
        await self._go.wait()

    def next_poll(self) -> None:
        self.paused.clear()
        self._go.set()


class Runner:
    """Runs triggers until :meth:`cancel`; what it queued is in ``events``, confirmed by the test."""

    def __init__(self, **manager: Any) -> None:
        self.manager = SharedStreamManager(**manager)
        self.events: list[tuple[dict[str, Any], int | None]] = []
        self.queued = asyncio.Event()
        self.log_gate: asyncio.Event | None = None
        self.logging = asyncio.Event()
        self.logged: list[str] = []
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def start(self, trigger: WatermarkTrigger, trigger_id: int = 1, **assets: StateStore) -> asyncio.Task[None]:
        trigger.trigger_id = trigger_id
        trigger.asset_state_store = cast(Any, Assets(**assets))
        self._tasks[trigger_id] = asyncio.create_task(self._run(trigger, trigger_id))
        return self._tasks[trigger_id]

    async def _run(self, trigger: WatermarkTrigger, trigger_id: int) -> None:
        key = trigger.shared_stream_key()
        try:
            stream = self.manager.subscribe(trigger_id=trigger_id, trigger=trigger, key=key)
            async for event in trigger.filter_shared_stream(stream):
                self.logged.append(repr(event))
                self.logging.set()
                await asyncio.sleep(0)
                if self.log_gate is not None:
                    await self.log_gate.wait()
                seq = self.manager.bind_pending_event(trigger_id=trigger_id, key=key)
                self.events.append((event.payload, seq))
                self.queued.set()
        except asyncio.CancelledError:
            await trigger.on_kill()
            raise
        finally:
            await self.manager.unsubscribe(trigger_id, key)
            await trigger.cleanup()

    async def event(self) -> dict[str, Any]:
        """Wait for the next queued event."""
        await asyncio.wait_for(self.queued.wait(), 10)
        self.queued.clear()
        return self.events[-1][0]

    def confirm(self, count: int | None = None) -> None:
        """Say that the oldest ``count`` queued events (all) are in the database."""
        count = len(self.events) if count is None else count
        now, self.events = self.events[:count], self.events[count:]
        self.manager.confirm_persisted([seq for _, seq in now if seq is not None])

    async def cancel(self, trigger_id: int = 1) -> None:
        """End a trigger as an edit or a pause of its DAG does."""
        task = self._tasks.pop(trigger_id)
        task.cancel("user-action")
        await asyncio.gather(task, return_exceptions=True)


async def until(condition: Any, seconds: float = 10) -> None:
    """Let the loop run until a condition holds."""
    async with asyncio.timeout(seconds) if hasattr(asyncio, "timeout") else _Limit():
        while not condition():  # noqa: ASYNC110 - the condition may be anything
            await asyncio.sleep(0.001)


class _Limit:
    """Python 3.10 has no ``asyncio.timeout``; pytest's own time-out serves."""

    async def __aenter__(self) -> None: ...

    async def __aexit__(self, *error: object) -> None: ...
