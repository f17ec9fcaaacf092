"""Where manifests are kept: one contract for S3 and for the double, and what S3 can do besides."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from airflow.sdk import Asset

from airflow_state_watchers import Inbox, S3PrefixWatermarkTrigger
from airflow_state_watchers.core.manifest import load
from airflow_state_watchers.doubles import InMemoryManifests
from airflow_state_watchers.exceptions import InboxError, SourceDenied, SourceError, SourceMissing, SourceUnavailable
from airflow_state_watchers.ports import ManifestStore
from airflow_state_watchers.sources.s3_manifest import S3Manifests, manifest_place
from airflow_state_watchers.sources.s3_place import S3Place
from airflow_state_watchers.tasks.manifests import read_from_s3
from airflow_state_watchers.tasks.refusal import InboxRefusal
from airflow_state_watchers.testing import WatcherHarness
from tests.sources.conftest import BUCKET, SECRET, Define, Lake, stored
from tests.sources.faulty_proxy import Answer, Fault, FaultyProxy, error, reset, silence

ONE, OTHER = "0123456789abcdef01234567", "f" * 24
ITEMS = [{"key": "a b/\u00e9+%2B", "size": 1}, {"key": "b", "size": 2}]
KEEP = timedelta(days=30)
FOLDER = "state/manifests/s3-lake-orders-5da3a6c4/"


class Shelf:
    """A store of manifests, and a way to let one grow old."""

    def __init__(self, store: ManifestStore, read: Callable[[dict[str, Any]], bytes | None]) -> None:
        self.store, self.read = store, read
        self.age: Callable[[dict[str, Any], timedelta], None]

    def items(self, address: dict[str, Any]) -> list[dict[str, Any]] | None:
        data = self.read(address)
        return None if data is None else load(data)


MakeStore = Callable[..., S3Manifests]


@pytest.fixture
async def make(proxy: FaultyProxy, define: Define) -> AsyncIterator[MakeStore]:
    define("lake_conn", proxy.url, config_kwargs={"retries": {"total_max_attempts": 1}})
    made: list[S3Manifests] = []

    def make(bucket: str = BUCKET, connection: str = "lake_conn", timeout: float = 30) -> S3Manifests:
        found = manifest_place(f"s3://{bucket}/state/manifests/", "s3://lake/orders/")
        assert found is not None
        place = S3Place(
            bucket=found[0],
            prefix=found[1],
            aws_conn_id=connection,
            region_name=None,
            verify=None,
            botocore_config={"retries": {"total_max_attempts": 1}},
            timeout=timeout,
            argument="manifest_uri",
        )
        made.append(S3Manifests(place, keep=KEEP))
        return made[-1]

    yield make
    for each in made:
        await each.aclose()


def on_s3(make: MakeStore, lake: Lake) -> Shelf:
    place = Shelf(make(), lambda address: stored(lake, address["uri"]))

    def age(address: dict[str, Any], by: timedelta) -> None:
        key = lake._backend.get_object(BUCKET, address["uri"].partition(f"{BUCKET}/")[2])
        assert key is not None
        key.last_modified = (datetime.now(timezone.utc) - by).replace(tzinfo=None)

    place.age = age
    return place


def in_memory() -> Shelf:
    double = InMemoryManifests(keep=KEEP)
    place = Shelf(double, double.read)

    def age(address: dict[str, Any], by: timedelta) -> None:
        double.stored[address["uri"]] = (double.stored[address["uri"]][0], double.clock.now() - by)

    place.age = age
    return place


@pytest.fixture(params=["s3", "memory"])
def place(request: pytest.FixtureRequest) -> Shelf:
    if request.param == "memory":
        return in_memory()
    return on_s3(request.getfixturevalue("make"), request.getfixturevalue("lake"))


async def test_what_is_written_is_read_at_its_address(place: Shelf) -> None:
    address = await place.store.write(ONE, ITEMS)
    assert set(address) == {"uri", "connection", "region"}
    assert address["uri"].startswith("s3://")
    assert address["uri"].endswith(f"/{ONE}.jsonl.gz")
    assert place.items(address) == ITEMS


async def test_written_again_it_is_the_same(place: Shelf) -> None:
    address = await place.store.write(ONE, ITEMS)
    before = place.read(address)
    assert await place.store.write(ONE, ITEMS) == address
    assert place.read(address) == before


async def test_what_is_stored_is_not_written_over(place: Shelf) -> None:
    address = await place.store.write(ONE, ITEMS)
    await place.store.write(ONE, ITEMS[:1])
    assert place.items(address) == ITEMS


async def test_batches_do_not_meet(place: Shelf) -> None:
    one, other = await place.store.write(ONE, ITEMS), await place.store.write(OTHER, ITEMS[:1])
    assert (place.items(one), place.items(other)) == (ITEMS, ITEMS[:1])


async def test_what_is_too_old_is_removed_and_nothing_else(place: Shelf) -> None:
    one, other = await place.store.write(ONE, ITEMS), await place.store.write(OTHER, ITEMS)
    place.age(one, KEEP + timedelta(hours=1))
    place.age(other, KEEP - timedelta(hours=1))
    await place.store.clean()
    assert (place.items(one), place.items(other)) == (None, ITEMS)
    await place.store.clean()
    assert await place.store.write(ONE, ITEMS) == one
    assert place.items(one) == ITEMS


async def test_one_that_is_needed_again_near_its_end_is_renewed(place: Shelf) -> None:
    """A watcher whose DAG was paused for weeks replays: its new event must not lose the manifest the next day."""
    address = await place.store.write(ONE, ITEMS)
    place.age(address, KEEP - timedelta(hours=1))
    await place.store.write(ONE, ITEMS)
    place.age(address, timedelta(hours=2))
    await place.store.clean()
    assert place.items(address) == ITEMS


# S3 alone.


async def test_the_object_lies_in_the_watchers_own_folder(make: MakeStore, lake: Lake) -> None:
    address = await make().write(ONE, ITEMS)
    assert address == {"uri": f"s3://{BUCKET}/{FOLDER}{ONE}.jsonl.gz", "connection": "lake_conn", "region": None}


async def test_a_renewed_manifest_is_young_by_s3s_clock(make: MakeStore, lake: Lake) -> None:
    place = on_s3(make, lake)
    address = await place.store.write(ONE, ITEMS)
    place.age(address, KEEP - timedelta(hours=1))
    await place.store.write(ONE, ITEMS)
    key = lake._backend.get_object(BUCKET, f"{FOLDER}{ONE}.jsonl.gz")
    assert key is not None
    assert datetime.now(timezone.utc).replace(tzinfo=None) - key.last_modified < timedelta(minutes=1)


async def test_cleaning_touches_no_other_object(make: MakeStore, lake: Lake) -> None:
    old = datetime(2020, 1, 1, tzinfo=timezone.utc)
    kept = [
        f"{FOLDER}notes.txt",
        f"{FOLDER}deeper/{ONE}.jsonl.gz",
        f"{FOLDER}{ONE}.jsonl.gz.bak",
        f"state/manifests/{ONE}.jsonl.gz",
        f"state/manifests/s3-lake-orders-00000000/{ONE}.jsonl.gz",
    ]
    for key in [*kept, f"{FOLDER}{ONE}.jsonl.gz"]:
        lake.put(key, at=old)
    await make().clean()
    assert sorted(lake._backend.get_bucket(BUCKET).keys) == sorted(kept)


@pytest.mark.parametrize("refusal", [error(501, "NotImplemented"), error(400, "InvalidArgument")])
async def test_a_server_without_conditional_writes_is_asked_first(
    refusal: Fault, make: MakeStore, lake: Lake, proxy: FaultyProxy
) -> None:
    place = on_s3(make, lake)

    def refuse(answer: Answer) -> Answer | None:
        lake.delete(f"{FOLDER}{ONE}.jsonl.gz")  # the proxy has let it through
        return refusal(answer)

    proxy.faults = [refuse]
    address = await place.store.write(ONE, ITEMS)
    assert place.items(address) == ITEMS
    assert len(proxy.requests) == 3
    proxy.faults = [refusal]
    await place.store.write(ONE, ITEMS)
    assert len(proxy.requests) == 5, "it is there, and not put again"


TROUBLE = [
    (error(403, "AccessDenied"), SourceDenied, rf"s3:PutObject is denied .*'lake_conn'.* arn:aws:s3:::lake/{FOLDER}\*"),
    (error(403, "InvalidAccessKeyId"), SourceDenied, "not accepted"),
    (error(404, "NoSuchBucket"), SourceMissing, "no bucket 'lake' .*Check manifest_uri"),
    (error(503, "SlowDown"), SourceUnavailable, "cannot answer now"),
    (error(409, "ConditionalRequestConflict"), SourceUnavailable, "ConditionalRequestConflict"),
]


@pytest.mark.parametrize(("fault", "kind", "text"), TROUBLE)
async def test_a_write_that_fails_says_why_and_works_once_it_is_mended(
    fault: Fault, kind: type[Exception], text: str, make: MakeStore, lake: Lake, proxy: FaultyProxy
) -> None:
    place = on_s3(make, lake)
    proxy.always = fault
    with pytest.raises(kind, match=text) as caught:
        await place.store.write(ONE, ITEMS)
    assert str(caught.value).startswith(f"s3://lake/{FOLDER}: ")
    assert caught.value.__suppress_context__
    proxy.always = None
    assert place.items(await place.store.write(ONE, ITEMS)) == ITEMS


async def test_a_write_that_hangs_is_given_up(make: MakeStore, proxy: FaultyProxy) -> None:
    proxy.always = silence
    with pytest.raises(SourceUnavailable, match=r"within 0\.5 s"):
        await make(timeout=0.5).write(ONE, ITEMS)


async def test_a_denied_removal_is_told_with_what_to_grant(make: MakeStore, lake: Lake, proxy: FaultyProxy) -> None:
    lake.put(f"{FOLDER}{ONE}.jsonl.gz", at=datetime(2020, 1, 1, tzinfo=timezone.utc))
    proxy.faults = [lambda answer: answer, error(403, "AccessDenied")]
    with pytest.raises(SourceDenied, match="s3:DeleteObject is denied"):
        await make().clean()


async def test_without_s3s_clock_nothing_is_removed(make: MakeStore, lake: Lake, proxy: FaultyProxy) -> None:
    lake.put(f"{FOLDER}{ONE}.jsonl.gz", at=datetime(2020, 1, 1, tzinfo=timezone.utc))
    proxy.always = lambda answer: answer.without("date")
    with pytest.raises(SourceUnavailable, match="Date"):
        await make().clean()
    assert lake._backend.get_object(BUCKET, f"{FOLDER}{ONE}.jsonl.gz") is not None


@pytest.mark.parametrize("status", [400, 403, 500])
async def test_no_message_repeats_a_secret(status: int, make: MakeStore, proxy: FaultyProxy) -> None:
    proxy.always = error(status, "AccessDenied", f"AKIDLAKE {SECRET}", f"<AWSAccessKeyId>{SECRET}</AWSAccessKeyId>")
    for call in (make().write(ONE, ITEMS), make().clean()):
        with pytest.raises(SourceError) as caught:
            await call
        assert SECRET not in str(caught.value)
        assert "AKIDLAKE" not in str(caught.value)


@pytest.mark.parametrize("uri", ["", "lake/x", "s3:/lake", "s3://", "s3:///x", "gs://lake/x"])
def test_no_address(uri: str) -> None:
    assert manifest_place(uri, "w") is None


def test_a_bucket_alone_is_an_address() -> None:
    for uri in ("s3://lake", "s3://lake/", "s3://lake//"):
        bucket, prefix = manifest_place(uri, "s3://lake/orders/") or ("", "")
        assert (bucket, prefix) == ("lake", "s3-lake-orders-5da3a6c4/")


# Read in a task.


async def read(address: dict[str, Any]) -> bytes | None:
    """Read as a task does, while the proxy's loop runs."""
    return await asyncio.to_thread(read_from_s3, address)


