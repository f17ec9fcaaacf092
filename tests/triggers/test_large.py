"""Batches that are too large for an event: cut by bytes, or written as a manifest between intent and delivery."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytest

from airflow_state_watchers import S3PrefixWatermarkTrigger
from airflow_state_watchers.core.manifest import load
from airflow_state_watchers.exceptions import SourceDenied, SourceUnavailable, WatcherArgumentError
from airflow_state_watchers.sources.s3_manifest import S3Manifests
from airflow_state_watchers.testing import InMemoryManifests
from airflow_state_watchers.triggers import settings as settings_module
from airflow_state_watchers.triggers.clock import SystemClock
from tests.memory import World
from tests.triggers.runner import Runner, StepClock
from tests.triggers.test_guards import runner, source, stored, watcher  # noqa: F401 - fixtures

ROOT, HEALTH = "state_watchers:memory", "state_watchers.health:memory"


class LargeWorld(World):
    """A watcher with a place for manifests; an event holds three items."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**{"start": "earliest", "max_items": 3, **arguments})
        self.manifests = self.harness._trigger.manifests = InMemoryManifests(self.clock)

    def put(self, *keys: str) -> None:
        for key in keys:
            self.source.put(key)

    def items(self, event: Mapping[str, Any]) -> list[dict[str, Any]]:
        data = self.manifests.read(event["manifest"])
        assert data is not None
        return load(data)

    def events(self, after: float = 60) -> list[dict[str, Any]]:
        self.clock.advance(after)
        return self.harness.poll_sync()


def test_a_batch_that_is_too_long_is_one_event_with_an_address() -> None:
    world = LargeWorld()
    world.put("a", "b", "c", "d")
    (event,) = world.events()
    assert (event["items"], event["count"], event["bytes"]) == ([], 4, 4)
    assert event["manifest"]["uri"].endswith(f"/{event['batch_id']}.jsonl.gz")
    assert [item["key"] for item in world.items(event)] == ["a", "b", "c", "d"]
    assert world.events() == [], "it is committed"


def test_a_small_one_stays_as_it_is() -> None:
    world = LargeWorld()
    world.put("a", "b", "c")
    (event,) = world.events()
    assert len(event["items"]) == 3
    assert "manifest" not in event
    assert world.manifests.stored == {}


@pytest.mark.parametrize("key", ["k" * 600_000, "\N{GRINNING FACE}" * 50_000])
def test_bytes_count_as_they_are_stored(key: str) -> None:
    world = LargeWorld()
    world.put(key)
    (event,) = world.events()
    assert event["items"] == []
    assert [item["key"] for item in world.items(event)] == [key]


def test_without_a_place_events_are_cut_by_bytes() -> None:
    world = World(start="earliest")
    for number in range(5):
        world.source.put(f"{number}" + "k" * 200_000)
    world.clock.advance(60)
    events = world.harness.poll_sync()
    assert [event["count"] for event in events] == [2, 2, 1]
    assert [event["previous"] for event in events] == [None, events[0]["batch_id"], events[1]["batch_id"]]


def test_one_poll_that_found_very_much_makes_events_of_the_largest_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("large", "selecting"):
        monkeypatch.setattr(f"airflow_state_watchers.triggers.{module}.SELECTION_LIMIT", 5)
    world = LargeWorld(max_items=2)
    world.put(*"abcdefghijkl")
    events = world.events()
    assert [event["count"] for event in events] == [5, 5, 2]
    keys = [item["key"] for event in events for item in (event["items"] or world.items(event))]
    assert keys == list("abcdefghijkl")


def test_thousands_are_cut_in_a_thread() -> None:
    world = World(start="earliest", max_items=2000)
    for number in range(4500):
        world.source.put(f"{number:05}")
    world.clock.advance(60)
    assert sorted(event["count"] for event in world.harness.poll_sync()) == [500, 2000, 2000]


