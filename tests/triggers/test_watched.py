"""How many assets a trigger finds on its row, what its events look like in the log, and what stands in its health."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
from airflow.jobs.triggerer_job_runner import TriggerEventEntry, messages

from airflow_state_watchers.core.envelope import NotJson
from airflow_state_watchers.exceptions import SourceDenied
from airflow_state_watchers.testing import InMemorySource, InMemoryStore
from airflow_state_watchers.triggers.clock import SystemClock
from airflow_state_watchers.triggers.event import WatcherTriggerEvent
from tests.memory import MemoryTrigger, World
from tests.triggers.runner import Runner, StepClock

HEALTH = "state_watchers.health:memory"


@pytest.fixture
async def runner() -> AsyncIterator[Runner]:
    runner = Runner()
    yield runner
    for trigger_id in list(runner._tasks):
        await runner.cancel(trigger_id)


async def test_two_assets_on_one_row_get_nothing_and_are_told_which_argument_to_give(
    runner: Runner, caplog: pytest.LogCaptureFixture
) -> None:
    stores, clock = {"a": InMemoryStore(), "b": InMemoryStore()}, StepClock()
    trigger = MemoryTrigger(start="earliest", settle=0)
    trigger.source, trigger.clock = InMemorySource(SystemClock()), clock
    trigger.source.put("k", at=SystemClock().now().replace(year=2025))
    task = runner.start(trigger, 1, **stores)
    for _ in range(3):
        await clock.paused.wait()
        clock.next_poll()
    assert not task.done()
    assert runner.events == []
    for store in stores.values():
        record = store.get(HEALTH)
        assert record["state"] == "failing"
        assert "name=" in record["last_error"]["message"]
        assert store.get("state_watchers:memory") is None
    assert "assets 'a', 'b'" in caplog.text
    assert "name=" in caplog.text


async def test_a_trigger_without_an_asset_says_so_and_stays(runner: Runner, caplog: pytest.LogCaptureFixture) -> None:
    clock = StepClock()
    trigger = MemoryTrigger()
    trigger.clock = clock
    task = runner.start(trigger)
    await clock.paused.wait()
    assert not task.done()
    assert "AssetWatcher" in caplog.text


def test_a_payload_is_short_in_the_log_and_whole_on_its_way() -> None:
    payload = {
        "kind": "s3_objects", "watcher": "s3://lake/orders/", "generation": 1, "batch_id": "b", "count": 1000, "bytes": 5,
        "low": "2026", "high": "2027", "items": [{"key": f"a-secret-key-{number}"} for number in range(1000)],
    }  # fmt: skip
    event = WatcherTriggerEvent(payload)
    for text in (repr(event), str(event), f"{event}"):
        assert len(text) < 200
        assert "a-secret-key" not in text
        assert "count=1000" in text
    # As the triggerer's child hands it to its parent.
    entry = TriggerEventEntry(1, event, 7)
    changes = messages.TriggerStateChanges(events=[entry])
    again = messages.TriggerStateChanges.model_validate_json(changes.model_dump_json())
    assert again.events is not None
    assert again.events[0].event.payload == payload


def test_an_event_is_strict_json() -> None:
    world = World(start="earliest")
    world.source.put("a")
    world.poll()
    (event,) = world.harness.events
    assert json.loads(json.dumps(event, allow_nan=False)) == event
    assert set(event) == {
        "v", "kind", "watcher", "generation", "trigger_run_id", "sequence_index", "batch_id", "previous", "low", "high",
        "count", "bytes", "items",
    }  # fmt: skip


@pytest.mark.parametrize("bad", ["\ud800", float("nan"), 2**64, b"x", {1: 2}, object()])
def test_a_bad_payload_never_leaves_and_does_not_crash(bad: Any) -> None:
    world = World(start="earliest")
    world.source.put("a")
    item = world.source._objects["a"].item
    object.__setattr__(item, "data", {**item.data, "extra": bad})
    assert world.poll() == []
    assert world.harness.store.get(HEALTH)["last_error"]["kind"] == NotJson.__name__


def test_the_health_record_tells_a_failure_its_remedy_and_the_recovery() -> None:
    world = World(start="earliest")
    world.source.put("a")
    world.poll()
    record = world.harness.store.get(HEALTH)
    assert (record["state"], record["consecutive_failures"], record["last_error"]) == ("ok", 0, None)
    assert record["lag_seconds"] == 2
    assert record["items"] == 1
    world.source.error = SourceDenied("s3://lake/: denied. Grant it")
    for _ in range(4):
        assert world.poll() == []
    record = world.harness.store.get(HEALTH)
    assert (record["state"], record["consecutive_failures"]) == ("failing", 4)
    assert record["last_error"]["message"] == "s3://lake/: denied. Grant it"
    assert record["lag_seconds"] == 242
    assert record["last_success"] < record["last_poll"]
    world.source.error = None
    world.source.put("b")
    assert world.poll() == ["b"]
    record = world.harness.store.get(HEALTH)
    assert (record["state"], record["consecutive_failures"], record["last_error"]) == ("ok", 0, None)


def test_a_foreign_errors_text_stays_out_of_the_state(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.source.error = RuntimeError("password=hunter2")
    world.poll()
    assert "hunter2" not in json.dumps(list(world.harness.store.data.values()))


def test_metrics_go_through_airflows_stats(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.sdk.observability import stats

    seen: dict[str, Any] = {}

    def note(name: str, value: Any, *, tags: dict[str, str]) -> None:
        seen[name] = (value, tags)

    monkeypatch.setattr(stats, "gauge", note)
    monkeypatch.setattr(stats, "incr", note)
    world = World(start="earliest")
    world.source.put("a")
    world.poll()
    world.poll()
    tags = {"watcher": "memory", "asset": "test"}
    assert seen["state_watchers.lag_seconds"] == (2.0, tags)
    assert seen["state_watchers.seconds_since_poll"] == (60.0, tags)
    assert seen["state_watchers.consecutive_failures"] == (0, tags)
    assert seen["state_watchers.items"] == (1, tags)
    assert seen["state_watchers.events"] == (1, tags)


def test_our_own_log_lines_name_no_item(caplog: pytest.LogCaptureFixture) -> None:
    world = World(start="earliest", max_items=1)
    for number in range(3):
        world.source.put(f"k{number}")
    caplog.set_level(logging.DEBUG, logger="airflow_state_watchers")
    assert world.poll() == ["k0", "k1", "k2"]
    assert "generation 1 begins" in caplog.text
    assert "k1" not in caplog.text