async def test_a_task_reads_it_through_the_connection(make: MakeStore) -> None:
    address = await make().write(ONE, ITEMS)
    data = await read(address)
    assert data is not None
    assert load(data) == ITEMS


async def test_a_task_is_told_that_it_is_gone(make: MakeStore) -> None:
    address = await make().write(ONE, ITEMS)
    assert await read({**address, "uri": address["uri"].replace(ONE, OTHER)}) is None


READING: list[tuple[Any, bool, str]] = [
    (error(403, "AccessDenied", SECRET), True, "s3:GetObject"),
    (error(404, "NoSuchBucket", SECRET), True, "bucket is there"),
    (error(400, "ExpiredToken", SECRET), False, "A retry"),
    (error(503, "SlowDown", SECRET), False, "A retry"),
    (reset(0), False, "A retry"),
]


@pytest.mark.parametrize(("fault", "is_final", "text"), READING)
async def test_trouble_names_the_manifest_and_the_connection(
    fault: Fault, is_final: bool, text: str, make: MakeStore, proxy: FaultyProxy
) -> None:
    address = await make().write(ONE, ITEMS)
    # An error's body has no checksum.
    proxy.always = lambda answer: fault(
        replace(answer, headers=tuple(pair for pair in answer.headers if not pair[0].startswith("x-amz-checksum")))
    )
    with pytest.raises(InboxError, match=text) as caught:
        await read(address)
    assert isinstance(caught.value, InboxRefusal) is is_final
    assert address["uri"] in str(caught.value)
    assert "TypeError" not in str(caught.value)
    assert "'lake_conn'" in str(caught.value)
    assert SECRET not in str(caught.value)
    assert caught.value.__suppress_context__


