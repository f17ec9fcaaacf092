"""Objects that were uploaded in parts appear late. In real time, on LocalStack, which stamps them as AWS does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import pytest

from airflow_state_watchers import S3PrefixWatermarkTrigger
from airflow_state_watchers.demo.servers import S3Server
from airflow_state_watchers.testing import WatcherHarness
from system_tests.s3_servers.conftest import Define
from system_tests.s3_servers.multipart import abort, complete, initiate
from system_tests.s3_servers.servers import LocalStack

pytestmark = pytest.mark.parametrize("server", [LocalStack], ids=["LocalStack"], indirect=True)

SETTLE = 1
AGED = SETTLE + 1.1
"""Seconds after which an object is surely read: Date is cut to whole seconds."""
LOOKBACK = 2
OPEN = 4.0
"""Seconds for which an upload is open: so many that its stamp is out of sight afterwards."""


@dataclass
class Watched:
    """A watcher, and all keys that it has delivered so far."""

    harness: WatcherHarness
    delivered: list[str]

    async def poll(self) -> list[str]:
        keys = [item["key"] for event in await self.harness.poll() for item in event["items"]]
        self.delivered += keys
        return keys

    async def aged_poll(self) -> list[str]:
        """Poll once everything is old enough."""
        await asyncio.sleep(AGED)
        return sorted(await self.poll())

    async def quiet(self) -> None:
        """See that nothing comes any more, not in another process either."""
        for _ in range(2):
            assert await self.poll() == []
        self.harness.restart()
        assert await self.aged_poll() == []


Watch = Callable[..., Any]


@pytest.fixture
def watch(bucket: str, define: Define) -> Watch:
    @asynccontextmanager
    async def watch(**arguments: Any) -> AsyncIterator[Watched]:
        arguments = {"start": "earliest", "settle": SETTLE, "lookback": LOOKBACK, **arguments}
        trigger = S3PrefixWatermarkTrigger(bucket, prefix="in/", aws_conn_id=define("watch_conn"), **arguments)
        trigger.source = source = trigger.build_source(30)
        try:
            yield Watched(WatcherHarness(trigger), [])
        finally:
            await source.aclose()

    return watch


async def pass_by(
    server: S3Server, bucket: str, watched: Watched, *, seconds: float, objects: int, key: str
) -> list[str]:
    """Put objects and poll for so long; return the keys that were put, all of which have been delivered by then."""
    put: list[str] = []
    began = time.monotonic()
    while (passed := time.monotonic() - began) < seconds:
        due = [key.format(number) for number in range(len(put), int(objects * min(1, passed / seconds)) + 1)]
        await asyncio.to_thread(server.put_many, bucket, due, threads=4)
        put += due
        await watched.poll()
        await asyncio.sleep(0.5)
    await watched.aged_poll()
    return put


@pytest.mark.parametrize(
    ("lookback", "seconds", "objects"),
    [(3, 10, 100), pytest.param(30, 90, 1000, marks=pytest.mark.soak)],
    ids=["short", "long"],
)
async def test_an_upload_that_is_open_while_others_pass(
    lookback: float, seconds: float, objects: int, client: Any, server: S3Server, bucket: str, watch: Watch
) -> None:
    async with watch(lookback=lookback) as watched:
        upload = initiate(client, bucket, "in/a big one")
        put = await pass_by(server, bucket, watched, seconds=seconds, objects=objects, key="in/{:06}")
        assert len(put) >= objects * 0.9
        assert sorted(watched.delivered) == put
        complete(client, bucket, upload)
        assert await watched.poll() == ["in/a big one"], "by its stamp it is as old as its upload"
        await watched.quiet()
        assert len(watched.delivered) == len(put) + 1


TODAY = datetime.now(timezone.utc).strftime("%Y-%m-%d/")
LAYOUTS: dict[str, tuple[str, dict[str, Any]]] = {
    "modified": ("in/", {}),
    "key": ("in/", {"order": "key"}),
    "date_pattern": ("in/" + TODAY, {"date_pattern": "%Y-%m-%d/"}),
    "a dead partition": ("in/2001-01-01/", {"date_pattern": "%Y-%m-%d/"}),
}


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_uploads_end_in_every_way(layout: str, client: Any, server: S3Server, bucket: str, watch: Watch) -> None:
    place, arguments = LAYOUTS[layout]
    kept, given_up, over, twice = (place + name for name in ("1 kept+\u00e9%", "2 given up", "3 over", "4 twice"))
    living = place.replace("2001-01-01/", TODAY) + "9{:04}"
    server.put(bucket, over, b"old")
    async with watch(**arguments) as watched:
        assert await watched.aged_poll() == [over]
        uploads = [initiate(client, bucket, key) for key in (kept, given_up, over, twice, twice)]
        put = await pass_by(server, bucket, watched, seconds=OPEN, objects=20, key=living)
        assert sorted(watched.delivered[1:]) == put
        abort(client, bucket, uploads[1])
        again = initiate(client, bucket, given_up)
        for number in (0, 2, 3):
            complete(client, bucket, uploads[number], b"%d" % number)
        watched.harness.restart()
        assert sorted(await watched.poll()) == [kept, over, twice]
        complete(client, bucket, uploads[4], b"last")
        assert await watched.poll() == [twice]
        put = await pass_by(server, bucket, watched, seconds=OPEN, objects=20, key=living + "-later")
        complete(client, bucket, again)
        assert await watched.poll() == [given_up]
        await watched.quiet()


async def test_uploads_that_were_open_before_the_watcher_began(
    client: Any, server: S3Server, bucket: str, watch: Watch
) -> None:
    server.put(bucket, "in/old")
    upload, never = initiate(client, bucket, "in/new"), initiate(client, bucket, "in/never")
    await asyncio.sleep(AGED)
    async with watch(start="latest") as watched:
        assert await watched.poll() == []
        await pass_by(server, bucket, watched, seconds=OPEN, objects=10, key="in/{:04}")
        complete(client, bucket, upload)
        abort(client, bucket, never)
        assert await watched.poll() == ["in/new"]
        await watched.quiet()
        assert "in/old" not in watched.delivered


async def test_what_is_not_looked_for_is_not_found(client: Any, server: S3Server, bucket: str, watch: Watch) -> None:
    """That the others are found is not the work of lookback."""
    async with watch(upload_ttl=0) as watched:
        upload = initiate(client, bucket, "in/big")
        await pass_by(server, bucket, watched, seconds=OPEN, objects=10, key="in/{:04}")
        complete(client, bucket, upload)
        assert await watched.aged_poll() == []
