"""A whole watcher on three S3 servers over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from airflow_state_watchers import S3PrefixWatermarkTrigger
from airflow_state_watchers.demo.servers import S3Server
from airflow_state_watchers.testing import WatcherHarness
from system_tests.s3_servers.conftest import Define
from system_tests.s3_servers.multipart import complete, initiate

SETTLE = 1
AGED = SETTLE + 1.1
"""Seconds after which an object is surely read: Date is cut to whole seconds."""


@pytest.fixture
async def harness(bucket: str, define: Define) -> AsyncIterator[WatcherHarness]:
    trigger = S3PrefixWatermarkTrigger(
        bucket, prefix="in/", start="earliest", settle=SETTLE, aws_conn_id=define("watch_conn")
    )
    trigger.source = source = trigger.build_source(30)
    yield WatcherHarness(trigger)
    await source.aclose()


@pytest.fixture
def poll(harness: WatcherHarness) -> Callable[[], Awaitable[list[str]]]:
    """Wait until everything is old enough, poll, and return the keys that were delivered."""

    async def poll() -> list[str]:
        await asyncio.sleep(AGED)
        return [item["key"] for event in await harness.poll() for item in event["items"]]

    return poll


async def test_each_version_once(
    server: S3Server, bucket: str, harness: WatcherHarness, poll: Callable[[], Awaitable[list[str]]]
) -> None:
    server.put_many(bucket, {"in/a": b"1", "in/b +%\u00e9": b"1", "in/gone": b"1", "out/a": b"1", "in/dir/": b""})
    server.delete(bucket, "in/gone")
    assert sorted(await poll()) == ["in/a", "in/b +%\u00e9"]
    assert await poll() == []
    server.put_many(bucket, {"in/a": b"2", "in/c": b"1"})
    assert sorted(await poll()) == ["in/a", "in/c"]
    harness.restart()
    assert await poll() == []


async def test_an_upload_that_is_completed_after_younger_objects_were_delivered(
    client: Any, server: S3Server, bucket: str, poll: Callable[[], Awaitable[list[str]]]
) -> None:
    upload = initiate(client, bucket, "in/big")
    await asyncio.sleep(1.1)
    server.put(bucket, "in/young")
    assert await poll() == ["in/young"]
    complete(client, bucket, upload)
    assert await poll() == ["in/big"]
    assert await poll() == []