# Crashes and failures.


def test_a_manifest_that_cannot_be_written_delivers_nothing_and_is_tried_again() -> None:
    world = LargeWorld()
    world.put(*"abcd")
    world.manifests.error = SourceUnavailable("the place for manifests is down")
    assert world.events() == []
    root, health = world.harness.store.get(ROOT), world.harness.store.get(HEALTH)
    assert root["watermark"] is None
    assert len(root["intents"]) == 1, "the intent is stored first"
    assert health["last_error"]["message"] == "the place for manifests is down"
    world.manifests.error = None
    (event,) = world.events(300)
    assert event["batch_id"] == root["intents"][0]["batch"]
    assert "replaces" not in event
    assert len(world.items(event)) == 4


@pytest.mark.parametrize("crash", ["before_confirm", "before_commit"])
def test_a_replay_finds_its_manifest(crash: Any) -> None:
    world = LargeWorld()
    world.put(*"abcd")
    world.clock.advance(60)
    (first,) = world.harness.poll_sync(crash=crash)
    before = dict(world.manifests.stored)
    world.harness.restart()
    (again,) = world.events()
    assert (again["batch_id"], again["manifest"]) == (first["batch_id"], first["manifest"])
    assert world.manifests.stored == before


@pytest.mark.parametrize("written", [True, False])
async def test_a_process_that_dies_around_the_write_loses_nothing(
    written: bool,
    runner: Runner,  # noqa: F811
    source: Any,  # noqa: F811
) -> None:
    from airflow_state_watchers.testing import InMemoryStore

    class Stuck(InMemoryManifests):
        stuck = asyncio.Event()

        async def write(self, batch_id: str, items: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
            address = await super().write(batch_id, items) if written else None
            if not self.stuck.is_set():
                self.stuck.set()
                await asyncio.Event().wait()
            return address or await super().write(batch_id, items)

    store, manifests = InMemoryStore(), Stuck(SystemClock())
    first = watcher(source, StepClock(), max_items=2)
    first.manifests = manifests
    runner.start(first, test=store)
    await manifests.stuck.wait()
    (intent,) = stored(store)["intents"]
    assert len(manifests.stored) == written
    await runner.cancel()
    assert runner.events == []
    second = watcher(source, StepClock(), max_items=2)
    second.manifests = manifests
    runner.start(second, 2, test=store)
    event = await runner.event()
    assert event["batch_id"] == intent["batch"]
    assert event["count"] == 3
    assert list(manifests.stored) == [event["manifest"]["uri"]]


def test_a_replay_with_other_content_has_a_manifest_of_its_own() -> None:
    world = LargeWorld()
    world.put(*"bcde")
    world.clock.advance(60)
    (first,) = world.harness.poll_sync(crash="before_commit")
    world.source.put("a", at=world.clock.now() - timedelta(seconds=60))
    world.harness.restart()
    (again,) = world.events()
    assert again["replaces"] == [first["batch_id"]]
    assert again["manifest"]["uri"] != first["manifest"]["uri"]
    assert [item["key"] for item in world.items(first)] == list("bcde")
    assert [item["key"] for item in world.items(again)] == list("abcde")


def test_one_that_shrinks_on_a_replay_is_an_ordinary_event() -> None:
    world = LargeWorld()
    world.put(*"abcd")
    world.clock.advance(60)
    (first,) = world.harness.poll_sync(crash="before_commit")
    world.source.delete("a")
    world.harness.restart()
    (again,) = world.events()
    assert again["replaces"] == [first["batch_id"]]
    assert [item["key"] for item in again["items"]] == list("bcd")


def test_a_watcher_that_lost_its_place_cuts_what_it_had_written() -> None:
    world = LargeWorld()
    world.put(*"abcd")
    world.clock.advance(60)
    (first,) = world.harness.poll_sync(crash="before_commit")
    world.harness._trigger.manifests = None
    world.harness.restart()
    events = world.events()
    assert [event["count"] for event in events] == [3, 1]
    assert [event["replaces"] for event in events] == [[first["batch_id"]]] * 2


# Old manifests.


def test_old_manifests_are_removed_at_the_start_and_once_a_day() -> None:
    world = LargeWorld()
    world.put(*"abcd")
    (first,) = world.events()
    world.events(29 * 86400)
    world.put(*"efgh")
    (second,) = world.events()
    assert len(world.manifests.stored) == 2
    world.events(86400 + 3600)
    assert list(world.manifests.stored) == [second["manifest"]["uri"]], first
    world.clock.advance(40 * 86400)
    world.harness.restart()
    world.events()
    assert world.manifests.stored == {}


def test_a_failure_to_remove_is_said_once_and_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    world = LargeWorld()
    world.manifests.error = SourceDenied("s3:DeleteObject is denied")
    for number in range(4):
        world.put(f"k{number}")
        assert len(world.events(86400)) == 1
    assert caplog.text.count("s3:DeleteObject is denied") == 1
    world.manifests.error = None
    world.events(86400)
    world.manifests.error = SourceDenied("denied again")
    world.events(86400)
    assert caplog.text.count("denied again") == 1


def test_a_strange_failure_to_remove_tells_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    world = LargeWorld()
    world.manifests.error = RuntimeError("the password is hunter2")
    world.events()
    assert "old manifests cannot be removed: RuntimeError" in caplog.text
    assert "hunter2" not in caplog.text


# The argument.


def make(uri: Any, **arguments: Any) -> S3PrefixWatermarkTrigger:
    return S3PrefixWatermarkTrigger(
        **{"bucket_name": "lake", "prefix": "orders/", "manifest_uri": uri, **arguments},
    )


@pytest.mark.parametrize(
    ("uri", "arguments", "words"),
    [
        ("", {}, ["manifest_uri=''"]),
        (5, {}, ["manifest_uri=5"]),
        ("lake/manifests", {}, ["manifest_uri='lake/manifests'", "s3://bucket/manifests"]),
        ("s3://", {}, ["manifest_uri='s3://'"]),
        ("s3://{{ var.value.b }}/x", {}, ["manifest_uri", "template"]),
        ("s3://lake/orders", {}, ["manifest_uri='s3://lake/orders'", "s3://lake/orders/", "its own manifests"]),
        ("s3://lake/orders/manifests/", {}, ["s3://lake/orders/"]),
        ("s3://lake/manifests", {"prefix": ""}, ["s3://lake/"]),
        ("s3://lake/manifests", {"prefix": "man"}, ["s3://lake/man"]),
        ("s3://lake", {"prefix": "s3-lake-s"}, ["s3://lake/s3-lake-s"]),
    ],
)
def test_a_place_that_cannot_work_is_named_at_dag_parse(uri: Any, arguments: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(WatcherArgumentError) as caught:
        make(uri, **arguments)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    "uri", ["s3://lake/manifests", "s3://lake", "s3://other/orders/", "s3://lake/orders-manifests"]
)
async def test_any_other_place_is_taken_and_serialized(uri: str) -> None:
    trigger = make(uri, aws_conn_id="mine", region_name="eu-west-1", botocore_config={"proxies": {"https": "secret"}})
    assert trigger.serialize()[1]["manifest_uri"] == uri
    assert "manifest_uri" not in make(None).serialize()[1]
    store = trigger.build_manifests(7, timedelta(days=1))
    assert isinstance(store, S3Manifests)
    assert (store.place.aws_conn_id, store.place.region_name, store.place.timeout) == ("mine", "eu-west-1", 7)
    assert make(None).build_manifests(7, timedelta(days=1)) is None


def test_the_limit_in_bytes_is_half_a_mebibyte() -> None:
    assert settings_module.MAX_EVENT_BYTES == 512 * 1024
