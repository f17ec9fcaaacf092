"""Events whose items lie in a manifest, read as if they were inline."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from airflow_state_watchers import Inbox, InboxError, S3PrefixWatermarkTrigger, WatcherEvent
from airflow_state_watchers.core.manifest import dump
from airflow_state_watchers.tasks import reading
from airflow_state_watchers.tasks.doubles import InMemoryAirflow
from airflow_state_watchers.testing import InMemoryManifests, InMemorySource, WatcherHarness
from tests.tasks.sender import ORDERS, Sender, keys


class LargeSender(Sender):
    """Sends every batch as a manifest; ``reads`` tells which were read, in order."""

    def __init__(self, airflow: InMemoryAirflow) -> None:
        super().__init__(airflow)
        self.manifests = InMemoryManifests()
        self.reads: list[str] = []
        self.error: InboxError | None = None
        airflow.read_manifest = self.read

    def read(self, address: Mapping[str, Any]) -> bytes | None:
        if self.error is not None:
            raise self.error
        self.reads.append(address["uri"])
        return self.manifests.read(address)

    def payload(self, keys: Iterable[str | dict[str, Any]], **more: Any) -> dict[str, Any]:
        payload = super().payload(keys, **more)
        address = asyncio.run(self.manifests.write(payload["batch_id"], payload["items"]))
        return {**payload, "items": [], "manifest": address}

    def expire(self, payload: Mapping[str, Any]) -> None:
        del self.manifests.stored[payload["manifest"]["uri"]]


@pytest.fixture
def airflow() -> InMemoryAirflow:
    return InMemoryAirflow(asset="orders", retries=1)


@pytest.fixture
def sender(airflow: InMemoryAirflow) -> LargeSender:
    return LargeSender(airflow)


def read(airflow: InMemoryAirflow, run_id: str, try_number: int = 1, **arguments: Any) -> list[str]:
    with airflow.task(run_id, try_number), Inbox(ORDERS, skip_if_empty=False, **arguments) as inbox:
        return keys(inbox.objects())


def test_it_reads_as_if_the_items_were_inline(airflow: InMemoryAirflow, sender: LargeSender) -> None:
    sender.send("a", "b")
    Sender.send(sender, "c")
    with airflow.task(), Inbox(ORDERS) as inbox:
        assert len(inbox) == 3
        assert sender.reads == [], "counting needs no items"
        (event, _) = inbox.events()
        assert (keys(event.items), event.count, event.bytes) == (["a", "b"], 2, 2)
        assert keys(inbox.objects()) == ["a", "b", "c"]
        assert keys(inbox.take()) == ["a", "b", "c"]
        assert len(sender.reads) == 2, "each is read once"


def test_beside_inline_events(airflow: InMemoryAirflow, sender: LargeSender) -> None:
    sender.send("a", "b")
    inline = Sender(airflow)
    inline.previous, inline.clock, inline._count = sender.previous, sender.clock, 50
    inline.send("c")
    assert read(airflow, "r1") == ["a", "b", "c"]


def test_a_retry_gets_what_is_left(airflow: InMemoryAirflow, sender: LargeSender) -> None:
    sender.send("a", "b", "c")

    def task() -> None:
        with Inbox(ORDERS) as inbox:
            objects = inbox.objects()
            next(objects)
            inbox.commit()
            raise RuntimeError

    with pytest.raises(RuntimeError), airflow.task("r1"):
        task()
    assert read(airflow, "r1", 2) == ["b", "c"]
    assert read(airflow, "r2") == []


def test_copies_finish_single_items(airflow: InMemoryAirflow, sender: LargeSender) -> None:
    sender.send("a", "b", "c")
    with airflow.task("r1"), Inbox(ORDERS) as inbox:
        inbox.take(done_by="copy")
    for index, state in enumerate(["success", "failed", "success"]):
        airflow.set_state("r1", state, task_id="copy", map_index=index)
    airflow.finish("r1")
    assert read(airflow, "r2") == ["b"]


def test_repeats_are_dropped(airflow: InMemoryAirflow, sender: LargeSender) -> None:
    first = sender.send("a", "b")
    assert read(airflow, "r1") == ["a", "b"]
    sender.post(first)
    sender.previous = None
    sender.send("a", "b", "c", replaces=[first["batch_id"]])
    assert read(airflow, "r2") == ["c"]


def test_more_than_is_kept_is_read_again(
    airflow: InMemoryAirflow, sender: LargeSender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "CACHED_ITEMS", 3)
    sender.send("a", "b")
    sender.send("c", "d")
    with airflow.task(), Inbox(ORDERS) as inbox:
        assert keys(inbox.objects()) == keys(inbox.objects()) == ["a", "b", "c", "d"]
    assert len(sender.reads) == 4


def test_one_that_was_removed_by_age_is_a_gap(airflow: InMemoryAirflow, sender: LargeSender) -> None:
    gone = sender.send("a", "b")
    sender.send("c")
    sender.expire(gone)
    with pytest.raises(InboxError, match="manifest_retention") as caught:
        read(airflow, "r1")
    assert gone["manifest"]["uri"] in str(caught.value)
    assert 'on_gap="skip"' in str(caught.value)
    assert read(airflow, "r1", 2, on_gap="skip") == ["c"]
    assert read(airflow, "r2") == []


def test_repeats_whose_first_manifest_is_gone_come_again(airflow: InMemoryAirflow, sender: LargeSender) -> None:
    """A repeat rather than a loss."""
    first = sender.send("a", "b")
    assert read(airflow, "r1") == ["a", "b"]
    sender.expire(first)
    sender.previous = None
    sender.send("a", "b", "c", replaces=[first["batch_id"]])
    assert read(airflow, "r2") == ["a", "b", "c"]


@pytest.mark.parametrize(("stored", "text"), [(dump([{"key": "a"}]), "holds 1 items"), (b"?", "no gzip")])
def test_one_that_was_changed_is_refused(
    stored: bytes, text: str, airflow: InMemoryAirflow, sender: LargeSender
) -> None:
    payload = sender.send("a", "b")
    uri = payload["manifest"]["uri"]
    sender.manifests.stored[uri] = (stored, sender.manifests.clock.now())
    with pytest.raises(AirflowFailException, match=text) as caught:
        read(airflow, "r1")
    assert uri in str(caught.value)


def test_trouble_loses_nothing(airflow: InMemoryAirflow, sender: LargeSender) -> None:
    sender.send("a", "b")
    sender.error = InboxError("not now")
    with pytest.raises(InboxError, match="not now"):
        read(airflow, "r1")
    sender.error = None
    assert read(airflow, "r1", 2) == ["a", "b"]


# An event by itself.


def asset_event(payload: Any) -> Any:
    return SimpleNamespace(asset=SimpleNamespace(name="orders"), extra={"payload": payload})


def test_an_asset_event_is_read_with_its_manifest(airflow: InMemoryAirflow, sender: LargeSender) -> None:
    payload = sender.send("a", "b")
    with airflow.task():
        event = WatcherEvent.from_asset_event(asset_event(payload))
        assert event is not None
        assert (keys(event.items), event.count) == (["a", "b"], 2)
        sender.expire(payload)
        with pytest.raises(InboxError, match="is gone") as caught:
            WatcherEvent.from_asset_event(asset_event(payload))
    assert payload["manifest"]["uri"] in str(caught.value)


def test_tasks_import_the_amazon_provider_only_to_read_a_manifest() -> None:
    heavy = "airflow.providers.amazon.aws", "boto3", "botocore"
    code = f"import sys, airflow_state_watchers.tasks.inbox; print([name for name in {heavy} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.splitlines()[-1] == "[]"


# From end to end.


@pytest.fixture
def source() -> InMemorySource:
    return InMemorySource()


def test_from_a_watcher_to_a_task(source: InMemorySource) -> None:
    trigger = S3PrefixWatermarkTrigger(
        "lake", prefix="orders/", start="earliest", max_objects_per_event=2, manifest_uri="s3://state/manifests"
    )
    trigger.source, trigger.manifests = source, InMemoryManifests(source.clock)
    harness = WatcherHarness(trigger, asset="orders", clock=source.clock)
    for key in "abc":
        source.put(f"orders/{key}")
    source.clock.advance(60)
    (event,) = harness.poll_sync(crash="before_commit")
    assert (event["items"], event["count"]) == ([], 3)
    harness.restart()
    harness.poll_sync()
    with harness.task(), Inbox(ORDERS) as inbox:
        assert keys(inbox.objects()) == ["orders/a", "orders/b", "orders/c"]