async def test_from_a_bucket_through_a_manifest_to_a_task(lake: Lake, proxy: FaultyProxy, define: Define) -> None:
    define("lake_conn", proxy.url)
    found = [f"orders/{number} +%2B\u00e9" for number in range(5)]
    for key in found:
        lake.put(key)
    trigger = S3PrefixWatermarkTrigger(
        BUCKET,
        prefix="orders/",
        start="earliest",
        max_objects_per_event=3,
        manifest_uri=f"s3://{BUCKET}/state",
        aws_conn_id="lake_conn",
        botocore_config={"user_agent_extra": "confidential"},
    )
    harness = WatcherHarness(trigger, asset="orders")
    (event,) = await harness.poll()
    assert event["manifest"] == {
        "uri": f"s3://{BUCKET}/{FOLDER.replace('state/manifests', 'state')}{event['batch_id']}.jsonl.gz",
        "connection": "lake_conn",
        "region": None,
    }
    text = json.dumps([event, harness.store.data])
    assert not [secret for secret in (SECRET, "AKIDLAKE", "confidential") if secret in text]

    def task() -> list[str]:
        with Inbox(Asset("orders")) as inbox:
            return [obj.key for obj in inbox.objects()]

    with harness.task():
        assert await asyncio.to_thread(task) == found
