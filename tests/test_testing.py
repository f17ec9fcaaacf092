"""The public doubles, as a user's own tests use them."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest
from airflow.sdk import Asset, task
from airflow.sdk.exceptions import AirflowSkipException

from airflow_state_watchers import Inbox, S3Object, S3PrefixWatermarkTrigger
from airflow_state_watchers.testing import InMemorySource, InMemoryStore, WatcherHarness, inbox

orders = Asset("orders", uri="s3://lake/orders/")
loaded: list[str] = []


@task
def load(fail_at: str | None = None) -> None:
    with Inbox(orders) as box:
        for obj in box.objects():
            if obj.key == fail_at:
                raise RuntimeError("as told")
            loaded.append(obj.uri)


@pytest.fixture
def source() -> InMemorySource:
    loaded.clear()
    return InMemorySource()


@pytest.fixture
def harness(source: InMemorySource) -> WatcherHarness:
    trigger = S3PrefixWatermarkTrigger("lake", prefix="orders/", start="earliest")
    trigger.source = source
    return WatcherHarness(trigger, asset="orders", clock=source.clock)


def test_from_object_to_task(source: InMemorySource, harness: WatcherHarness) -> None:
    source.put("orders/a.csv")
    source.put("orders/b.csv")
    source.clock.advance(60)
    (event,) = harness.poll_sync()
    assert event["count"] == 2
    with pytest.raises(RuntimeError), harness.task("r1"):
        load.function(fail_at="orders/b.csv")
    with harness.task("r1", try_number=2):
        load.function()
    assert loaded == ["s3://lake/orders/a.csv", "s3://lake/orders/a.csv", "s3://lake/orders/b.csv"]
    with pytest.raises(AirflowSkipException), harness.task("r2"):
        load.function()


def test_a_crashed_delivery_is_processed_once(source: InMemorySource, harness: WatcherHarness) -> None:
    source.put("orders/a.csv")
    source.clock.advance(60)
    harness.poll_sync(crash="before_commit")
    harness.restart()
    harness.poll_sync()
    assert len(harness.events) == 2
    with harness.task():
        load.function()
    assert loaded == ["s3://lake/orders/a.csv"]


async def test_the_harness_works_in_an_event_loop_too(source: InMemorySource) -> None:
    store = InMemoryStore()
    trigger = S3PrefixWatermarkTrigger("lake", prefix="orders/")
    trigger.source = source
    harness = WatcherHarness(trigger, store=store)
    assert await harness.poll() == []
    source.put("orders/a.csv")
    source.clock.advance(60)
    assert len(await harness.poll()) == 1
    assert harness.store is store


def test_a_crashed_watcher_must_be_restarted(harness: WatcherHarness, source: InMemorySource) -> None:
    source.put("orders/a.csv")
    source.clock.advance(60)
    harness.poll_sync(crash="before_confirm")
    with pytest.raises(Exception, match="restart"):
        harness.poll_sync()


def test_a_tasks_function_on_given_items() -> None:
    loaded.clear()
    stamp = datetime(2026, 1, 1, tzinfo=timezone.utc)
    items = [S3Object("lake", f"orders/{name}", 1, "etag", stamp) for name in "abc"]
    with inbox(orders, items) as recorded:
        load.function()
    assert recorded.done == items
    assert recorded.left == []
    assert loaded == [item.uri for item in items]
    with pytest.raises(RuntimeError), inbox(orders, items) as recorded:
        load.function(fail_at="orders/b")
    assert recorded.left == items
