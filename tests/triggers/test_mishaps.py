"""Clocks that are wrong, edits at bad moments, losses on top of edits."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from airflow_state_watchers import S3PrefixWatermarkTrigger
from airflow_state_watchers.core.codec import dump_root, load_root
from airflow_state_watchers.exceptions import SourceUnavailable
from airflow_state_watchers.testing import FrozenClock, InMemoryStore
from airflow_state_watchers.triggers.progress import Interrupted
from tests.memory import World
from tests.triggers.runner import Runner, StepClock, until
from tests.triggers.test_guards import runner, source, watcher  # noqa: F401 - fixtures

ROOT, HEALTH = "state_watchers:memory", "state_watchers.health:memory"


def edit(world: World, watermark: Any, *, bare: bool = False) -> None:
    stored = {} if bare else world.harness.store.get(ROOT)
    world.harness.store.set(ROOT, {**stored, "watermark": watermark})


@pytest.mark.parametrize("days", [1, 365])
@pytest.mark.parametrize("restart", [True, False])
def test_one_answer_of_a_source_whose_clock_is_ahead_loses_and_repeats_nothing(
    days: int, restart: bool, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(start="earliest")
    world.source.put("a")
    delivered = world.poll()
    world.source.clock = FrozenClock(world.clock.now() + timedelta(days=days))
    world.poll(3600)
    world.source.clock = world.clock
    if restart:
        world.harness.restart()
    for number in range(12):
        world.source.put(f"k{number}")
        delivered += world.poll(3600)
    assert delivered == ["a", *(f"k{number}" for number in range(12))]
    assert caplog.text.count("one of the two is wrong") == 1


def test_a_clock_set_back_during_a_poll_makes_no_pause_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.poll()
    opened = world.source.open

    async def open_while_the_clock_is_set_back() -> Any:
        world.clock.advance(-7200)
        return await opened()

    monkeypatch.setattr(world.source, "open", open_while_the_clock_is_set_back)
    world.poll()
    producer: Any = world.harness._trigger.producer
    assert producer._rest(world.clock.now() + timedelta(days=1)) <= 60


def test_a_clock_set_back_between_polls_keeps_nothing_waiting() -> None:
    world = World(start="earliest")
    world.source.put("a")
    world.poll()
    world.source.clock = FrozenClock(world.clock.now())
    world.clock.advance(-86400)
    edit(world, "2025-12-31T00:00:00Z")
    assert world.poll(60) + world.poll(60) == ["a"]
    assert world.harness.store.get(HEALTH)["last_poll"] == world.clock.now().isoformat()


def test_a_moved_watermark_outlives_the_loss_of_the_state() -> None:
    world = World()
    world.source.put("old")
    world.poll()
    world.source.put("a")
    assert world.poll() == ["a"]
    edit(world, "2025-12-31T00:00:00Z")
    world.source.error = SourceUnavailable("down")
    world.poll(400)
    world.source.put("while it was down")
    world.harness.store.lose()
    world.source.error = None
    assert sorted(world.poll(400) + world.poll()) == ["a", "old", "while it was down"]
    assert world.harness.store.get(ROOT)["generation"] == 2


def test_a_generation_never_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its batches would have the ids of others, and the inbox would drop them."""
    world = World(start="earliest", settle=0)
    world.source.put("a")
    world.poll()
    seen = {world.harness.events[-1]["batch_id"]}
    for number in range(1, 4):
        if number == 3:
            world.source.error = SourceUnavailable("down")
            edit(world, "2025-12-30T00:00:00Z", bare=True)
            world.poll(400)
            world.source.error = None
        edit(world, f"2025-12-3{number % 2}T00:00:00Z", bare=True)
        assert world.poll(400) + world.poll() == ["a"]
        assert world.harness.events[-1]["batch_id"] not in seen
        seen.add(world.harness.events[-1]["batch_id"])
    assert world.harness.store.get(ROOT)["generation"] == 5


def test_a_restarted_process_counts_generations_on_from_the_marker() -> None:
    world = World(start="earliest")
    world.source.put("a")
    world.poll()
    edit(world, None)
    world.poll(400)
    world.harness.restart()
    edit(world, None, bare=True)
    world.poll()
    assert world.harness.store.get(ROOT)["generation"] == 3


def test_an_edit_that_cannot_be_begun_can_be_corrected() -> None:
    world = World()
    world.poll()
    world.source.put("a")
    world.poll()
    edit(world, {"value": "9999-12-31T23:59:59.999999+00:00", "tiebreak": "x"})
    world.poll(400)
    edit(world, "2025-12-01T00:00:00Z")
    assert world.poll(400) + world.poll() == ["a"]


def test_a_correction_while_the_source_is_down_is_the_one_that_counts() -> None:
    world = World()
    world.source.put("old")
    world.poll()
    world.source.put("a")
    world.poll()
    edit(world, "2025-12-01T00:00:00Z")
    world.source.error = SourceUnavailable("down")
    world.poll(400)
    edit(world, "2026-01-01T00:00:30Z")
    world.source.error = None
    assert world.poll(400) + world.poll() == ["a"]


async def test_a_commit_that_waited_while_the_poll_met_another_process_writes_nothing(
    runner: Runner,  # noqa: F811
    source: Any,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Airflow ends a stream whose ``advance`` raises, so nothing may leave it."""
    monkeypatch.setenv("AIRFLOW__STATE_WATCHERS__MAX_IN_FLIGHT", "2")
    store, clock = InMemoryStore(), StepClock()
    trigger = watcher(source, clock, max_items=1)
    task = runner.start(trigger, test=store)
    await until(lambda: len(runner.events) == 2)
    producer: Any = trigger.producer
    progress = producer._progress
    async with progress._lock:
        runner.confirm(1)
        await until(lambda: clock.sleeps >= 25)
        await asyncio.sleep(0.01)
        # The commit waits for its turn. Meanwhile another process has written, and the poll has met that.
        known = load_root(store.get(ROOT), progress._blank).checkpoint
        store.set(ROOT, dump_root(replace(known, by="other", n=known.n + 1)))
        producer._interrupt(Interrupted("met another process"))
    await asyncio.wait_for(clock.paused.wait(), 10)
    assert store.get(ROOT)["watermark"] is None, "what was planned before is not committed"
    for _ in range(100):
        runner.confirm()
        clock.next_poll()
        await asyncio.sleep(0.02)
    assert store.get(ROOT)["watermark"]["tiebreak"] == "k2"
    assert not task.done()


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("settle", 2030 * 365.25 * 86400),
        ("initial_value", "0001-01-01T00:00:00+05:00"),
        ("max_objects_per_event", 10**7),
    ],
)
def test_what_cannot_work_is_refused_at_dag_parse(argument: str, value: Any) -> None:
    with pytest.raises(TypeError, match=argument):
        S3PrefixWatermarkTrigger("lake", prefix="", **{argument: value})
