"""What must not be committed: the two holes of Airflow's ack mode, and whatever was not clean."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import pytest

from airflow_state_watchers.testing import InMemorySource, InMemoryStore
from airflow_state_watchers.triggers import producer as producer_module
from airflow_state_watchers.triggers.clock import SystemClock
from airflow_state_watchers.triggers.watermark import WatermarkTrigger
from tests.memory import MemoryTrigger
from tests.triggers.runner import Runner, StepClock, until

Make = Callable[..., WatermarkTrigger]


@pytest.fixture
async def runner() -> AsyncIterator[Runner]:
    runner = Runner()
    yield runner
    for trigger_id in list(runner._tasks):
        await runner.cancel(trigger_id)


def watcher(source: InMemorySource, clock: Any, **arguments: Any) -> MemoryTrigger:
    trigger = MemoryTrigger(**{"start": "earliest", "settle": 0, "lookback": 0, "poll_interval": 5, **arguments})
    trigger.source, trigger.clock, trigger.owners = source, clock, {}
    return trigger


def stored(store: InMemoryStore) -> dict[str, Any]:
    root: dict[str, Any] = store.get("state_watchers:memory")
    return root


@pytest.fixture
def source() -> InMemorySource:
    source = InMemorySource(SystemClock())
    for number in range(3):
        source.put(f"k{number}", at=SystemClock().now().replace(year=2025))
    return source


async def test_a_confirmed_delivery_is_committed(runner: Runner, source: InMemorySource) -> None:
    store, clock = InMemoryStore(), StepClock()
    runner.start(watcher(source, clock), test=store)
    payload = await runner.event()
    assert stored(store)["intents"][0]["batch"] == payload["batch_id"], "the intent is stored before the delivery"
    assert stored(store)["watermark"] is None
    runner.confirm()
    await clock.paused.wait()
    assert stored(store)["watermark"]["tiebreak"] == "k2"
    assert stored(store)["intents"] == []
    assert clock.sleeps == producer_module.GUARD_STEPS


async def test_an_unconfirmed_delivery_is_not_committed(runner: Runner, source: InMemorySource) -> None:
    store, clock = InMemoryStore(), StepClock()
    runner.start(watcher(source, clock), test=store)
    await runner.event()
    await runner.cancel()
    assert stored(store)["watermark"] is None
    runner.start(watcher(source, StepClock()), 2, test=store)
    assert len((await runner.event())["items"]) == 3


async def test_a_cancel_between_yield_and_queue_commits_nothing(runner: Runner, source: InMemorySource) -> None:
    """Airflow counts such an event as accepted although nothing was queued."""
    store, clock = InMemoryStore(), StepClock()
    runner.log_gate = asyncio.Event()
    trigger = watcher(source, clock)
    runner.start(trigger, test=store)
    await asyncio.wait_for(runner.logging.wait(), 10)
    # The unsubscription alone resolves the event as acked. Without the closing stream, only the mark is left to tell.
    producer = trigger.producer
    assert producer is not None
    group = next(iter(runner.manager._groups.values()))
    group.unsubscribe(1)
    await until(lambda: clock.sleeps >= producer_module.GUARD_STEPS)
    await asyncio.sleep(0.05)
    assert runner.events == []
    assert stored(store)["watermark"] is None


@pytest.mark.parametrize("at", [1, 12, producer_module.GUARD_STEPS])
async def test_a_trigger_removed_soon_after_the_confirmation_commits_nothing(
    runner: Runner, source: InMemorySource, at: int
) -> None:
    """When the trigger's row is replaced, Airflow drops the event in flight silently and confirms it."""
    store, clock = InMemoryStore(), StepClock()
    clock.hold_at = at
    runner.start(watcher(source, clock), test=store)
    await runner.event()
    runner.confirm()
    await asyncio.wait_for(clock.held.wait(), 10)
    cancelling = asyncio.create_task(runner.cancel())
    await asyncio.sleep(0.01)
    clock.released.set()
    await cancelling
    assert stored(store)["watermark"] is None
    assert len(stored(store)["intents"]) == 1


async def test_a_blocked_loop_does_not_use_the_guard_up(runner: Runner, source: InMemorySource) -> None:
    """The loop is blocked for 3 s right after the confirmation, longer than the whole guard; the cancel is already due."""
    store = InMemoryStore()
    runner.start(watcher(source, SystemClock()), test=store)
    await runner.event()
    runner.confirm()
    await asyncio.sleep(0.05)
    tasks: list[asyncio.Task[None]] = []
    asyncio.get_running_loop().call_later(0.5, lambda: tasks.append(asyncio.create_task(runner.cancel())))
    time.sleep(3)  # noqa: ASYNC251 - the point of the test
    await until(lambda: tasks and tasks[0].done())
    assert stored(store)["watermark"] is None


