"""What the stored checkpoint means to a running watcher, and to one that has just started."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta, timezone
from typing import Any, cast

import pytest

from airflow_state_watchers.testing import InMemoryStore, WatcherHarness
from tests.memory import MemoryTrigger, World, keys

ROOT, MARKER, HEALTH = "state_watchers:memory", "state_watchers.marker:memory", "state_watchers.health:memory"


def at(text: str) -> datetime:
    return datetime.fromisoformat(f"2026-01-01T{text}+00:00")


def root(world: World) -> dict[str, Any]:
    value: dict[str, Any] = world.harness.store.get(ROOT)
    return value


def move(world: World, watermark: Any, **more: Any) -> None:
    """Edit the root's watermark as a person does through Airflow's REST API."""
    world.harness.store.set(ROOT, {**root(world), "watermark": watermark, **more})


def health(world: World) -> dict[str, Any]:
    value: dict[str, Any] = world.harness.store.get(HEALTH)
    return value


def error_of(world: World) -> str:
    return str(health(world)["last_error"]["message"])


# -- the first poll


def test_latest_skips_what_exists_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    world = World()
    for number in range(1234):
        world.source.put(f"old{number}", at=world.clock.now() - timedelta(hours=number % 3))
    assert world.poll(0) == []
    assert (
        '1,234 existing items skipped, newest 2026-01-01 00:00:00+00:00; start="earliest" delivers them' in caplog.text
    )
    assert world.poll() == []
    world.source.put("new")
    assert world.poll() == ["new"]


def test_earliest_delivers_what_exists_in_order() -> None:
    world = World(start="earliest")
    for name, hours in (("b", 5), ("a", 5), ("c", 9), ("d", 0)):
        world.source.put(name, at=world.clock.now() - timedelta(hours=hours))
    assert world.poll() == ["c", "a", "b", "d"]
    assert world.poll() == []


def test_an_initial_value_is_inclusive_and_wins() -> None:
    world = World(initial_value=at("00:00:00") - timedelta(hours=2))
    for hours in (1, 2, 3):
        world.source.put(f"h{hours}", at=world.clock.now() - timedelta(hours=hours))
    assert world.poll() == ["h2", "h1"]


def test_the_first_poll_stores_its_place_so_that_nothing_is_skipped_by_a_restart() -> None:
    world = World()
    assert world.poll(0) == []
    world.harness.restart()
    world.source.put("while it was down")
    assert world.poll(3600) == ["while it was down"]


def test_an_empty_source_idle_for_twelve_hours_and_down_while_a_file_lands() -> None:
    world = World()
    for _ in range(12 * 60):
        assert world.poll() == []
    world.harness.restart()
    world.source.put("a")
    assert world.poll(900) == ["a"]


# -- an idle watcher


def test_an_idle_watcher_writes_its_health_once_a_minute_and_its_frontier_once_an_hour() -> None:
    world = World(start="earliest")
    world.source.put("a")
    assert world.poll() == ["a"]
    reads, writes = world.harness.store.reads, world.harness.store.writes
    reads.clear()
    writes.clear()
    for _ in range(3 * 3600 // 5):
        world.poll(5)
    assert writes.count(ROOT) == 3
    assert 170 <= writes.count(HEALTH) <= 180
    assert set(writes) == {ROOT, HEALTH}
    # Looked at once in state_refresh (300 s, jittered by a fifth) and before each write.
    assert 3 * 12 <= reads.count(ROOT) <= 3 * 15 + 3 + 1


# -- late, ties, overwrites


def test_late_items_inside_the_lookback_come_once_and_outside_never() -> None:
    world = World(start="earliest", settle=2, lookback=600)
    world.source.put("early")
    assert world.poll() == ["early"]
    world.source.put("late", at=world.clock.now() - timedelta(seconds=500))
    world.source.put("too late", at=world.clock.now() - timedelta(seconds=700))
    assert world.poll() == ["late"]
    world.harness.restart()
    assert world.poll() == []


def test_an_overwrite_in_the_same_second_is_another_version() -> None:
    world = World(start="earliest")
    world.source.put("a", etag="1")
    world.source.put("b", etag="1")
    assert world.poll() == ["a", "b"]
    world.source.put("a", etag="2", at=at("00:00:00"))
    assert world.poll() == ["a"]


def test_ties_are_cut_anywhere_and_none_is_lost_or_repeated() -> None:
    world = World(start="earliest", max_items=7)
    for number in range(50):
        world.source.put(f"k{number:02}")
    assert world.poll() == [f"k{number:02}" for number in range(50)]
    world.harness.restart()
    assert world.poll() == []


def test_nothing_younger_than_settle_is_read() -> None:
    world = World(start="earliest", settle=30)
    world.source.put("a")
    assert world.poll(30) == []
    assert world.poll(1) == ["a"]


# -- crashes


@pytest.mark.parametrize("crash", ["before_confirm", "before_commit"])
def test_a_crash_repeats_the_same_batches(crash: Any) -> None:
    world = World(start="earliest", max_items=2)
    for number in range(5):
        world.source.put(f"k{number}")
    world.clock.advance(60)
    first = world.harness.poll_sync(crash=crash)
    world.harness.restart()
    again = world.harness.poll_sync() + world.harness.poll_sync()
    assert keys(again) == ["k0", "k1", "k2", "k3", "k4"]
    assert again[0]["batch_id"] == first[0]["batch_id"]
    assert "replaces" not in again[0]
    assert [payload["previous"] for payload in again] == [None, *(payload["batch_id"] for payload in again[:-1])]
    assert again[0]["trigger_run_id"] != first[0]["trigger_run_id"]
    assert [payload["sequence_index"] for payload in again] == [0, 1, 2]


def test_a_replay_with_other_content_names_what_it_replaces() -> None:
    world = World(start="earliest")
    world.source.put("a", etag="1")
    world.source.put("b", etag="1")
    world.clock.advance(60)
    first = world.harness.poll_sync(crash="before_commit")
    world.source.put("c", at=at("00:00:00"))
    world.source.delete("a")
    world.harness.restart()
    (again,) = world.harness.poll_sync()
    assert keys([again]) == ["b", "c"]
    assert again["replaces"] == [first[0]["batch_id"]]


def test_a_replay_of_what_vanished_delivers_nothing_and_forgets_the_intent() -> None:
    world = World(start="earliest")
    world.source.put("a")
    world.clock.advance(60)
    world.harness.poll_sync(crash="before_commit")
    world.source.delete("a")
    world.harness.restart()
    assert world.poll(0) == []
    assert root(world)["intents"] == []
    world.source.put("b")
    assert world.poll() == ["b"]


# -- a person


def test_a_watermark_moved_back_is_adopted_and_that_time_comes_again_once() -> None:
    world = World(start="earliest", lookback=1800)
    for minute in range(0, 120, 10):
        world.source.put(f"m{minute:03}")
        world.poll(600)
    world.source.put("known", at=at("00:45:00"))
    move(world, "2026-01-01T01:00:00Z")
    # The root is looked at again every state_refresh, without a restart; what lies inside the lookback counts as seen.
    again = world.poll(1) + world.poll(300) + world.poll(1)
    assert again == [f"m{minute:03}" for minute in range(60, 120, 10)]
    assert root(world)["generation"] == 2
    delivered = len(world.harness.events)
    world.poll(60)
    world.harness.restart()
    world.poll(60)
    assert len(world.harness.events) == delivered


def test_a_watermark_moved_forward_skips() -> None:
    world = World(start="earliest")
    world.source.put("a")
    assert world.poll() == ["a"]
    world.source.put("skipped")
    move(world, {"value": "2026-01-01T00:10:00+00:00"})
    assert world.poll(600) == []
    world.source.put("b")
    assert world.poll() == ["b"]
    (event,) = world.harness.events[-1:]
    assert event["generation"] == 2
    assert event["previous"] is None


@pytest.mark.parametrize("running", [True, False])
def test_an_edit_is_seen_by_a_process_that_ran_and_by_one_that_did_not(running: bool) -> None:
    world = World(start="earliest")
    world.source.put("a")
    assert world.poll() == ["a"]
    if not running:
        world.harness.restart()
    move(world, None)
    assert world.poll(600) + world.poll() == ["a"]
    assert root(world)["generation"] == 2


def test_a_root_of_the_watermark_alone_is_a_persons() -> None:
    world = World(start="earliest")
    world.source.put("a")
    world.poll()
    world.harness.store.set(ROOT, {"watermark": "2026-01-01T00:00:00+00:00"})
    assert world.poll(600) + world.poll() == ["a"]


def test_an_edit_is_never_overwritten_by_a_delivery() -> None:
    world = World(start="earliest")
    world.source.put("a")
    world.poll()
    world.source.put("b")
    move(world, None)
    assert sorted(world.poll(60) + world.poll(60) + world.poll(60)) == ["a", "b"]


@pytest.mark.parametrize("junk", ["yesterday", "2026-01-01T00:00:00", 5, {"value": 5}])
def test_an_unreadable_watermark_stops_loudly_and_recovers(junk: Any) -> None:
    world = World(start="earliest")
    world.source.put("a")
    world.poll()
    move(world, junk)
    world.source.put("b")
    assert world.poll(600) == []
    assert "watermark" in error_of(world)
    assert "state_watchers:memory" in error_of(world)
    move(world, "2026-01-01T00:00:30Z")
    assert world.poll() + world.poll() == ["b"]


def test_a_newer_version_is_refused_by_name_and_never_reset() -> None:
    world = World(start="earliest")
    world.source.put("a")
    world.poll()
    world.harness.store.set(ROOT, {**root(world), "v": 7})
    world.harness.restart()
    assert world.poll() == []
    assert "version 7" in error_of(world)
    assert root(world)["v"] == 7


@pytest.mark.parametrize("running", [True, False])
@pytest.mark.parametrize(("start", "again"), [("latest", []), ("earliest", ["a"])])
def test_a_deleted_root_is_a_reset_to_the_start_policy(running: bool, start: str, again: list[str]) -> None:
    world = World(start="earliest")
    world.source.put("a")
    world.poll()
    world.harness._trigger.start = cast(Any, start)
    if not running:
        world.harness.restart()
    world.harness.store.delete(ROOT)
    world.clock.advance(600)
    if running:
        settings = world.harness._trigger.producer._settings  # type: ignore[union-attr]
        object.__setattr__(settings, "start", start)
    assert world.poll(0) + world.poll() == again
    assert root(world)["generation"] == 2
    assert world.harness.store.get(MARKER)["generation"] == 2
    world.source.put("b")
    assert world.poll() == ["b"]


# -- losses


@pytest.mark.parametrize("start", ["latest", "earliest"])
def test_a_running_watcher_writes_lost_state_back(start: str, caplog: pytest.LogCaptureFixture) -> None:
    world = World(start=start)
    world.poll(0)
    world.source.put("a")
    assert world.poll() == ["a"]
    store = world.harness.store
    store.lose()
    store.active = False
    world.source.put("b")
    assert world.poll() == []
    assert world.poll(600) == []
    assert store.data == {}
    store.active = True
    assert world.poll(600) == ["b"]
    assert "was lost" in caplog.text
    world.harness.restart()
    assert world.poll() == []
    assert root(world)["generation"] == 1


@pytest.mark.parametrize(("start", "again"), [("latest", []), ("earliest", ["a", "b"])])
def test_a_process_without_memory_falls_back_on_start_with_an_error(
    start: str, again: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    world = World(start=start)
    world.poll(0)
    world.source.put("a")
    world.poll()
    store = world.harness.store
    store.lose()
    store.active = False
    world.harness.restart()
    world.source.put("b")
    assert world.poll() == []
    world.clock.advance(300)
    store.active = True
    delivered = world.poll() + world.poll()
    assert delivered == again
    (error,) = [record for record in caplog.records if "starts anew" in record.getMessage()]
    assert error.levelno == logging.ERROR
    if start == "latest":
        assert "2 existing items skipped" in error.getMessage()
    world.source.put("c")
    assert world.poll() == ["c"]


def test_a_place_once_resolved_does_not_move_while_the_store_refuses_it() -> None:
    world = World()
    world.harness.store.active = False
    assert world.poll(0) == []
    world.source.put("a")
    assert world.poll() == []
    world.harness.store.active = True
    assert world.poll() + world.poll() == ["a"]


def test_a_first_start_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.source.put("a")
    world.poll(0)
    world.poll()
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_batch_ids_never_repeat_after_a_loss() -> None:
    ids = set()
    for _ in range(2):
        world = World(start="earliest")
        world.source.put("a")
        world.poll()
        ids.add(world.harness.events[0]["batch_id"])
    assert len(ids) == 2


# -- a second triggerer


def test_a_frozen_triggerer_that_thaws_is_no_person_and_is_not_adopted_backward() -> None:
    world = World(start="earliest")
    world.source.put("a")
    world.poll()
    second = WatcherHarness(_like(world), clock=world.clock, store=world.harness.store)
    world.source.put("b")
    world.clock.advance(60)
    assert keys(second.poll_sync()) == ["b"]
    world.source.put("c")
    # The first one knows nothing of b. It looks before it writes, goes on from what the second stored, and c comes once.
    delivered = world.poll(60) + world.poll(60)
    assert "c" in delivered
    assert "b" not in delivered
    assert root(world)["generation"] == 1
    assert keys(second.poll_sync()) == []
    world.source.put("d")
    world.clock.advance(60)
    assert keys(second.poll_sync()) + keys(second.poll_sync()) + world.poll() == ["d"]
    assert root(world)["generation"] == 1


def _like(world: World) -> MemoryTrigger:
    trigger = MemoryTrigger(start="earliest")
    trigger.source = world.source
    return trigger


# -- another source under one name


@pytest.mark.parametrize(
    ("policy", "expected"), [("stop", []), ("keep", ["b"]), ("start", ["a", "b"])], ids=["stop", "keep", "start"]
)
def test_a_changed_source_follows_on_source_change(
    policy: str, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(start="earliest", on_source_change=policy)
    world.source.put("a")
    world.poll()
    world.source.put("b")
    monkeypatch.setattr(world.source, "fields", lambda: {"kind": "memory", "prefix": "other/"})
    world.harness.restart()
    assert world.poll() + world.poll() == expected
    if policy == "stop":
        assert "other/" in error_of(world)
        assert 'on_source_change="keep"' in error_of(world)
        monkeypatch.undo()
        world.harness.restart()
        assert world.poll() + world.poll() == ["b"]
    else:
        assert root(world)["source"] == {"kind": "memory", "prefix": "other/"}


# -- state stays small


def test_the_state_does_not_grow_with_what_was_delivered() -> None:
    world = World(start="earliest", lookback=600, max_items=50)
    sizes = []
    for round_ in range(60):
        for number in range(40):
            world.source.put(f"{round_}/{number}")
        world.poll(60)
        sizes.append(sum(len(value) for value in world.harness.store.data.values()))
    assert len(world.harness.store.data) < 12
    assert max(sizes[20:]) <= 1.5 * max(sizes[10:20])


def test_the_watermark_is_readable() -> None:
    store = InMemoryStore()
    world = World(start="earliest", store=store)
    world.source.put("a")
    world.poll()
    assert datetime.fromisoformat(root(world)["watermark"]["value"]) == datetime(2026, 1, 1, tzinfo=timezone.utc)