async def test_only_what_stands_before_the_first_unclean_delivery_is_committed(
    runner: Runner, source: InMemorySource
) -> None:
    store, clock = InMemoryStore(), StepClock()
    trigger = watcher(source, clock, max_items=1)
    runner.start(trigger, test=store)
    await until(lambda: len(runner.events) == 3)
    group = next(iter(runner.manager._groups.values()))
    first, second, third = list(group._outstanding)
    runner.confirm(1)
    group._resolve_subscriber(event_id=second, trigger_id=1, resolution="failed")
    group._resolve_subscriber(event_id=third, trigger_id=1, resolution="acked")
    await until(lambda: stored(store)["watermark"] is not None)
    assert stored(store)["watermark"]["tiebreak"] == "k0"
    assert first < second < third
    # What was not clean is delivered again by the next poll of the same producer.
    await until(lambda: len(runner.events) == 4)
    assert [payload["items"][0]["key"] for payload, _ in runner.events] == ["k1", "k2", "k1", "k2"]


async def test_at_most_so_many_deliveries_are_in_flight(
    runner: Runner, source: InMemorySource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__STATE_WATCHERS__MAX_IN_FLIGHT", "2")
    store, clock = InMemoryStore(), StepClock()
    runner.start(watcher(source, clock, max_items=1), test=store)
    await until(lambda: len(runner.events) == 2)
    await asyncio.sleep(0.05)
    assert len(runner.events) == 2
    assert len(stored(store)["intents"]) == 2
    runner.confirm(1)
    await until(lambda: len(runner.events) == 2)
    runner.confirm()
    await clock.paused.wait()
    assert stored(store)["watermark"]["tiebreak"] == "k2"


async def test_a_refused_intent_delivers_nothing(runner: Runner, source: InMemorySource) -> None:
    store, clock = InMemoryStore(), StepClock()
    empty = InMemorySource(SystemClock())
    runner.start(watcher(empty, clock, lookback=86400), test=store)
    await clock.paused.wait()
    store.active = False
    empty.put("new", at=SystemClock().now() - timedelta(seconds=5))
    clock.next_poll()
    await clock.paused.wait()
    assert runner.events == []
    store.active = True
    clock.next_poll()
    await runner.event()


async def test_a_commit_that_the_store_refuses_is_tried_until_it_stands(runner: Runner, source: InMemorySource) -> None:
    store, clock = InMemoryStore(), StepClock()
    runner.start(watcher(source, clock), test=store)
    await runner.event()
    store.active = False
    runner.confirm()
    await until(lambda: clock.sleeps > producer_module.GUARD_STEPS + 10)
    store.active = True
    await clock.paused.wait()
    assert stored(store)["watermark"]["tiebreak"] == "k2"
    assert len(runner.events) == 0


async def test_an_edit_that_cannot_be_read_while_a_delivery_is_on_its_way(
    runner: Runner, source: InMemorySource
) -> None:
    """The commit waits for a root that can be read, and then goes by what it says."""
    store, clock = InMemoryStore(), StepClock()
    runner.start(watcher(source, clock), test=store)
    await runner.event()
    store.set("state_watchers:memory", {**stored(store), "watermark": "yesterday"})
    runner.confirm()
    await until(lambda: clock.sleeps > producer_module.GUARD_STEPS + 10)
    assert stored(store)["watermark"] == "yesterday"
    assert "watermark" in store.get("state_watchers.health:memory")["last_error"]["message"]
    store.set("state_watchers:memory", {**stored(store), "watermark": "2025-01-01T00:00:00Z"})
    payload = await runner.event()
    assert payload["generation"] == 2
    assert payload["count"] == 3
    runner.confirm()
    await clock.paused.wait()
    assert stored(store)["watermark"]["tiebreak"] == "k2"


async def test_errors_back_off_inside_the_stream(runner: Runner) -> None:
    store, clock = InMemoryStore(), StepClock()
    source = InMemorySource(SystemClock())
    source.error = ValueError("whatever")
    task = runner.start(watcher(source, clock), test=store)
    for _ in range(12):
        await asyncio.wait_for(clock.paused.wait(), 10)
        clock.next_poll()
    assert not task.done()
    assert clock.pauses == sorted(clock.pauses[:8]) + clock.pauses[8:]
    assert clock.pauses[0] >= 1
    assert all(200 < pause <= 300 for pause in clock.pauses[-3:])


async def test_two_instances_of_one_name_never_work_at_once(
    runner: Runner, source: InMemorySource, caplog: pytest.LogCaptureFixture
) -> None:
    store = InMemoryStore()
    owners: dict[tuple[str, str], object] = {}
    clocks = [StepClock(), StepClock()]
    triggers = [watcher(source, clock) for clock in clocks]
    for number, trigger in enumerate(triggers):
        trigger.owners = owners
        runner.start(trigger, number + 1, test=store)
    await runner.event()
    await until(lambda: clocks[1].sleeps > 110)
    assert len(runner.events) == 1
    assert "another watcher of asset 'test' has the same name" in caplog.text
    runner.events.clear()
    await runner.cancel(1)
    await runner.event()
    assert len(runner.events) == 1
